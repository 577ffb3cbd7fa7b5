"""One 64-bit code for the values of a row in some columns: rows that are equal in Spark have equal codes.

Codes are stored in files beside the rows, so they are the same in every process and version. Different rows may share a
code; lookups by code compare the rows themselves. NULL has a code too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.hash import hash_bigint
from penstock.views.rows.bag import normalized

Ints = npt.NDArray[np.int64]

_NULL = np.int64(-7046029254386353131)
_PRIME = np.int64(-7046029288634856825)


def codes_of(table: pa.Table, columns: Sequence[str]) -> Ints:
    """A code per row; for one column of integers or times it is the value itself, so that it keeps the order."""
    parts = [_codes(table.column(name)) for name in columns]
    if len(parts) == 1:
        return parts[0]
    mixed = np.zeros(table.num_rows, np.int64)
    for part in parts:
        with np.errstate(over="ignore"):
            mixed = hash_bigint(mixed * _PRIME + part)
    return mixed


def _codes(column: pa.ChunkedArray) -> Ints:
    pieces = [_piece(chunk) for chunk in column.chunks]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def _piece(values: pa.Array) -> Ints:
    kind = values.type
    if pa.types.is_string(kind):
        codes = _texts(values)
    elif pa.types.is_decimal(kind):
        words = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
        codes = hash_bigint(words[1::2] * _PRIME + words[0::2])
    else:
        if pa.types.is_floating(kind):
            values = pc.cast(normalized(values), pa.float64())
        whole = pc.fill_null(
            values, False if pa.types.is_boolean(kind) else pa.scalar(0, pa.int64()).cast(_holder(kind))
        )
        raw = whole.view(pa.int64()) if pa.types.is_floating(kind) or pa.types.is_timestamp(kind) else whole
        raw = raw.view(pa.int32()) if pa.types.is_date32(kind) else raw
        codes = raw.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if values.null_count:
        codes = np.where(values.is_null().to_numpy(zero_copy_only=False), _NULL, codes)
    return codes


def _holder(kind: pa.DataType) -> pa.DataType:
    """A type for filling gaps with a plain zero."""
    if pa.types.is_floating(kind):
        return pa.float64()
    return kind if not pa.types.is_date32(kind) else pa.int32()


def _texts(values: pa.Array) -> Ints:
    _, offsets, data = values.buffers()
    codes = np.empty(len(values), np.int64)
    if len(values) == 0 or offsets is None:
        return codes
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    _hash_texts(starts, content, codes)
    return codes


_STARTS = numba.types.Array(numba.int32, 1, "C", readonly=True)  # mapped files are read-only
_CONTENT = numba.types.Array(numba.uint8, 1, "C", readonly=True)


@numba.njit(numba.void(_STARTS, _CONTENT, numba.int64[::1]), cache=True, nogil=True)
def _hash_texts(starts, content, codes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """FNV-1a, 64 bits."""
    for row in range(len(codes)):
        code = np.uint64(14695981039346656037)
        for at in range(starts[row], starts[row + 1]):
            code = (code ^ np.uint64(content[at])) * np.uint64(1099511628211)
        codes[row] = np.int64(code)
