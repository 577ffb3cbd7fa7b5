"""Lookups without an equality: by an inequality that both sides of a pair decide, through sorted values, else by time alone.

`p.v BETWEEN q.v - 1 AND q.v + 1` has one side that only the row looked up decides, and sides that the composite decides. The
rows are sorted by the former, and each composite has a range of them. A range may hold too much (never too little): the condition itself
is evaluated on every pair afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit, types

from penstock.kernels.compare import Lookup, values
from penstock.kernels.probe import _IDS, _INTS, _INTS2, _OUT, _OUT_WORDS, _WORDS, CHUNK, Counts, Reach, Words
from penstock.model import And, Arithmetic, Compare, Literal, Ref, Term
from penstock.planner.network import Join
from penstock.state.run import Ints, Rows

Floats = npt.NDArray[np.float64]
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class Bound:
    """The values of a row have to be at most (`<`), at least (`>`) or equal to (`=`) what the composite says."""

    own: Term
    op: str
    other: Term


def common_bounds(join: Join, position: int, known: Sequence[int]) -> list[Bound]:
    """Inequalities between a position and known ones that every query of the join demands, all of one term of the position."""
    demanded = [
        {b for r in m.residuals if r.total and r.term is not None for b in _bounds(r.term, position, set(known))}
        for m in join.leads
    ]
    shared = set.intersection(*demanded) if demanded else set()
    by_term: dict[Term, list[Bound]] = {}
    for bound in shared:
        by_term.setdefault(bound.own, []).append(bound)
    return max(by_term.values(), key=lambda some: (len({b.op for b in some}), repr(some)), default=[])


def _bounds(term: Term, position: int, known: set[int]) -> Iterator[Bound]:
    if isinstance(term, And):
        for part in term.terms:
            yield from _bounds(part, position, known)
    if not isinstance(term, Compare) or term.op not in _FLIPPED:
        return
    for own, op, other in ((term.left, term.op, term.right), (term.right, _FLIPPED[term.op], term.left)):
        if _roles(own) == {position} and _roles(other) and _roles(other) <= known:
            yield Bound(own, op[0], other)


def _roles(term: Term) -> set[int]:
    match term:
        case Ref(role, _):
            return {role}
        case Arithmetic(_, left, right):
            return _roles(left) | _roles(right)
        case Literal():
            return set()
        case _:
            return {-2}  # no plain value


def numbers(term: Term, lookup: Lookup, count: int) -> Floats | None:
    """The values as numbers in their order, NaN (which is the largest) as infinity, NULL as NaN; None if they are none."""
    found, _ = values(term, lookup, count)
    if pa.types.is_timestamp(found.type):
        found = found.cast(pa.int64())
    if not (pa.types.is_integer(found.type) or pa.types.is_floating(found.type)):
        return None
    plain = pc.cast(found, pa.float64(), safe=False)
    plain = pc.if_else(pc.is_nan(plain), np.inf, plain)
    return np.asarray(pc.fill_null(plain, np.nan).to_numpy(zero_copy_only=False))


def ranges(bounds: Sequence[Bound], of_rows: Floats, of_composites: Sequence[Floats]) -> tuple[Ints, Ints, Ints]:
    """(order of the rows by value, first and last place of each composite's range in it)."""
    order = np.argsort(of_rows, kind="stable")
    ordered = of_rows[order]
    held = int(np.searchsorted(ordered, np.nan))  # NULLs are last, and match nothing
    low = np.zeros(len(of_composites[0]), dtype=np.int64)
    high = np.full(len(of_composites[0]), held, dtype=np.int64)
    for bound, wanted in zip(bounds, of_composites, strict=True):
        if bound.op in "<=":
            high = np.minimum(high, np.searchsorted(ordered[:held], wanted, side="right"))
        if bound.op in ">=":
            low = np.maximum(low, np.searchsorted(ordered[:held], wanted, side="left"))
        high[np.isnan(wanted)] = 0
    return order, low, np.maximum(low, high)


def pairs_by_time(times: Ints, rows: Rows, reach: Reach) -> int:
    """Pairs that time alone leaves, of rows sorted by time."""
    first = np.searchsorted(rows.time, times - reach.low)
    last = np.searchsorted(rows.time, times + reach.high, side="right")
    return int((last - first).sum())


def scan(
    times: Ints,
    bits: Words,
    rows: Rows,
    order: Ints,
    low: Ints,
    high: Ints,
    served: Words,
    reach: Reach,
    counts: Counts,
    chunk: int = CHUNK,
) -> Iterator[tuple[Ints, Ints, Words]]:
    """Yield the pairs of each composite and the rows in its range that some query wants, as `probe` does."""
    times, bits = np.ascontiguousarray(times), np.ascontiguousarray(bits)
    position, tally = np.array([0, -1], dtype=np.int64), np.zeros(2, dtype=np.int64)
    while position[0] < len(times):
        left, right = np.empty(chunk, dtype=np.int64), np.empty(chunk, dtype=np.int64)
        pair_bits = np.empty((chunk, bits.shape[1]), dtype=np.uint64)
        found = _scan(
            times, bits, rows.time, rows.bits, order, low, high, served, reach.offsets, reach.cuts, reach.masks, position, tally,
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
    times, bits, run_times, run_bits, order, low, high, served, offsets, cuts, masks, position, tally, left, right, pair_bits,
):  # fmt: skip
    """Fill the output from where `position` = (composite, place in the order or -1) stands; the number of pairs."""
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
            # The same test as in `probe`: a function for both, inlined or not, made probes 1.3 to 2 times slower.
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
