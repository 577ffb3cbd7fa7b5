"""Values as 64-bit integers: as codes that keep their order, or in limbs, to sum them exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.delta import ranks
from penstock.state.run import Ints

Flags = npt.NDArray[np.bool_]

_SIGN = np.int64(np.iinfo(np.int64).max)
_LIMB = np.int64(0xFFFF_FFFF)
_DIGIT, _BITS = np.uint64(0xFFFF_FFFF), np.uint64(32)


@dataclass(frozen=True)
class Codes:
    """Integers in the order of `values` (Spark's: NaN is largest, strings by bytes); undefined where `valid` is false.

    If codes are ranks, `dictionary` holds the values by code; without a dictionary, codes encode the values themselves.
    """

    codes: Ints
    valid: Flags
    type: pa.DataType
    dictionary: pa.Array | None = None

    def values(self, codes: Ints, valid: Flags) -> pa.Array:
        """The values of these codes, NULL where not valid."""
        if self.dictionary is not None:
            return self.dictionary.take(pa.array(codes, mask=~valid))
        if pa.types.is_floating(self.type):
            return pa.array(_doubles(codes), mask=~valid).cast(self.type, safe=False)
        if pa.types.is_boolean(self.type):
            return pa.array(codes != 0, mask=~valid)
        if pa.types.is_date32(self.type):
            return pa.array(codes.astype(np.int32), mask=~valid).cast(self.type)
        return pa.array(codes, mask=~valid).cast(self.type, safe=False)


def ordered(values: pa.Array) -> Codes:
    """Codes in the order of the values."""
    valid = valid_flags(values)
    kind = values.type
    if pa.types.is_floating(kind):
        return Codes(_sortable(doubles(values)), valid, kind)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        return Codes(integers(values), valid, kind)
    found = ranks(values)
    dictionary = pc.unique(values).drop_null()
    return Codes(found, valid, kind, dictionary.take(pc.array_sort_indices(dictionary)))


def tidy(values: pa.Array) -> pa.Array:
    """The values with one zero and one NaN, as Spark compares them."""
    if not pa.types.is_floating(values.type):
        return values
    plain = doubles(values) + 0.0
    tidied = pa.array(np.where(np.isnan(plain), np.nan, plain), mask=~valid_flags(values))
    return tidied.cast(values.type, safe=False)


def order_ranks(columns: Sequence[pa.Array]) -> list[Ints]:
    """Row ranks by these columns, most significant first; zeros that differ only in sign are compared last."""
    signs = [np.signbit(doubles(c)) for c in columns if pa.types.is_floating(c.type)]
    return [*(ranks(tidy(c)) for c in columns), *(np.where(sign, 0, 1) for sign in signs)]


def numbers_of(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Numbers from 0, equal where all columns are equal (NULL equals NULL); the numbers may have gaps."""
    numbers = np.zeros(rows, dtype=np.int64)
    for place, column in enumerate(columns):
        own = ranks(column) + 1
        if place == 0:
            numbers = own
        elif rows:
            # Renumber densely, so that the next product cannot overflow.
            numbers = np.unique(numbers * (own.max() + 1) + own, return_inverse=True)[1].reshape(-1)
    return numbers


def valid_flags(values: pa.Array) -> Flags:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def integers(values: pa.Array) -> Ints:
    """An array of integers, Booleans or times as 64-bit integers; 0 for NULL."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_temporal(values.type):
        values = values.cast(pa.int64())
    elif pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if values.null_count:
        values = pc.fill_null(values, 0)
    return np.ascontiguousarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)


def doubles(values: pa.Array) -> npt.NDArray[np.float64]:
    """Numbers as doubles; 0 for NULL."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    if values.null_count:
        values = pc.fill_null(values, 0)
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.float64)


def limbs(values: pa.Array) -> tuple[Ints, ...]:
    """Integers or decimals in limbs of 32 bits, lowest first, the highest signed: sums of limbs cannot overflow."""
    if pa.types.is_decimal(values.type):
        return _decimal_limbs(values)
    whole = integers(values)
    if values.type.bit_width <= 32:
        return (whole,)
    return np.asarray(whole & _LIMB), np.asarray(whole >> 32)


def squares(values: pa.Array) -> tuple[Ints, ...]:
    """The squares of integers or decimals in limbs of 32 bits, twice as many as the numbers have."""
    parts = limbs(values)
    if len(parts) == 1:
        whole = parts[0] * parts[0]
        return np.asarray(whole & _LIMB), np.asarray(whole >> 32)
    digits = _magnitudes(parts)
    sums = [np.zeros(len(values), dtype=np.uint64) for _ in range(2 * len(parts) + 1)]
    for i, one in enumerate(digits):
        for j, other in enumerate(digits[i:], start=i):
            product = one * other
            for _ in range(1 if i == j else 2):
                sums[i + j] += product & _DIGIT
                sums[i + j + 1] += product >> _BITS
    for k in range(2 * len(parts)):
        sums[k + 1] += sums[k] >> _BITS
    return tuple((part & _DIGIT).astype(np.int64) for part in sums[:-1])


def _magnitudes(parts: Sequence[Ints]) -> list[npt.NDArray[np.uint64]]:
    """The 32-bit limbs of the absolute values."""
    negative = parts[-1] < 0
    digits, carry = [], negative.astype(np.uint64)
    for part in parts:
        plain = part.astype(np.uint64) & _DIGIT
        turned = np.where(negative, plain ^ _DIGIT, plain) + carry  # two's complement: invert and add one
        digits.append(turned & _DIGIT)
        carry = turned >> _BITS
    return digits


def bigint_of(parts: Sequence[Ints]) -> tuple[Ints, Flags]:
    """(sums of limbs, where they fit 64 bits)."""
    if len(parts) == 1:
        return parts[0], np.ones(len(parts[0]), dtype=np.bool_)
    high = parts[1] + (parts[0] >> 32)
    fits = (high >= -(2**31)) & (high < 2**31)
    return np.asarray((high << 32) | (parts[0] & _LIMB)), np.asarray(fits)


def approximate(parts: Sequence[Ints]) -> npt.NDArray[np.float64]:
    """Sums of limbs as doubles."""
    total = np.zeros(len(parts[0]), dtype=np.float64)
    for part in reversed(parts):
        total = total * 2.0**32 + part
    return total


def wrapped(parts: Sequence[Ints]) -> Ints:
    """Sums of limbs as 64-bit integers, modulo 2 ** 64."""
    total = np.zeros(len(parts[0]), dtype=np.int64)
    for part in reversed(parts):
        total = (total << 32) + part
    return total


def whole_numbers(parts: Sequence[Ints]) -> list[int]:
    """Sums of limbs as Python integers, which are unbounded."""
    total = [0] * len(parts[0])
    for part in reversed(parts):
        total = [(t << 32) + p for t, p in zip(total, part.tolist(), strict=True)]
    return total


def _sortable(values: npt.NDArray[np.float64]) -> Ints:
    # The bits of doubles ascend with their values once those of negative ones are inverted; one NaN, one zero.
    tidy = np.where(np.isnan(values), np.nan, values + 0.0)
    bits = tidy.view(np.int64)
    return np.asarray(np.where(bits < 0, bits ^ _SIGN, bits))


def _doubles(codes: Ints) -> npt.NDArray[np.float64]:
    return np.asarray(np.where(codes < 0, codes ^ _SIGN, codes).view(np.float64))


def _decimal_limbs(values: pa.Array) -> tuple[Ints, ...]:
    values = pc.fill_null(values, 0) if values.null_count else values
    words = np.frombuffer(values.buffers()[1], dtype=np.int32)[4 * values.offset : 4 * (values.offset + len(values))]
    parts = words.reshape(-1, 4).astype(np.int64)
    return (*(np.ascontiguousarray(parts[:, k] & _LIMB) for k in range(3)), np.ascontiguousarray(parts[:, 3]))
