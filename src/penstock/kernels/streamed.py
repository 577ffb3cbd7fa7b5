"""Sorted rows taken a bounded number of bytes at a time: ranges of several sorted runs, and parts of matches.

The bytes of rows are known without reading them: those of fixed width, and the offsets of texts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.delta import compact_patterns
from penstock.kernels.matches import Matches
from penstock.state.cold import COLD_BLOCK
from penstock.state.run import Ints, Rows

_OWN = 20  # bytes of a row's key, time and bits
_LONG = (pa.types.is_large_string, pa.types.is_large_binary)
_SHORT = (pa.types.is_string, pa.types.is_binary)


class Weights:
    """How many bytes lie before each row of some rows."""

    def __init__(self, rows: Rows, columns: Collection[str] | None = None) -> None:
        self.rows, self.each = len(rows), float(_OWN)
        self.offsets: list[npt.NDArray[np.integer]] = []
        for name, column in rows.columns.items():
            if columns is not None and name not in columns:
                continue
            offsets = _offsets(column)
            if offsets is not None:
                self.offsets.append(offsets)
                self.each += offsets.itemsize
            else:
                self.each += column.nbytes / max(1, len(column))

    @property
    def total(self) -> int:
        return int(self.before(np.array([self.rows]))[0])

    def before(self, places: Ints) -> Ints:
        """The bytes before these places, which may be the end."""
        found = (self.each * places).astype(np.int64)
        for offsets in self.offsets:
            found += offsets[places] - offsets[0]
        return found

    def of(self, places: Ints) -> Ints:
        """The bytes of the rows at these places."""
        found = np.full(len(places), int(self.each), dtype=np.int64)
        for offsets in self.offsets:
            found += offsets[places + 1] - offsets[places]
        return found

    def cut(self, most: int) -> Ints:
        """Places that cut the rows into parts of at most so many bytes each, or of one row; without both ends."""
        found, start = [], 0
        while start < self.rows:
            limit = int(self.before(np.array([start]))[0]) + most
            low, high = start + 1, self.rows  # the first place with more than that before it is above `low`
            while low < high:
                middle = (low + high + 1) // 2
                if int(self.before(np.array([middle]))[0]) <= limit:
                    low = middle
                else:
                    high = middle - 1
            found.append(low)
            start = low
        return np.array(found[:-1], dtype=np.int64)


def _offsets(column: pa.Array) -> npt.NDArray[np.integer] | None:
    """Where each text of a column starts and ends, as a view."""
    short = any(test(column.type) for test in _SHORT)
    if not short and not any(test(column.type) for test in _LONG):
        return None
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return None
    places = slice(column.offset, column.offset + len(column) + 1)
    return np.frombuffer(buffer, dtype=np.int32)[places] if short else np.frombuffer(buffer, dtype=np.int64)[places]


def in_ranges(runs: Sequence[Rows], most: int) -> Iterator[list[Rows]]:
    """Slices of all runs in ascending ranges of (key, time), each range of about `most` bytes in all.

    Rows with equal key and time stay together, so that their order can be decided.
    """
    runs = [rows for rows in runs if len(rows)]
    weights = [Weights(rows) for rows in runs]
    if sum(own.total for own in weights) <= most:
        if runs:
            yield runs
        return
    # Each run is marked off in small parts; a range ends where the parts before it have enough bytes in all.
    part = max(1, most // (2 * len(runs)))
    keys, times, sizes = [], [], []
    for rows, own in zip(runs, weights, strict=True):
        marks = own.cut(part)
        keys.append(rows.key[marks])
        times.append(rows.time[marks])
        sizes.append(np.diff(own.before(marks), prepend=0))
    key, time, size = np.concatenate(keys), np.concatenate(times), np.concatenate(sizes)
    order = np.lexsort((time, key))
    key, time, ends = key[order], time[order], np.cumsum(size[order])
    cuts, before = list[tuple[int, int]](), 0
    for place in range(len(ends)):
        if ends[place] - before >= most // 2:
            before, cut = int(ends[place]), (int(key[place]), int(time[place]))
            if not cuts or cut > cuts[-1]:
                cuts.append(cut)
    starts = [0] * len(runs)
    for number in range(len(cuts) + 1):
        stops = [_place(rows, *cuts[number]) if number < len(cuts) else len(rows) for rows in runs]
        found = [rows.part(a, b) for rows, a, b in zip(runs, starts, stops, strict=True) if b > a]
        if found:
            yield found
        starts = stops


def in_blocks(rows: Rows) -> Iterator[Rows]:
    """The rows of a cold run in blocks."""
    marks = [0, *Weights(rows).cut(COLD_BLOCK).tolist(), len(rows)]
    yield from (compact_patterns(rows.part(start, stop)) for start, stop in pairwise(marks))


def _place(rows: Rows, key: int, time: int) -> int:
    """The first row that is not before a key and time."""
    low, high = (int(place) for place in (np.searchsorted(rows.key, key), np.searchsorted(rows.key, key, "right")))
    return low + int(np.searchsorted(rows.time[low:high], time))


def parts_of(matches: Matches, most: int) -> Iterator[Matches]:
    """The matches in parts whose columns take at most so many bytes when they are gathered, or in single ones."""
    if not len(matches):
        return
    size = np.zeros(len(matches), dtype=np.int64)
    for runs, run, row in matches.picks:
        if run is None:
            size += Weights(runs[0]).of(row)
            continue
        for number, rows in enumerate(runs):
            chosen = np.flatnonzero(run == number)
            if len(chosen):
                size[chosen] += Weights(rows).of(row[chosen])
    ends = np.cumsum(size)
    if ends[-1] <= most:
        yield matches
        return
    start = 0
    while start < len(matches):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, "right")))
        yield matches.take(np.arange(start, stop))
        start = stop
