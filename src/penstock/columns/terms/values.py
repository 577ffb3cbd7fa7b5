"""Columns of values that terms are evaluated on, and their conversion from and to Arrow.

Integers of any width, dates (days) and times (microseconds) are NumPy int64, floats float64, Booleans bool. Strings and
decimals stay in Arrow: as arrays, or as one scalar where all rows have the same value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.types import arrow_type

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

MICROS_PER_DAY = 86_400_000_000
WIDTHS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


@dataclass(frozen=True)
class Values:
    """A column: its data (see above), where it is not NULL, and where evaluation raised."""

    data: Any
    valid: Flags
    raised: Flags


def plain(array: pa.Array, rows: int) -> Values:
    """A column in the form above, without conversion."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    none = np.zeros(rows, dtype=np.bool_)
    if pa.types.is_null(array.type):  # stored before any query needed the column
        return Values(np.zeros(rows, dtype=np.int64), none, none)
    if is_arrow(array.type):
        return Values(array, valid, none)
    if array.null_count:
        array = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0)
    data = array.to_numpy(zero_copy_only=False)
    if pa.types.is_integer(array.type):
        data = data.astype(np.int64, copy=False)
    elif pa.types.is_floating(array.type):
        data = data.astype(np.float64, copy=False)
    return Values(data, valid, none)


def is_arrow(kind: pa.DataType) -> bool:
    """Whether values of a type stay in Arrow."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_decimal(kind))


def typed(found: Values | pa.Array, kind: str, rows: int) -> Values:
    """A column as values of a Spark type."""
    if isinstance(found, Values):
        return found
    none = np.zeros(rows, dtype=np.bool_)
    if pa.types.is_null(found.type):
        return nulls(kind, rows)
    if kind not in ("date", "timestamp", "timestamp_ntz"):
        return plain(found, rows)
    valid = found.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_date32(found.type):
        whole = found.view(pa.int32())
    elif pa.types.is_timestamp(found.type):
        whole = pc.cast(found, pa.timestamp("us", found.type.tz)).view(pa.int64())
    else:
        whole = found
    numbers = pc.fill_null(whole, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if kind == "date" and pa.types.is_int64(found.type):  # an event time
        numbers = numbers // MICROS_PER_DAY
    return Values(numbers, valid, none)


def nulls(kind: str, rows: int) -> Values:
    """NULL of a type in every row."""
    none = np.zeros(rows, dtype=np.bool_)
    data: Any = np.zeros(rows, dtype=np.int64)
    if kind == "string" or kind.startswith("decimal("):
        data = pa.nulls(rows, arrow_type(kind))
    elif kind in ("double", "float"):
        data = np.zeros(rows)
    elif kind in ("boolean", "void"):
        data = none
    return Values(data, none, none)


def as_arrow(found: Values, kind: str | None) -> pa.Array:
    """The column in Arrow, NULL where it raised, in the type that Spark gives it."""
    valid = found.valid & ~found.raised
    data = found.data
    if isinstance(data, pa.Scalar):
        data = pa.repeat(data, len(valid))
    if isinstance(data, pa.Array):
        shown = (
            data
            if data.null_count == 0 and valid.all()
            else pc.if_else(pa.array(valid), data, pa.scalar(None, data.type))
        )
        return shown if kind is None or pa.types.is_large_string(shown.type) else shown.cast(arrow_type(kind))
    array = pa.array(data, mask=~valid)
    if kind is None:
        return array
    target = arrow_type(kind)
    if pa.types.is_date32(target):
        return array.cast(pa.int32()).view(target)
    return array.view(target) if pa.types.is_timestamp(target) else array.cast(target, safe=False)
