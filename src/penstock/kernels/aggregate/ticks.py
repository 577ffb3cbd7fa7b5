"""Rows that count at several ticks, as results of the join below an aggregate do: each at all from a first tick to a last one.

A table of such rows has `_ts`, the moment just before the first tick, and `_last`, that before the last one; ticks lie one slide apart, and
those of all rows on one grid. So few ticks have many rows, and a row has many ticks. `spread` makes partials of panes with work by rows and
panes, not by rows times ticks; `each_tick` makes a row of every tick, where single rows are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.aggregate.columns import Column
from penstock.kernels.aggregate.entries import Entries, Sorted, lift, patterns_of, starts_of, store
from penstock.model.limits import MOST_TAKEN
from penstock.planner.aggregates import AggregatePlan
from penstock.state.run import Ints

LAST = "_last"
FEW = 2  # ticks of a row: for no more, partials are put together faster from a row of each


class TooManyTicksError(Exception):
    """The ticks of these rows are more than a task writes out."""


def are_many(rows: pa.Table, slide: int) -> bool:
    """Whether there are so many ticks that it costs less to do without a row for each."""
    first, last = _ends(rows)
    return int(((last - first) // slide).sum()) + len(rows) > FEW * len(rows)


def each_tick(rows: pa.Table, slide: int) -> pa.Table:
    """A row for every tick."""
    first, last = _ends(rows)
    counts = (last - first) // slide + 1
    _check(counts)
    index = np.repeat(np.arange(len(rows)), counts)
    at = rows.schema.get_field_index("_ts")
    whole = rows.take(pa.array(index)).set_column(at, "_ts", pa.array(first[index] + _places(counts) * slide))
    return whole.drop_columns([LAST]).replace_schema_metadata(rows.schema.metadata)


def spread(plan: AggregatePlan, rows: Sorted, slide: int, panes: Callable[[Ints], Ints]) -> pa.Table:
    """The partials of rows by group and pane, as if each were a row at every tick; `panes` tells where the pane of a moment begins.

    Rows with the same ticks become one partial first. Then the ticks of each are cut into blocks of 2^n ticks that begin at multiples of 2^n,
    two of a size at most, and partials of the same block become one. Only what is left is written out by ticks: of a group each tick has one
    entry for each size of blocks at most.
    """
    first, last = _ends(rows.table)
    start = first.min()
    parts = _Partials(rows.codes, rows.bits, np.arange(len(first)), lift(plan, rows))
    parts, (low, high) = parts.together((first - start) // slide, (last - start) // slide + 1)
    index, size, block = _blocks(low, high)
    parts, (size, block) = parts.take(index).together(size, block)
    counts = np.left_shift(1, size)
    _check(counts)
    index = np.repeat(np.arange(len(counts)), counts)
    ticks = np.left_shift(block, size)[index] + _places(counts)
    parts, (positions,) = parts.take(index).together(panes(start + ticks * slide))
    entries = Entries(starts_of(parts.codes), positions, parts.columns, rows.table, parts.rows)
    patterns = patterns_of(rows.table)
    return store(entries, None if patterns is None else parts.bits, patterns)


@dataclass(frozen=True)
class _Partials:
    """Partials by the numbers of their groups and patterns; `rows` are rows that they are of."""

    codes: Ints
    bits: npt.NDArray[np.int32]
    rows: Ints
    columns: tuple[Column | None, ...]

    def take(self, index: Ints) -> _Partials:
        columns = tuple(column and column.take(index) for column in self.columns)
        return _Partials(self.codes[index], self.bits[index], self.rows[index], columns)

    def together(self, *keys: Ints) -> tuple[_Partials, list[Ints]]:
        """Those of one group and pattern with equal keys put together, and their keys; in the order of groups, keys and patterns."""
        by: list[Ints] = [self.codes, *keys, self.bits.astype(np.int64)]
        order = np.lexsort(by[::-1])
        new = np.zeros(len(order), dtype=np.bool_)
        new[:1] = True
        for key in by:
            new[1:] |= np.diff(key[order]) != 0
        low = np.flatnonzero(new)
        high = np.append(low[1:], len(order))
        columns = tuple(column and column.take(order).fold(low, high) for column in self.columns)
        first = order[low]
        return _Partials(self.codes[first], self.bits[first], self.rows[first], columns), [key[first] for key in keys]


def _blocks(low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """The numbers [low, high) of each place, cut into blocks [b * 2^n, (b + 1) * 2^n): (place, n, b) of every block."""
    found = []
    place, size = np.arange(len(low)), 0
    while len(place):
        odd = low & 1 == 1
        found.append((place[odd], np.full(odd.sum(), size), low[odd]))
        low = low + odd
        odd = high & 1 == 1
        high = high - odd
        found.append((place[odd], np.full(odd.sum(), size), high[odd]))
        low, high, size = low >> 1, high >> 1, size + 1
        left = low < high
        place, low, high = place[left], low[left], high[left]
    whole = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    return whole[0], whole[1], whole[2]


def _ends(rows: pa.Table) -> tuple[Ints, Ints]:
    return rows.column("_ts").to_numpy(), rows.column(LAST).to_numpy()


def _places(counts: Ints) -> Ints:
    """The numbers from 0 for each count, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _check(counts: Ints) -> None:
    if (whole := int(counts.sum())) > MOST_TAKEN:
        msg = f"results of the join below it count in {whole:,} windows of its groups in one step, and a task can make {MOST_TAKEN:,}"
        raise TooManyTicksError(msg)
