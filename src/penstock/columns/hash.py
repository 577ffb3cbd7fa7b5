"""Spark's `xxhash64` over Arrow columns, bit for bit: the hash by which keys are exchanged and runs are sorted.

Keys are this hash by decision 0013. Callers convert them to their common type first (`planner/keys.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit, types

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_SEED = np.uint64(42)
_PRIME1 = np.uint64(0x9E3779B185EBCA87)
_PRIME2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME3 = np.uint64(0x165667B19E3779F9)
_PRIME4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME5 = np.uint64(0x27D4EB2F165667C5)

LONG_DIGITS = 18  # decimals with more digits are hashed as bytes


def hash_bigint(values: Ints) -> Ints:
    """The hash of each value; it is one-to-one, so equal hashes are equal values."""
    words = np.ascontiguousarray(values, dtype=np.int64).view(np.uint64)
    hashes = np.full(len(words), _SEED)
    _hash_longs(words, np.ones(len(words), dtype=np.bool_), hashes)
    return np.asarray(hashes.view(np.int64))


def hash_columns(columns: Sequence[pa.Array], rows: int) -> Ints:
    """The hash of each row: each column is seeded with the hash of those before it, and NULL leaves that unchanged."""
    hashes = np.full(rows, _SEED)
    for column in columns:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        if is_text(column.type):
            data, offsets = bytes_of(column)
            _hash_bytes(data, offsets, valid, hashes)
        elif pa.types.is_decimal(column.type) and column.type.precision > LONG_DIGITS:
            _hash_decimals(_words(column, 16).reshape(-1, 2), valid, hashes)
        elif _is_short(column.type):
            _hash_ints(whole_numbers(column).view(np.uint64), valid, hashes)
        else:
            _hash_longs(whole_numbers(column).view(np.uint64), valid, hashes)
    return hashes.view(np.int64)


def whole_numbers(column: pa.Array) -> Ints:
    """Values of a fixed width as the 64-bit integers that are hashed; 0 where NULL."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return np.asarray(np.ascontiguousarray(_words(column, 16)[::2]).view(np.int64))
    if pa.types.is_floating(kind):
        wide = kind.bit_width == 64
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64 if wide else np.float32)
        values[values == 0] = 0  # turns -0.0 into 0.0
        values[np.isnan(values)] = np.nan  # one bit pattern for all NaN
        return np.asarray(values.view(np.int64 if wide else np.int32), dtype=np.int64)
    if pa.types.is_date32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    filled = column.fill_null(False if pa.types.is_boolean(kind) else 0) if column.null_count else column
    return np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def is_hashable(kind: pa.DataType) -> bool:
    """Whether values of the type can be hashed here: not if they are nested."""
    return is_text(kind) or any(test(kind) for test in _WHOLE)


_WHOLE = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal128, pa.types.is_boolean, pa.types.is_date32,
    pa.types.is_timestamp,
)  # fmt: skip


def is_text(kind: pa.DataType) -> bool:
    """Whether values of the type are bytes of variable length."""
    return any(test(kind) for test in _TEXTS)


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def bytes_of(column: pa.Array) -> tuple[npt.NDArray[np.uint8], Ints]:
    """The bytes of all values of a text column, and the offset of each and of the end."""
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets, data = column.buffers()
    if offsets is None or len(column) == 0:
        return np.zeros(0, dtype=np.uint8), np.zeros(len(column) + 1, dtype=np.int64)
    places = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
    own = places[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8), own


def _is_short(kind: pa.DataType) -> bool:
    """Whether Spark hashes values of the type as 32-bit integers."""
    whole = pa.types.is_signed_integer(kind) and kind.bit_width < 64
    return bool(whole or pa.types.is_boolean(kind) or pa.types.is_date32(kind) or pa.types.is_float32(kind))


def _words(column: pa.Array, width: int) -> Hashes:
    """The bytes of a column of that width as 64-bit words."""
    values = column.buffers()[1]
    if values is None or len(column) == 0:
        return np.zeros(len(column) * width // 8, dtype=np.uint64)
    first = column.offset * width
    return np.frombuffer(values, dtype=np.uint8)[first : first + len(column) * width].view(np.uint64)


_U64 = types.Array(types.uint64, 1, "C")
_WORDS = types.Array(types.uint64, 1, "C", readonly=True)
_PAIRS = types.Array(types.uint64, 2, "C", readonly=True)
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_PLACES = types.Array(types.int64, 1, "C", readonly=True)
_VALID = types.Array(types.bool_, 1, "C", readonly=True)


@njit(types.uint64(types.uint64, types.uint64), inline="always", cache=True)
def _rotated(value, bits):  # type: ignore[no-untyped-def]
    return (value << bits) | (value >> (np.uint64(64) - bits))


@njit(types.uint64(types.uint64), inline="always", cache=True)
def _ended(mixed):  # type: ignore[no-untyped-def]
    mixed ^= mixed >> np.uint64(33)
    mixed *= _PRIME2
    mixed ^= mixed >> np.uint64(29)
    mixed *= _PRIME3
    return mixed ^ (mixed >> np.uint64(32))


@njit(types.uint64(types.uint64, types.uint64), inline="always", cache=True)
def _with_long(mixed, word):  # type: ignore[no-untyped-def]
    mixed ^= _rotated(word * _PRIME2, np.uint64(31)) * _PRIME1
    return _rotated(mixed, np.uint64(27)) * _PRIME1 + _PRIME4


@njit(types.uint64(types.uint64, types.uint64), inline="always", cache=True)
def _with_int(mixed, word):  # type: ignore[no-untyped-def]
    mixed ^= (word & np.uint64(0xFFFFFFFF)) * _PRIME1
    return _rotated(mixed, np.uint64(23)) * _PRIME2 + _PRIME3


@njit(types.uint64(_BYTES, types.int64, types.int64), inline="always", cache=True)
def _little(data, place, width):  # type: ignore[no-untyped-def]
    """`width` bytes as an integer, little-endian."""
    word = np.uint64(0)
    for i in range(width):
        word |= np.uint64(data[place + i]) << np.uint64(8 * i)
    return word


@njit(types.void(_WORDS, _VALID, _U64), cache=True, nogil=True)
def _hash_longs(words, valid, hashes):  # type: ignore[no-untyped-def]
    for i in range(len(words)):
        if valid[i]:
            hashes[i] = _ended(_with_long(hashes[i] + _PRIME5 + np.uint64(8), words[i]))


@njit(types.void(_WORDS, _VALID, _U64), cache=True, nogil=True)
def _hash_ints(words, valid, hashes):  # type: ignore[no-untyped-def]
    for i in range(len(words)):
        if valid[i]:
            hashes[i] = _ended(_with_int(hashes[i] + _PRIME5 + np.uint64(4), words[i]))


@njit(types.uint64(_BYTES, types.int64, types.int64, types.uint64), cache=True, nogil=True)
def _of_bytes(data, start, stop, seed):  # type: ignore[no-untyped-def]
    place = start
    if stop - start >= 32:
        one, two, three, four = seed + _PRIME1 + _PRIME2, seed + _PRIME2, seed, seed - _PRIME1
        while place + 32 <= stop:
            one = _rotated(one + _little(data, place, 8) * _PRIME2, np.uint64(31)) * _PRIME1
            two = _rotated(two + _little(data, place + 8, 8) * _PRIME2, np.uint64(31)) * _PRIME1
            three = _rotated(three + _little(data, place + 16, 8) * _PRIME2, np.uint64(31)) * _PRIME1
            four = _rotated(four + _little(data, place + 24, 8) * _PRIME2, np.uint64(31)) * _PRIME1
            place += 32
        mixed = _rotated(one, np.uint64(1)) + _rotated(two, np.uint64(7))
        mixed += _rotated(three, np.uint64(12)) + _rotated(four, np.uint64(18))
        for lane in (one, two, three, four):
            mixed ^= _rotated(lane * _PRIME2, np.uint64(31)) * _PRIME1
            mixed = mixed * _PRIME1 + _PRIME4
    else:
        mixed = seed + _PRIME5
    mixed += np.uint64(stop - start)
    while place + 8 <= stop:
        mixed = _with_long(mixed, _little(data, place, 8))
        place += 8
    if place + 4 <= stop:
        mixed = _with_int(mixed, _little(data, place, 4))
        place += 4
    while place < stop:
        mixed ^= np.uint64(data[place]) * _PRIME5
        mixed = _rotated(mixed, np.uint64(11)) * _PRIME1
        place += 1
    return _ended(mixed)


@njit(types.void(_BYTES, _PLACES, _VALID, _U64), cache=True, nogil=True)
def _hash_bytes(data, offsets, valid, hashes):  # type: ignore[no-untyped-def]
    for i in range(len(hashes)):
        if valid[i]:
            hashes[i] = _of_bytes(data, offsets[i], offsets[i + 1], hashes[i])


@njit(types.void(_PAIRS, _VALID, _U64), cache=True, nogil=True)
def _hash_decimals(pairs, valid, hashes):  # type: ignore[no-untyped-def]
    """Unscaled values of 128 bits, as the fewest big-endian bytes that hold them with their sign."""
    found = np.empty(16, dtype=np.uint8)
    for i in range(len(hashes)):
        if not valid[i]:
            continue
        for place in range(16):
            word = pairs[i, 1] if place < 8 else pairs[i, 0]
            found[place] = np.uint8((word >> np.uint64(8 * (7 - place % 8))) & np.uint64(0xFF))
        filler = np.uint8(0xFF) if found[0] >= 128 else np.uint8(0)
        first = 0
        while first < 15 and found[first] == filler and (found[first + 1] >= 128) == (filler == 0xFF):
            first += 1
        hashes[i] = _of_bytes(found, first, 16, hashes[i])
