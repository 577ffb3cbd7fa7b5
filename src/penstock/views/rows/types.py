"""The types of sources: Spark's simple names, and their forms in Arrow and PostgreSQL."""

from __future__ import annotations

import pyarrow as pa

from penstock.columns.types import ATOMIC, decimal_digits
from penstock.errors import RegistrationError
from penstock.model import Column

_HELD = {name: kind for name, kind in ATOMIC.items() if name != "binary"}
# Spark's names of PostgreSQL's column types; `numeric` has its own rule.
_POSTGRES = {
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "real": "float",
    "double precision": "double",
    "boolean": "boolean",
    "text": "string",
    "character varying": "string",
    "character": "string",
    "date": "date",
    "timestamp with time zone": "timestamp",
    "timestamp without time zone": "timestamp_ntz",
}
KNOWN = ", ".join((*_HELD, "decimal(p,s)"))


def source_type(name: str) -> pa.DataType | None:
    """The Arrow type of a Spark type; None if sources do not support it."""
    digits = decimal_digits(name)
    if digits is not None:
        return pa.decimal128(*digits) if digits[0] <= 38 else None
    return _HELD.get(name)


def spark_type(kind: pa.DataType) -> str | None:
    """The Spark type of Arrow values of type `kind`; None if sources do not support it."""
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})" if kind.precision <= 38 else None
    return next((name for name, known in _HELD.items() if known == kind), None)


def postgres_type(name: str, precision: int | None, scale: int | None) -> str | None:
    """The Spark type of a column, from PostgreSQL's information schema."""
    if name == "numeric":
        return f"decimal({precision},{scale})" if precision is not None and precision <= 38 else None
    return _POSTGRES.get(name)


def schema_of(source: str, columns: tuple[Column, ...]) -> pa.Schema:
    """The Arrow schema of a source's columns; refuses unsupported types."""
    fields = []
    for column in columns:
        kind = source_type(column.type)
        if kind is None:
            msg = (
                f"source {source!r}: column {column.name!r} has type {column.type}, which views do not hold; "
                f"leave it out, or cast it to one of: {KNOWN}"
            )
            raise RegistrationError(msg)
        fields.append(pa.field(column.name, kind))
    return pa.schema(fields)
