"""Whether triggers have seen all changes of a table: what must hold of it, and what bypassed them (decision 0034).

What PostgreSQL stores about the table, its triggers and its captured columns is recorded when a capture begins, as its
*witness*. If it differs later, changes may be missing, and the views are recomputed. A witness changes more often than
rows are lost (VACUUM FULL, CLUSTER): needless recomputes are preferred to a rule that may be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.views.postgres.capture import CAPTURES, OWN, change_table, function_of, qualified, text_literal

_REASONS = (  # by the parts of a witness
    "{} lost its triggers, if only for a time (it was made anew, or they were dropped, disabled or changed)",
    "columns of {} were renamed, dropped or altered",
    "{} was truncated or written anew (TRUNCATE, ALTER TABLE, VACUUM FULL, CLUSTER), for which no trigger fires",
    "{} was inherited from",
)
SNAPSHOT_REMEDY = "declare the source with CHANGES BY SNAPSHOT"


@dataclass(frozen=True)
class Kept:
    """The server's record of a capture, all as of one snapshot."""

    trimmed: str  # changes up to this snapshot are not in the change table, or no longer
    noted: Sequence[str]
    now: Sequence[str]
    doubt: str | None  # why triggers may miss writes to the table

    @classmethod
    def read(cls, text: str | None) -> Kept | None:
        """From the result of `kept`; None if there is no such capture."""
        return None if text is None else cls(*json.loads(text))

    def lost(self, table: str) -> str | None:
        """Why changes may be missing; None if none are."""
        return next((r.format(table) for r, a, b in zip(_REASONS, self.noted, self.now, strict=True) if a != b), None)


def kept(table: str, capture: str) -> str:
    """The expression that selects a `Kept` as text; NULL if nothing was noted."""
    return f"{function_of(table, capture, 'kept')}()"


def keeping(table: str, capture: str) -> str:
    """The statement that creates the function behind `kept`.

    Planning these queries takes far longer than running them, and a function is planned once per connection. It is
    stable, so that it sees the snapshot of the statement that calls it.
    """
    found = f"json_build_array(snapshot, witness, {witness(table, capture)}, {doubt(table)})::text"
    name = text_literal(change_table(table, capture))
    return (
        f"CREATE FUNCTION {kept(table, capture)} RETURNS text LANGUAGE plpgsql STABLE AS $body$ BEGIN "
        f"RETURN (SELECT {found} FROM {CAPTURES} WHERE change_table = {name}); END $body$"
    )


def witness(table: str, capture: str) -> str:
    """The expression, of type json, that must not change during a capture. Its parts are in order of the reasons."""
    oid = f"to_regclass({text_literal(qualified(table))})"
    changes = f"to_regclass({text_literal(qualified(change_table(table, capture)))})"
    function = f"to_regproc({text_literal(function_of(table, capture))})"
    # A row of the catalog gets a new xmin whenever it is changed, even by a change that is reverted later.
    triggers = (
        f"SELECT string_agg(tgname || ' ' || xmin, ',' ORDER BY tgname) FROM pg_trigger WHERE tgrelid = {oid} "
        f"AND tgfoid = {function}"
    )
    columns = (
        "SELECT string_agg(a.attnum || ' ' || a.xmin, ',' ORDER BY a.attnum) FROM pg_attribute a "
        f"JOIN pg_attribute c ON c.attrelid = {changes} AND c.attname = a.attname WHERE a.attrelid = {oid} "
        "AND a.attnum > 0 "
        f"AND a.attname NOT IN {OWN}"
    )
    parts = [
        triggers,
        columns,
        *(f"SELECT {c} FROM pg_class WHERE oid = {oid}" for c in ("relfilenode::text", "relhassubclass::text")),
    ]
    whole = ", ".join(f"coalesce(({part}), '')" for part in parts)
    return f"json_build_array({whole})"


def doubt(table: str) -> str:
    """The expression for the reason why triggers on a table may miss writes; NULL if they do not."""
    return (
        "(SELECT CASE WHEN relkind = 'p' OR relispartition THEN 'is partitioned or a partition' "
        "WHEN relkind <> 'r' THEN 'is not an ordinary table' "
        "WHEN relpersistence <> 'p' THEN 'is not logged, and empty after a crash' "
        "WHEN EXISTS (SELECT FROM pg_inherits WHERE c.oid IN (inhrelid, inhparent)) THEN 'inherits or is "
        "inherited from' "
        "WHEN EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = c.oid) THEN 'is written by a subscription' END "
        f"FROM pg_class c WHERE c.oid = to_regclass({text_literal(qualified(table))}))"
    )


def doubted(source: str, table: str, why: str) -> str:
    """The error for a table whose triggers may miss writes."""
    return (
        f"source {source!r}: {table} {why}, so triggers do not see all that is written to it; {SNAPSHOT_REMEDY}, or "
        "CHANGES BY TABLE if something else records them"
    )
