"""Windows of one query assembled from files of closed panes, a share of the groups at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.aggregate.panes import Closing, assembled
from penstock.kernels.aggregate.repeats import cut
from penstock.model import Sliding
from penstock.planner.aggregates import AggregatePlan
from penstock.results.layout import piece_columns
from penstock.results.part import Part
from penstock.state.buckets import BUCKETS, BucketMap
from penstock.storage.parquet import columns, read_some
from penstock.storage.store import Store

AT_ONCE = 500_000  # windows assembled at once, approximately


@dataclass(frozen=True)
class Assembly:
    """A query over panes: its plan, the names of files with its bit in each, and its wanted windows.

    `measures` are the names of its aggregates, `results` the approximate number of results.
    """

    store: Store
    plan: AggregatePlan
    files: tuple[tuple[str, int], ...]
    closings: tuple[Closing, ...]
    first: int
    part: Part
    measures: tuple[str, ...]
    results: int

    def shares(self, most: int) -> int:
        """How many shares of the groups are worthwhile for parallel work, at most `most`."""
        return max(1, min(most, BUCKETS, -(-self.results // AT_ONCE)))

    def tables(self, share: int, shares: int) -> Iterator[pa.Table]:
        """The results of a share of the groups, in the form of a result table; equal ones are one row."""
        own = BucketMap.even(shares).ranges[share]
        panes = self._read(*own)
        # Each pane begins at most two ranges of windows.
        rounds = max(1, min(BUCKETS // shares, -(-min(self.results // shares, 2 * len(panes)) // AT_ONCE)))
        for low, high in (
            BucketMap.even(shares * rounds).ranges[share * rounds : (share + 1) * rounds] if len(panes) else ()
        ):
            found = assembled(self.plan, _between(panes, low, high), self.closings, self.first)
            if found is not None and len(found):
                yield self._shown(found)

    def _read(self, low: int, high: int | None) -> pa.Table:
        """The panes that serve the query, of groups with keys in [low, high), in the kernels' form."""
        names = piece_columns(self.plan)
        inside = pc.field("_key") >= low
        if high is not None:
            inside &= pc.field("_key") < high
        pieces = []
        groups = [f"g{n}" for n in range(self.plan.groups)]
        for name, bit in self.files:
            word = f"_bits{bit // 64}"
            parts = {}
            for column in columns(self.store, name):
                piece, _, part = column.partition("_")
                if piece in names:
                    parts[names.index(piece), int(part)] = column
            chosen = ["_key", *groups, "_pane", *(parts[place] for place in sorted(parts))]
            rows = read_some(self.store, name, [*chosen, word], inside)
            mine = rows.column(word).to_numpy().view(np.uint64) >> np.uint64(bit % 64) & np.uint64(1)
            called = ["_key", *groups, "_pane", *(f"p{piece}_{part}" for piece, part in sorted(parts))]
            pieces.append(rows.filter(pa.array(mine == 1)).select(chosen).rename_columns(called))
        return pa.concat_tables(pieces).combine_chunks() if pieces else pa.table({})

    def _shown(self, table: pa.Table) -> pa.Table:
        window = self.plan.queries[0].window
        assert isinstance(window, Sliding)
        table = cut(table, window, self.part.horizon, self.part.before)
        names = {"window_end": "_time"} | {f"a{n}": name for n, name in enumerate(self.measures)}
        # Two equal aggregates are one column.
        columns = {names.get(name, name): table.column(name) for name in table.column_names}
        return pa.table(columns)


def _between(panes: pa.Table, low: int, high: int | None) -> pa.Table:
    keys = panes.column("_key").to_numpy()
    inside = keys >= low if high is None else (keys >= low) & (keys < high)
    return panes if inside.all() else panes.filter(pa.array(inside))
