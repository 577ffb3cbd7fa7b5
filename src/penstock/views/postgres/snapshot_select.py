"""SELECTs from a PostgreSQL table whose answer includes the snapshot that it was read from.

The snapshot is in a row of its own, before the others and in the same statement, so that rows and position always
match. Here are the text of such a statement and the parsing of its answer; the reader sends it and records snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model import Expression
from penstock.model.view import Source
from penstock.views.postgres.capture import HERE, qualified, quoted
from penstock.views.postgres.comparable_columns import Exact
from penstock.views.postgres.pushdown import condition
from penstock.views.postgres.tables import as_declared, type_of
from penstock.views.rows.bag import COUNT
from penstock.views.rows.evaluate import select

UNASKED = "NULL::text"


@dataclass(frozen=True)
class Stamp:
    """The snapshot that a statement read, and what else was requested."""

    snapshot: str
    told: str | None


@dataclass(frozen=True)
class Selection:
    """A SELECT of rows: the columns that it reads, and the filters that must be evaluated here."""

    sql: str
    read: tuple[str, ...]
    left: tuple[Expression, ...]

    def decided(self, found: pa.Table, columns: Sequence[str]) -> pa.Table:
        """The rows that satisfy the remaining filters, with the requested columns."""
        return select(found, self.left, lambda ref: ref.column).select([*columns, COUNT])


def selection(
    source: Source,
    table: str,
    columns: Sequence[str],
    filters: Sequence[Expression],
    tests: Sequence[str],
    exact: Exact,
) -> Selection:
    """Rows of a table that satisfy these tests, and the filters that the server can evaluate, over `exact` columns."""
    pushed = {f: condition(f, source, exact) for f in filters}
    left = [f for f, text in pushed.items() if text is None]
    read = list(dict.fromkeys([*columns, *(r.column for f in left for r in f.refs)]))
    where = " AND ".join([*tests, *(text for text in pushed.values() if text is not None)])
    sql = f"SELECT {cast_columns(source, read)}{', ' if read else ''}1::bigint FROM {qualified(table)}"
    return Selection(sql + (f" WHERE {where}" if where else ""), tuple(read), tuple(left))


def cast_columns(source: Source, names: Sequence[str]) -> str:
    # A cast here does not keep an index on the column from being used, only one in a condition does.
    return ", ".join(f"{quoted(n)}::{server_type(source, n)}" for n in names)


def server_type(source: Source, name: str) -> str:
    """PostgreSQL's name for the type of a column."""
    column = source.column(name)
    assert column is not None, name
    return type_of(column.type)


def header(source: Source, names: Sequence[str], asked: str = UNASKED) -> str:
    """The SELECT of one row with the snapshot that its statement reads, and what else is `asked` (an expression)."""
    kinds = [f"NULL::{server_type(source, n)} AS {quoted(n)}" for n in names]
    head = ", ".join([f"{HERE} AS _snapshot", f"{asked} AS _told", *kinds, f"0::bigint AS {COUNT}"])
    return f"SELECT {head}"


def unstamped(sql: str) -> str:
    """A SELECT with the columns that only the row with the snapshot fills."""
    return sql.replace("SELECT ", "SELECT NULL::text, NULL::text, ", 1)


def stamped(source: Source, names: Sequence[str], sql: str, asked: str = UNASKED) -> str:
    """The rows of a SELECT of these columns and a count, after one row with the snapshot of this very statement."""
    return f"{header(source, names, asked)} UNION ALL {unstamped(sql)}"


def opened(source: Source, schema: pa.Schema, names: Sequence[str], raw: pa.Table) -> tuple[pa.Table, Stamp]:
    """The rows of such an answer, as columns of the schema, and its stamp."""
    marked = pc.is_valid(raw.column(0))
    first = raw.filter(marked)
    rows = raw.filter(pc.invert(marked))
    columns = {n: as_declared(rows.column(i + 2), source, n, schema.field(n).type) for i, n in enumerate(names)}
    columns[COUNT] = rows.column(len(names) + 2)
    return pa.table(columns), Stamp(first.column(0)[0].as_py(), first.column(1)[0].as_py())
