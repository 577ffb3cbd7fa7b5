"""Values with counts: the state of exact DISTINCT and heavy hitters, folded over windows with one counter per value.

Consecutive windows differ by the entries that leave and enter, so counters are decremented and incremented (Li 2008,
6.2.4: the hash table of counts that makes a holistic function pseudo-differential).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit, types

from penstock.kernels.aggregate.codes import tidy
from penstock.kernels.delta import ranks
from penstock.state.run import Ints


@dataclass(frozen=True)
class Bags:
    """Entry i has the items [offsets[i], offsets[i + 1]), each a value's code and its count. `values` ascend."""

    offsets: Ints
    codes: Ints
    counts: Ints
    values: pa.Array

    def take(self, index: Ints) -> Bags:
        sizes = np.diff(self.offsets)[index]
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
        items = np.repeat(self.offsets[index] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return Bags(offsets, self.codes[items], self.counts[items], self.values)

    def fold(self, low: Ints, high: Ints) -> Bags:
        offsets = np.zeros(len(low) + 1, dtype=np.int64)
        size = max(1024, 2 * len(self.codes))
        while True:
            out = np.empty((2, size), dtype=np.int64)
            if _fold(self.offsets, self.codes, self.counts, len(self.values), low, high, offsets, out) >= 0:
                break
            size *= 4
        ends = int(offsets[-1])
        return Bags(offsets, out[0, :ends].copy(), out[1, :ends].copy(), self.values)

    def distinct(self, low: Ints, high: Ints) -> Ints:
        """The number of different values in each frame, without materializing them."""
        out = np.empty(len(low), dtype=np.int64)
        _distinct(self.offsets, self.codes, len(self.values), low, high, out)
        return out

    def store(self) -> tuple[pa.Array, ...]:
        offsets = pa.array(self.offsets.astype(np.int32))
        values = pa.ListArray.from_arrays(offsets, self.values.take(pa.array(self.codes)))
        return values, pa.ListArray.from_arrays(offsets, pa.array(self.counts))


def lift_bags(values: pa.Array) -> Bags:
    """One bag per row; NULL is skipped."""
    values = tidy(values)
    valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(valid.astype(np.int64))])
    found = ranks(values)[valid]
    return Bags(offsets, found, np.ones(len(found), dtype=np.int64), _ascending(values))


def load_bags(values: pa.Array, counts: pa.Array) -> Bags:
    """Bags as stored."""
    sizes = values.value_lengths().to_numpy(zero_copy_only=False)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])
    items = values.flatten()
    return Bags(offsets, ranks(items), counts.flatten().to_numpy(), _ascending(items))


def _ascending(values: pa.Array) -> pa.Array:
    # The order in which `ranks` numbers them.
    dictionary = values.drop_null().dictionary_encode().dictionary
    return dictionary.take(pc.array_sort_indices(dictionary))


_IN = types.Array(types.int64, 1, "C", readonly=True)
_OUT = types.Array(types.int64, 1, "C")
_INT = types.int64


@njit(types.void(_IN, _IN, _INT, _IN, _IN, _OUT), cache=True, nogil=True)
def _distinct(offsets, codes, values, low, high, out):  # type: ignore[no-untyped-def]
    live = np.zeros(values, dtype=np.int64)
    first, done, different = 0, 0, 0
    for i in range(low.shape[0]):
        if low[i] >= done or low[i] < first:
            for k in range(offsets[first], offsets[done]):
                live[codes[k]] = 0
            first, done, different = low[i], low[i], 0
        for k in range(offsets[done], offsets[high[i]]):
            if live[codes[k]] == 0:
                different += 1
            live[codes[k]] += 1
        for k in range(offsets[first], offsets[low[i]]):
            live[codes[k]] -= 1
            if live[codes[k]] == 0:
                different -= 1
        first, done = low[i], max(done, high[i])
        out[i] = different


@njit(_INT(_IN, _IN, _IN, _INT, _IN, _IN, _OUT, types.Array(_INT, 2, "C")), cache=True, nogil=True)
def _fold(offsets, codes, counts, values, low, high, bounds, out):  # type: ignore[no-untyped-def]
    """Write the items of each frame, ascending by value; -1 if `out` is too small."""
    live = np.zeros(values, dtype=np.int64)
    seats = np.empty(values, dtype=np.int64)  # the place of a live value in `present`
    present = np.empty(values, dtype=np.int64)
    standing, first, done, found = 0, 0, 0, 0
    for i in range(low.shape[0]):
        if low[i] >= done or low[i] < first:
            for s in range(standing):
                live[present[s]] = 0
            standing, first, done = 0, low[i], low[i]
        for k in range(offsets[done], offsets[high[i]]):
            code = codes[k]
            if live[code] == 0:
                seats[code] = standing
                present[standing] = code
                standing += 1
            live[code] += counts[k]
        for k in range(offsets[first], offsets[low[i]]):
            code = codes[k]
            live[code] -= counts[k]
            if live[code] == 0:
                standing -= 1
                moved = present[standing]
                present[seats[code]] = moved
                seats[moved] = seats[code]
        first, done = low[i], max(done, high[i])
        if found + standing > out.shape[1]:
            return -1
        ordered = np.sort(present[:standing])
        for s in range(standing):
            out[0, found + s], out[1, found + s] = ordered[s], live[ordered[s]]
        for s in range(standing):  # seats are in sorted order
            present[s] = ordered[s]
            seats[ordered[s]] = s
        found += standing
        bounds[i + 1] = found
    return found
