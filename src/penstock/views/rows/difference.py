"""The signed rows by which two bags differ, at little more than the cost of reading both.

Unchanged rows are paired by their codes and compared directly; only the others are added up.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import njit, types

from penstock.columns.codes import codes_of
from penstock.columns.hash import Ints
from penstock.views.rows.bag import COUNT, counts, negated, normalized, total
from penstock.views.rows.match import hash_table, slot_of


def difference(before: pa.Table, after: pa.Table) -> pa.Table:
    """`after` less `before`, consolidated; both have the same columns, in any order."""
    gone, come = _unpaired(before, after)
    return total([come, negated(gone)])


def remaining(rows: pa.Table, gone: pa.Table) -> pa.Table:
    """`rows` less the deleted ones; equal rows are added up only if other numbers were deleted than inserted."""
    left, stayed = _unpaired(gone, rows)
    return total([stayed, negated(left)]) if len(left) else stayed


def _unpaired(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both without their common rows."""
    before, after = before.select(after.column_names).combine_chunks(), after.combine_chunks()
    names = [name for name in after.column_names if name != COUNT]
    if not names or not len(before) or not len(after):
        return before, after
    partner = _partners(codes_of(before, names), counts(before), codes_of(after, names), counts(after))
    there = np.flatnonzero(partner >= 0)
    if not _same(before, partner[there], after, there, names):
        return before, after  # two different rows share a code
    alone = np.ones(len(before), np.bool_)
    alone[partner[there]] = False
    return before.filter(pa.array(alone)), after.filter(pa.array(partner < 0))


def _same(before: pa.Table, at: Ints, after: pa.Table, there: Ints, names: list[str]) -> bool:
    one, other = pa.array(at), pa.array(there)
    return all(_bits(before.column(n).take(one)).equals(_bits(after.column(n).take(other))) for n in names)


def _bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in which equal values are equal bit by bit, NaN too."""
    if not pa.types.is_floating(values.type):
        return values
    kind = pa.int64() if values.type == pa.float64() else pa.int32()
    return pa.chunked_array([normalized(chunk).view(kind) for chunk in values.chunks], kind)


_INTS = types.Array(types.int64, 1, "C", readonly=True)
_OUT = types.Array(types.int64, 1, "C")


@njit(_OUT(_INTS, _INTS, _INTS, _INTS), cache=True, nogil=True)
def _partners(codes: Ints, times: Ints, others: Ints, others_times: Ints) -> Ints:
    """For each of the others a row of the same code and count that no other row has, or -1."""
    heads, following = hash_table(codes, np.ones(len(codes), np.bool_))
    found = np.full(len(others), -1, np.int64)
    for other in range(len(others)):
        slot = slot_of(others[other], len(heads))
        last, row = -1, heads[slot]
        while row >= 0:
            if codes[row] == others[other] and times[row] == others_times[other]:
                found[other] = row
                if last < 0:
                    heads[slot] = following[row]
                else:
                    following[last] = following[row]
                break
            last, row = row, following[row]
    return found
