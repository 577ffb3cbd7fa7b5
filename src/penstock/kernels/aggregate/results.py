"""Results of windows as tables: pseudo-columns, expansion to single windows, and the top rows of each window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.aggregate.codes import ordered
from penstock.kernels.aggregate.frames import Frames
from penstock.model import Expression, SortKey, Top
from penstock.model.limits import MOST_BUILT
from penstock.state.run import Ints

NOTHING = Expression((), None, total=True)


class TooManyError(Exception):
    """A query needs more in one step than a task can build; the text says how much of what."""


def check_built(number: int, what: str) -> None:
    """Refuse to build more than fits in memory."""
    if number > MOST_BUILT:
        raise TooManyError(f"one step has {number:,} {what}, of which a task can build {MOST_BUILT:,}")


def total_of(counts: Ints) -> int:
    """The sum of counts, which may exceed 64 bits."""
    return int(counts.sum()) if counts.sum(dtype=np.float64) < 2.0**62 else sum(counts.tolist())


@dataclass(frozen=True)
class Shown:
    """What frames show as window_start and window_end. `ends` are those of the first window of each frame.

    Windows of a frame are `slide` apart; with slide 0 each frame is one window. Starts are `starts`, or lie `length`
    before the ends but not before the `origin`; windows without a length begin at the origin, or have no start. `ids`
    distinguish windows that may end at the same time.
    """

    slide: int
    ends: Ints
    length: int | None = None
    origin: int | None = None
    starts: Ints | None = None
    ids: Ints | None = None

    @property
    def begins(self) -> pa.Array:
        if self.starts is not None:
            return pa.array(self.starts)
        if self.length is None:
            return pa.array([self.origin] * len(self.ends), type=pa.int64())
        begins = self.ends - self.length
        return pa.array(begins if self.origin is None else np.maximum(begins, self.origin))

    def take(self, chosen: npt.NDArray[np.bool_]) -> Shown:
        starts, ids = (None if own is None else own[chosen] for own in (self.starts, self.ids))
        return replace(self, ends=self.ends[chosen], starts=starts, ids=ids)

    def counts(self, frames: Frames) -> Ints:
        """The number of windows of each frame."""
        return frames.windows if self.slide else np.ones(len(frames), dtype=np.int64)

    def expanded(self, frames: Frames) -> tuple[Frames, Shown]:
        """Every window as a frame of its own."""
        counts = self.counts(frames)
        if not self.slide or (counts == 1).all():
            return frames, self
        check_built(total_of(counts), "windows that it needs one by one")
        index = np.repeat(np.arange(len(frames)), counts)
        number = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        each = frames.first[index] + number
        single = Frames(frames.group[index], each, each, frames.low[index], frames.high[index])
        return single, replace(self, ends=self.ends[index] + number * self.slide)


def leading(top: Top, keys: Sequence[pa.Array], groups: Sequence[pa.Array], windows: Ints) -> npt.NDArray[np.bool_]:
    """The first rows of each window by the values of `keys`, ties by their groups."""
    sorted_by: list[npt.NDArray[np.generic]] = [windows]  # most significant first; `lexsort` wants it last
    for key, values in zip((*top.keys, *(SortKey(NOTHING) for _ in groups)), (*keys, *groups), strict=True):
        found = ordered(values)
        # The complement reverses the order and cannot overflow.
        codes = np.where(found.valid, ~found.codes if key.descending else found.codes, 0)
        sorted_by += [found.valid if key.nulls_first else ~found.valid, codes]
    order = np.lexsort(sorted_by[::-1])
    sorted_windows = windows[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = np.diff(sorted_windows) != 0
    first = np.flatnonzero(new)
    place = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    chosen = np.zeros(len(order), dtype=np.bool_)
    chosen[order[place < top.count]] = True
    return chosen


def table_of(
    groups: Sequence[pa.Array], aggregates: Sequence[pa.Array], frames: Frames, shown: Shown, *, runs: bool
) -> pa.Table:
    """The rows of a result: one per frame if `runs` are wanted, else one per window."""
    counts = shown.counts(frames)
    columns = {f"g{n}": column for n, column in enumerate(groups)}
    values = {f"a{n}": column for n, column in enumerate(aggregates)}
    if runs:
        columns |= {"window_start": shown.begins, "window_end": pa.array(shown.ends), "_windows": pa.array(counts)}
        return pa.table(columns | values)
    _, single = shown.expanded(frames)
    if len(single.ends) > len(frames):
        index = pa.array(np.repeat(np.arange(len(frames)), counts))
        columns = {name: column.take(index) for name, column in columns.items()}
        values = {name: column.take(index) for name, column in values.items()}
    return pa.table(columns | {"window_start": single.begins, "window_end": pa.array(single.ends)} | values)
