"""Lookups without an equality: each composite scans a range of the sorted rows, which `ranges` or time decides."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit, types

from penstock.kernels.probe import _IDS, _INTS, _INTS2, _OUT, _OUT_WORDS, _WORDS, CHUNK, Counts, Reach, Words
from penstock.kernels.ranges import Ranges
from penstock.state.run import Ints, Rows


def pairs_by_time(times: Ints, rows: Rows, reach: Reach) -> int:
    """How many pairs are in reach by time alone, of rows sorted by time."""
    first = np.searchsorted(rows.time, times - reach.low)
    last = np.searchsorted(rows.time, times + reach.high, side="right")
    return int((last - first).sum())


def scan(
    times: Ints,
    bits: Words,
    rows: Rows,
    ranges: Ranges,
    served: Words,
    reach: Reach,
    counts: Counts,
    chunk: int = CHUNK,
) -> Iterator[tuple[Ints, Ints, Words]]:
    """Yield the pairs of each composite and the rows in its ranges that some query wants, as `probe` does."""
    for order, low, high in ranges.parts:
        yield from _pairs(times, bits, rows, order, low, high, served, reach, counts, chunk)


def _pairs(
    times: Ints,
    bits: Words,
    rows: Rows,
    order: Ints,
    low: Ints,
    high: Ints,
    served: Words,
    reach: Reach,
    counts: Counts,
    chunk: int,
) -> Iterator[tuple[Ints, Ints, Words]]:
    times, bits = np.ascontiguousarray(times), np.ascontiguousarray(bits)
    position, tally = np.array([0, -1], dtype=np.int64), np.zeros(2, dtype=np.int64)
    while position[0] < len(times):
        left, right = np.empty(chunk, dtype=np.int64), np.empty(chunk, dtype=np.int64)
        pair_bits = np.empty((chunk, bits.shape[1]), dtype=np.uint64)
        found = _scan(
            times, bits, rows.time, rows.bits, order, low, high, served,
            reach.offsets, reach.cuts, reach.masks, position, tally,
            left, right, pair_bits,
        )  # fmt: skip
        if found:
            yield left[:found], right[:found], pair_bits[:found]
    counts.candidates += int(tally[0])
    counts.compared += int(tally[1])


@njit(
    types.int64(
        _INTS2,
        _WORDS,
        _INTS,
        _IDS,
        _INTS,
        _INTS,
        _INTS,
        _WORDS,
        _INTS,
        _INTS,
        _WORDS,
        _OUT,
        _OUT,
        _OUT,
        _OUT,
        _OUT_WORDS,
    ),
    cache=True,
    nogil=True,
)
def _scan(  # type: ignore[no-untyped-def]
    times, bits, run_times, run_bits, order, low, high, served,
    offsets, cuts, masks, position, tally, left, right, pair_bits,
):  # fmt: skip
    """Fill the output from where `position` = (composite, place in the order or -1) stands; returns how many pairs."""
    words, known, room = bits.shape[1], times.shape[1], left.shape[0]
    found, i, j = 0, position[0], position[1]
    while i < times.shape[0]:
        if j < 0:
            j = low[i]
        while j < high[i]:
            if found == room:
                position[0], position[1] = i, j
                return found
            tally[0] += 1
            row = order[j]
            # The same test as in `probe`: a shared function, inlined or not, made probes 1.3 to 2 times slower.
            alive = np.uint64(0)
            for w in range(words):
                both = bits[i, w] & served[run_bits[row], w]
                pair_bits[found, w] = both
                alive |= both
            for k in range(known):
                difference = run_times[row] - times[i, k]
                for side in range(2):
                    if alive == 0:
                        break
                    cut, end = offsets[2 * k + side], offsets[2 * k + side + 1]
                    while cut < end and cuts[cut] < difference:
                        cut += 1
                    alive = np.uint64(0)
                    if cut < end:
                        for w in range(words):
                            both = pair_bits[found, w] & masks[cut, w]
                            pair_bits[found, w] = both
                            alive |= both
                    difference = -difference
            if alive != 0:
                tally[1] += 1
                left[found] = i
                right[found] = row
                found += 1
            j += 1
        j = -1
        i += 1
    position[0], position[1] = i, -1
    return found
