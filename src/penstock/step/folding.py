"""Partials instead of rows: what mappers send for a window aggregate if many rows of a group share a pane.

A mapper makes them with the kernels of the tasks, and a task merges those that it receives with each other and with
those that it makes of rows. So state and answers are the same, wherever rows were folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.columns.hash import Ints, whole_numbers
from penstock.columns.parcels import pack_table, unpack_table
from penstock.kernels.aggregate.close import merge
from penstock.kernels.aggregate.entries import together
from penstock.kernels.aggregate.forms import keep_rows
from penstock.kernels.aggregate.outside import count_outside
from penstock.kernels.aggregate.stored import received, served
from penstock.kernels.bits import bits_ids
from penstock.kernels.delta import roles_of, row_order
from penstock.kernels.probe import Words
from penstock.model.memory import Limits
from penstock.planner.rollup import Rollup
from penstock.planner.state_table import StateTable
from penstock.planner.window_aggregate import AggregateSource, WindowAggregate
from penstock.state.buckets import BucketMap
from penstock.state.run import Rows
from penstock.step.rollup import rolled_up

AT_ONCE = 1 << 18  # rows folded at once, approximately: so many may wait
MOST_BYTES = 32 << 20  # of a mapper's partials for a state table: beyond that they are sent


@dataclass(frozen=True)
class Partials:
    """Partials of rows of one state table, for one pane set of its aggregate."""

    table: int
    pane_set: int
    partials: pa.Table


@dataclass
class Folder:
    """Partials of a mapper's rows for one state table. `cuts` are by query the times that no partial may cross.

    Others may make theirs from those that it sends, see `rolls_up_to`: they accept no rows, and must be flushed after
    it.
    """

    aggregate: WindowAggregate
    source: AggregateSource
    table: StateTable
    cuts: Mapping[int, int]
    buckets: BucketMap
    limits: Limits | None = None
    folded: int = 0  # rows
    sent: int = 0  # partials
    outside: dict[int, int] = field(default_factory=dict)  # by query: rows that it selects and has no window for
    rolled: int = 0  # partials of another folder, from which it made its own
    _above: list[tuple[Folder, Rollup]] = field(default_factory=list)
    _waiting: list[pa.Table] = field(default_factory=list)
    _held: dict[int, list[pa.Table]] = field(default_factory=dict)

    def add(self, bits: Words, keys: Ints, columns: Mapping[str, pa.Array], places: Ints) -> None:
        """Add the rows at these places; `bits` are the entries that each row serves."""
        if not len(places):
            return
        ids, patterns = bits_ids(bits[places])
        picked = pa.array(places)
        rows = served(
            self.aggregate,
            Rows(
                keys[places],
                whole_numbers(columns["_ts"])[places],
                ids,
                roles_of(self.table, patterns),
                {name: columns[name].take(picked) for name in self.table.columns},
            ),
        )
        self.folded += len(rows)
        for query, count in count_outside(self.aggregate.plan, rows).items():
            self.outside[query] = self.outside.get(query, 0) + count
        self._waiting.append(received(self.aggregate, self.source, rows))
        waiting = sum(map(len, self._waiting))
        if waiting >= AT_ONCE or (self.limits and sum(t.nbytes for t in self._waiting) > self.limits.work):
            self._fold()

    def take(self, rollup: Rollup, made: Mapping[int, Sequence[pa.Table]]) -> None:
        """Add partials of another folder, by pane set."""
        self.rolled += sum(len(table) for tables in made.values() for table in tables)
        for number, table in rolled_up(self.aggregate, self.source, self.table, rollup, made, self.cuts):
            self._held.setdefault(number, []).append(table)

    def rolls_up_to(self, folder: Folder, rollup: Rollup) -> None:
        """That folder makes its partials of those that this one sends, from the first row to the last."""
        self._above.append((folder, rollup))

    def full(self) -> Iterator[tuple[int, Partials]]:
        """What must be sent now because there is so much of it, as (task, partials)."""
        most = MOST_BYTES if self.limits is None else self.limits.work
        if self._bytes() > most:
            self._merge()
            if self._bytes() > most // 2:
                yield from self._send()

    def rest(self) -> Iterator[tuple[int, Partials]]:
        """All remaining partials."""
        if self._waiting:
            self._fold()
        self._merge()
        yield from self._send()

    def _fold(self) -> None:
        rows = together(self._waiting)
        self._waiting = []
        order = row_order(self.table, rows["_key"].to_numpy(), rows["_ts"].to_numpy(), rows.column)
        rows = rows.take(pa.array(order))
        kept = keep_rows(self.aggregate.plan, rows, {query: (cut,) for query, cut in self.cuts.items()})
        for number, table in zip(kept.sets, kept.tables, strict=True):
            self._held.setdefault(number, []).append(table)

    def _merge(self) -> None:
        self._held = {number: [merge(self.aggregate.plan, tables)] for number, tables in self._held.items()}

    def _bytes(self) -> int:
        return sum(table.nbytes for tables in self._held.values() for table in tables)

    def _send(self) -> Iterator[tuple[int, Partials]]:
        for folder, rollup in self._above:
            folder.take(rollup, self._held)
        for number, tables in self._held.items():
            for table in tables:
                self.sent += len(table)
                to = self.buckets.owners(table["_key"].to_numpy())  # ascending, as the keys are
                edges = np.searchsorted(to, np.arange(self.buckets.tasks + 1))
                for task, (low, high) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
                    if high > low:
                        yield task, Partials(self.table.index, number, table.slice(low, high - low))
        self._held = {}


def pack_partials(partials: Partials, largest: int | None = None) -> Iterator[pa.Buffer]:
    """Partials as Arrow streams of bounded size."""
    return pack_table(partials.partials, {"table": partials.table, "pane_set": partials.pane_set}, largest)


def unpack_partials(parcel: pa.Buffer) -> Partials:
    """The partials of a parcel, as views of its bytes."""
    table, about = unpack_table(parcel)
    return Partials(about["table"], about["pane_set"], table)
