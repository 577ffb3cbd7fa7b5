"""Which entries each window covers: sorted positions in, frames out (compiled).

An *entry* is a row or the partial of a pane; entries are sorted by group and position. A *frame* is a range of windows
of one group that cover the same entries, so that their result is computed once. Pointers find frames in one forward
pass; within a group both ends of frames ascend. Nothing here depends on the aggregate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit, types

from penstock.state.run import Ints


@dataclass(frozen=True)
class Frames:
    """Windows `first` to `last` of `group` cover the entries [low, high), at least one."""

    group: Ints
    first: Ints
    last: Ints
    low: Ints
    high: Ints

    def __len__(self) -> int:
        return len(self.group)

    def take(self, chosen: npt.NDArray[np.bool_]) -> Frames:
        """The frames where `chosen` is true."""
        return Frames(self.group[chosen], self.first[chosen], self.last[chosen], self.low[chosen], self.high[chosen])

    @property
    def windows(self) -> Ints:
        """The number of windows in each frame."""
        return np.asarray(self.last - self.first + 1)


def sliding(starts: Ints, positions: Ints, length: int, slide: int, origin: int, first: Ints, last: Ints) -> Frames:
    """Windows n = [origin + (n + 1) * slide - length, origin + (n + 1) * slide) with first <= n <= last.

    Group g has the entries [starts[g], starts[g + 1]). `first` and `last` are one bound for all groups or one for each.
    """
    room = _room(starts, positions, first, last)
    out = np.empty((5, room), dtype=np.int64)
    return _frames(out, _sliding(starts, positions, length, slide, origin, first, last, out))


def landmark(starts: Ints, positions: Ints, slide: int, origin: int, first: int, last: int) -> Frames:
    """Windows n = (.., origin + (n + 1) * slide) with first <= n <= last."""
    bounds = np.array([first], dtype=np.int64), np.array([last], dtype=np.int64)
    out = np.empty((5, _room(starts, positions, *bounds)), dtype=np.int64)
    return _frames(out, _landmark(starts, positions, slide, origin, first, last, out))


def listed(starts: Ints, positions: Ints, length: int, ends: Ints, begins: Ints, stops: Ints) -> Frames:
    """Windows (w - length, w] for the ascending w in ends[begins[g]:stops[g]] of group g; ids are indexes of `ends`."""
    out = np.empty((5, min(int((stops - begins).sum()), 2 * len(positions) + len(starts))), dtype=np.int64)
    return _frames(out, _listed(starts, positions, length, ends, begins, stops, out))


def sessions(starts: Ints, begins: Ints, ends: Ints, gap: int, after: int, until: int) -> Frames:
    """Entries less than `gap` apart whose session end, `gap` after the last row, is in (after, until].

    Entry i has rows from begins[i] to ends[i]. A frame's `first` and `last` are the start and the end of its session.
    """
    out = np.empty((5, len(begins)), dtype=np.int64)
    return _frames(out, _sessions(starts, begins, ends, gap, after, until, out))


def in_order(keys: Ints, times: Ints, bounds: Ints) -> bool:
    """Whether each range [bounds[r], bounds[r + 1]) is sorted by key and time."""
    return bool(_in_order(keys, times, bounds))


def merge_order(keys: Ints, times: Ints, bounds: Ints) -> Ints:
    """The order by key and time of sorted ranges; among equal rows, those of earlier ranges first."""
    order, spare = np.arange(len(keys), dtype=np.int64), np.empty(len(keys), dtype=np.int64)
    while len(bounds) > 2:
        _merge_pairs(keys, times, bounds, order, spare)
        order, spare = spare, order
        bounds = np.append(bounds[:-1:2], bounds[-1])
    return order


def _room(starts: Ints, positions: Ints, first: Ints, last: Ints) -> int:
    # Contents change only where an entry enters or leaves; and there are no more frames than windows.
    changes = 2 * len(positions) + len(starts)
    widest = int((last.astype(np.float64) - first.astype(np.float64)).max()) + 2 if len(first) else 0
    return max(0, min(changes, widest * (len(starts) - 1)))


def _frames(out: npt.NDArray[np.int64], count: int) -> Frames:
    return Frames(*(out[k, :count] for k in range(5)))


_IN = types.Array(types.int64, 1, "C", readonly=True)
_OUT = types.Array(types.int64, 2, "C")
_INT = types.int64


@njit(_INT(_IN, _INT, _INT, _INT), cache=True, nogil=True)
def _first_at(positions, low, high, target):  # type: ignore[no-untyped-def]
    """The first index in [low, high) whose position is >= target; it is usually near `low`."""
    step = 1
    while low + step < high and positions[low + step] < target:
        step *= 2
    high = min(high, low + step + 1)
    while low < high:
        middle = (low + high) // 2
        if positions[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low


@njit(types.boolean(_IN, _IN, _IN), cache=True, nogil=True)
def _in_order(keys, times, bounds):  # type: ignore[no-untyped-def]
    for r in range(bounds.shape[0] - 1):
        for i in range(bounds[r] + 1, bounds[r + 1]):
            if keys[i] < keys[i - 1] or (keys[i] == keys[i - 1] and times[i] < times[i - 1]):
                return False
    return True


@njit(types.void(_IN, _IN, _IN, _IN, types.Array(_INT, 1, "C")), cache=True, nogil=True)
def _merge_pairs(keys, times, bounds, order, out):  # type: ignore[no-untyped-def]
    """Merge the first range with the second, the third with the fourth and so on."""
    for r in range(0, bounds.shape[0] - 1, 2):
        left, middle = bounds[r], bounds[r + 1]
        right, stop = middle, bounds[r + 2] if r + 2 < bounds.shape[0] else middle
        for place in range(left, stop):
            if right == stop:
                take = True
            elif left == middle:
                take = False
            else:
                a, b = order[left], order[right]
                take = keys[a] < keys[b] or (keys[a] == keys[b] and times[a] <= times[b])
            if take:
                out[place] = order[left]
                left += 1
            else:
                out[place] = order[right]
                right += 1


@njit(_INT(_IN, _IN, _INT, _INT, _INT, _IN, _IN, _OUT), cache=True, nogil=True)
def _sliding(starts, positions, length, slide, origin, firsts, lasts, out):  # type: ignore[no-untyped-def]
    found = 0
    for group in range(starts.shape[0] - 1):
        begin, stop = starts[group], starts[group + 1]
        if begin == stop:
            continue
        own = group if firsts.shape[0] > 1 else 0
        n = max(firsts[own], (positions[begin] - origin) // slide)
        last = lasts[own]
        low, high = begin, begin
        while n <= last:
            end = origin + (n + 1) * slide
            if low < stop and positions[low] < end - length:
                low = _first_at(positions, low, stop, end - length)
            if low == stop:
                break
            if positions[low] >= end:
                n = (positions[low] - origin) // slide  # the first window that ends after it
                continue
            high = max(high, low)
            if high < stop and positions[high] < end:
                high = _first_at(positions, high, stop, end)
            # The content stays the same until the first entry leaves or the next one enters.
            after = (positions[low] + length - origin) // slide
            if high < stop:
                after = min(after, (positions[high] - origin) // slide)
            after = min(after, last + 1)
            out[0, found], out[1, found], out[2, found] = group, n, after - 1
            out[3, found], out[4, found] = low, high
            found += 1
            n = after
    return found


@njit(_INT(_IN, _IN, _INT, _INT, _INT, _INT, _OUT), cache=True, nogil=True)
def _landmark(starts, positions, slide, origin, first, last, out):  # type: ignore[no-untyped-def]
    found = 0
    for group in range(starts.shape[0] - 1):
        begin, stop = starts[group], starts[group + 1]
        if begin == stop:
            continue
        n = max(first, (positions[begin] - origin) // slide)
        high = begin
        while n <= last:
            high = _first_at(positions, high, stop, origin + (n + 1) * slide) if high < stop else stop
            after = last + 1
            if high < stop:
                after = min(after, (positions[high] - origin) // slide)
            out[0, found], out[1, found], out[2, found] = group, n, after - 1
            out[3, found], out[4, found] = begin, high
            found += 1
            n = after
    return found


@njit(_INT(_IN, _IN, _INT, _IN, _IN, _IN, _OUT), cache=True, nogil=True)
def _listed(starts, positions, length, ends, begins, stops, out):  # type: ignore[no-untyped-def]
    found = 0
    for group in range(starts.shape[0] - 1):
        low, high, stop = starts[group], starts[group], starts[group + 1]
        open_frame = False
        for w in range(begins[group], stops[group]):
            before_low, before_high = low, high
            while low < stop and positions[low] <= ends[w] - length:
                low += 1
            high = max(high, low)
            while high < stop and positions[high] <= ends[w]:
                high += 1
            if low == high:
                open_frame = False
                continue
            if open_frame and low == before_low and high == before_high:
                out[2, found - 1] = w
                continue
            open_frame = True
            out[0, found], out[1, found], out[2, found], out[3, found], out[4, found] = group, w, w, low, high
            found += 1
    return found


@njit(_INT(_IN, _IN, _IN, _INT, _INT, _INT, _OUT), cache=True, nogil=True)
def _sessions(starts, begins, ends, gap, after, until, out):  # type: ignore[no-untyped-def]
    found = 0
    for group in range(starts.shape[0] - 1):
        low, stop = starts[group], starts[group + 1]
        while low < stop:
            high, end = low + 1, ends[low]
            while high < stop and begins[high] < end + gap:
                end = max(end, ends[high])
                high += 1
            if after < end + gap <= until:
                out[0, found], out[1, found], out[2, found] = group, begins[low], end + gap
                out[3, found], out[4, found] = low, high
                found += 1
            low = high
    return found
