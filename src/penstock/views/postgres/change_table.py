"""The change table of a PostgreSQL source: created with its triggers, checked, and tested for completeness.

`capture` has the statements that capture changes, and the reason why they lose none; here they are sent. A user's own
change table is checked and read like one of ours, and never changed.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import RegistrationError, StepError
from penstock.model.view import Source
from penstock.views.postgres.capture import (
    CAPTURES,
    SIGN,
    XID,
    change_table,
    function_of,
    install,
    qualified,
    quoted,
    remove,
    text_literal,
)
from penstock.views.postgres.pool import Pool
from penstock.views.postgres.tables import described
from penstock.views.postgres.witness import Kept, doubt, doubted, keeping, kept, witness

_INTEGERS = ("smallint", "integer", "bigint")


def begin_capture(pool: Pool, source: Source, table: str, capture: str) -> bool:
    """Start to capture changes, unless they are captured already; returns whether it started.

    If an existing capture is not as it was when it started, changes were lost: it starts again, and a reader that asks
    for earlier changes gets an error. Columns that others of the same capture need stay in it.
    """
    why = pool.fetch(f"SELECT {doubt(table)}").column(0)[0].as_py()
    if why is not None:
        raise RegistrationError(doubted(source.name, table, why))
    (schema, _, name), declared = table.rpartition("."), [c.name for c in source.columns]
    there = [column for column, _ in described(pool, name, schema)]
    if not there:
        msg = f"source {source.name!r}: the table {table} does not exist any more; give it back, or drop the source"
        raise RegistrationError(msg)
    for column in declared:
        if column not in there:
            msg = (
                f"source {source.name!r}: {table} has no column {column!r}; give it back, "
                f"or drop the source and declare it without (columns: {', '.join(there)})"
            )
            raise RegistrationError(msg)
    _refuse_foreign(pool, source, table, capture)
    schema, _, name = change_table(table, capture).rpartition(".")
    captured = {column for column, _ in described(pool, name, schema)} - {SIGN, XID}
    known = kept_of(pool, table, capture)
    if known is not None and known.lost(table) is None and set(declared) <= captured:
        return False
    columns = [c for c in there if c in declared or c in captured]
    pool.run([
        *remove(table, capture), *install(table, capture, columns, witness(table, capture)), keeping(table, capture),
    ])  # fmt: skip
    return True


def _refuse_foreign(pool: Pool, source: Source, table: str, capture: str) -> None:
    """Refuse a capture whose change table has the name of another one's."""
    changes = change_table(table, capture)
    if not pool.fetch(f"SELECT to_regclass({text_literal(CAPTURES)}) IS NOT NULL").column(0)[0].as_py():
        return
    noted = pool.fetch(f"SELECT base, capture FROM {CAPTURES} WHERE change_table = {text_literal(changes)}").to_pylist()
    for row in noted:
        if (row["base"], row["capture"]) != (table, capture):
            msg = (
                f"source {source.name!r}: {changes} holds the changes of {row['base']} (capture {row['capture']!r}), "
                f"not of {table}; choose another name: OPTIONS (capture 'name')"
            )
            raise RegistrationError(msg)


def kept_of(pool: Pool, table: str, capture: str) -> Kept | None:
    """The server's record of a capture; None if there is none, or not all of it."""
    tables = (CAPTURES, qualified(change_table(table, capture)))
    there = " AND ".join((
        *(f"to_regclass({text_literal(name)}) IS NOT NULL" for name in tables),
        f"to_regproc({text_literal(function_of(table, capture, 'kept'))}) IS NOT NULL",
    ))  # fmt: skip
    if not pool.fetch(f"SELECT {there}").column(0)[0].as_py():
        return None
    return Kept.read(pool.fetch(f"SELECT {kept(table, capture)}").column(0)[0].as_py())


def check_change_table(pool: Pool, source: Source, changes: str, sign: str) -> None:
    """Refuse a change table that could lose changes; `sign` is its column with 1 and -1."""
    schema, _, name = changes.rpartition(".")
    found = dict(described(pool, name, schema))
    if not found:
        raise RegistrationError(f"source {source.name!r}: there is no change table {changes!r}")
    wanted = [*(c.name for c in source.columns), sign]
    for column in wanted:
        if column not in found:
            remedy = "add it, or name the column with the sign by OPTIONS (sign 'column')"
            raise RegistrationError(f"source {source.name!r}: {changes} has no column {column!r}; {remedy}")
    if found.get(XID) != "xid8":
        msg = (
            f"source {source.name!r}: {changes} has no column {XID} of type xid8, and by its order of "
            "writing alone a change "
            f"could be missed; ALTER TABLE {changes} ADD COLUMN {XID} xid8 NOT NULL DEFAULT pg_current_xact_id()"
        )
        raise RegistrationError(msg)
    if found[sign] not in _INTEGERS:
        raise RegistrationError(_fractional(source, changes, sign))
    # Columns of a view are always nullable: each read of changes checks whether they have NULLs.
    nullable = pool.fetch(
        "SELECT attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid AND relkind IN ('r', 'p', 'f') "
        f"WHERE c.oid = {_oid(changes)} AND attname IN ({text_literal(XID)}, {text_literal(sign)}) AND NOT attnotnull"
    )
    for column in nullable.column(0).to_pylist():
        msg = (
            f"source {source.name!r}: {changes} has a column {column!r} that may be NULL, and changes "
            "without it would be lost; "
            f"ALTER TABLE {changes} ALTER COLUMN {quoted(column)} SET NOT NULL"
        )
        raise RegistrationError(msg)


def unsure(changes: str, sign: str) -> str:
    """The expression for the name of a column through which a change table may lose changes; NULL if there is none."""
    columns = f"SELECT FROM pg_attribute WHERE attrelid = {_oid(changes)} AND attname"
    integers = ", ".join(f"'{kind}'::regtype" for kind in _INTEGERS)
    return (
        f"CASE WHEN NOT EXISTS ({columns} = {text_literal(sign)} AND atttypid IN ({integers})) THEN "
        f"{text_literal(sign)} "
        f"WHEN EXISTS ({columns} = '{XID}' AND attnotnull) THEN NULL "
        f"WHEN EXISTS (SELECT FROM {qualified(changes)} WHERE {XID} IS NULL) THEN '{XID}' END"
    )


def refuse_unsure(source: Source, changes: str, sign: str, column: str | None, signs: pa.ChunkedArray) -> None:
    """Refuse changes of which some may be lost, by the result of `unsure`, or by a sign that is NULL."""
    if column == sign:
        raise StepError(_fractional(source, changes, sign))
    if column is not None or signs.null_count:
        name = column or sign
        msg = (
            f"source {source.name!r}: {changes} has changes whose {name} is NULL, and they would be lost; "
            f"give them one, and see to it by ALTER TABLE {changes} ALTER COLUMN {quoted(name)} SET NOT NULL"
        )
        raise StepError(msg)


def _fractional(source: Source, changes: str, sign: str) -> str:
    return (
        f"source {source.name!r}: the column {sign!r} of {changes} is no integer, and parts of rows would be lost; "
        f"ALTER TABLE {changes} ALTER COLUMN {quoted(sign)} TYPE smallint"
    )


def _oid(changes: str) -> str:
    return f"to_regclass({text_literal(qualified(changes))})"
