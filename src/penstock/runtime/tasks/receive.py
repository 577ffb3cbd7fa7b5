"""The rows that a task receives in a step, as deltas of its state tables.

Rows come in parcels from mappers, or just as a source brings them, or in pieces that every task reads: then the task is their mapper too, for its
own share of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.columns.hash import Ints, bytes_of, whole_numbers
from penstock.columns.parcels import OWNED, SEEN, unite, unpack
from penstock.columns.parcels import Rows as Received
from penstock.kernels.delta import Delta, build_delta
from penstock.planner.network import StateTable
from penstock.runtime.tasks.envelope import ACCOUNT, PARTIALS
from penstock.runtime.tasks.task import Plan, Report, Task
from penstock.state.run import Rows
from penstock.step.folding import unpack_partials
from penstock.step.keys import received_keys
from penstock.step.mapper import Mapper, is_sampled, truth_of


@dataclass
class Receiver:
    """One task's share of a step's rows."""

    plan: Plan
    task: Task
    report: Report
    partials: dict[int, dict[int, list[pa.Table]]] = field(default_factory=dict)  # by state table and pane set

    def rows(self, batches: Iterator[pa.RecordBatch]) -> list[Received]:
        """The rows of this step that the task needs, by stream; those that mappers have put together are in `partials` then."""
        plan, partition = self.plan, self.report.partition
        mapper = Mapper(plan.network, plan.names, plan.truths, self.task.asked, partition, plan.listed)
        found: list[Received] = []
        # Read to the end in any case: Spark waits for it. A tick brings no rows of streams.
        for batch in batches:
            if "_kind" in batch.schema.names:
                whole, ends = bytes_of(batch.column("_body"))  # columns stay views of it
                for kind, start, stop in zip(batch.column("_kind").to_pylist(), ends[:-1], ends[1:], strict=True):
                    body = pa.py_buffer(whole[start:stop])
                    if kind == ACCOUNT:
                        self.report.absorb(json.loads(body.to_pybytes()))
                    elif kind == PARTIALS:
                        came = unpack_partials(body)
                        self.partials.setdefault(came.table, {}).setdefault(came.pane_set, []).append(came.partials)
                    else:
                        found.append(unpack(body))
            elif "_stream" in batch.schema.names:
                found += [rows for _, rows in mapper.take(batch)]
        for piece in self.task.pieces:
            found += [rows for _, rows in mapper.read(piece, plan.types)]
        self.report.absorb(mapper.told().__dict__)
        return [] if self.report.unreadable else list(unite(found).values())

    def deltas(self, received: list[Received]) -> tuple[dict[int, Rows], dict[int, Rows]]:
        """The rows of this step by table: those that this task owns, and all of them where every task has them."""
        fresh, every = {}, {}
        for rows in received:
            for number, table in enumerate(self.plan.network.tables_of(rows.stream)):
                owned, seen = rows.marked(number, OWNED), rows.marked(number, SEEN)
                if len(owned):
                    delta = self._delta(table, rows, owned)
                    fresh[table.index] = delta.rows
                    self._count(table, delta)
                if len(seen):
                    every[table.index] = self._delta(table, rows, seen).rows
        return fresh, every

    def _delta(self, table: StateTable, rows: Received, index: Ints) -> Delta:
        times = rows.columns["_ts"]
        keys, has_key = received_keys(table, rows.columns, times)
        truths = {name: truth_of(name, table, self.plan.truths, rows.columns)[0] for name, _ in table.truths}
        return build_delta(table, keys, has_key, whole_numbers(times), rows.columns, truths, index)

    def _count(self, table: StateTable, delta: Delta) -> None:
        counts = self.report.tables.setdefault(table.name, {})
        counts["shipped"] = len(delta.rows)
        if table.key:
            counts["keys"] = delta.keys  # no key is in two tasks: the sum is that of the step
        if is_sampled(table, self.task.step):
            counts.update(_statistics(table, delta.rows))


def _statistics(table: StateTable, rows: Rows) -> dict[str, int]:
    """The rows by role, and by their own life: what the planner chooses chains from."""
    life = {entry.id: entry.life for entry in table.entries}
    found: Counter[str] = Counter()
    for pattern, count in zip(
        rows.patterns, np.bincount(rows.bits, minlength=len(rows.patterns)).tolist(), strict=True
    ):
        if count:
            found[f"life:{max(life[role] for role in pattern)}"] += count
            found.update({f"role:{role}": count for role in pattern})
    return dict(found)
