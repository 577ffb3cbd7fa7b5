"""Spark's streaming query under a run: it is started and stopped between two steps, throttled, and looked at.

Its callback brings each batch to the run's queue and waits; the step runs on the thread of the run (decision 0038).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.catalog.catalog import Catalog
from penstock.errors import SessionError
from penstock.planner.admission import Admission
from penstock.planner.network import Network
from penstock.spark.executor import SparkExecutor
from penstock.spark.files import sources_of
from penstock.spark.inputs import Inputs
from penstock.spark.job_marks import JobMarks
from penstock.spark.offset_log import CHECKPOINT, OffsetLog
from penstock.spark.pruned import missing
from penstock.spark.query import (
    OnBatch,
    abandon,
    make_throttle,
    named_frames,
    query_failure,
    query_writer,
    starting,
    trigger_seconds,
    unread,
)
from penstock.spark.schedule import Schedule
from penstock.spark.session import anew, gone
from penstock.spark.sources import source_evolution
from penstock.spark.throttle import Throttle
from penstock.spark.warm import Warming
from penstock.step.happened import BatchArrived
from penstock.step.inbox import Inbox
from penstock.step.layout import Layout


class SparkBatches:
    """The streaming query of one run, see `step.ports.Batches`. `name` is that of Spark's query.

    `warm` starts the workers of tasks, which the first batch waits for.
    """

    query: StreamingQuery

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        inputs: Inputs,
        executor: SparkExecutor,
        root: str,
        log: OffsetLog,
        inbox: Inbox,
        schedule: Schedule,
        name: Callable[[], str],
        warm: Callable[[], Warming],
        *,
        only_present: bool,
        admission: Admission | None = None,
    ) -> None:
        self.spark, self.catalog, self.inputs, self.executor = spark, catalog, inputs, executor
        self.root, self.log, self.schedule, self.only_present = root, log, schedule, only_present
        self._name, self._warm, self._marks = name, warm, JobMarks(spark.sparkContext)
        self.warming: Warming | None = None
        self._on_batch = OnBatch(inbox)
        self._read: Mapping[str, DataFrame] = dict(inputs.frames)
        self.throttle = Throttle(spark, ())
        self._began, self.admission = 0.0, admission

    # -- its life -----------------------------------------------------------------------------------------------------

    def start(self, layout: Layout) -> None:
        if self.warming is None:
            self.warming = self._warm()
        frames, name = dict(self.inputs.frames), self._name()
        self._read = frames
        self.executor.intake.sources = sources_of(frames, layout)
        self.throttle = throttle = make_throttle(self.spark, frames, layout, self.admission)
        named = named_frames(frames, layout, self.catalog.registry.streams)
        with source_evolution(self.spark):
            every = None if self.only_present else self.schedule.trigger
            writer = query_writer(named, self.catalog.streams, layout, self.log.location, self._on_batch, every, name)
            self.log.store.make(CHECKPOINT)  # Spark would create it readable for everybody
            self.schedule.begin(0.0 if every is None else trigger_seconds(self.spark, every))
            with starting(self.root):
                self.query = throttle.query = self.executor.intake.query = writer.start()
        self._marks.follow(self.query, name)

    def stop(self) -> None:
        self.query.stop()

    @property
    def active(self) -> bool:
        return bool(self.query.isActive)

    def failure(self) -> BaseException | None:
        exception = self.query.exception()
        return None if exception is None else query_failure(exception, self.root)

    def gone(self, step: int) -> SessionError | None:
        """Spark's query would keep requesting batches that nobody can run."""
        why = gone(self.spark)
        if why is None:
            return None
        after = f"after step {step}" if step >= 0 else "before its first step"
        return SessionError(
            f"the run on {self.root} ended {after}, since the Spark session under it is gone: {why}; all that "
            f"was committed is there, and goes on: {anew(self.spark)}"
        )

    def abandon(self) -> None:
        abandon(self.query)

    # -- the streams that it reads ------------------------------------------------------------------------------------

    def lacking(self, before: Network, after: Network, layout: Layout) -> Mapping[str, Sequence[str]] | None:
        """Other streams, columns that were not read so far, or the sequence for a delay in rows."""
        frames, read = self.inputs.frames, self._read
        same = frames.keys() == read.keys() and all(frames[name] is read[name] for name in frames)
        columns = missing(after, layout)
        if same and not columns:
            streams = [(before.streams[name], after.streams[name]) for name in layout.order]
            same = all((old.delay_rows is None) == (new.delay_rows is None) for old, new in streams)
        return None if same and not columns else columns

    def revert(self) -> None:
        self.inputs.frames = dict(self._read)

    @property
    def held(self) -> frozenset[str]:
        return self.throttle.held

    @property
    def admitted(self) -> Mapping[str, str | None]:
        return self.throttle.admitted

    def hold(self, streams: frozenset[str]) -> None:
        self.throttle.hold(streams)

    def unread(self) -> bool:
        return unread(self.query)

    def looked(self) -> float:
        """Input since Spark's last poll is not read yet, whatever it reports."""
        return time.time() - self.schedule.between_looks

    # -- steps over its batches ---------------------------------------------------------------------------------------

    def begin(self, batch: BatchArrived) -> None:
        assert self.warming is not None, "batches come after the start"
        self.warming.wait()
        self._began = time.monotonic()
        self._marks.enter(batch.number)

    def turn(self, batch: BatchArrived, rows: int) -> float:
        done = time.time()
        if self.admission is not None:
            self.admission.observe(rows, time.monotonic() - self._began)
        self.throttle.admit()
        pause = self.schedule.pause(self._began, time.monotonic() - self._began, rows)
        self.schedule.turned(self.log.planned_at(batch.number), done, pause)
        return pause

    def leave(self) -> None:
        self._marks.leave()
