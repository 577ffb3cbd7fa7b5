"""A PostgreSQL table as a source: lookups are pushed down as SQL, changes come from a change table (see `capture`).

A lookup is one statement: `= any(array)` with bound parameters, or a join with an analyzed temporary table, whichever
is measured to be faster for that many keys. The same statement returns the snapshot it read, in a row of its own, so
that rows and position always match. If neither can be used, `OPTIONS (lookup 'composite')` uses plain queries
(`composite`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from math import inf
from time import perf_counter
from typing import Any

import pyarrow as pa

from penstock.errors import ChangesLostError, RegistrationError, StateError, StepError
from penstock.model import Expression
from penstock.model.view import Source
from penstock.planner.views.initial_load import Estimate, keyed
from penstock.planner.views.knee import Knee
from penstock.planner.views.ways import Ways
from penstock.views.postgres.capture import (
    HERE,
    SIGN,
    Snapshot,
    between,
    change_table,
    qualified,
    quoted,
    remove,
    text_literal,
    trim,
)
from penstock.views.postgres.change_table import begin_capture, check_change_table, kept_of, refuse_unsure, unsure
from penstock.views.postgres.comparable_columns import compared, exact
from penstock.views.postgres.composite import fetch_composite
from penstock.views.postgres.keys import among_arrays, among_rows, storable
from penstock.views.postgres.pool import Pool, reading
from penstock.views.postgres.snapshot_select import (
    Selection,
    cast_columns,
    header,
    opened,
    selection,
    server_type,
    stamped,
    unstamped,
)
from penstock.views.postgres.tables import check_key, estimate, lockable, resolved
from penstock.views.postgres.witness import Kept, doubted, kept
from penstock.views.rows.bag import COUNT
from penstock.views.rows.types import schema_of
from penstock.views.sources.source import Answer

ARRAY, TABLE = "array", "table"
ARRAY_KEYS = 20_000  # up to which arrays are used until measured
LOOKUPS = ("auto", "composite")
CAPTURE = "changes"  # the default name of a capture


class PostgresReader:
    """A live PostgreSQL source with changes from our triggers or from a user's change table."""

    def __init__(self, source: Source, pool: Pool) -> None:
        self.source, self.pool = source, pool
        self.requests = 0
        self.connections = pool.connections
        options = dict(source.options)
        self.table = resolved(pool, options["table"])
        self.locked = lockable(pool, self.table)
        self.exact = exact(pool, self.table, source)
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
            check_key(pool, self.table, source)
        if source.changes == "trigger":
            self._changes = change_table(self.table, self._capture)
            self._sign = SIGN
            self._install()
        elif source.changes == "snapshot":
            self._changes, self._sign = "", ""  # only read whole, and compared
        else:
            assert source.change_table is not None
            self._changes, self._sign = source.change_table, options.get("sign", COUNT)
            check_change_table(pool, source, self._changes, self._sign)

    # -- positions --------------------------------------------------------------------------------------------------

    def position(self) -> int:
        return self._seen(self._fetch(f"SELECT {HERE}").column(0)[0].as_py())

    def mark(self, position: int) -> str:
        """What a later process needs to continue from a position of this reader."""
        return f"{self._snapshot(position).text}@{self.pool.identity}"

    def resume(self, mark: str) -> int:
        """The position of a mark, or of a snapshot of this database, known from now on."""
        snapshot, _, home = mark.partition("@")
        if home and home != self.pool.identity:
            msg = (
                f"source {self.source.name!r} is in another database than before ({self.pool.identity}, not {home}), "
                "where positions mean nothing"
            )
            raise ChangesLostError(msg)
        return self._seen(snapshot)

    def settle(self, position: int) -> None:
        """Changes up to this position will not be requested again."""
        with self._lock:
            self._marks = {p: s for p, s in self._marks.items() if p >= position}
        if self.source.changes == "trigger":
            snapshot = self._snapshot(position)
            self._count(1)
            self.pool.run(trim(self._changes, snapshot))

    # -- rows -------------------------------------------------------------------------------------------------------

    def changes(self, after: int, until: int | None = None) -> tuple[pa.Table, int]:
        start = self._snapshot(after)
        stop = start if until is None else self._snapshot(until)
        end = "pg_current_snapshot()" if until is None else f"{text_literal(stop.seen)}::pg_snapshot"
        names = [c.name for c in self.source.columns]
        body = (
            f"SELECT {cast_columns(self.source, names)}, {quoted(self._sign)}::bigint FROM {qualified(self._changes)} "
            f"WHERE {between(start, end)}"
        )
        captured = self.source.changes == "trigger"
        asked = kept(self.table, self._capture) if captured else unsure(self._changes, self._sign)
        try:
            raw = self._fetch(stamped(self.source, names, body, asked))
            found, stamp = opened(self.source, self._schema, names, raw)
        except StepError:
            if captured:  # the change table may be gone
                self._go_on(kept_of(self.pool, self.table, self._capture))
            raise
        position, now = self._seen(stamp.snapshot), Snapshot(stamp.snapshot)
        known = Kept.read(stamp.told) if captured else None
        if captured:
            self._go_on(known)
        else:
            refuse_unsure(self.source, self._changes, self._sign, stamp.told, found.column(COUNT))
        if {start.life, stop.life} != {now.life}:
            msg = (
                f"source {self.source.name!r}: since it was read, its server has recovered from a crash, or "
                "another one has taken its "
                "place (or the statistics of its archiver were reset), and what had not reached the disk may be lost"
            )
            raise ChangesLostError(msg)
        if known is not None and start.over < Snapshot(known.trimmed).over:
            msg = (
                f"source {self.source.name!r}: changes that are still needed are not in {self._changes}: "
                "another engine has removed them "
                "(give each engine a capture of its own: OPTIONS (capture 'name')), or the capture was set up anew"
            )
            raise ChangesLostError(msg)
        if until is None and now.over < start.over:
            msg = (
                f"source {self.source.name!r} has seen {now.over} transactions, and had seen {start.over} before: "
                "was its database restored from a backup?"
            )
            raise ChangesLostError(msg)
        return found, position if until is None else until

    def lookup(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        keys = storable(keys)
        if self._composite and keys.num_rows:
            return self._lookup_by_parts(columns, keys, filters)
        way, began = self.ways.choose(keys.num_rows), perf_counter()
        by = self._lookup_by_table if way == TABLE else self._lookup_by_array
        answer = by(columns, keys, filters)
        self.ways.learn(way, keys.num_rows, perf_counter() - began)
        return answer

    def scan(self, columns: Sequence[str], filters: Sequence[Expression]) -> Answer:
        return self._rows(columns, filters)

    def estimate(self, columns: Sequence[str]) -> Estimate:
        """The statistics that the server has for its own planner."""
        self._count(1)
        return keyed(estimate(self.pool, self.table, columns), self.source)

    def close(self) -> None:
        """The pool is closed by its owner."""

    def drop_capture(self) -> None:
        """End the capture of changes: drop triggers and change table."""
        if self.source.changes == "trigger":
            self.pool.run(remove(self.table, self._capture))

    # -- inside -----------------------------------------------------------------------------------------------------

    def _rows(
        self,
        columns: Sequence[str],
        filters: Sequence[Expression],
        tests: Sequence[str] = (),
        parameters: pa.RecordBatch | None = None,
    ) -> Answer:
        asked = self._selection(columns, filters, tests)
        raw = self._fetch(stamped(self.source, asked.read, asked.sql), parameters, self.locked)
        return self._answer(columns, asked, [raw])

    def _selection(self, columns: Sequence[str], filters: Sequence[Expression], tests: Sequence[str] = ()) -> Selection:
        return selection(self.source, self.table, columns, filters, tests, self.exact)

    def _lookup_by_array(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        test, arrays = among_arrays(keys, self._compared)
        return self._rows(columns, filters, [test], arrays)

    def _lookup_by_table(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        name = f"penstock_keys_{uuid.uuid4().hex[:12]}"
        test, rows = among_rows(keys, name, self._compared)
        asked = self._selection(columns, filters, [test])

        def request(cursor: Any) -> pa.Table:
            self._count(4)
            cursor.adbc_ingest(name, rows, mode="create", temporary=True)
            # Without statistics PostgreSQL assumes two thousand rows in any temporary table, and reads the whole
            # source.
            cursor.execute(f"ANALYZE {name}")
            with reading(cursor, self.locked):
                cursor.execute(stamped(self.source, asked.read, asked.sql))
                raw = cursor.fetch_arrow_table()
            cursor.execute(f"DROP TABLE {name}")
            return raw

        return self._answer(columns, asked, [self.pool.read(request)])

    def _lookup_by_parts(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        types = {n: (self._compared(n), server_type(self.source, n)) for n in keys.column_names}
        asked = self._selection(columns, filters)

        def one(test: str) -> str:
            return unstamped(self._selection(columns, filters, [test]).sql)

        head = header(self.source, asked.read)
        answers, requests = fetch_composite(self.pool, keys, types, one, head, self.knee, self.locked)
        self._count(requests + 2)
        return self._answer(columns, asked, answers)

    def _answer(self, columns: Sequence[str], asked: Selection, raw: Sequence[pa.Table]) -> Answer:
        """The rows of statements that all read one snapshot."""
        parts = [opened(self.source, self._schema, asked.read, one) for one in raw]
        found = pa.concat_tables([rows for rows, _ in parts])
        return Answer(asked.decided(found, columns), self._seen(parts[0][1].snapshot))

    def _compared(self, name: str) -> str:
        column = self.source.column(name)
        assert column is not None, name
        return compared(name, column.type, self.exact)

    def _fetch(self, sql: str, parameters: pa.RecordBatch | None = None, locked: Sequence[str] = ()) -> pa.Table:
        self._count(1)
        return self.pool.fetch(sql, parameters, locked)

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

    def _go_on(self, known: Kept | None) -> None:
        """Raise unless the capture is as it was when it started; if not, start it again."""
        if known is not None and known.doubt is not None:
            raise StepError(doubted(self.source.name, self.table, known.doubt))
        lost = f"the capture of {self.table} was removed" if known is None else known.lost(self.table)
        if lost is not None:
            try:
                self._install()
            except RegistrationError as error:
                raise StepError(str(error)) from None
            msg = (
                f"source {self.source.name!r}: {lost}, and changes may have got lost; they are captured again "
                "from now on"
            )
            raise ChangesLostError(msg)

    def _install(self) -> None:
        with self._installing:
            self._count(1)
            if begin_capture(self.pool, self.source, self.table, self._capture):
                self.exact = exact(self.pool, self.table, self.source)  # columns may have other types now
