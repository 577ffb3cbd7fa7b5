"""The columns of pieces in memory, one value per entry, which can be folded over frames.

A column is *lifted* from rows, one entry per row. `fold` gives the column of entries that each stand for a range of
others: partials, their merge and window results all use the same fold. `store` and `load` convert to the stored form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate import sweep
from penstock.kernels.aggregate.codes import (
    Codes,
    Flags,
    doubles,
    limbs,
    order_ranks,
    ordered,
    squares,
    valid_flags,
)
from penstock.planner.taxonomy import ROWS, Piece
from penstock.state.run import Ints


class Column(Protocol):
    """The values of one piece, one per entry."""

    def take(self, index: Ints) -> Column: ...

    def fold(self, low: Ints, high: Ints) -> Column:
        """One entry for each range [low, high) of these."""
        ...

    def store(self) -> tuple[pa.Array, ...]: ...


@dataclass(frozen=True)
class Integers:
    """Counts, or sums (also of squares) in limbs; folded by differences of prefix sums."""

    parts: tuple[Ints, ...]

    @cached_property
    def prefixes(self) -> tuple[Ints, ...]:
        """Computed once for all queries."""
        return tuple(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(part)]) for part in self.parts)

    def take(self, index: Ints) -> Integers:
        return Integers(tuple(part[index] for part in self.parts))

    def fold(self, low: Ints, high: Ints) -> Integers:
        return Integers(tuple(sweep.differences(prefix, low, high) for prefix in self.prefixes))

    def store(self) -> tuple[pa.Array, ...]:
        return tuple(pa.array(part) for part in self.parts)


@dataclass(frozen=True)
class Stacked(Integers):
    """As `Integers`, folded with two stacks."""

    def fold(self, low: Ints, high: Ints) -> Integers:
        return Integers(tuple(sweep.totals(part, low, high) for part in self.parts))


@dataclass(frozen=True)
class Floats:
    """Sums of doubles with their errors, or moments: merged, never subtracted."""

    kind: int
    rows: sweep.Doubles

    def take(self, index: Ints) -> Floats:
        return Floats(self.kind, self.rows[index])

    def fold(self, low: Ints, high: Ints) -> Floats:
        return Floats(self.kind, sweep.merged(self.kind, self.rows, low, high))

    def store(self) -> tuple[pa.Array, ...]:
        return tuple(pa.array(np.ascontiguousarray(self.rows[:, k])) for k in range(self.rows.shape[1]))


@dataclass(frozen=True)
class Extremes:
    """The least or greatest value as an ordered code; where there is none, a code that no value has."""

    kind: int
    codes: Ints
    origin: Codes

    def values(self, valid: Flags) -> pa.Array:
        """The values where `valid`; only counts can tell the empty code from the greatest value."""
        return self.origin.values(self.codes, valid)

    def take(self, index: Ints) -> Extremes:
        return Extremes(self.kind, self.codes[index], self.origin)

    def fold(self, low: Ints, high: Ints) -> Extremes:
        return Extremes(self.kind, sweep.extremes(self.kind, self.codes, low, high), self.origin)

    def store(self) -> tuple[pa.Array, ...]:
        empty = sweep.EMPTY_LEAST if self.kind == sweep.LEAST else sweep.EMPTY_GREATEST
        return (self.origin.values(self.codes, self.codes != empty),)


@dataclass(frozen=True)
class Picks:
    """The value of the first or last row in stream order (D5); `place` ranks the entries of each group.

    `chosen` are rows of the columns that all folds share: value, time, and the columns that order rows of one time.
    """

    kind: int
    place: Ints
    chosen: Ints
    columns: tuple[pa.Array, ...]

    @property
    def values(self) -> pa.Array:
        return self.columns[0].take(self._rows)

    @property
    def _rows(self) -> pa.Array:
        return pa.array(self.chosen, mask=self.chosen < 0)

    def take(self, index: Ints) -> Picks:
        return Picks(self.kind, self.place[index], self.chosen[index], self.columns)

    def fold(self, low: Ints, high: Ints) -> Picks:
        place = sweep.extremes(self.kind, self.place, low, high)
        row_of = np.full(len(self.columns[0]) + 1, -1, dtype=np.int64)  # by place; the last stands for no row
        known = self.chosen >= 0
        row_of[self.place[known]] = self.chosen[known]
        none = (place < 0) | (place >= len(self.columns[0]))
        return Picks(self.kind, place, row_of[np.where(none, len(self.columns[0]), place)], self.columns)

    def store(self) -> tuple[pa.Array, ...]:
        return tuple(column.take(self._rows) for column in self.columns)


def lift_numbers(piece: Piece, values: pa.Array | None, times: Ints) -> Column:
    """Counts, sums, moments, extremes and time spans of single rows."""
    if piece.kind == "count":
        if piece.argument == ROWS or values is None:
            return Integers((np.ones(len(times), dtype=np.int64),))
        return Integers((valid_flags(values).astype(np.int64),))
    if piece.kind == "span":
        return Spans(times, times)
    assert values is not None
    if piece.kind == "sum":
        if not pa.types.is_floating(values.type):
            return Integers(limbs(values))
        single = doubles(values)
        return Floats(sweep.SUM, np.column_stack([single, np.zeros_like(single)]))
    return moments_of(values) if piece.kind == "moments" else extremes_of(piece, values)


def moments_of(values: pa.Array) -> Column:
    """The inputs of variances: for integers and decimals count, sum and sum of squares, all exact."""
    valid = valid_flags(values)
    if not pa.types.is_floating(values.type):
        return Integers((valid.astype(np.int64), *limbs(values), *squares(values)))
    single = doubles(values)
    return Floats(sweep.MOMENTS, np.column_stack([valid.astype(np.float64), single, np.zeros_like(single)]))


def extremes_of(piece: Piece, values: pa.Array) -> Extremes:
    """Extremes of single values, of rows or of partials."""
    kind = sweep.LEAST if piece.kind == "least" else sweep.GREATEST
    empty = sweep.EMPTY_LEAST if kind == sweep.LEAST else sweep.EMPTY_GREATEST
    origin = ordered(values)
    return Extremes(kind, np.where(origin.valid, origin.codes, empty), origin)


def picks_of(piece: Piece, columns: Sequence[pa.Array], places: Ints) -> Picks:
    """First or last of rows or partials. `columns`: value, time, what orders rows of one time; see `stream_places`."""
    count = len(columns[0])
    place, chosen = places.copy(), np.arange(count)
    # A partial without a row to pick has no time.
    absent = ~valid_flags(columns[0]) if piece.kind.startswith("valid_") else ~valid_flags(columns[1])
    latest = piece.kind.endswith("last")
    place[absent] = sweep.EMPTY_GREATEST if latest else sweep.EMPTY_LEAST
    chosen[absent] = -1
    return Picks(sweep.GREATEST if latest else sweep.LEAST, place, chosen, tuple(columns))


def stream_places(starts: Ints, columns: Sequence[pa.Array]) -> Ints:
    """Ranks in stream order inside each group, of entries that are in order except within blocks.

    Blocks begin at `starts`; `columns` give the order inside them.
    """
    count = len(columns[0])
    blocks = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, count)))
    tied = np.flatnonzero(np.bincount(blocks)[blocks] > 1) if count else blocks
    place = np.arange(count)
    if len(tied):
        ranks = order_ranks([column.take(pa.array(tied)) for column in columns])
        place[tied[np.lexsort([*reversed(ranks), blocks[tied]])]] = tied
    return place


@dataclass(frozen=True)
class Spans:
    """The first and the last time of rows."""

    begins: Ints
    ends: Ints

    def take(self, index: Ints) -> Spans:
        return Spans(self.begins[index], self.ends[index])

    def fold(self, low: Ints, high: Ints) -> Spans:
        begins = sweep.extremes(sweep.LEAST, self.begins, low, high)
        return Spans(begins, sweep.extremes(sweep.GREATEST, self.ends, low, high))

    def store(self) -> tuple[pa.Array, ...]:
        return pa.array(self.begins), pa.array(self.ends)
