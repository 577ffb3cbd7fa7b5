"""Keys of a lookup in PostgreSQL: as arrays bound to one statement, or as a table that is sent before it.

Each way gives the condition on the rows and its parameters. The third way, plain queries with constants, is
`composite`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.views.postgres.capture import quoted

Compared = Callable[[str], str]  # a column in the form that is compared with values of its declared type


def storable(keys: pa.Table) -> pa.Table:
    """Keys that PostgreSQL can store: its text has no zero bytes, and sending one is an error."""
    for name in keys.column_names:
        if pa.types.is_string(keys.column(name).type):
            keys = keys.filter(pc.invert(pc.match_substring(keys.column(name), "\0")))
    return keys


def among_arrays(keys: pa.Table, compared: Compared) -> tuple[str, pa.RecordBatch]:
    """The condition that a row has one of the keys, and the arrays that are its parameters."""
    names, casts, arrays = keys.column_names, [], []
    for number, name in enumerate(names, 1):
        values = keys.column(name).combine_chunks()
        cast = ""
        if pa.types.is_decimal(values.type):
            values, cast = pc.cast(values, pa.string()), "::text[]::numeric[]"
        casts.append(f"${number}{cast}")
        arrays.append(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), _contiguous(values)))
    if len(names) == 1:
        test = f"{compared(names[0])} = ANY ({casts[0]})"
    else:
        test = f"({', '.join(map(compared, names))}) IN (SELECT * FROM unnest({', '.join(casts)}))"
    return test, pa.record_batch(arrays, [f"p{n}" for n in range(len(arrays))])


def among_rows(keys: pa.Table, table: str, compared: Compared) -> tuple[str, pa.Table]:
    """The condition that a row has one of the keys in a table of that name, and the rows to store there."""
    names = keys.column_names
    casts = {n: "::numeric" if pa.types.is_decimal(keys.column(n).type) else "" for n in names}
    shipped = pa.table({n: pc.cast(keys.column(n), pa.string()) if casts[n] else keys.column(n) for n in names})
    columns = ", ".join(quoted(n) + casts[n] for n in names)
    return f"({', '.join(map(compared, names))}) IN (SELECT {columns} FROM {table})", shipped


def _contiguous(values: pa.Array) -> pa.Array:
    return pa.concat_arrays([values]) if values.offset else values
