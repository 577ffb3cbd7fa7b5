"""How PostgreSQL captures changes: triggers write every changed row, with its transaction, into a change table.

A position is a snapshot of the server, not a sequence number: numbers are drawn when a row is written, and rows appear
when their transaction commits. Decision 0034 says why snapshots can be ordered by a number, and why every one names the
*life* of the server, which ends with any recovery. A snapshot's text is its *mark*, from which a later process goes on.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import RegistrationError

SCHEMA = "penstock"
CAPTURES = f"{SCHEMA}.captures"
XID = "change_xid"
SIGN = "change_count"
OWN = f"('{XID}', '{SIGN}')"  # columns of a change table that its table does not have, even if it has others so named
_EVENTS = {
    "insert": "AFTER INSERT ON {base} REFERENCING NEW TABLE AS new_rows",
    "update": "AFTER UPDATE ON {base} REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows",
    "delete": "AFTER DELETE ON {base} REFERENCING OLD TABLE AS old_rows",
}
_LIFE = "coalesce(extract(epoch FROM (pg_stat_get_archiver()).stats_reset) * 1000000, 0)::bigint"
HERE = f"pg_current_snapshot()::text || '/' || {_LIFE}"  # what a statement sees, in the form that `Snapshot` parses
_SNAPSHOT = re.compile(r"((\d+):(\d+):([\d,]*))(?:/(\d+))?")


@dataclass(frozen=True)
class Snapshot:
    """What one statement saw: `xmin:xmax:in progress` in PostgreSQL's form, and `/life` of the server."""

    text: str

    @property
    def seen(self) -> str:
        """In PostgreSQL's form."""
        return self._match[1]

    @property
    def over(self) -> int:
        """How many transactions were over."""
        return int(self._match[3]) - (self._match[4].count(",") + 1 if self._match[4] else 0)

    @property
    def life(self) -> int:
        return int(self._match[5] or 0)

    @property
    def position(self) -> int:
        """A number that no other life of the server has, and that grows from one snapshot to the next."""
        return (self.life << 64) + self.over

    @property
    def _match(self) -> re.Match[str]:
        match = _SNAPSHOT.fullmatch(self.text)
        if match is None:
            raise ValueError(f"{self.text!r} is no snapshot")
        return match

    @property
    def oldest(self) -> int:
        """Every transaction with a smaller id was over."""
        return int(self._match[2])

    @property
    def newest(self) -> int:
        """No transaction with this id or a larger one was over."""
        return int(self._match[3])


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    """A string constant; the session has standard_conforming_strings on."""
    return "'" + value.replace("'", "''") + "'"


def qualified(table: str) -> str:
    """`table` or `schema.table`, quoted part by part."""
    parts = table.split(".")
    if len(parts) > 2 or not all(parts):
        raise RegistrationError(f"{table!r} is no name of a table; write table or schema.table")
    return ".".join(quoted(part) for part in parts)


def change_table(table: str, capture: str) -> str:
    """Where the triggers of one capture write the changes of a table.

    `sales.eu_orders` and `sales_eu.orders` would read the same, and PostgreSQL cuts names after 63 bytes: a checksum
    distinguishes them.
    """
    name = f"{table}_{capture}".replace(".", "_").encode()[:40].decode(errors="ignore")
    checksum = zlib.crc32(f"{table}\0{capture}".encode())
    return f"{SCHEMA}.{name}_{checksum:08x}"


def function_of(table: str, capture: str, does: str = "write") -> str:
    """The function that the triggers of one capture call, or another function of the same capture."""
    return qualified(f"{change_table(table, capture)}_{does}")


def install(table: str, capture: str, columns: Sequence[str], witness: str) -> list[str]:
    """The statements that start to capture these columns of a table; all in one transaction.

    Creating a trigger waits for the transactions that write to the table, and blocks others until it is committed. So
    every transaction that ends later than this one has captured all its writes. Earlier ones were not captured, so the
    snapshot of that moment is noted as if all changes up to it had been removed. `witness` (an expression) is noted
    too.
    """
    base, changes, function = qualified(table), qualified(change_table(table, capture)), function_of(table, capture)
    names = ", ".join(quoted(c) for c in columns)

    def write(sign: int, rows: str) -> str:
        return f"INSERT INTO {changes} ({SIGN}, {names}) SELECT {sign}, {names} FROM {rows};"

    # A dropped, renamed or altered column must not block writers; the witness reveals what is missed.
    fits = (
        "(SELECT count(*) FROM pg_attribute a JOIN pg_attribute c USING (attname, atttypid, atttypmod) WHERE "
        "a.attrelid = TG_RELID "
        f"AND c.attrelid = to_regclass({text_literal(changes)}) AND a.attnum > 0 AND c.attnum > 0 AND "
        f"attname NOT IN {OWN}) = {len(columns)}"
    )
    statements = [
        f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
        (
            f"CREATE TABLE IF NOT EXISTS {CAPTURES} (change_table text PRIMARY KEY, base text NOT NULL, "
            "capture text NOT NULL, "
            "snapshot text NOT NULL, witness json NOT NULL)"
        ),
        f"CREATE TABLE {changes} AS SELECT {names} FROM {base} WITH NO DATA",
        (
            f"ALTER TABLE {changes} ADD COLUMN {SIGN} smallint NOT NULL, ADD COLUMN {XID} xid8 NOT NULL DEFAULT "
            "pg_current_xact_id()"
        ),
        f"CREATE INDEX ON {changes} ({XID})",
        # Writers of the table need no rights on the change table.
        (
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path "
            "= pg_catalog AS $body$ BEGIN "
            f"IF {fits} THEN "
            f"IF TG_OP IN ('UPDATE', 'DELETE') THEN {write(-1, 'old_rows')} END IF; "
            f"IF TG_OP IN ('UPDATE', 'INSERT') THEN {write(1, 'new_rows')} END IF; "
            "END IF; RETURN NULL; END $body$"
        ),
    ]
    for event, clause in _EVENTS.items():
        trigger = quoted(f"penstock_{capture}_{event}")
        statements += [
            f"CREATE TRIGGER {trigger} {clause.format(base=base)} FOR EACH STATEMENT EXECUTE FUNCTION {function}()",
            # Also in sessions with the role of a replica.
            f"ALTER TABLE {base} ENABLE ALWAYS TRIGGER {trigger}",
        ]
    own = ", ".join(map(text_literal, (change_table(table, capture), table, capture)))
    noted = (
        f"INSERT INTO {CAPTURES} VALUES ({own}, pg_current_snapshot()::text, {witness}) "
        "ON CONFLICT (change_table) DO UPDATE SET snapshot = excluded.snapshot, witness = excluded.witness"
    )
    return [*statements, noted]


def trim(changes: str, snapshot: Snapshot) -> list[str]:
    """The statements that remove the changes that a snapshot has seen, and note that they are incomplete up to it.

    A snapshot before the noted one changes nothing: removed changes do not come back. One of another life is ignored.
    """
    noted = (
        "pg_snapshot_xmax(snapshot::pg_snapshot)::text::numeric - (SELECT count(*) FROM "
        "pg_snapshot_xip(snapshot::pg_snapshot))"
    )
    mark, alive = text_literal(snapshot.seen), f"{_LIFE} = {snapshot.life}"
    seen = f"{XID} < '{snapshot.newest}'::xid8 AND pg_visible_in_snapshot({XID}, {mark}::pg_snapshot)"
    return [
        (
            f"UPDATE {CAPTURES} SET snapshot = {mark} WHERE change_table = {text_literal(changes)} AND {noted} < "
            f"{snapshot.over} AND {alive}"
        ),
        f"DELETE FROM {qualified(changes)} WHERE {seen} AND {alive}",
    ]


def remove(table: str, capture: str) -> list[str]:
    """The statements that end a capture and drop its changes."""
    return [
        f"DROP FUNCTION IF EXISTS {function_of(table, capture, 'kept')}()",
        f"DROP FUNCTION IF EXISTS {function_of(table, capture)}() CASCADE",  # with its triggers
        f"DROP TABLE IF EXISTS {qualified(change_table(table, capture))}",
    ]


def between(after: Snapshot, until: str) -> str:
    """The condition on a change: its transaction is over in `until` (an expression) and was not in `after`."""
    first = text_literal(after.seen)
    return (
        f"{XID} >= '{after.oldest}'::xid8 AND pg_visible_in_snapshot({XID}, {until}) "
        f"AND NOT pg_visible_in_snapshot({XID}, {first}::pg_snapshot)"
    )
