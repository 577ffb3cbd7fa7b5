"""PostgreSQL's catalog of tables, and its types against Spark's and Arrow's."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import RegistrationError, StepError
from penstock.model import Column
from penstock.model.view import Source
from penstock.planner.views.initial_load import Estimate
from penstock.views.postgres.capture import qualified, text_literal
from penstock.views.postgres.pool import Pool

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

TYPES = {  # Spark's types, and PostgreSQL's for a cast; all others are decimals
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "boolean": "boolean",
    "string": "text",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}

_FIRST_DAY = -2_440_588  # PostgreSQL's first day, 24 November 4714 BC, counted from 1970
_DAY = 86_400_000_000


def type_of(declared: str) -> str:
    """PostgreSQL's name for one of Spark's types."""
    return TYPES.get(declared, "numeric")


def columns_of(pool: Pool, table: str) -> tuple[Column, ...]:
    """The columns of a table, with Spark's types; refuses a type that views do not support."""
    schema, _, name = resolved(pool, table).rpartition(".")
    kinds = described(pool, name, schema)
    columns = []
    for column, kind in kinds:
        base, _, sizes = kind.partition("(")
        numbers = [int(n) for n in sizes.rstrip(")").split(",")] if base == "numeric" and sizes else [None, None]
        known = postgres_type(base, numbers[0], numbers[1] if len(numbers) > 1 else 0)
        if known is None and base != "numeric":
            known = postgres_type(kind.split("(")[0], None, None)
        if known is None:
            msg = (
                f"column {column!r} of {table} has type {kind}, which views do not hold; declare the source with "
                "the columns that it needs"
            )
            raise RegistrationError(msg)
        columns.append(Column(column, known))
    return tuple(columns)


def resolved(pool: Pool, table: str) -> str:
    """The table with its schema: the capture of its changes must not depend on a search path."""
    found = pool.fetch(
        "SELECT nspname::text, relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
        f"WHERE c.oid = to_regclass({text_literal(qualified(table))})"
    ).to_pylist()
    if not found:
        raise RegistrationError(f"PostgreSQL has no table {table!r}; check the name, and the schema before it")
    return f"{found[0]['nspname']}.{found[0]['relname']}"


def lockable(pool: Pool, table: str) -> list[str]:
    """The table as a statement locks it; nothing for kinds that cannot be locked, such as foreign tables."""
    name = qualified(table)
    kind = pool.fetch(f"SELECT relkind::text FROM pg_class WHERE oid = to_regclass({text_literal(name)})")
    return [name] if kind.column(0)[0].as_py() in ("r", "p", "v") else []


def described(pool: Pool, name: str, schema: str) -> list[tuple[str, str]]:
    """(column, type) of a table or view, in order; empty if there is none."""
    target = qualified(f"{schema}.{name}" if schema else name)
    rows = pool.fetch(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        f"WHERE attrelid = to_regclass({text_literal(target)}) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    return [(row["attname"], row["format_type"]) for row in rows.to_pylist()]


def check_key(pool: Pool, table: str, source: Source) -> None:
    """Refuse a key that the server does not enforce."""
    found = pool.fetch(
        "SELECT (SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = indrelid AND attnum = "
        "ANY (indkey)) AS names "
        "FROM pg_index WHERE indisunique AND indisvalid AND indpred IS NULL AND NOT 0 = ANY (indkey) "
        f"AND indrelid = to_regclass({text_literal(qualified(table))})"
    ).to_pylist()
    if not any(set(row["names"]) <= set(source.key) for row in found):
        key = ", ".join(source.key)
        msg = (
            f"source {source.name!r}: {table} has no unique index on ({key}), so two rows may have the same; "
            f"CREATE UNIQUE INDEX ON {table} ({key}), or leave KEY out"
        )
        raise RegistrationError(msg)


def estimate(pool: Pool, table: str, columns: Sequence[str]) -> Estimate:
    """The server's statistics of a table for its own planner; a table that was never analyzed is counted."""
    found = pool.fetch(
        "SELECT reltuples::float8, attname::text, n_distinct::float8 FROM pg_class c "
        "LEFT JOIN pg_stats s ON s.schemaname = c.relnamespace::regnamespace::text AND s.tablename = c.relname "
        f"WHERE c.oid = to_regclass({text_literal(qualified(table))})"
    ).to_pylist()
    rows = max((row["reltuples"] for row in found), default=-1.0)
    if rows < 0:
        rows = float(pool.fetch(f"SELECT count(*) FROM {qualified(table)}").column(0)[0].as_py())
    known = {row["attname"]: row["n_distinct"] for row in found if row["n_distinct"]}
    return Estimate(rows, {c: known[c] if known[c] > 0 else -known[c] * rows for c in columns if c in known})


def as_declared(values: pa.ChunkedArray, source: Source, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    """Values of a column in its declared type; refuses a value that the type does not hold."""
    try:
        return as_arrow(values, kind)
    except pa.ArrowInvalid as error:
        column = source.column(name)
        declared = kind if column is None else column.type
        msg = f"source {source.name!r}: a value of column {name!r} does not fit {declared}: {error}"
        remedy = "replace it by a date or NULL" if pa.types.is_temporal(kind) else "declare the column with more digits"
        raise StepError(f"{msg}; {remedy}, or leave it out") from None


def as_arrow(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Values as a column of this type; the driver returns decimals as text."""
    if isinstance(values.type, pa.BaseExtensionType):
        values = pa.chunked_array([c.storage for c in values.chunks], values.type.storage_type)
    if pa.types.is_temporal(values.type):
        _refuse_infinite(values)
    return values if values.type == kind else pc.cast(values, kind)


def _refuse_infinite(values: pa.ChunkedArray) -> None:
    """The driver's epoch differs from the server's, so the end of the server's range wraps around."""
    holder, first = (pa.int32(), _FIRST_DAY) if pa.types.is_date(values.type) else (pa.int64(), _FIRST_DAY * _DAY)
    least = pc.min(pc.cast(values, holder)).as_py()
    if least is not None and least < first:
        raise pa.ArrowInvalid("it is infinite, or later than the year 294246")


def postgres_type(name: str, precision: int | None, scale: int | None) -> str | None:
    """The Spark type of a column, from PostgreSQL's information schema."""
    if name == "numeric":
        return f"decimal({precision},{scale})" if precision is not None and precision <= 38 else None
    return _POSTGRES.get(name)
