"""The rows that a task receives in a step, as deltas of its state tables.

Rows come in parcels from mappers, or directly from a source, or in pieces that every task reads: then the task is their
mapper too, for its own share of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.columns.hash import bytes_of
from penstock.columns.parcels import Rows as Received
from penstock.columns.parcels import unpack
from penstock.kernels.delta import Delta, count_keys
from penstock.planner.counters import TableCounters
from penstock.planner.state_table import StateTable
from penstock.state.bucket_counters import BucketTally
from penstock.state.run import Rows
from penstock.step.deltas import Deltas, Fresh
from penstock.step.envelope import ACCOUNT, PARTIALS
from penstock.step.folding import unpack_partials
from penstock.step.mapper import Mapper, is_sampled
from penstock.step.report import Report, Watch
from penstock.step.scratch import Bodies, Scratch
from penstock.step.task import Plan, Task


@dataclass
class Receiver:
    """One task's share of a step's rows."""

    plan: Plan
    task: Task
    report: Report
    tally: BucketTally = field(default_factory=BucketTally)
    partials: dict[int, dict[int, list[pa.Table]]] = field(default_factory=dict)  # by state table and pane set
    scratch: Scratch = field(default_factory=Scratch)
    _partials: Bodies = field(init=False)  # until all rows are there

    def __post_init__(self) -> None:
        limits = self.task.limits
        self._partials = Bodies(self.scratch, sys.maxsize if limits is None else limits.piece)

    def deltas(self, batches: Iterator[pa.RecordBatch], watch: Watch) -> Fresh:
        """The rows of this step by table."""
        made = Deltas(self.plan.network, self.plan.truths, self.task.limits, self.scratch)
        rows = self.rows(batches)
        while (parcel := next(rows, None)) is not None:
            watch.lap("receive")
            made.take(parcel)
            del parcel  # before the next one comes
            watch.lap("prepare")
        watch.lap("receive")
        if self.report.unreadable:
            return Fresh()
        fresh = made.whole()
        for index, deltas in fresh.stored.items():
            self._count(self.plan.network.tables[index], deltas)
        self.report.counters.engine.pieces += made.pieces
        watch.lap("prepare")
        return fresh

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Received]:
        """The rows of this step that the task needs, as they arrive; without a reference to processed ones."""
        plan = self.plan
        mapper = Mapper(plan.network, plan.names, plan.truths, self.task.asked, self.report.partition, plan.listed)
        # Read to the end in any case: Spark waits for it. A tick has no rows of streams.
        for batch in batches:
            if "_kind" in batch.schema.names:
                yield from self._unpacked(batch)
            elif "_stream" in batch.schema.names:
                yield from _held_by_nobody(mapper.take(batch))
            del batch
        for piece in self.task.pieces:
            yield from _held_by_nobody(mapper.read(piece, plan.types))
        for body in self._partials.all():
            came = unpack_partials(body)
            self.tally.add_sorted("rows", came.partials.column("_key").to_numpy())
            self.partials.setdefault(came.table, {}).setdefault(came.pane_set, []).append(came.partials)
        self.report.absorb(mapper.told())

    def _unpacked(self, batch: pa.RecordBatch) -> Iterator[Received]:
        whole, ends = bytes_of(batch.column("_body"))  # columns stay views of it
        for kind, start, stop in zip(batch.column("_kind").to_pylist(), ends[:-1], ends[1:], strict=True):
            body = pa.py_buffer(whole[start:stop])
            if kind == ACCOUNT:
                self.report.absorb(Report.decode(body))
            elif kind == PARTIALS:
                self._partials.add(body)
            else:
                yield unpack(body)

    def _count(self, table: StateTable, deltas: Sequence[Delta]) -> None:
        counts = self.report.table(table.name)
        if table.key:
            counts.keys += count_keys(deltas)  # no key is in two tasks: the sum is that of the step
        for delta in deltas:
            counts.shipped += len(delta.rows)
            if table.key:
                self.tally.add_sorted("rows", delta.rows.key)
            if is_sampled(table, self.task.step):
                counts.add(_statistics(table, delta.rows))


def _held_by_nobody(found: Iterator[tuple[int, Received]]) -> Iterator[Received]:
    """A mapper's output for its task, without a reference to the last item."""
    for _, rows in found:
        yield rows
        del rows


def _statistics(table: StateTable, rows: Rows) -> TableCounters:
    """The rows by role, and by their own life: the planner's input for choosing chains."""
    life = {entry.id: entry.life for entry in table.entries}
    lives, roles = Counter[int](), Counter[int]()
    for pattern, count in zip(
        rows.patterns, np.bincount(rows.bits, minlength=len(rows.patterns)).tolist(), strict=True
    ):
        if count:
            lives[max(life[role] for role in pattern)] += count
            roles.update(dict.fromkeys(pattern, count))
    return TableCounters(lives=lives, roles=roles)
