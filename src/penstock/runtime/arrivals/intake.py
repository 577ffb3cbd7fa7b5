"""How the rows of a batch come to the tasks: through Spark's exchange, with the text of late and bad rows or without, or read by the workers.

The cheaper ways are tried first. A step whose tasks report that they need more is repeated the dearer way, and so are those after it for a
while; the files of the first attempt have no name in any manifest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from penstock.runtime.steps.job import Job, Reports
from penstock.runtime.tasks.task import Task
from penstock.state.manifest import Patterns

SIDES_FOR = 256  # steps for which late and bad rows travel as text after the last one


@dataclass
class Intake:
    """What steps have shown of the rows that come. `sides`: steps for which late and bad rows still travel as text; `plain`: all streams are Parquet files just as they are."""

    sides: int = 0
    plain: bool = False

    def run(
        self, job: Job, batch: DataFrame, added: DataFrame | None, task: Task, closed: Mapping[str, Patterns]
    ) -> tuple[Reports, float]:
        """The reports of a job over a batch and the rows `added` to it, and the seconds it took to plan it; `closed` are the punctuations of groups.

        Whole rows as text, for the few that are late or bad, make every row dearer: they travel only once some were seen.
        """
        projecting = 0.0
        while True:
            sides, started = self.sides > 0, time.perf_counter()
            files = job.files() if self.plain and not sides and added is None else None
            if files is None:
                whole = job.widened(batch)
                rows = job.projected(
                    whole if added is None else whole.unionByName(added), task, sides=sides, closed=closed
                )
            else:
                rows = batch.sparkSession.range(0, job.tasks, 1, job.tasks)
            projecting += time.perf_counter() - started
            reports = job.run(rows, replace(task, files=files))
            if any(report["unreadable"] for report in reports):
                self.plain = False
            elif any(report["wants_sides"] for report in reports):
                self.sides = SIDES_FOR
            else:
                break
        put_aside = any(counts["late"] or counts["bad"] for r in reports for counts in r["streams"].values())
        self.sides = SIDES_FOR if put_aside and sides else max(0, self.sides - 1)
        return reports, projecting
