"""One 64-bit code for the values of a row in some columns: rows that are equal in Spark have equal codes.

Codes are stored in files beside the rows, so they are the same in every process. Different rows may share a code;
lookups by code compare the rows themselves. NULL has a code too, unlike in a key's hash.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.hash import Ints, hash_bigint, hash_columns, is_text, whole_numbers

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
    if is_text(values.type) or pa.types.is_decimal(values.type):
        codes = hash_columns([values], len(values))
    else:
        codes = whole_numbers(pc.cast(values, pa.float64()) if pa.types.is_floating(values.type) else values)
    if values.null_count:
        codes = np.where(values.is_null().to_numpy(zero_copy_only=False), _NULL, codes)
    return codes
