"""The key hashes of rows in state tables, and the tasks that own them.

Keys of columns and of values that mappers compute are hashed here; for any other key the rows have Spark's hash.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.columns.hash import hash_bigint, hash_columns, whole_numbers
from penstock.planner.keys import INTEGRAL
from penstock.planner.state_table import StateTable, key_column
from penstock.state.run import Ints

Valid = npt.NDArray[np.bool_]


def key_columns(table: StateTable) -> tuple[str, ...]:
    """The key columns of rows in a table: declared ones, those that the mapper computes, or the hash itself."""
    return (key_column(table.name),) if table.hashed is None else table.hashed


def keys_of(table: StateTable, columns: Mapping[str, pa.Array], times: pa.Array) -> tuple[Ints, Valid]:
    """The hash of each row's key, and the rows that have one; 0 for others. Without a key: of its time."""
    if not table.hashed:
        return received_keys(table, columns, times)
    parts = [_common(columns[name], kind) for name, kind in zip(table.hashed, table.key_types, strict=True)]
    valid = np.logical_and.reduce([part.is_valid().to_numpy(zero_copy_only=False) for part in parts])
    if len(parts) == 1 and table.key_types[0] in INTEGRAL:
        return _zeroed(table, hash_bigint(whole_numbers(parts[0])), valid)
    found = hash_columns(parts, len(times))
    return (found, np.ones_like(valid)) if table.grouped else _zeroed(table, found, valid)  # NULL is a group


def received_keys(table: StateTable, columns: Mapping[str, pa.Array], times: pa.Array) -> tuple[Ints, Valid]:
    """The keys of rows that contain them: their hashes, unless these follow from other columns."""
    if not table.key:
        found = np.zeros(len(times), dtype=np.int64) if table.grouped else hash_bigint(whole_numbers(times))
        return found, np.ones(len(times), dtype=np.bool_)
    column = columns[table.plain_key or key_column(table.name)]
    found = whole_numbers(column) if table.plain_key is None else hash_bigint(whole_numbers(column))
    return _zeroed(table, found, column.is_valid().to_numpy(zero_copy_only=False))


def _zeroed(table: StateTable, keys: Ints, valid: Valid) -> tuple[Ints, Valid]:
    """Rows without a key are at 0; in grouped tables they are a group of their own there."""
    if valid.all():
        return keys, valid
    return np.where(valid, keys, 0), np.ones_like(valid) if table.grouped else valid


def _common(column: pa.Array, kind: str) -> pa.Array:
    """A column in the type in which keys are compared."""
    if kind == "bigint" and pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if kind != "double" or pa.types.is_float64(column.type):
        return column
    values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    return pa.array(values, mask=column.is_null().to_numpy(zero_copy_only=False))
