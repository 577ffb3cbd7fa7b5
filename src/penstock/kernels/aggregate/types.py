"""The Arrow types of Spark's simple type names, as far as aggregates need them."""

from __future__ import annotations

import re

import pyarrow as pa

_ATOMIC = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a column with this Spark type."""
    found = _DECIMAL.fullmatch(name)
    if found:
        return pa.decimal128(int(found[1]), int(found[2]))
    if name.startswith("array<"):
        return pa.list_(arrow_type(name[6:-1]))
    if name not in _ATOMIC:
        msg = f"the type {name!r} is not supported here; use one of {', '.join(_ATOMIC)}, decimals or arrays of them"
        raise ValueError(msg)
    return _ATOMIC[name]
