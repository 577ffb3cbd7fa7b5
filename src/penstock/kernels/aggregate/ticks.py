"""Rows that count at several ticks, such as results of a join below an aggregate: at each tick from a first to a last.

A table of such rows has `_ts`, the moment just before the first tick, and `_last`, the one before the last tick. Ticks
lie one slide apart, those of all rows on one grid. So many rows share a tick, and a row has many ticks. `spread` makes
partials of panes in work by rows plus panes, not rows times ticks; `each_tick` makes one row per tick where single
rows are needed.
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
FEW = 2  # with at most this many ticks per row, partials from one row per tick are faster


class TooManyTicksError(Exception):
    """These rows have more ticks than a task can expand."""


def are_many(rows: pa.Table, slide: int) -> bool:
    """Whether there are so many ticks that `spread` is cheaper than a row for each."""
    first, last = _ends(rows)
    return int(((last - first) // slide).sum()) + len(rows) > FEW * len(rows)


def each_tick(rows: pa.Table, slide: int) -> pa.Table:
    """One row per tick."""
    first, last = _ends(rows)
    counts = (last - first) // slide + 1
    _check(counts)
    index = np.repeat(np.arange(len(rows)), counts)
    at = rows.schema.get_field_index("_ts")
    whole = rows.take(pa.array(index)).set_column(at, "_ts", pa.array(first[index] + _places(counts) * slide))
    return whole.drop_columns([LAST]).replace_schema_metadata(rows.schema.metadata)


def spread(plan: AggregatePlan, rows: Sorted, slide: int, panes: Callable[[Ints], Ints]) -> pa.Table:
    """The partials of rows by group and pane, as if each row occurred at every tick; `panes` maps moments to panes.

    First, rows with the same ticks become one partial. Then the ticks of each partial are split into blocks of 2^n
    ticks that begin at multiples of 2^n, at most two per size, and partials of the same block are merged. Only the rest
    is expanded by tick: per group, each tick has at most one entry per block size.
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
    """Partials by the numbers of their groups and patterns; `rows` are source rows with these groups and patterns."""

    codes: Ints
    bits: npt.NDArray[np.int32]
    rows: Ints
    columns: tuple[Column | None, ...]

    def take(self, index: Ints) -> _Partials:
        columns = tuple(column and column.take(index) for column in self.columns)
        return _Partials(self.codes[index], self.bits[index], self.rows[index], columns)

    def together(self, *keys: Ints) -> tuple[_Partials, list[Ints]]:
        """Partials of equal group, pattern and keys merged, and their keys; ordered by group, keys, pattern."""
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
    """The numbers [low, high) of each place, split into blocks [b * 2^n, (b + 1) * 2^n): (place, n, b) per block."""
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
    """The numbers from 0 for each count, concatenated."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _check(counts: Ints) -> None:
    if (whole := int(counts.sum())) > MOST_TAKEN:
        msg = (
            f"results of the join below it count in {whole:,} windows of its groups in one step, "
            f"and a task can make {MOST_TAKEN:,}"
        )
        raise TooManyTicksError(msg)
