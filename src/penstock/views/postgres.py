"""A PostgreSQL table as a source: lookups are pushed down as SQL, changes come from a change table (see `capture`).

A lookup is one statement: `= any(array)` with bound parameters, or a join with a temporary table that has statistics, whichever is the
quicker for so many keys, as measured. The same statement returns the snapshot it read, in a row of its own, so that rows and position always belong together.
Where neither can be used, `OPTIONS (lookup 'composite')` asks by plain queries (see `composite`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from math import inf
from time import perf_counter

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ChangesLostError, RegistrationError, StateError, StepError
from penstock.model import Expression
from penstock.model.view import Source
from penstock.planner.views.first import Estimate, keyed
from penstock.planner.views.knee import Knee
from penstock.planner.views.ways import Ways
from penstock.views.capture import (
    SCHEMA,
    SIGN,
    XID,
    Snapshot,
    between,
    capturing,
    change_table,
    install,
    qualified,
    quoted,
    remove,
    text_literal,
    trimmed,
)
from penstock.views.composite import fetch_composite
from penstock.views.evaluate import select
from penstock.views.pool import Pool, wrapped
from penstock.views.pushdown import condition
from penstock.views.source import COUNT, Answer
from penstock.views.tables import as_arrow, check_key, described, estimate, resolved, type_of
from penstock.views.types import schema_of

ARRAY, TABLE = "array", "table"
ARRAY_KEYS = 20_000  # up to which an array is taken until it is known better
LOOKUPS = ("auto", "composite")
CAPTURE = "changes"  # the name of the capture where the source gives none
_NOT_CAPTURED = "not captured"
_LOST = (
    "the table {} has lost its triggers (it was made anew, or they were dropped or disabled), and changes with them; "
    "changes are captured again from now on"
)


class PostgresReader:
    """A live PostgreSQL source with changes by trigger or from a change table of the user's."""

    def __init__(self, source: Source, pool: Pool) -> None:
        self.source, self.pool = source, pool
        self.requests = 0
        self.connections = pool.connections
        options = dict(source.options)
        self._table = resolved(pool, options["table"])
        self._capture = options.get("capture", CAPTURE)
        self._composite = options.get("lookup", LOOKUPS[0]) == "composite"
        if options.get("lookup", LOOKUPS[0]) not in LOOKUPS:
            msg = f"source {source.name!r}: rows are looked up by {' or '.join(LOOKUPS)}, not {options['lookup']!r}"
            raise RegistrationError(msg)
        self.knee, self.ways = Knee(), Ways({ARRAY: ARRAY_KEYS, TABLE: inf})
        self._schema = schema_of(source.name, source.columns)
        self._marks: dict[int, Snapshot] = {}
        self._lock, self._installing = threading.Lock(), threading.Lock()
        if source.key and source.changes != "snapshot":
            check_key(pool, self._table, source)
        if source.changes == "trigger":
            self._changes = change_table(self._table, self._capture)
            self._sign = SIGN
            self._install()
            self._check()
        elif source.changes == "snapshot":
            self._changes, self._sign = "", ""  # only read whole, and compared
        else:
            assert source.change_table is not None
            self._changes, self._sign = source.change_table, options.get("sign", COUNT)
            self._check()

    # -- positions --------------------------------------------------------------------------------------------------

    def position(self) -> int:
        return self._seen(self._fetch("SELECT pg_current_snapshot()::text").column(0)[0].as_py())

    def mark(self, position: int) -> str:
        """What a later process needs to go on from a position that this reader gave."""
        return f"{self._snapshot(position).text}@{self.pool.identity}"

    def resume(self, mark: str) -> int:
        """The position of a mark, or of a snapshot of this database, known from now on."""
        snapshot, _, home = mark.partition("@")
        if home and home != self.pool.identity:
            msg = f"source {self.source.name!r} is in another database than before ({self.pool.identity}, not {home}), where positions mean nothing"
            raise ChangesLostError(msg)
        return self._seen(snapshot)

    def settle(self, position: int) -> None:
        """Nobody will ask for changes before this position any more."""
        with self._lock:
            self._marks = {p: s for p, s in self._marks.items() if p >= position}
        if self.source.changes == "trigger":
            self._trim(self._snapshot(position))

    # -- rows -------------------------------------------------------------------------------------------------------

    def changes(self, after: int, until: int | None = None) -> tuple[pa.Table, int]:
        start = self._snapshot(after)
        end = "pg_current_snapshot()" if until is None else f"{text_literal(self._snapshot(until).text)}::pg_snapshot"
        names = [c.name for c in self.source.columns]
        body = (
            f"SELECT {self._columns(names)}, {quoted(self._sign)}::bigint FROM {qualified(self._changes)} "
            f"WHERE {between(start, end)}"
        )
        found, snapshot = self._answer(names, body, captured=self.source.changes == "trigger")
        if snapshot.trimmed == _NOT_CAPTURED:
            self._install()
            raise ChangesLostError(f"source {self.source.name!r}: {_LOST.format(self._table)}")
        if snapshot.trimmed is not None and start.position < Snapshot(snapshot.trimmed).position:
            msg = (
                f"source {self.source.name!r}: changes that are still needed are not in {self._changes}: another engine has removed them "
                "(give each engine a capture of its own: OPTIONS (capture 'name')), or the capture was set up anew"
            )
            raise ChangesLostError(msg)
        if until is None and snapshot.position < start.position:
            msg = f"source {self.source.name!r} is at position {snapshot.position}, and had come to {start.position} before: was its database restored from a backup?"
            raise ChangesLostError(msg)
        return found, snapshot.position if until is None else until

    def lookup(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        keys = _storable(keys)
        if self._composite and keys.num_rows:
            return self._lookup_by_parts(columns, keys, filters)
        way, began = self.ways.choose(keys.num_rows), perf_counter()
        by = self._lookup_by_table if way == TABLE else self._lookup_by_array
        answer = by(columns, keys, filters)
        self.ways.learn(way, keys.num_rows, perf_counter() - began)
        return answer

    def scan(self, columns: Sequence[str], filters: Sequence[Expression]) -> Answer:
        return self._rows(columns, filters, [])

    def estimate(self, columns: Sequence[str]) -> Estimate:
        """What the server keeps for its own planner."""
        self._count(1)
        return keyed(estimate(self.pool, self._table, columns), self.source)

    def close(self) -> None:
        """The pool belongs to whoever made it."""

    def drop_capture(self) -> None:
        """End the capture of changes: triggers and change table go."""
        if self.source.changes == "trigger":
            self.pool.run(remove(self._table, self._capture))

    # -- inside -----------------------------------------------------------------------------------------------------

    def _rows(
        self,
        columns: Sequence[str],
        filters: Sequence[Expression],
        tests: list[str],
        parameters: pa.RecordBatch | None = None,
    ) -> Answer:
        body, read, left = self._body(columns, filters, tests)
        found, header = self._answer(read, body, parameters)
        return self._selected(found, columns, left, header.position)

    def _body(
        self, columns: Sequence[str], filters: Sequence[Expression], tests: list[str]
    ) -> tuple[str, list[str], list[Expression]]:
        """The SELECT, the columns it reads, and the filters that are left to be decided here."""
        pushed = {f: condition(f, self.source) for f in filters}
        left = [f for f, text in pushed.items() if text is None]
        read = list(dict.fromkeys([*columns, *(r.column for f in left for r in f.refs)]))
        where = " AND ".join([*tests, *(text for text in pushed.values() if text is not None)])
        body = f"SELECT {self._columns(read)}{', ' if read else ''}1::bigint FROM {qualified(self._table)}"
        return body + (f" WHERE {where}" if where else ""), read, left

    def _selected(self, found: pa.Table, columns: Sequence[str], left: list[Expression], position: int) -> Answer:
        return Answer(select(found, left, lambda ref: ref.column).select([*columns, COUNT]), position)

    def _lookup_by_array(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        names, casts, arrays = keys.column_names, [], []
        for number, name in enumerate(names, 1):
            values = keys.column(name).combine_chunks()
            cast = ""
            if pa.types.is_decimal(values.type):
                values, cast = pc.cast(values, pa.string()), "::text[]::numeric[]"
            casts.append(f"${number}{cast}")
            arrays.append(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), _contiguous(values)))
        if len(names) == 1:
            test = f"{quoted(names[0])} = ANY ({casts[0]})"
        else:
            test = f"({', '.join(quoted(n) for n in names)}) IN (SELECT * FROM unnest({', '.join(casts)}))"
        parameters = pa.record_batch(arrays, [f"p{n}" for n in range(len(arrays))])
        return self._rows(columns, filters, [test], parameters)

    def _lookup_by_table(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        name = f"penstock_keys_{uuid.uuid4().hex[:12]}"
        names = keys.column_names
        casts = {n: "::numeric" if pa.types.is_decimal(keys.column(n).type) else "" for n in names}
        shipped = pa.table({n: pc.cast(keys.column(n), pa.string()) if casts[n] else keys.column(n) for n in names})
        test = f"({', '.join(quoted(n) for n in names)}) IN (SELECT {', '.join(quoted(n) + casts[n] for n in names)} FROM {name})"
        body, read, left = self._body(columns, filters, [test])
        with self.pool.connection() as connection, wrapped(), connection.cursor() as cursor:
            self._count(4)
            cursor.adbc_ingest(name, shipped, mode="create", temporary=True)
            # Without statistics PostgreSQL takes any temporary table for two thousand rows, and reads the whole source.
            cursor.execute(f"ANALYZE {name}")
            cursor.execute(self._statement(read, body))
            raw = cursor.fetch_arrow_table()
            cursor.execute(f"DROP TABLE {name}")
        found, header = self._opened(read, raw)
        return self._selected(found, columns, left, header.position)

    def _lookup_by_parts(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        types = {n: type_of(self._type(n)) for n in keys.column_names}
        body, read, left = self._body(columns, filters, ["{}"])
        head, _, _ = self._statement(read, body).partition(" UNION ALL ")

        def one(test: str) -> str:
            return _after_head(self._body(columns, filters, [test])[0])

        answers, requests = fetch_composite(self.pool, keys, types, one, head, self.knee)
        self._count(requests + 2)
        opened = [self._opened(read, raw) for raw in answers]
        found = pa.concat_tables([rows for rows, _ in opened])
        return self._selected(found, columns, left, opened[0][1].position)

    def _answer(
        self, names: list[str], body: str, parameters: pa.RecordBatch | None = None, *, captured: bool = False
    ) -> tuple[pa.Table, _Header]:
        return self._opened(names, self._fetch(self._statement(names, body, captured=captured), parameters))

    def _statement(self, names: list[str], body: str, *, captured: bool = False) -> str:
        """The rows of `body` after one row with the snapshot that this very statement reads."""
        kinds = [f"NULL::{type_of(self._type(n))} AS {quoted(n)}" for n in names]
        mark = (
            f"CASE WHEN {capturing(self._table, self._capture)} THEN "
            f"(SELECT snapshot FROM {SCHEMA}.trimmed WHERE change_table = {text_literal(self._changes)}) "
            f"ELSE {text_literal(_NOT_CAPTURED)} END"
            if captured
            else "NULL::text"
        )
        head = ", ".join(
            ["pg_current_snapshot()::text AS _snapshot", f"{mark} AS _trimmed", *kinds, f"0::bigint AS {COUNT}"]
        )
        return f"SELECT {head} UNION ALL {_after_head(body)}"

    def _opened(self, names: list[str], raw: pa.Table) -> tuple[pa.Table, _Header]:
        marked = pc.is_valid(raw.column(0))
        header = raw.filter(marked)
        snapshot = header.column(0)[0].as_py()
        rows = raw.filter(pc.invert(marked))
        columns = {n: self._cast(rows.column(i + 2), n) for i, n in enumerate(names)}
        columns[COUNT] = rows.column(len(names) + 2)
        return pa.table(columns), _Header(self._seen(snapshot), header.column(1)[0].as_py())

    def _cast(self, values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        kind = self._schema.field(name).type
        try:
            return as_arrow(values, kind)
        except pa.ArrowInvalid as error:
            msg = f"source {self.source.name!r}: a value of column {name!r} does not fit {self._type(name)}: {error}; declare the column with more digits, or leave it out"
            raise StepError(msg) from None

    def _columns(self, names: Sequence[str]) -> str:
        # A cast in the statement would keep an index on the column from being used only in conditions, not here.
        return ", ".join(f"{quoted(n)}::{type_of(self._type(n))}" for n in names)

    def _type(self, name: str) -> str:
        column = self.source.column(name)
        assert column is not None, name
        return column.type

    def _fetch(self, sql: str, parameters: pa.RecordBatch | None = None) -> pa.Table:
        self._count(1)
        return self.pool.fetch(sql, parameters)

    def _count(self, requests: int) -> None:
        with self._lock:
            self.requests += requests

    def _seen(self, text: str) -> int:
        snapshot = Snapshot(text)
        with self._lock:
            self._marks[snapshot.position] = snapshot
        return snapshot.position

    def _snapshot(self, position: int) -> Snapshot:
        with self._lock:
            found = self._marks.get(position)
        if found is None:
            msg = f"source {self.source.name!r}: position {position} is not known to this reader; resume it by its mark"
            raise StateError(msg)
        return found

    def _install(self) -> None:
        """Begin to capture changes, unless they are captured already.

        If a change table is left but its triggers are not all on the table, changes got lost: capture begins anew, and
        whoever asks for changes since before that is told.
        """
        with self._installing:
            test = f"{capturing(self._table, self._capture)} AND to_regclass({text_literal(qualified(self._changes))}) IS NOT NULL"
            if self._fetch(f"SELECT {test}").column(0)[0].as_py():
                return
            schema, _, name = self._table.rpartition(".")
            columns = [column for column, _ in described(self.pool, name, schema)]
            self.pool.run([*remove(self._table, self._capture), *install(self._table, self._capture, columns)])

    def _check(self) -> None:
        """Refuse a change table from which changes could get lost."""
        schema, _, name = self._changes.rpartition(".")
        found = dict(described(self.pool, name, schema))
        if not found:
            raise RegistrationError(f"source {self.source.name!r}: there is no change table {self._changes!r}")
        wanted = [*(c.name for c in self.source.columns), self._sign]
        for column in wanted:
            if column not in found:
                remedy = (
                    "drop the capture and declare the source again"
                    if self.source.changes == "trigger"
                    else "add it, or name the column with the sign by OPTIONS (sign 'column')"
                )
                raise RegistrationError(
                    f"source {self.source.name!r}: {self._changes} has no column {column!r}; {remedy}"
                )
        if found.get(XID) != "xid8":
            msg = (
                f"source {self.source.name!r}: {self._changes} has no column {XID} of type xid8, and by its order of writing alone a change "
                f"could be missed; ALTER TABLE {self._changes} ADD COLUMN {XID} xid8 NOT NULL DEFAULT pg_current_xact_id()"
            )
            raise RegistrationError(msg)

    def _trim(self, snapshot: Snapshot) -> None:
        mark = text_literal(snapshot.text)
        condition_ = (
            f"{XID} < '{snapshot.text.split(':')[1]}'::xid8 AND pg_visible_in_snapshot({XID}, {mark}::pg_snapshot)"
        )
        self._count(1)
        self.pool.run([
            trimmed(self._changes, mark),
            f"DELETE FROM {qualified(self._changes)} WHERE {condition_}",
        ])  # fmt: skip


class _Header:
    """What came with the rows of one statement."""

    def __init__(self, position: int, trimmed: str | None) -> None:
        self.position, self.trimmed = position, trimmed


def _after_head(body: str) -> str:
    """A SELECT with the columns that only the row with the snapshot fills."""
    return body.replace("SELECT ", "SELECT NULL::text, NULL::text, ", 1)


def _storable(keys: pa.Table) -> pa.Table:
    """Keys that PostgreSQL can hold: no text of it has a zero byte, and one that is sent is an error."""
    for name in keys.column_names:
        if pa.types.is_string(keys.column(name).type):
            keys = keys.filter(pc.invert(pc.match_substring(keys.column(name), "\0")))
    return keys


def _contiguous(values: pa.Array) -> pa.Array:
    return pa.concat_arrays([values]) if values.offset else values
