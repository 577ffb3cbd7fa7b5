"""How the rows of a batch come to the tasks: from mappers, or just as Spark reads them, or read by the workers.

The ways give the same; which one is cheaper depends on how many rows come. A step whose workers find files that Spark has to read is
repeated by way of Spark; what the first attempt wrote has no name in any manifest.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from penstock.runtime.steps.job import Job, Reports
from penstock.runtime.tasks.task import Task


@dataclass
class Intake:
    """What steps have shown of the rows that come. `plain`: all streams are Parquet files just as they are; `rows`: how many the last step had."""

    plain: bool = False
    rows: int | None = None

    def run(self, job: Job, batch: DataFrame, added: DataFrame | None, task: Task) -> tuple[Reports, float]:
        """The reports of a job over a batch and the rows `added` to it, and the seconds it took to plan it."""
        planning = 0.0
        while True:
            started = time.perf_counter()
            files = job.files() if self.plain and added is None else None
            if files is None:
                whole = job.widened(batch)
                rows = job.mapped(whole if added is None else whole.unionByName(added), task, self.rows)
            else:
                rows = batch.sparkSession.range(0, job.tasks, 1, job.tasks)
            planning += time.perf_counter() - started
            reports = job.run(rows, replace(task, files=files))
            if not any(report["unreadable"] for report in reports):
                break
            self.plain = False
        self.rows = sum(counts["rows"] for report in reports for counts in report["streams"].values())
        return reports, planning
