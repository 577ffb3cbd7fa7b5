"""Join columns as 64-bit codes, equal exactly where Spark holds the values equal, and the pairs of matching rows.

Integers, dates and times are their own codes; doubles are the bits of the normalized value; strings and decimals get
numbers from a dictionary that grows during one refresh.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit, types

from penstock.columns.hash import Ints, whole_numbers
from penstock.errors import RegistrationError
from penstock.views.rows.fit import as_double

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Codes:
    """One code per row, and whether the row has one: NULL matches nothing."""

    codes: Ints
    valid: Flags

    def take(self, rows: Ints) -> Codes:
        return Codes(self.codes[rows], self.valid[rows])


NO_CODES = Codes(np.empty(0, np.int64), np.empty(0, np.bool_))


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type in which Spark compares two columns."""
    for test, kind in ((pa.types.is_integer, pa.int64()), (pa.types.is_string, pa.string())):
        if test(left) and test(right):
            return kind
    if _number(left) and _number(right):
        if pa.types.is_floating(left) or pa.types.is_floating(right):
            return pa.float64()
        return pa.decimal128(38, max(t.scale if pa.types.is_decimal(t) else 0 for t in (left, right)))
    if left == right:
        return left
    raise RegistrationError(f"a {left} column does not join with a {right} column; cast one of them in its source")


@dataclass
class Dictionary:
    """Numbers for values of one type, in order of first occurrence."""

    known: pa.Array | None = field(default=None)

    def encode(self, values: pa.Array) -> Ints:
        """The number of each value; undefined for NULL."""
        fresh = pc.drop_null(pc.unique(values))
        if self.known is None:
            self.known = fresh
        else:
            fresh = fresh.filter(pc.invert(pc.is_in(fresh, value_set=self.known)))
            self.known = pa.concat_arrays([self.known, fresh]) if len(fresh) else self.known
        found = pc.index_in(values, value_set=self.known)
        return np.asarray(pc.fill_null(found, 0).to_numpy(zero_copy_only=False), dtype=np.int64)


class Coder:
    """Turns columns into codes; codes of one `kind` are comparable for the lifetime of the coder."""

    def __init__(self) -> None:
        self._dictionaries: dict[pa.DataType, Dictionary] = {}

    def encode(self, values: pa.Array, kind: pa.DataType) -> Codes:
        """The codes of a column that is compared as `kind`."""
        valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        if values.type != kind:
            values = as_double(values) if pa.types.is_floating(kind) else values.cast(kind)
        if pa.types.is_string(kind) or pa.types.is_decimal(kind):
            return Codes(self._dictionaries.setdefault(kind, Dictionary()).encode(values), valid)
        return Codes(whole_numbers(values), valid)


def combined(left: list[Codes], right: list[Codes]) -> tuple[Codes, Codes]:
    """Codes of several columns as one, for both sides of a join."""
    if len(left) == 1:
        return left[0], right[0]
    cut = len(left[0].codes)
    code = np.zeros(cut + len(right[0].codes), np.int64)
    valid = np.ones(len(code), np.bool_)
    for one, other in zip(left, right, strict=True):
        values, dense = np.unique(np.concatenate([one.codes, other.codes]), return_inverse=True)
        _, code = np.unique(code * max(len(values), 1) + dense, return_inverse=True)
        valid &= np.concatenate([one.valid, other.valid])
    code = code.astype(np.int64, copy=False)
    return Codes(code[:cut], valid[:cut]), Codes(code[cut:], valid[cut:])


def pairs(left: Codes, right: Codes) -> tuple[Ints, Ints]:
    """All pairs (row of left, row of right) with equal codes."""
    heads, following = hash_table(right.codes, right.valid)
    matches = _counted(left.codes, left.valid, right.codes, heads, following)
    return _paired(left.codes, matches, right.codes, heads, following)  # type: ignore[no-any-return]


def among(left: Codes, right: Codes) -> Flags:
    """Which rows of left have a match in right."""
    heads, following = hash_table(right.codes, right.valid)
    return _counted(left.codes, left.valid, right.codes, heads, following) > 0  # type: ignore[no-any-return]


_INTS = types.Array(types.int64, 1, "C", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "C", readonly=True)
_OUT = types.Array(types.int64, 1, "C")
_SPREAD = 0x9E3779B97F4A7C15 - 2**64  # odd, with well mixed bits


@njit(types.int64(types.int64, types.int64), cache=True, nogil=True)
def slot_of(code: int, size: int) -> int:
    """The slot of a code in a hash table whose size is a power of two."""
    mixed = code * _SPREAD
    return (mixed ^ (mixed >> 29)) & (size - 1)


@njit(types.Tuple((_OUT, _OUT))(_INTS, _FLAGS), cache=True, nogil=True)
def hash_table(codes: Ints, valid: Flags) -> tuple[Ints, Ints]:
    """A hash table of rows: the first row of each slot, and the next row of the same slot after each."""
    size = 16
    while size < 2 * len(codes):
        size *= 2
    heads = np.full(size, -1, np.int64)
    following = np.full(len(codes), -1, np.int64)
    for row in range(len(codes) - 1, -1, -1):
        if valid[row]:
            slot = slot_of(codes[row], size)
            following[row] = heads[slot]
            heads[slot] = row
    return heads, following


@njit(_OUT(_INTS, _FLAGS, _INTS, _INTS, _INTS), cache=True, nogil=True)
def _counted(codes: Ints, valid: Flags, others: Ints, heads: Ints, following: Ints) -> Ints:
    matches = np.zeros(len(codes), np.int64)
    for row in range(len(codes)):
        if valid[row]:
            other = heads[slot_of(codes[row], len(heads))]
            while other >= 0:
                if others[other] == codes[row]:
                    matches[row] += 1
                other = following[other]
    return matches


@njit(types.Tuple((_OUT, _OUT))(_INTS, _INTS, _INTS, _INTS, _INTS), cache=True, nogil=True)
def _paired(codes: Ints, matches: Ints, others: Ints, heads: Ints, following: Ints) -> tuple[Ints, Ints]:
    total = matches.sum()
    mine = np.empty(total, np.int64)
    theirs = np.empty(total, np.int64)
    at = 0
    for row in range(len(codes)):
        if matches[row]:
            other = heads[slot_of(codes[row], len(heads))]
            while other >= 0:
                if others[other] == codes[row]:
                    mine[at] = row
                    theirs[at] = other
                    at += 1
                other = following[other]
    return mine, theirs


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
