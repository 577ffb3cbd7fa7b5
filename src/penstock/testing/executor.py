"""Mappers and workers of a step in one process: production code, with lists for the exchange.

As on a cluster any part may be retried, even after it has written files, and rows and parcels may come in any order: a
seed decides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

import pyarrow as pa

from penstock.columns.types import arrow_type
from penstock.planner.network import Network
from penstock.reference import Row
from penstock.state.buckets import BucketMap, Split
from penstock.step.layout import Layout, lay_out_all
from penstock.step.mapper import truth_words
from penstock.step.pieces import Piece, shared_out
from penstock.step.report import Report
from penstock.step.run_mapper import run_mapper
from penstock.step.taken import Taken
from penstock.step.task import Plan, Reports, Task
from penstock.step.worker import run_task
from penstock.testing.batches import check_computable, no_rows, tagged
from penstock.testing.derived import pieces_of

Work = Callable[[], Iterator[pa.RecordBatch]]
Parcels = list[pa.RecordBatch]
Batch = Mapping[str, Sequence[Row]]  # rows by stream


@dataclass(frozen=True)
class Manner:
    """How a step is executed, which must not affect its answer: with `mappers`, or none: each task takes all rows.

    `retried` is the share of mappers and workers that are retried, `shuffled` whether rows and parcels come in any
    order, also another one in each task. With `maps` each step gets a map of buckets at random, with split buckets.
    """

    mappers: int = 2
    retried: float = 0.0
    shuffled: bool = False
    maps: bool = False


@dataclass
class InProcess:
    """Runs the tasks of steps, see `step.ports.Executor`. A batch is rows by stream, with the reference's times."""

    manner: Manner = field(default_factory=Manner)
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    def adopt(self, network: Network, layout: Layout, settings: Mapping[str, str]) -> None:  # noqa: ARG002  (kernels know one meaning)
        check_computable(network)
        self.layout = lay_out_all(layout, network)
        self.plan = plan_of(network, self.layout)

    def run(self, task: Task, batch: Batch | None, fresh: Sequence[Taken]) -> tuple[Reports, float]:
        pieces = [piece for taken in fresh for piece in pieces_of(taken, self.plan.network)]
        return self._run(self._spread(task), batch or {}, pieces), 0.0

    def take_over(self, task: Task) -> Reports:
        spread = self._spread(task)
        return self._run(replace(spread, buckets=spread.buckets.unsplit), {}, [])

    def _spread(self, task: Task) -> Task:
        """The task with a map of its own, if each step has one."""
        if not self.manner.maps:
            return task
        return replace(task, buckets=random_map(self.chance, task.buckets.tasks, task.buckets.buckets))

    def _run(self, task: Task, rows: Batch, pieces: Sequence[Piece]) -> Reports:
        tasks = task.buckets.tasks
        batches = self._arriving(rows)
        if self.manner.mappers and tasks > 1 and (batches or pieces):
            sent = self._mapped(task, batches, pieces)
        else:
            task = replace(task, pieces=tuple(pieces))
            sent = [batches, *(self._arriving(rows) for _ in range(1, tasks))]
        for stage in range(task.routes.exchanges):
            sent = self._exchanged(
                [p for number in range(tasks) for p in self._worked(sent, task, number, stage)], tasks
            )
        last = [b for number in range(tasks) for b in self._worked(sent, task, number, task.routes.exchanges)]
        return [Report.decode(text) for batch in last for text in batch.column("report").to_pylist()]

    def _arriving(self, rows: Batch) -> Parcels:
        """The rows from a source: stream after stream, or in any order in batches of any size."""
        tables = [tagged(self.plan.network.streams[name], own, self.layout) for name, own in rows.items() if own]
        if not self.manner.shuffled or not tables:
            return [batch for table in tables for batch in table.to_batches()]
        whole = pa.concat_tables(tables, promote_options="default")
        order = self.chance.sample(range(len(whole)), len(whole))
        (batch,) = whole.take(pa.array(order)).combine_chunks().to_batches()
        cuts = sorted({0, len(batch), *(self.chance.randrange(len(batch)) for _ in range(2))})
        return [batch.slice(low, high - low) for low, high in pairwise(cuts)]

    def _mapped(self, task: Task, batches: Parcels, pieces: Sequence[Piece]) -> list[Parcels]:
        parcels: Parcels = []
        mappers = self.manner.mappers
        for number, own in enumerate(shared_out(pieces, mappers)):
            given = [*((batch, ()) for batch in batches[number::mappers]), (no_rows(), own)]
            parcels += self._tried(lambda given=given: run_mapper(given, self.plan, task.asked))  # type: ignore[misc]
        return self._exchanged(parcels, task.buckets.tasks)

    def _worked(self, sent: Sequence[Parcels], task: Task, number: int, stage: int) -> Parcels:
        return self._tried(lambda: run_task(iter(sent[number]), self.plan, task, number, stage))

    def _tried(self, work: Work) -> Parcels:
        """The output of a part of the step. Either of two attempts may count; the other may leave files."""
        again = self.chance.random() < self.manner.retried
        if again and self.chance.random() < 0.5:
            found = list(work())
            list(work())
            return found
        if again:
            list(islice(work(), self.chance.randrange(4)))
        return list(work())

    def _exchanged(self, parcels: Parcels, tasks: int) -> list[Parcels]:
        if self.manner.shuffled:
            self.chance.shuffle(parcels)
        sent: list[Parcels] = [[] for _ in range(tasks)]
        for parcel in parcels:
            sent[parcel.column("_to")[0].as_py()].append(parcel)
        return sent


def random_map(chance: random.Random, tasks: int, buckets: int) -> BucketMap:
    """Any map of buckets: tasks with many buckets and with none, and often split buckets."""
    starts = (0, *sorted(chance.randrange(buckets) for _ in range(tasks - 1)))
    hot = chance.sample(range(buckets), chance.choice((0, 1, min(buckets, 3), buckets // 2)))
    turns = (tuple(chance.randrange(tasks) for _ in range(chance.choice((1, 2, 5)))) for _ in hot)
    return BucketMap(starts, buckets, tuple(map(Split, hot, turns)))


def plan_of(network: Network, layout: Layout) -> Plan:
    """What workers know of a network; the layout includes its derived streams."""
    types = {s.name: {c.name: arrow_type(c.type) for c in s.columns} for s in network.streams.values()}
    listed = {
        q.id: pa.schema([(name, arrow_type(kind)) for name, kind in q.listed]) for q in network.queries if q.listed
    }
    return Plan(network, {s: dict(layout.slots[s]) for s in layout.order}, truth_words(network), types, listed=listed)
