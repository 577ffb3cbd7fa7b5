"""The Arrow types of Spark's simple type names, and back: of columns, terms, aggregates and sources of views alike."""

from __future__ import annotations

import re

import pyarrow as pa

ATOMIC = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_HELD = {name: kind for name, kind in ATOMIC.items() if name != "binary"}
KNOWN = ", ".join((*_HELD, "decimal(p,s)"))  # to sources of views
_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_DECIMAL = re.compile(r"decimal\((\d{1,9}),\s*(-?\d{1,9})\)")  # numbers of any length would take long to read


def decimal_digits(name: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for others."""
    found = _DECIMAL.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


def exact_digits(name: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal, or of the decimal that holds an integer type; None for others."""
    return (_INTEGER_DIGITS[name], 0) if name in _INTEGER_DIGITS else decimal_digits(name)


def decimal_of(operator: str, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Precision and scale of `+`, `-` or `*` of decimals, by the rule that Spark and Arrow share."""
    if operator == "*":
        return one[0] + other[0] + 1, one[1] + other[1]
    scale = max(one[1], other[1])
    return max(one[0] - one[1], other[0] - other[1]) + scale + 1, scale


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a column with this Spark type."""
    if name in ATOMIC:
        return ATOMIC[name]
    if (digits := decimal_digits(name)) is not None:
        return pa.decimal128(*digits)
    if name.startswith("array<"):
        return pa.list_(arrow_type(name[6:-1]))
    msg = f"the type {name!r} is not supported here; use one of {', '.join(ATOMIC)}, decimals or arrays of them"
    raise ValueError(msg)


def source_type(name: str) -> pa.DataType | None:
    """The Arrow type of a column of a view's source; None if views do not hold it."""
    digits = decimal_digits(name)
    if digits is not None:
        return pa.decimal128(*digits) if digits[0] <= 38 else None
    return _HELD.get(name)


def spark_type(kind: pa.DataType) -> str | None:
    """The Spark type of Arrow values of a view's source; None if views do not hold them."""
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})" if kind.precision <= 38 else None
    return next((name for name, known in _HELD.items() if known == kind), None)
