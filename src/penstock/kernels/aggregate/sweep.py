"""Aggregates of many frames over the same entries in constant work per entry (compiled).

Integers are summed by differences of prefix sums, which is exact since sums wrap, or with two stacks for comparison.
What cannot be subtracted (extremes) or would drift (sums of doubles) uses two stacks: suffixes of an older part, and
one running value of a newer part. Frames must ascend at both ends within a group and not overlap between groups;
segments to merge are such frames too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, types

from penstock.state.run import Ints

Doubles = npt.NDArray[np.float64]

LEAST, GREATEST = 0, 1  # kinds of integer sweeps
SUM, MOMENTS = 0, 1  # kinds of sweeps of doubles

EMPTY_LEAST = np.iinfo(np.int64).max  # the least of no values
EMPTY_GREATEST = np.iinfo(np.int64).min


def sums(values: Ints, low: Ints, high: Ints) -> Ints:
    """The sums of values[low:high], modulo 2 ** 64."""
    prefix = np.empty(len(values) + 1, dtype=np.int64)
    prefix[0] = 0
    np.cumsum(values, out=prefix[1:])
    return differences(prefix, low, high)


def totals(values: Ints, low: Ints, high: Ints) -> Ints:
    """As `sums`, but merged with two stacks, without subtraction."""
    out = np.empty(len(low), dtype=np.int64)
    _totals(np.ascontiguousarray(values), low, high, out)
    return out


def differences(prefix: Ints, low: Ints, high: Ints) -> Ints:
    """prefix[high] - prefix[low]."""
    out = np.empty(len(low), dtype=np.int64)
    _differences(prefix, low, high, out)
    return out


def extremes(kind: int, values: Ints, low: Ints, high: Ints) -> Ints:
    """The least or greatest of values[low:high]."""
    out = np.empty(len(low), dtype=np.int64)
    _extremes(kind, values, low, high, out)
    return out


def merged(kind: int, values: Doubles, low: Ints, high: Ints) -> Doubles:
    """Merge rows low to high of `values`: (sum, error of the sum), or (count, mean, squared deviations)."""
    out = np.empty((len(low), values.shape[1]), dtype=np.float64)
    _merged(kind, values, low, high, out)
    return out


_IN = types.Array(types.int64, 1, "C", readonly=True)
_OUT = types.Array(types.int64, 1, "C")
_IN_DOUBLES = types.Array(types.float64, 2, "C", readonly=True)
_OUT_DOUBLES = types.Array(types.float64, 2, "C")
_ROW = types.Array(types.float64, 1, "C")


@njit(types.void(_IN, _IN, _IN, _OUT), cache=True, nogil=True)
def _differences(prefix, low, high, out):  # type: ignore[no-untyped-def]
    for i in range(low.shape[0]):
        out[i] = prefix[high[i]] - prefix[low[i]]


@njit(types.void(_IN, _IN, _IN, _OUT), cache=True, nogil=True)
def _totals(values, low, high, out):  # type: ignore[no-untyped-def]
    older = np.empty(values.shape[0], dtype=np.int64)  # older[i] = sum of values[i:split]
    split, done, newer = 0, 0, 0
    for i in range(low.shape[0]):
        if low[i] >= split or low[i] < (low[i - 1] if i else 0):
            split = high[i]
            kept = 0
            for j in range(split - 1, low[i] - 1, -1):
                kept += values[j]
                older[j] = kept
            done, newer = split, 0
        while done < high[i]:
            newer += values[done]
            done += 1
        out[i] = newer + (older[low[i]] if low[i] < split else 0)


@njit(types.void(types.int64, _IN, _IN, _IN, _OUT), cache=True, nogil=True)
def _extremes(kind, values, low, high, out):  # type: ignore[no-untyped-def]
    empty = EMPTY_LEAST if kind == LEAST else EMPTY_GREATEST
    older = np.empty(values.shape[0], dtype=np.int64)  # older[i] = extreme of values[i:split]
    split, done, newer = 0, 0, empty
    for i in range(low.shape[0]):
        if low[i] >= split or low[i] < (low[i - 1] if i else 0):
            split = high[i]
            kept = empty
            for j in range(split - 1, low[i] - 1, -1):
                kept = min(kept, values[j]) if kind == LEAST else max(kept, values[j])
                older[j] = kept
            done, newer = split, empty
        while done < high[i]:
            newer = min(newer, values[done]) if kind == LEAST else max(newer, values[done])
            done += 1
        whole = older[low[i]] if low[i] < split else empty
        out[i] = min(whole, newer) if kind == LEAST else max(whole, newer)


@njit(types.void(types.int64, _ROW, _IN_DOUBLES, types.int64), cache=True, nogil=True)
def _add(kind, kept, values, row):  # type: ignore[no-untyped-def]
    """Merge one row of `values` into `kept`."""
    if kind == SUM:
        a, b = kept[0], values[row, 0]
        total = a + b
        if np.isfinite(total):
            back = total - a
            kept[1] += (a - (total - back)) + (b - back) + values[row, 1]
        else:
            kept[1] = 0.0  # infinity or NaN has no error
        kept[0] = total
        return
    if values[row, 0] <= 0:
        return
    count = kept[0] + values[row, 0]
    share, apart = values[row, 0] / count, values[row, 1] - kept[1]
    # In this order: a square may overflow, and zero times infinity is NaN.
    kept[2] += values[row, 2] + apart * (apart * (kept[0] * share))
    kept[1] = kept[1] + apart * share if np.isfinite(apart) else kept[1] * (1 - share) + values[row, 1] * share
    kept[0] = count


@njit(types.void(types.int64, _IN_DOUBLES, _IN, _IN, _OUT_DOUBLES), cache=True, nogil=True)
def _merged(kind, values, low, high, out):  # type: ignore[no-untyped-def]
    width = values.shape[1]
    older = np.empty((values.shape[0], width), dtype=np.float64)
    newer = np.zeros(width, dtype=np.float64)
    kept = np.zeros(width, dtype=np.float64)
    split, done = 0, 0
    for i in range(low.shape[0]):
        if low[i] >= split or low[i] < (low[i - 1] if i else 0):
            split = high[i]
            kept[:] = 0.0
            for j in range(split - 1, low[i] - 1, -1):
                _add(kind, kept, values, j)
                older[j] = kept
            done = split
            newer[:] = 0.0
        while done < high[i]:
            _add(kind, newer, values, done)
            done += 1
        kept[:] = newer
        if low[i] < split:
            _add(kind, kept, older, low[i])
        out[i] = kept
