"""Signed bags as Arrow tables: rows with a column `COUNT`, equal rows added up.

Doubles are normalized (one NaN, no -0.0), so that rows which are equal in Spark cancel each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COUNT = "_count"  # the column of signed multiplicities, int64


def normalized(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """The column with one NaN and no -0.0."""
    if not pa.types.is_floating(column.type):
        return column
    column = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)


def consolidated(table: pa.Table) -> pa.Table:
    """Each distinct row once, with the sum of its counts; rows whose counts add up to zero are dropped."""
    names = [name for name in table.column_names if name != COUNT]
    if not names:
        total = pc.sum(table.column(COUNT)).as_py() or 0
        return pa.table({COUNT: pa.array([total] if total else [], pa.int64())})
    if table.num_rows == 0:
        return table
    for name in names:
        if pa.types.is_floating(table.column(name).type):
            table = table.set_column(table.schema.get_field_index(name), name, normalized(table.column(name)))
    grouped = table.group_by(names, use_threads=False).aggregate([(COUNT, "sum")])
    grouped = grouped.rename_columns([COUNT if name == f"{COUNT}_sum" else name for name in grouped.column_names])
    return grouped.filter(pc.not_equal(grouped.column(COUNT), 0)).select([*names, COUNT])


def negated(table: pa.Table) -> pa.Table:
    """The same rows with opposite signs."""
    return table.set_column(table.schema.get_field_index(COUNT), COUNT, pc.negate(table.column(COUNT)))


def total(tables: Sequence[pa.Table]) -> pa.Table:
    """The sum of bags of one schema."""
    return consolidated(pa.concat_tables(tables))


def counts(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The signed multiplicities of the rows."""
    return np.asarray(table.column(COUNT).to_numpy(), dtype=np.int64)
