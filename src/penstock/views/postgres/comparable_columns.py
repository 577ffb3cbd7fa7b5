"""Which columns the server stores exactly as declared, so that it compares their values as this process does.

A source may declare another type than its table has, and then its values are the results of a cast; and some types have
their own equality: `char(n)` ignores trailing blanks, a nondeterministic collation ignores case. The server must not
compare such columns.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.view import Source
from penstock.views.postgres.capture import qualified, quoted, text_literal
from penstock.views.postgres.pool import Pool
from penstock.views.postgres.tables import type_of

Exact = Mapping[str, int]  # the exact columns, each with its collation

_INTEGERS = ("int2", "int4", "int8")
# Types that hold a value of the declared type unchanged, or one that is refused when read.
_HELD = {
    "tinyint": _INTEGERS,
    "smallint": _INTEGERS,
    "int": _INTEGERS,
    "bigint": _INTEGERS,
    "float": ("float4",),
    "double": ("float4", "float8"),
    "boolean": ("bool",),
    "string": ("text", "varchar"),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
}  # all others are decimals


def exact(pool: Pool, table: str, source: Source) -> Exact:
    """The columns of a source whose values the server compares as this process does."""
    found = pool.fetch(
        "SELECT attname::text, typname::text, attcollation::bigint FROM pg_attribute JOIN pg_type t ON t.oid "
        "= atttypid "
        "LEFT JOIN pg_collation c ON c.oid = attcollation WHERE typnamespace = 'pg_catalog'::regnamespace "
        "AND coalesce(collisdeterministic, true) AND attnum > 0 AND attrelid = "
        f"to_regclass({text_literal(qualified(table))})"
    ).to_pylist()
    declared = {column.name: _HELD.get(column.type, ("numeric",)) for column in source.columns}
    return {row["attname"]: row["attcollation"] for row in found if row["typname"] in declared.get(row["attname"], ())}


def same(declared: str, other: str) -> bool:
    """Whether equality of two declared types needs no conversion, which the server might make differently."""
    return _HELD.get(declared, ("numeric",)) == _HELD.get(other, ("numeric",))


def compared(name: str, declared: str, columns: Exact) -> str:
    """A column in a form that can be compared with values of its declared type; only an exact one can use an index."""
    if name in columns:
        return quoted(name)
    collation = ' COLLATE "C"' if declared == "string" else ""
    return f"({quoted(name)}::{type_of(declared)}{collation})"
