"""The one Spark job of a step: rows are laid out and exchanged, workers run their tasks, and their reports come back.

A job commits nothing. What its workers wrote exists once a manifest names it, so a job may fail or be repeated any
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.model.time import NEVER
from penstock.planner.network import Network
from penstock.planner.ways import FEW_ROWS, MOST_TASKS
from penstock.spark.finish import finish_projection
from penstock.spark.ingest import project, widened
from penstock.spark.punctuation import closed_before
from penstock.spark.types import arrow_types, handover_types, listed_types
from penstock.step.envelope import PARCEL_SCHEMA
from penstock.step.finish import finish_task
from penstock.step.handover import finished_joins, handover_schema
from penstock.step.layout import Layout, lay_out_all
from penstock.step.mapper import truth_words
from penstock.step.pieces import Piece, shared_out
from penstock.step.report import Report
from penstock.step.run_mapper import run_mapper
from penstock.step.task import Plan, Reports, Task
from penstock.step.worker import run_task

# With so few, a part of the source that must wait for a free core costs more than cores with unequal parts.
MANY_ROWS = 1 << 20
NO_STREAM = -1


@dataclass(frozen=True)
class Job:
    """The jobs of one network. `layout`: streams that Spark reads; `whole`: derived too; `plan` is at the workers."""

    spark: SparkSession
    network: Network
    layout: Layout
    whole: Layout
    plan: Broadcast[Plan]

    def nothing(self, session: SparkSession, task: Task) -> DataFrame:
        """The input of a job without rows: every task runs once."""
        tasks = task.buckets.tasks
        return session.range(0, tasks, 1, tasks)

    def widened(self, batch: DataFrame) -> DataFrame:
        """A batch with the columns of derived streams."""
        return widened(batch, self.layout, self.whole)

    def sent(
        self, session: SparkSession, rows: DataFrame | None, pieces: Sequence[Piece], task: Task, expected: int | None
    ) -> tuple[DataFrame, Task]:
        """What tasks receive of `rows` and of pieces, and the task with the pieces that each task reads itself.

        A single task maps for itself. So do a few tasks if there are few rows, and read all pieces whatever their
        number: that is cheaper than a stage of mappers and an exchange.
        """
        tasks = task.buckets.tasks
        few = tasks <= MOST_TASKS
        if few:
            task, pieces = replace(task, pieces=tuple(pieces)), ()
        if rows is None:
            return self._mapped(session, None, pieces, task, 0) if pieces else self.nothing(session, task), task
        values = project(rows, self.network, self.whole, told_before(self.network, task))
        if tasks == 1:
            return values.coalesce(1), task
        if few and expected is not None and expected <= FEW_ROWS:
            every = ", ".join(map(str, range(tasks)))
            values = values.selectExpr(f"explode(array({every})) AS _to", "*")
            return values.repartitionById(tasks, F.col("_to")), task
        return self._mapped(session, values, pieces, task, expected), task

    def _mapped(
        self,
        session: SparkSession,
        values: DataFrame | None,
        pieces: Sequence[Piece],
        task: Task,
        expected: int | None,
    ) -> DataFrame:
        """Rows and pieces as mappers send them to the tasks."""
        cores = session.sparkContext.defaultParallelism
        if values is not None and (expected is None or expected <= MANY_ROWS):
            values = values.coalesce(cores)
        shares = shared_out(pieces, cores)
        if pieces:
            numbers = session.range(0, cores, 1, cores).selectExpr(f"{NO_STREAM} AS _stream", "id AS _ts")
            values = numbers if values is None else values.unionByName(numbers, allowMissingColumns=True)
        assert values is not None
        plan, asked = self.plan, task.asked  # workers get what this function names, and nothing else of the job

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from run_mapper(
                ((batch, [p for n in _numbers_in(batch) for p in shares[n]]) for batch in batches), plan.value, asked
            )

        return values.mapInArrow(work, PARCEL_SCHEMA).repartitionById(task.buckets.tasks, F.col("_to"))

    def run(self, rows: DataFrame, task: Task) -> Reports:
        """Run the job; returns the reports of its tasks."""
        plan = self.plan  # workers get what these functions name, and nothing else of the job

        def stage(number: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
            def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                from pyspark import TaskContext  # noqa: PLC0415  (runs in the worker)

                context = TaskContext.get()
                yield from run_task(batches, plan.value, task, context.partitionId() if context else 0, number)

            return work

        def finish(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from finish_task(batches, plan.value, task)

        for number in range(task.routes.exchanges):
            sent = rows.mapInArrow(stage(number), PARCEL_SCHEMA)
            rows = sent.repartitionById(task.buckets.tasks, F.col("_to"))
        last = stage(task.routes.exchanges)
        if finished_joins(self.network):
            handed = rows.mapInArrow(last, handover_schema(self.network))
            reported = finish_projection(handed, self.network).mapInArrow(finish, "report binary")
        else:
            reported = rows.mapInArrow(last, "report binary")
        return [Report.decode(row[0]) for row in reported.collect()]


def _numbers_in(batch: pa.RecordBatch) -> list[int]:
    """The numbers of shares of pieces that a mapper gets with or instead of rows."""
    numbered = pc.equal(batch.column("_stream"), NO_STREAM)
    return [int(number) for number in batch.column("_ts").filter(numbered).to_pylist()]


def told_before(network: Network, task: Task) -> dict[str, int]:
    """By stream the time from which no row of it is late or before every ORIGIN."""
    return {
        name: max(
            task.progress.get(name, NEVER), network.origins.get(name, NEVER), closed_before(task.groups.get(name, ()))
        )
        for name in network.streams
    }


def make_job(spark: SparkSession, network: Network, layout: Layout) -> Job:
    """The jobs of a network; its plan is sent to the workers now."""
    whole = lay_out_all(layout, network)
    plan = Plan(
        network,
        {s: dict(whole.slots[s]) for s in whole.order},
        truth_words(network),
        arrow_types(spark, network),
        handover_types(spark, network),
        listed_types(spark, network),
    )
    return Job(spark, network, layout, whole, spark.sparkContext.broadcast(plan))
