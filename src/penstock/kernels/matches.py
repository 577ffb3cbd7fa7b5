"""Rows joined so far, as references to rows in runs, and their columns.

A join never copies rows out of their runs before they are needed: a pick says which row of which run, and columns are
gathered at the end or for a condition. `walk` finds the matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.probe import Words
from penstock.model import Ref
from penstock.model.expression import PSEUDO_ROLE
from penstock.planner.join import Join
from penstock.planner.network import Network
from penstock.planner.state_table import key_column
from penstock.state.run import Ints, Rows

Number = TypeVar("Number", np.int64, np.uint64)
Pick = tuple[Sequence[Rows], Ints | None, Ints]  # (runs, run of each row or None if all from the first, row in its run)


@dataclass(frozen=True)
class Matches:
    """Rows joined so far from one start position: per position the picked rows and times, and the bits of queries."""

    positions: tuple[int, ...]
    picks: tuple[Pick, ...]
    keys: Ints
    times: Ints
    bits: Words

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, index: Ints) -> Matches:
        picks = tuple((runs, None if run is None else run[index], row[index]) for runs, run, row in self.picks)
        return Matches(self.positions, picks, self.keys[index], rows_at(self.times, index), rows_at(self.bits, index))

    def led_by(self, position: int) -> tuple[Matches, Ints]:
        """The same matches with another position first, sorted by its times; and their places in these matches."""
        places = sorted(range(len(self.positions)), key=lambda place: self.positions[place] != position)
        order = np.argsort(self.times[:, places[0]], kind="stable")
        found = self.take(order)
        positions, picks = zip(*((found.positions[p], found.picks[p]) for p in places), strict=True)
        return Matches(positions, picks, found.keys, found.times[:, places], found.bits), order

    def column(self, position: int, name: str, event_time: pa.DataType | None) -> pa.Array:
        """A column of the rows at one position; with `event_time`, the row's time as a value of that type."""
        place = self.positions.index(position)
        if event_time is not None:
            return time_array(self.times[:, place], event_time)
        return gather(self.picks[place], name)

    def key(self, position: int, table: str) -> pa.Array:
        """The keys of the rows at one position in the state table of that name, wherever the rows were found."""
        runs, run, row = self.picks[self.positions.index(position)]
        column = key_column(table)
        if any(column in rows.columns for rows in runs):
            return gather((runs, run, row), column)
        return pa.array(_gather(runs, run, row, "key"))

    @property
    def result_time(self) -> Ints:
        newest = self.times[:, 0]
        for place in range(1, self.times.shape[1]):
            newest = np.maximum(newest, self.times[:, place])
        return np.ascontiguousarray(newest)


def extend(composite: Matches, position: int, pick: Pick, left: Ints, bits: Words) -> Matches:
    picks = [(runs, None if run is None else run[left], row[left]) for runs, run, row in composite.picks]
    times = np.empty((len(left), len(picks) + 1), dtype=np.int64, order="F")
    for place in range(len(picks)):
        times[:, place] = composite.times[:, place][left]
    times[:, -1] = _gather(*pick, "time")
    return Matches((*composite.positions, position), (*picks, pick), composite.keys[left], times, bits)


def serving(matches: Matches) -> Matches:
    """Only the matches that serve a query."""
    alive = serves_any(matches.bits)
    return matches if alive.all() else matches.take(np.flatnonzero(alive))


def serves_any(bits: Words) -> npt.NDArray[np.bool_]:
    """The rows that serve a query."""
    alive = bits[:, 0] != 0
    for word in range(1, bits.shape[1]):
        alive |= bits[:, word] != 0
    return np.asarray(alive)


def rows_at(values: npt.NDArray[Number], index: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Number]:
    """Some rows of a contiguous table of few columns: NumPy's own indexing is slow along so short an axis."""
    found = np.empty((len(index), values.shape[1]), dtype=values.dtype, order="F")
    for column in range(values.shape[1]):
        found[:, column] = values[:, column][index]
    return found


def time_array(times: Ints, kind: pa.DataType) -> pa.Array:
    """Times in the engine's unit as values of an event-time column."""
    if pa.types.is_date(kind):
        return pa.array((times // 86_400_000_000).astype(np.int32)).cast(kind)
    return pa.array(times).cast(kind)


def gather(pick: Pick, name: str) -> pa.Array:
    """A column of picked rows, which may lie in several runs."""
    runs, run, row = pick
    if run is None:
        return _take(runs[0], name, row)
    # NumPy sorts 16-bit numbers several times as fast as wider ones.
    order = np.argsort(run.astype(np.int16) if len(runs) < 1 << 15 else run, kind="stable")
    pieces = [_take(runs[number], name, row[order[start:stop]]) for number, start, stop in _groups(run[order])]
    kind = next((p.type for p in pieces if not pa.types.is_null(p.type)), pa.null())
    pieces = [p.cast(kind) for p in pieces]
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_arrays(pieces).take(pa.array(back))


def _take(rows: Rows, name: str, row: Ints) -> pa.Array:
    # A run older than the first query that wants the column lacks it; none of its rows serves that query.
    column = rows.columns.get(name)
    return pa.nulls(len(row)) if column is None else column.take(pa.array(row))


def _gather(runs: Sequence[Rows], run: Ints | None, row: Ints, name: str) -> Ints:
    """Keys or times of picked rows."""
    if run is None:
        return np.asarray(getattr(runs[0], name)[row])
    values = np.empty(len(row), dtype=np.int64)
    for number, rows in enumerate(runs):
        chosen = run == number
        values[chosen] = getattr(rows, name)[row[chosen]]
    return values


def _groups(sorted_values: Ints) -> Iterator[tuple[int, int, int]]:
    edges = np.flatnonzero(np.diff(sorted_values)) + 1
    starts = [0, *edges.tolist()]
    for start, stop in zip(starts, [*edges.tolist(), len(sorted_values)], strict=True):
        yield int(sorted_values[start]), start, stop


def equal(ours: pa.Array, theirs: pa.Array) -> npt.NDArray[np.bool_]:
    same = pc.fill_null(pc.equal(_bitwise(ours), _bitwise(theirs)), False)
    return np.asarray(same.to_numpy(zero_copy_only=False))


def _bitwise(array: pa.Array) -> pa.Array:
    """Doubles as their bits; all NaN are one (a sum of infinities has other bits than a parsed NaN)."""
    if not pa.types.is_float64(array.type):
        return array
    return pc.if_else(pc.is_nan(array), np.nan, array).view(pa.int64())


class lookup:  # noqa: N801  (used as a function: the columns of matches by reference)
    """Columns of matches for the evaluation of terms."""

    def __init__(self, network: Network, join: Join, matches: Matches) -> None:
        self.network, self.join, self.matches = network, join, matches

    def __call__(self, ref: Ref) -> pa.Array:
        if ref.role == PSEUDO_ROLE:
            return pa.array(self.matches.result_time)
        stream = self.network.streams[self.network.tables[self.join.tables[ref.role]].stream]
        if ref.column == stream.event_time:
            return self.matches.column(ref.role, ref.column, pa.int64())
        return self.matches.column(ref.role, ref.column, None)
