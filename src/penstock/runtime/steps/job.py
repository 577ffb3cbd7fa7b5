"""The one Spark job of a step: rows are laid out and exchanged, workers run their tasks, and their reports come back.

A job commits nothing. What its workers wrote exists once a manifest names it, so that a job may fail or be repeated at any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.columns.parcels import pack
from penstock.model.time import NEVER
from penstock.planner.network import Network
from penstock.runtime.arrivals import derived
from penstock.runtime.arrivals.files import MOST_TASKS, batch_files, is_scannable
from penstock.runtime.arrivals.ingest import Layout, project
from penstock.runtime.arrivals.punctuation import closed_before
from penstock.runtime.tasks.envelope import ACCOUNT, PARCEL_SCHEMA, ROWS, parcel
from penstock.runtime.tasks.finish import finish_projection, finish_task
from penstock.runtime.tasks.handover import finished_joins, handover_schema
from penstock.runtime.tasks.task import Plan, Task
from penstock.runtime.tasks.types import arrow_types, handover_types
from penstock.runtime.tasks.worker import run_task
from penstock.step.mapper import Mapper, truth_words

# With so many rows in a step, sending all of them to every task costs less than a stage of mappers between the source and the tasks.
FEW_ROWS = 1 << 14
# With so few, a part of the source that has to wait for a free core costs more than cores that have unequal parts.
MANY_ROWS = 1 << 20

Reports = list[dict[str, Any]]  # of the tasks, see `task.Report`


@dataclass(frozen=True)
class Job:
    """The jobs of one network. `layout` is that of the streams which Spark reads, `whole` has the derived ones too; `plan` is at the workers."""

    spark: SparkSession
    network: Network
    layout: Layout
    whole: Layout
    plan: Broadcast[Plan]
    tasks: int

    def nothing(self) -> DataFrame:
        """For a job without rows to receive: every task runs once."""
        return self.spark.range(0, self.tasks, 1, self.tasks)

    def files(self) -> dict[str, tuple[str, ...]] | None:
        """What the workers shall read themselves of the batch, if all its streams are plain files; None if its rows have to come from Spark."""
        told = self.layout.marked or self.layout.placed  # progress that rows tell is read in Spark
        if told or self.tasks > MOST_TASKS or not is_scannable(self.network, self.layout.order):
            return None
        return batch_files(self.spark, self.layout.order)

    def widened(self, batch: DataFrame) -> DataFrame:
        """A batch with room for what only derived streams have."""
        return derived.widened(batch, self.layout, self.whole)

    def mapped(self, rows: DataFrame, task: Task, expected: int | None = None) -> DataFrame:
        """The rows as the tasks receive them; so many are expected, as far as is known.

        One task maps for itself. So do others where rows are few: each gets them all, which is cheaper than a stage of mappers.
        """
        values = project(rows, self.network, self.whole, told_before(self.network, task))
        if self.tasks == 1:
            return values.coalesce(1)
        if expected is not None and expected <= FEW_ROWS and self.tasks <= MOST_TASKS:
            every = ", ".join(map(str, range(self.tasks)))
            return values.selectExpr(f"explode(array({every})) AS _to", "*").repartitionById(self.tasks, F.col("_to"))
        if expected is None or expected <= MANY_ROWS:
            values = values.coalesce(self.spark.sparkContext.defaultParallelism)
        plan, asked = self.plan, task.asked  # the workers get what this function names, and nothing else of the job

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            known = plan.value
            mapper = Mapper(known.network, known.names, known.truths, asked)
            for batch in batches:
                for to, own in mapper.take(batch):
                    for body in pack(own):
                        yield parcel(to, ROWS, body)
            yield parcel(0, ACCOUNT, mapper.told().encode())

        return values.mapInArrow(work, PARCEL_SCHEMA).repartitionById(self.tasks, F.col("_to"))

    def run(self, rows: DataFrame, task: Task) -> Reports:
        """Run the job; what its tasks report."""
        plan = self.plan  # the workers get what these functions name, and nothing else of the job

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
            rows = sent.repartitionById(self.tasks, F.col("_to"))
        last = stage(task.routes.exchanges)
        if finished_joins(self.network):
            handed = rows.mapInArrow(last, handover_schema(self.network))
            reported = finish_projection(handed, self.network).mapInArrow(finish, "report binary")
        else:
            reported = rows.mapInArrow(last, "report binary")
        return [json.loads(bytes(row[0])) for row in reported.collect()]


def told_before(network: Network, task: Task) -> dict[str, int]:
    """By stream the time from which on no row of it is late, and none is before every ORIGIN."""
    return {
        name: max(
            task.progress.get(name, NEVER), network.origins.get(name, NEVER), closed_before(task.groups.get(name, ()))
        )
        for name in network.streams
    }


def make_job(spark: SparkSession, network: Network, layout: Layout, tasks: int) -> Job:
    """The jobs of a network, whose plan is sent to the workers now."""
    whole = derived.lay_out_all(layout, network)
    plan = Plan(
        network,
        {s: dict(whole.slots[s]) for s in whole.order},
        truth_words(network),
        arrow_types(spark, network),
        handover_types(spark, network),
    )
    return Job(spark, network, layout, whole, spark.sparkContext.broadcast(plan), tasks)
