"""The probe: join sorted rows with sorted rows by key and time, for many queries at once (compiled).

One call joins a sorted block of *composites* (delta rows, or rows already joined) with one run. Common keys are found
by galloping on both sides, so that the shorter side sets the cost; partners inside a key by pointers that only move
forward. The queries that a pair can serve are the AND of the bits of both sides and of the windows that contain the
pair's ages. A pair that serves no query is not produced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt
from numba import njit, types

from penstock.planner.join import Join
from penstock.state.buckets import BUCKETS
from penstock.state.run import Ints, Rows

Words = npt.NDArray[np.uint64]

CHUNK = 1 << 19  # pairs per call: bounds the memory of one expansion


@dataclass
class Counts:
    """Work of probes: rows looked up, pairs inside the longest window, pairs that some query wanted.

    `by_bucket` are the pairs inside the longest window, by the bucket of their key.
    """

    probed: int = 0
    candidates: int = 0
    compared: int = 0
    by_bucket: Ints = field(default_factory=lambda: np.zeros(BUCKETS, dtype=np.int64))

    def add(self, other: Counts) -> None:
        self.probed += other.probed
        self.candidates += other.candidates
        self.compared += other.compared


@dataclass(frozen=True)
class Reach:
    """The windows of one hop as tables: for each position already joined, cut points of time difference and masks.

    For a difference d = (probed time - known time), the queries whose bound allows d are `mask[first cut >= d]`.
    `low` and `high` are the widest differences to the start position that any query allows.
    """

    low: int
    high: int
    offsets: Ints
    cuts: Ints
    masks: Words


def word_count(bits: int) -> int:
    return max(1, (bits + 63) // 64)


def to_words(mask: int, words: int) -> list[int]:
    """A Python integer as 64-bit words, lowest first."""
    return [(mask >> (64 * w)) & 0xFFFF_FFFF_FFFF_FFFF for w in range(words)]


def build_reach(join: Join, known: Sequence[int], target: int) -> Reach:
    """The tables for probing position `target` with composites of the `known` positions (the first is the start)."""
    words = word_count(len(join.leads))
    offsets, cuts, masks = [0], [], []
    for position in known:
        for low, high in ((position, target), (target, position)):
            steps: list[tuple[int, list[int]]] = []
            mask = 0
            bounded = sorted((m.bounds[low][high], m.bit) for m in join.leads)
            for cut, group in groupby(reversed(bounded), key=itemgetter(0)):
                mask |= sum(1 << bit for _, bit in group)
                steps.append((cut, to_words(mask, words)))
            cuts += [cut for cut, _ in reversed(steps)]
            masks += [allowed for _, allowed in reversed(steps)]
            offsets.append(len(cuts))
    start = known[0]
    return Reach(
        low=max(m.bounds[target][start] for m in join.leads),
        high=max(m.bounds[start][target] for m in join.leads),
        offsets=np.array(offsets, dtype=np.int64),
        cuts=np.array(cuts, dtype=np.int64),
        masks=np.array(masks, dtype=np.uint64).reshape(len(cuts), words),
    )


def nearest(join: Join, known: Sequence[int], target: int) -> int:
    """The known position closest in time to the target's rows, by windows and bands: it reaches the fewest."""
    return min(
        known, key=lambda p: max(m.bounds[p][target] for m in join.leads) + max(m.bounds[target][p] for m in join.leads)
    )


def probe(
    keys: Ints, times: Ints, bits: Words, rows: Rows, served: Words, reach: Reach, counts: Counts, chunk: int = CHUNK
) -> Iterator[tuple[Ints, Ints, Words]]:
    """Yield matches as (index of composite, row of the run, bits of the pair), in bounded pieces.

    `keys` ascend, and `times[:, 0]` (the start position's time) ascends within a key. `served[p]` = the queries that a
    row with bits id p can serve at this position.
    """
    if len(keys) == 0 or len(rows) == 0 or keys[-1] < rows.key[0] or keys[0] > rows.key[-1]:
        return
    times, bits = np.ascontiguousarray(times), np.ascontiguousarray(bits)
    position = np.zeros(6, dtype=np.int64)
    candidates = np.zeros_like(counts.by_bucket)
    size = min(chunk, max(1024, 2 * min(len(keys), len(rows))))
    while position[0] < len(keys):
        left, right = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        pair_bits = np.empty((size, bits.shape[1]), dtype=np.uint64)
        found = _probe(
            keys, times, bits, rows.key, rows.time, rows.bits, served, reach.low, reach.high, reach.offsets,
            reach.cuts, reach.masks, position, candidates, left, right, pair_bits,
        )  # fmt: skip
        counts.compared += found
        if found:
            yield left[:found], right[:found], pair_bits[:found]
        size = chunk
    counts.candidates += int(candidates.sum())
    counts.by_bucket += candidates


# Fixed signatures: mapped runs are read-only arrays and fresh deltas are not; either kind would compile separately.
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_INTS2 = types.Array(types.int64, 2, "C", readonly=True)
_IDS = types.Array(types.int32, 1, "C", readonly=True)
_WORDS = types.Array(types.uint64, 2, "C", readonly=True)
_OUT = types.Array(types.int64, 1, "C")
_OUT_WORDS = types.Array(types.uint64, 2, "C")


@njit(types.int64(_INTS, types.int64, types.int64, types.int64), cache=True, nogil=True)
def _gallop(values, start, stop, target):  # type: ignore[no-untyped-def]
    """First index in [start, stop) whose value is >= target, galloping outward from start."""
    step, low, high = 1, start, start
    while high < stop and values[high] < target:
        low = high + 1
        high += step
        step *= 2
    high = min(high, stop)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low


@njit(
    types.int64(
        _INTS, _INTS2, _WORDS, _INTS, _INTS, _IDS, _WORDS, types.int64, types.int64, _INTS,
        _INTS, _WORDS, _OUT, _OUT, _OUT, _OUT, _OUT_WORDS,
    ),
    cache=True,
    nogil=True,
)  # fmt: skip
def _probe(  # type: ignore[no-untyped-def]
    keys, times, bits, run_keys, run_times, run_bits, served, low, high, offsets, cuts, masks,
    position, candidates, left, right, pair_bits,
):  # fmt: skip
    """Fill the output arrays from where `position` stands; returns the number of pairs, and advances `position`.

    position = (composite, next candidate or -1, start of key, end of key, window start, 1 if the key range is valid);
    `candidates` are counted by bucket, of which there are a power of two.
    """
    half, shift = len(candidates) // 2, 64
    while 1 << (64 - shift) < len(candidates):
        shift -= 1
    words = bits.shape[1]
    known = times.shape[1]
    room = left.shape[0]
    found = 0
    i, j, key_start, key_end, window, valid = (
        position[0],
        position[1],
        position[2],
        position[3],
        position[4],
        position[5],
    )
    if j == 0 and valid == 0:
        j = -1
    while i < keys.shape[0]:
        if j < 0:
            key = keys[i]
            if valid == 0 or keys[i - 1] != key:
                key_start = _gallop(run_keys, key_start, run_keys.shape[0], key)
                if key_start < run_keys.shape[0] and run_keys[key_start] == key:
                    key_end = (
                        _gallop(run_keys, key_start, run_keys.shape[0], key + 1)
                        if key < 9223372036854775807
                        else run_keys.shape[0]
                    )
                else:
                    # The run lacks this key: skip to the first composite with the run's next key.
                    if key_start == run_keys.shape[0]:
                        i = keys.shape[0]
                        break
                    i = _gallop(keys, i, keys.shape[0], run_keys[key_start])
                    valid = 1
                    continue
                window = key_start
                valid = 1
            window = _gallop(run_times, window, key_end, times[i, 0] - low)
            j = window
        limit = times[i, 0] + high
        before = j
        while j < key_end and run_times[j] <= limit:
            if found == room:
                candidates[(keys[i] >> shift) + half] += j - before
                position[0], position[1], position[2] = i, j, key_start
                position[3], position[4], position[5] = key_end, window, valid
                return found
            time = run_times[j]
            pattern = run_bits[j]
            alive = np.uint64(0)
            for w in range(words):
                both = bits[i, w] & served[pattern, w]
                pair_bits[found, w] = both
                alive |= both
            if alive != 0:
                for k in range(known):
                    difference = time - times[i, k]
                    for side in range(2):
                        begin, end = offsets[2 * k + side], offsets[2 * k + side + 1]
                        if end == begin + 1:  # the same window for all queries
                            cut = begin if difference <= cuts[begin] else end
                        else:
                            cut = _gallop(cuts, begin, end, difference)
                        alive = np.uint64(0)
                        if cut < end:
                            for w in range(words):
                                both = pair_bits[found, w] & masks[cut, w]
                                pair_bits[found, w] = both
                                alive |= both
                        if alive == 0:
                            break
                        difference = -difference
                    if alive == 0:
                        break
                if alive != 0:
                    left[found] = i
                    right[found] = j
                    found += 1
            j += 1
        if j > before:
            candidates[(keys[i] >> shift) + half] += j - before
        j = -1
        i += 1
    position[0] = i
    return found
