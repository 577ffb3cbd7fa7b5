"""Capped emission: at most so many results per step, and no window more than so many windows late (Li 2008, 8.3).

A task's position is stored per key range: all windows that end by a time are emitted, and of the next window those of
groups with keys below a bound. A step continues there, by window and then by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.kernels.aggregate import frames as framing
from penstock.kernels.aggregate.close import Closed, Gathered, refused, results_of, shown_as
from penstock.kernels.aggregate.entries import Entries
from penstock.kernels.aggregate.frames import Frames
from penstock.kernels.aggregate.results import TooManyError, total_of
from penstock.model.time import FOREVER, NEVER
from penstock.model.windows import Landmark, Sliding
from penstock.planner.aggregates import Windowed
from penstock.planner.panes import INSTANT
from penstock.state.flushed import GREATEST_KEY, LEAST_KEY, Flushed
from penstock.state.run import Ints


@dataclass(frozen=True)
class Cap:
    """At most `rows` results, but always all windows that at least `behind` later closed ones follow."""

    rows: int
    behind: int


def flush(
    gathered: Gathered | None,
    query: Windowed,
    before: Sequence[Flushed],
    own: tuple[int, int | None],
    until: int,
    cap: Cap,
    last: tuple[int, int] = (NEVER, NEVER),
) -> tuple[list[Closed], Flushed]:
    """The next results of a query for the keys in `own`, and the position after them; `before` is that of all keys.

    `last` = (progress of the previous step, time of the newest row of the whole stream): they decide which window is a
    landmark's last one when the streams end.
    """
    window = query.window or INSTANT
    assert isinstance(window, Sliding | Landmark)
    everything = Flushed(*own, until)
    entries = None if gathered is None else gathered.entries(query)
    if gathered is None or entries is None or not len(entries):
        return [], everything
    keys = gathered.ordered.table.column("_key").to_numpy()[entries.row_of[entries.starts[:-1]]]
    ranges = _touching(before, own)
    least_place = _least_place(window, ranges, until, cap)
    first = np.full(len(keys), window.closed(NEVER), dtype=np.int64)
    for known in ranges:
        inside = (keys >= known.low) & (keys < known.high if known.high is not None else True)
        first = np.where(inside, known.window(window) + (keys < known.bound), first)
    frames = _runs(window, entries, first, until, last)
    whole = total_of(frames.windows)
    if until < FOREVER and whole > cap.rows:
        frames = _first_ones(frames, cap.rows, least_place[0])
    try:
        frames, shown = shown_as(query, frames).expanded(frames)
    except TooManyError as error:
        return [refused(query, error)], everything
    reached = everything
    if until < FOREVER and whole > cap.rows:
        order = np.lexsort((keys[frames.group], frames.first))
        cut = order[cap.rows - 1] if cap.rows else None
        place = (NEVER, LEAST_KEY) if cut is None else (int(frames.first[cut]), int(keys[frames.group[cut]]) + 1)
        place = max(place, least_place)
        number, bound = place if place[1] <= GREATEST_KEY else (place[0] + 1, LEAST_KEY)
        out = (frames.first < number) | ((frames.first == number) & (keys[frames.group] < bound))
        if int(out.sum()) < whole:
            reached = Flushed(*own, window.start + number * window.slide, bound)
            frames, shown = frames.take(out), shown.take(out)
    return [results_of(gathered.plan, query, entries, frames, shown)], reached


def _runs(window: Sliding | Landmark, entries: Entries, first: Ints, until: int, last: tuple[int, int]) -> Frames:
    """The windows that end by `until`, of each group from its `first` one on."""
    if isinstance(window, Sliding):
        ends = np.full(len(first), window.closed(until) - 1, dtype=np.int64)
        places = entries.starts, entries.positions, window.range, window.slide, window.start
        return framing.sliding(*places, first, ends)
    progress, newest = last
    end = max(window.closed(progress) - 1, window.closed(newest)) if until >= FOREVER else window.closed(until) - 1
    frames = framing.landmark(entries.starts, entries.positions, window.slide, window.start, int(first.min()), end)
    frames = replace(frames, first=np.maximum(frames.first, first[frames.group]))
    return frames.take(frames.first <= frames.last)


def _first_ones(frames: Frames, rows: int, least: int) -> Frames:
    """The first windows that hold more than `rows` results, and all before `least`: no others are emitted now."""

    def until(last: int) -> Ints:
        return np.clip(np.minimum(frames.last, last) - frames.first + 1, 0, None)

    low, high = int(frames.first.min()), int(frames.last.max())
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if total_of(until(middle)) > rows else (middle + 1, high)
    last = max(low, least)
    cut = replace(frames, last=np.minimum(frames.last, last))
    return cut.take(cut.first <= cut.last)


def _least_place(window: Sliding | Landmark, ranges: Sequence[Flushed], until: int, cap: Cap) -> tuple[int, int]:
    """The window and key before which everything must be emitted: what is overdue, and what was emitted already."""
    places = {(known.window(window), known.bound) for known in ranges}
    if len(places) > 1:
        # Tasks own other key ranges than before: what was emitted for part of a range must not be emitted again.
        places = {(number + (bound > LEAST_KEY), LEAST_KEY) for number, bound in places}
    return max([(window.closed(until) - cap.behind, LEAST_KEY), *places])


def _touching(ranges: Sequence[Flushed], own: tuple[int, int | None]) -> list[Flushed]:
    low, high = own
    return [
        known for known in ranges
        if (high is None or known.low < high) and (known.high is None or known.high > low)
    ]  # fmt: skip


def share_of(rows: int, task: int, tasks: int) -> int:
    """A task's share of the results that a step may emit."""
    return rows * (task + 1) // tasks - rows * task // tasks


def least(ranges: Sequence[Flushed]) -> int:
    """The time up to which all windows are emitted."""
    return min((known.until for known in ranges), default=NEVER)
