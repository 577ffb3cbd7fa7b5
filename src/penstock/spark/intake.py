"""How the rows of a step come to the tasks: from mappers, directly from Spark, or as pieces that mappers read.

All ways give the same rows; the number of rows decides which is cheaper. A step whose mappers find pieces that Spark
must read is repeated through Spark; no manifest names what the first attempt wrote.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.planner.ways import Way
from penstock.spark.files import Source, read_apart
from penstock.spark.job import Job
from penstock.spark.taken import frames_of
from penstock.step.pieces import Piece, is_scannable
from penstock.step.taken import Taken
from penstock.step.task import Reports, Task


@dataclass
class Intake:
    """What steps have shown about the input. `left`: streams whose pieces Spark must read; `rows` of the last step.

    `query` is the one whose batches come.
    """

    query: StreamingQuery | None = None
    sources: tuple[Source, ...] = ()
    left: set[str] = field(default_factory=set)
    rows: dict[str, int] | None = None

    def run(
        self, job: Job, task: Task, session: SparkSession, batch: DataFrame | None, fresh: Sequence[Taken]
    ) -> tuple[Reports, float]:
        """The reports of a job over a batch and the derived streams' rows, and the seconds to plan it."""
        planning = 0.0
        while True:
            started = time.perf_counter()
            rows, pieces, expected = self._taken(job, session, batch, fresh)
            sent, asked = job.sent(session, rows, pieces, task, expected)
            planning += time.perf_counter() - started
            reports = job.run(sent, asked)
            unreadable = {stream for report in reports for stream in report.unreadable}
            if not unreadable:
                break
            self.left |= unreadable
        if batch is not None:
            self.rows = dict.fromkeys(job.layout.order, 0)
            for report in reports:
                for stream, counts in report.counters.streams.items():
                    self.rows[stream] = self.rows.get(stream, 0) + counts.rows
        return reports, planning

    def _taken(
        self, job: Job, session: SparkSession, batch: DataFrame | None, fresh: Sequence[Taken]
    ) -> tuple[DataFrame | None, Sequence[Piece], int | None]:
        """Rows from Spark, if there are any, pieces, and how many rows come from Spark, if known."""
        frames, pieces, expected = list[DataFrame](), list[Piece](), 0
        known = True
        if batch is not None:
            apart = [source for source in self.sources if self._is_apart(job, source)]
            assert self.query is not None, "a batch comes from a query"
            found, rest = read_apart(self.query, batch, self.sources, apart)
            pieces += found
            if rest is not None:
                frames.append(job.widened(rest))
                read = {name for source in apart for name in source.streams} if found else set()
                known = self.rows is not None
                expected = sum((self.rows or {}).get(name, 0) for name in job.layout.order if name not in read)
        for taken in fresh:
            own = None if taken.name in self.left else taken.pieces(job.network)
            pieces += own or ()
            if own is None:
                frames += frames_of(taken, session, job.whole)
                expected += taken.count
        return reduce(DataFrame.unionByName, frames) if frames else None, pieces, expected if known else None

    def way(self, job: Job, tasks: int) -> Way:
        """How the rows of the last step came from sources, for EXPLAIN."""
        apart = {name for source in self.sources if self._is_apart(job, source) for name in source.streams}
        return Way(tasks, self.rows and {name: self.rows[name] for name in job.layout.order}, apart)

    def _is_apart(self, job: Job, source: Source) -> bool:
        """Whether mappers may read a source themselves."""
        left = source.selection is None or not self.left.isdisjoint(source.streams)
        return not left and is_scannable(job.network, source.streams)
