"""Spark runs the mappers and workers of steps: the executor of engines.

It has the Spark side of a running engine: the network's job, the sessions of steps, and how rows come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from penstock.model.memory import Limits
from penstock.planner.network import Network
from penstock.planner.ways import Way
from penstock.spark.failure import failing_as_step
from penstock.spark.intake import Intake
from penstock.spark.job import Job, make_job
from penstock.spark.step_sessions import LARGE_VALUES, StepSessions, batches_of
from penstock.step.layout import Layout
from penstock.step.report import summed
from penstock.step.taken import Taken
from penstock.step.task import Reports, Task

MOST_SENT = 64 << 20  # bytes of parcels per task beyond which the next step's Arrow batches are bounded in bytes


class SparkExecutor:
    """The executor of one run."""

    def __init__(self, spark: SparkSession, limits: Limits | None = None) -> None:
        self.spark = spark
        self._large = LARGE_VALUES if limits is None else batches_of(limits.parcel)
        self._limited = limits is not None
        self.intake = Intake()
        self.sessions = StepSessions(spark)
        self._job: Job | None = None
        self._settings: Mapping[str, str] = {}
        self._sends_much = True  # as seen in the last batch, or unknown

    @property
    def job(self) -> Job:
        assert self._job is not None, "a network is adopted before anything runs"
        return self._job

    def adopt(self, network: Network, layout: Layout, settings: Mapping[str, str]) -> None:
        """Send the network's plan to the workers."""
        self._settings = {**settings, **(self._large if network.grows or self._limited else {})}
        self.sessions.forget()
        before, self._job = self._job, make_job(self.spark, network, layout)
        if before is not None:
            before.plan.destroy()  # between two steps no job reads it, and its file on the driver would remain

    def run(self, task: Task, batch: DataFrame | None, fresh: Sequence[Taken]) -> tuple[Reports, float]:
        """One job over a batch in the session of Spark's query, or without one in our own session."""
        with failing_as_step(task.step):
            session = self.own_session() if batch is None else self._prepared(batch)
            reports, planning = self.intake.run(self.job, task, session, batch, fresh)
        if batch is not None:
            self._sends_much = summed(reports).engine.sent_bytes > MOST_SENT * task.buckets.tasks
        return reports, planning

    def take_over(self, task: Task) -> Reports:
        with failing_as_step(task.step):
            return self.job.run(self.job.nothing(self.own_session(), task), task)

    def own_session(self) -> SparkSession:
        """A session like that of a batch, for steps that have none."""
        return self.sessions.own(self._settings)

    def _prepared(self, batch: DataFrame) -> SparkSession:
        """The session of a batch, set up for the step."""
        session = batch.sparkSession
        self.sessions.prepare(session, {**self._settings, **(self._large if self._sends_much else {})})
        return session

    def way(self, tasks: int) -> Way:
        """How the rows of the last step came from sources, for EXPLAIN."""
        return self.intake.way(self.job, tasks)
