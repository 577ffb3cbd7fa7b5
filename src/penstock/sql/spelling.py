"""Names and times in the SQL that Spark runs."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model import Column

_IN_UNITS = {
    "timestamp": "unix_micros({})",
    "timestamp_ntz": "timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {})",
    "date": "(CAST(unix_date({}) AS BIGINT) * 86400000000L)",
}


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def ddl(columns: Iterable[Column]) -> str:
    """The schema of declared columns, as Spark's readers take it."""
    return ", ".join(f"{quote(c.name)} {c.type}" for c in columns)


def time_in_units(kind: str, value: str) -> str:
    """A time of that Spark type in the engine's unit."""
    return _IN_UNITS.get(kind, "CAST({} AS BIGINT)").format(value)


def text_literal(text: str) -> str:
    """A string constant in Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def by_reference(number: int, column: str) -> str:
    """A number that changes per step, as SQL: Spark compiles numbers into its code, but passes arrays by reference."""
    return f"array({number}L, {number}L)[CAST({column} IS NULL AS INT)]"
