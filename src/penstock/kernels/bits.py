"""Which query roles each row of a delta serves: the predicate index over columns, and the dictionary of bits ids."""

from __future__ import annotations

import bisect
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit, types

from penstock.kernels.probe import Words, to_words, word_count
from penstock.planner.index import ColumnIndex
from penstock.planner.state_table import StateTable


def row_bits(
    table: StateTable, columns: Mapping[str, pa.Array], truths: Mapping[str, npt.NDArray[np.bool_]], rows: int
) -> Words:
    """One bit per entry of the table for each row; rows that serve no query are all zero."""
    width = len(table.entries)
    words = word_count(width)
    bits = np.empty((rows, words), dtype=np.uint64)
    bits[:] = np.array(to_words((1 << width) - 1, words), dtype=np.uint64)
    for index in table.indexes:
        masks = np.array([to_words(m, words) for m in index.masks], dtype=np.uint64)
        _and_masks(bits, cells_of(index, columns[index.column]), masks)
    for name, entries in table.truths:
        keep = np.array(to_words(((1 << width) - 1) & ~sum(1 << e for e in entries), words), dtype=np.uint64)
        bits[~truths[name]] &= keep
    return bits


def bits_ids(bits: Words) -> tuple[npt.NDArray[np.int32], Words]:
    """Number the distinct rows of `bits`: (id of each row, distinct rows by id)."""
    ids = np.empty(len(bits), dtype=np.int32)
    size = 1 << 10
    while True:
        patterns = np.empty((size, bits.shape[1]), dtype=np.uint64)
        count = _number(bits, ids, patterns, np.full(4 * size, -1, dtype=np.int32))
        if count >= 0:
            return ids, patterns[:count].copy()
        size *= 8


def cells_of(index: ColumnIndex, column: pa.Array) -> npt.NDArray[np.int64]:
    """The index cell of each value."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        encoded = column.dictionary_encode()
        literals = [str(value).encode() for value in index.literals]
        lookup = np.array(
            # As bytes: strings from outside need not be valid UTF-8.
            [
                *(_string_cell(v, literals) for v in encoded.dictionary.cast(pa.large_binary()).to_pylist()),
                index.null_cell,
            ],
            dtype=np.int64,
        )
        codes = pc.fill_null(encoded.indices, len(lookup) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(lookup[codes])
    floating = pa.types.is_floating(column.type)
    kind = np.float64 if floating else np.int64
    literals_array = np.array([kind(v) for v in index.literals], dtype=kind)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = pc.fill_null(column, False if pa.types.is_boolean(column.type) else 0)
    numbers = values.to_numpy(zero_copy_only=False).astype(kind, copy=False)
    found = np.searchsorted(literals_array, numbers)  # NaN sorts above all numbers, as in Spark
    cells = 2 * found
    inside = found < len(literals_array)
    cells[inside] += literals_array[found[inside]] == numbers[inside]
    cells[~valid] = index.null_cell
    return np.asarray(cells, dtype=np.int64)


def _string_cell(value: bytes, literals: list[bytes]) -> int:
    found = bisect.bisect_left(literals, value)
    return 2 * found + (found < len(literals) and literals[found] == value)


_WORDS = types.Array(types.uint64, 2, "C")
_IDS = types.Array(types.int32, 1, "C")


@njit(types.void(_WORDS, types.Array(types.int64, 1, "C"), _WORDS), cache=True, nogil=True)
def _and_masks(bits, cells, masks):  # type: ignore[no-untyped-def]
    for i in range(bits.shape[0]):
        for w in range(bits.shape[1]):
            bits[i, w] &= masks[cells[i], w]


@njit(types.int64(_WORDS, _IDS, _WORDS, _IDS), cache=True, nogil=True)
def _number(bits, ids, patterns, table):  # type: ignore[no-untyped-def]
    """Open addressing over distinct rows; -1 if there are more of them than `patterns` holds."""
    mask = table.shape[0] - 1
    count = 0
    for i in range(bits.shape[0]):
        code = np.uint64(1469598103934665603)
        for w in range(bits.shape[1]):
            code = (code ^ bits[i, w]) * np.uint64(0x9E3779B97F4A7C15)
            code ^= code >> np.uint64(29)
        slot = np.int64(code & np.uint64(mask))
        while True:
            known = table[slot]
            if known < 0:
                if count == patterns.shape[0]:
                    return -1
                for w in range(bits.shape[1]):
                    patterns[count, w] = bits[i, w]
                table[slot] = count
                ids[i] = count
                count += 1
                break
            same = True
            for w in range(bits.shape[1]):
                if patterns[known, w] != bits[i, w]:
                    same = False
                    break
            if same:
                ids[i] = known
                break
            slot = (slot + 1) & mask
    return count
