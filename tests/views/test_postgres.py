"""PostgreSQL as a source: rows and position of one snapshot, and no change skipped in any order of commits."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.demo.shop import server
from penstock.errors import ChangesLostError, RegistrationError, StateError, StepError
from penstock.model import Arithmetic, Column, Compare, Expression, In, IsNull, Literal, Not, Ref
from penstock.model.view import Source
from penstock.planner.views.knee import Knee
from penstock.views.postgres import source as postgres
from penstock.views.postgres.capture import Snapshot, change_table
from penstock.views.postgres.pool import Pool
from penstock.views.postgres.source import PostgresReader
from penstock.views.postgres.tables import columns_of
from penstock.views.rows.bag import COUNT
from penstock.views.rows.evaluate import select
from tests.effort import examples
from tests.views.postgres import Session, control, crash

COLUMNS = (Column("k", "bigint"), Column("v", "string"))
CHANGES = change_table("public.t", "changes")


@pytest.fixture(scope="module")
def url():
    with server() as found:
        yield found
        control(found, "stop")  # a process that a test has started is not known to who started the first


@pytest.fixture
def table(url):
    """A fresh, empty table t(k, v)."""
    session = Session(url)
    session.execute(
        "DROP SCHEMA IF EXISTS penstock CASCADE", "DROP TABLE IF EXISTS t CASCADE", "CREATE TABLE t (k bigint, v text)"
    )
    yield session
    session.close()


@pytest.fixture
def pool(url):
    made = Pool(url, 3)
    yield made
    made.close()


def reader(pool: Pool, **options: str) -> PostgresReader:
    given_options = {"table": "t", "url": pool.url, **options}
    return PostgresReader(Source("t", COLUMNS, "postgres", tuple(given_options.items()), changes="trigger"), pool)


def bag(rows: pa.Table) -> Counter:
    found: Counter = Counter()
    for row in rows.to_pylist():
        found[tuple(v for n, v in row.items() if n != COUNT)] += row[COUNT]
    return Counter({row: count for row, count in found.items() if count})


def plus(one: Counter, other: Counter) -> Counter:
    return Counter({row: n for row in one | other | dict.fromkeys((*one, *other), 1) if (n := one[row] + other[row])})


def condition(term) -> Expression:
    return Expression((Ref(0, "k"), Ref(0, "v")), term, total=True)  # as the text would name its columns


# A writer begins, writes, commits or rolls back; readers look at any moment.
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 2), st.integers(0, 4)),
        st.tuples(st.just("delete"), st.integers(0, 2), st.integers(0, 4)),
        st.tuples(st.just("commit"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("look"), st.sampled_from(["scan", "lookup", "position"]), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=examples(20))
@given(actions=ACTIONS)
def test_content_at_any_position_is_content_before_plus_the_changes_between(url, pool, table, actions):
    """Three writers with open transactions commit in any order: sequence numbers would skip some of these changes."""
    table.execute(
        "DROP SCHEMA IF EXISTS penstock CASCADE", "DELETE FROM t", "INSERT INTO t VALUES (0, 'a'), (0, 'a'), (1, 'b')"
    )
    source = reader(pool)
    writers = [Session(url) for _ in range(3)]
    try:
        for number, writer in enumerate(writers):
            writer.execute("SET lock_timeout = '50ms'", "BEGIN", f"INSERT INTO t VALUES ({number}, 'begin')")
        whole = source.scan(["k", "v"], [])
        seen = [(whole.position, bag(whole.rows))]
        for kind, who, what in actions:
            if kind == "look":
                if who == "position":
                    source.position()
                    continue
                keys = pa.table({"k": pa.array(range(5), pa.int64())})
                found = source.scan(["k", "v"], []) if who == "scan" else source.lookup(["k", "v"], keys, [])
                seen.append((found.position, bag(found.rows)))
                continue
            try:
                if kind == "insert":
                    writers[who].execute(f"INSERT INTO t VALUES ({what}, 'w{who}')")
                elif kind == "delete":
                    writers[who].execute(f"DELETE FROM t WHERE k = {what} AND v IN ('a', 'b', 'begin', 'w{who}')")
                else:
                    writers[who].execute("COMMIT" if what else "ROLLBACK", "BEGIN")
            except Exception:  # noqa: BLE001  (rows that another has deleted: this one gives up)
                writers[who].execute("ROLLBACK", "BEGIN")
        for writer in writers:
            writer.execute("COMMIT")
        last = source.scan(["k", "v"], [])
        seen.append((last.position, bag(last.rows)))
        for (start, before), (end, after) in pairwise(seen):
            changes, reached = source.changes(start, end)
            assert reached == end >= start
            assert plus(before, bag(changes)) == after
        first, content = seen[0]
        changes, reached = source.changes(first)
        assert reached >= seen[-1][0]
        assert plus(content, bag(changes)) == seen[-1][1]
    finally:
        for writer in writers:
            writer.close()


def test_a_change_that_commits_after_a_later_one_is_not_skipped(url, pool, table):
    source = reader(pool)
    slow = Session(url)
    slow.execute("BEGIN", "INSERT INTO t VALUES (1, 'slow')")
    start = source.position()
    table.execute("INSERT INTO t VALUES (2, 'fast')")
    first, middle = source.changes(start)
    slow.execute("COMMIT")
    second, _ = source.changes(middle)
    slow.close()
    assert bag(first) == {(2, "fast"): 1}
    assert bag(second) == {(1, "slow"): 1}


def test_subtransactions_belong_to_their_transaction(url, pool, table):
    source = reader(pool)
    writer = Session(url)
    writer.execute("BEGIN", "SAVEPOINT a", "INSERT INTO t VALUES (1, 'kept')", "RELEASE a")
    start = source.position()
    table.execute("INSERT INTO t VALUES (2, 'other')")
    assert source.position() > start
    writer.execute("SAVEPOINT b", "INSERT INTO t VALUES (3, 'lost')", "ROLLBACK TO b", "COMMIT")
    writer.close()
    assert bag(source.changes(start)[0]) == {(1, "kept"): 1, (2, "other"): 1}


def test_every_kind_of_write_is_captured(pool, table):
    table.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    source = reader(pool)
    start = source.position()
    table.execute("UPDATE t SET v = 'c' WHERE k <= 2")
    one, middle = source.changes(start)
    assert bag(one) == {(1, "a"): -1, (2, "b"): -1, (1, "c"): 1, (2, "c"): 1}
    table.execute("DELETE FROM t", "INSERT INTO t VALUES (9, 'z')")
    assert bag(source.changes(middle)[0]) == {(1, "c"): -1, (2, "c"): -1, (3, None): -1, (9, "z"): 1}


def test_a_later_process_goes_on_from_a_mark(pool, table):
    source = reader(pool)
    mark = source.mark(source.position())
    table.execute("INSERT INTO t VALUES (1, 'a')")
    later = reader(pool)
    assert bag(later.changes(later.resume(mark))[0]) == {(1, "a"): 1}
    with pytest.raises(StateError, match="resume it by its mark"):
        later.changes(1)


def test_changes_that_nobody_needs_are_removed_and_asking_for_them_is_an_error(pool, table):
    source = reader(pool)
    start = source.position()
    early = source.mark(start)
    table.execute("INSERT INTO t VALUES (1, 'a')")
    _, middle = source.changes(start)
    table.execute("INSERT INTO t VALUES (2, 'b')")
    source.settle(middle)
    assert table.rows(f"SELECT k FROM {CHANGES}") == [(2,)]
    assert bag(source.changes(middle)[0]) == {(2, "b"): 1}
    with pytest.raises(StateError, match="capture of its own"):
        source.changes(source.resume(early))
    own = reader(pool, capture="own")
    assert bag(own.scan(["k", "v"], []).rows) == {(1, "a"): 1, (2, "b"): 1}


def test_a_transaction_still_open_when_changes_are_removed_keeps_its_own(url, pool, table):
    source = reader(pool)
    writer = Session(url)
    writer.execute("BEGIN", "INSERT INTO t VALUES (1, 'open')")
    table.execute("INSERT INTO t VALUES (2, 'done')")
    middle = source.position()
    source.settle(middle)
    writer.execute("COMMIT")
    writer.close()
    assert bag(source.changes(middle)[0]) == {(1, "open"): 1}


@pytest.mark.parametrize("told", ["trigger", "table"])
def test_changes_over_a_crash_count_as_lost_for_ids_of_transactions_come_again(url, pool, table, told):
    table.execute("DROP TABLE IF EXISTS log", "CREATE TABLE log (k bigint, v text, _count int NOT NULL)")
    table.execute("ALTER TABLE log ADD COLUMN change_xid xid8 NOT NULL DEFAULT pg_current_xact_id()")
    options = (("table", "t"), ("url", url))
    source = Source("t", COLUMNS, "postgres", options, changes=told, change_table="log" if told == "table" else None)
    before = PostgresReader(source, pool)
    for _ in range(9):  # none of these is written to disk
        table.execute("BEGIN", "INSERT INTO t VALUES (0, 'undone')", "ROLLBACK")
    start = before.position()
    mark = before.mark(start)
    crash(url)
    later = Pool(url, 2)
    after, user = PostgresReader(source, later), Session(url)
    log = "INSERT INTO log VALUES (1, 'a', 1)" if told == "table" else "SELECT"
    user.execute("BEGIN", "INSERT INTO t VALUES (1, 'a')", log, "COMMIT")
    with pytest.raises(ChangesLostError, match=r"'t'.*recovered from a crash"):
        after.changes(after.resume(mark))
    now = after.scan(["k", "v"], [])
    assert bag(now.rows) == {(1, "a"): 1}
    after.settle(after.resume(mark))  # for one who has not heard of it: removes nothing that is new
    user.execute("BEGIN", "DELETE FROM t", log.replace(", 1)", ", -1)"), "COMMIT")
    assert bag(after.changes(now.position)[0]) == {(1, "a"): -1}
    with pytest.raises(ChangesLostError, match="recovered from a crash"):
        after.changes(after.resume(mark), now.position)
    user.close()
    later.close()


def test_after_a_clean_restart_changes_go_on(url, pool, table):
    source = reader(pool)
    start = source.position()
    table.execute("INSERT INTO t VALUES (1, 'a')")
    control(url, "restart")
    assert bag(source.changes(start)[0]) == {(1, "a"): 1}


@pytest.mark.parametrize("way", ["at", "composite", "scan", "array", "table"])
def test_a_read_whose_connection_was_ended_is_made_again_and_no_other_dead_one_is_used(pool, table, monkeypatch, way):
    table.execute("INSERT INTO t VALUES (1, 'a')")
    monkeypatch.setattr(postgres, "ARRAY_KEYS", 0 if way == "table" else 100)
    source, keys = reader(pool, lookup="composite" if way == "composite" else "auto"), pa.table({"k": pa.array([1])})
    pool.warm()
    ours = "application_name = '' AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    assert table.rows(f"SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE {ours}") == [(3,)]
    if way == "at":
        _, rows = pool.fetch_at("SELECT k FROM t", source.locked)
    else:
        rows = (source.scan(["k"], []) if way == "scan" else source.lookup(["k"], keys, [])).rows
    assert rows.column("k").to_pylist() == [1]
    pool.run(["UPDATE t SET v = 'b'"])  # is not repeated, so it needs a connection that lives
    pool.warm()
    with pytest.raises(StepError, match="division by zero"):
        pool.fetch("SELECT 1 / 0")
    assert pool._free.qsize() == 2  # the others are not to blame


LOSSES = [
    ["DROP TABLE t", "CREATE TABLE t (k bigint, v text)"],
    ["ALTER TABLE t RENAME TO was_t", "CREATE TABLE t (k bigint, v text)", "DROP TABLE was_t"],
    ["ALTER TABLE t DISABLE TRIGGER USER"],
    ["DROP TRIGGER penstock_changes_insert ON t"],
    ["ALTER TABLE t DISABLE TRIGGER ALL", "INSERT INTO t VALUES (4, 'not seen')", "ALTER TABLE t ENABLE TRIGGER ALL"],
    ["BEGIN", "ALTER TABLE t DISABLE TRIGGER ALL", "DELETE FROM t", "ALTER TABLE t ENABLE TRIGGER ALL", "COMMIT"],
    ["ALTER TABLE t ALTER COLUMN k TYPE bigint USING k + 1"],
    ["ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v text DEFAULT 'given'"],
    [
        "CREATE TABLE above (k bigint)",
        "ALTER TABLE t INHERIT above",
        "DELETE FROM above",
        "ALTER TABLE t NO INHERIT above",
        "DROP TABLE above",
    ],
    ["CREATE TABLE below () INHERITS (t)", "INSERT INTO below VALUES (4, 'not seen')", "DROP TABLE below"],
    ["TRUNCATE t"],
    [f"DROP TABLE {CHANGES}"],
]


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("statements", [*LOSSES, ["DROP SCHEMA penstock CASCADE"]])
def test_changes_that_no_trigger_captured_are_reported_as_lost_and_capture_begins_anew(
    pool, table, statements, reopened
):
    source = reader(pool)
    start = source.position()
    mark = source.mark(start)
    table.execute("INSERT INTO t VALUES (1, 'seen')", *statements, "INSERT INTO t VALUES (2, 'not seen')")
    if reopened:
        source = reader(pool)
        start = source.resume(mark)
    with pytest.raises(ChangesLostError, match="'t'"):
        source.changes(start)
    now = source.scan(["k", "v"], [])
    assert bag(now.rows)[2, "not seen"] == 1
    table.execute("INSERT INTO t VALUES (3, 'seen again')")
    assert bag(source.changes(now.position)[0]) == {(3, "seen again"): 1}
    source.settle(start)  # for one who has not heard of it
    with pytest.raises(ChangesLostError, match="set up anew"):
        source.changes(source.resume(mark))


def test_rows_that_a_truncating_transaction_did_not_see_are_lost_too(url, pool, table):
    """Its snapshot is older than one of the rows that it removes, so no trigger of its own could list them."""
    source = reader(pool)
    writer = Session(url)
    writer.execute("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1 FROM t")
    table.execute("INSERT INTO t VALUES (1, 'unseen')")
    start = source.position()
    writer.execute("TRUNCATE t", "INSERT INTO t VALUES (2, 'new')", "COMMIT")
    writer.close()
    with pytest.raises(ChangesLostError, match=r"public\.t was truncated or written anew"):
        source.changes(start)
    assert bag(source.scan(["k", "v"], []).rows) == {(2, "new"): 1}


def test_what_is_taken_back_is_no_loss_and_neither_is_care_for_the_table(pool, table):
    source = reader(pool)
    start = source.position()
    table.execute(
        "BEGIN", "TRUNCATE t", "ALTER TABLE t DISABLE TRIGGER ALL", "ROLLBACK", "INSERT INTO t VALUES (1, 'a')"
    )
    table.execute(
        "VACUUM FREEZE ANALYZE t", "VACUUM FULL pg_trigger", "CREATE INDEX ON t (k)", "GRANT SELECT ON t TO PUBLIC"
    )
    table.execute("ALTER TABLE t ADD COLUMN more int DEFAULT 3")
    reader(pool, capture="another")
    assert bag(source.changes(start)[0]) == {(1, "a"): 1}
    table.execute("VACUUM FULL t")  # changes no row, but not every rewrite of a table is as harmless
    with pytest.raises(ChangesLostError, match="VACUUM FULL"):
        source.changes(start)


def test_writes_in_the_name_of_a_replica_are_captured(pool, table):
    source = reader(pool)
    start = source.position()
    table.execute("SET session_replication_role = replica", "INSERT INTO t VALUES (1, 'a')")
    assert bag(source.changes(start)[0]) == {(1, "a"): 1}


UNSEEN = {
    "partitioned": [
        "CREATE TABLE u (k bigint, v text) PARTITION BY LIST (k)",
        "CREATE TABLE u1 PARTITION OF u DEFAULT",
    ],
    "or a partition": [
        "CREATE TABLE u1 (k bigint, v text) PARTITION BY LIST (k)",
        "CREATE TABLE u PARTITION OF u1 DEFAULT",
    ],
    "is inherited from": ["CREATE TABLE u (k bigint, v text)", "CREATE TABLE u1 () INHERITS (u)"],
    "inherits or": ["CREATE TABLE u1 (k bigint, v text)", "CREATE TABLE u () INHERITS (u1)"],
    "not logged": ["CREATE UNLOGGED TABLE u (k bigint, v text)"],
    "not an ordinary table": ["CREATE VIEW u AS SELECT 1::bigint AS k, 'x'::text AS v"],
    "by a subscription": [
        "CREATE TABLE u (k bigint, v text)",
        "INSERT INTO pg_subscription_rel SELECT 99999, 'u'::regclass, 'r'",
    ],
}


@pytest.mark.parametrize("why", UNSEEN)
def test_tables_that_are_written_where_no_trigger_sees_it_are_refused(pool, table, why):
    table.execute("SET allow_system_table_mods = on", "DROP SCHEMA IF EXISTS odd CASCADE", "CREATE SCHEMA odd")
    table.execute("SET search_path = odd", *UNSEEN[why])
    options = (("table", "odd.u"), ("url", pool.url))
    try:
        with pytest.raises(RegistrationError, match=rf"odd\.u .*{why}.*CHANGES BY SNAPSHOT"):
            PostgresReader(Source("u", COLUMNS, "postgres", options, changes="trigger"), pool)
        source = PostgresReader(Source("u", COLUMNS, "postgres", options, changes="snapshot"), pool)
        assert source.scan(["k", "v"], []).rows.num_rows == ("ordinary" in why)
    finally:
        table.execute("DELETE FROM pg_subscription_rel")


def test_a_table_that_is_inherited_from_later_is_refused_at_the_next_refresh(pool, table):
    source = reader(pool)
    start = source.position()
    table.execute("CREATE TABLE child () INHERITS (t)", "INSERT INTO child VALUES (1, 'unseen')")
    with pytest.raises(StepError, match=r"public\.t inherits or is inherited from.*CHANGES BY SNAPSHOT"):
        source.changes(start)
    table.execute("DROP TABLE child")
    with pytest.raises(ChangesLostError, match="was inherited from"):
        source.changes(start)


@pytest.mark.parametrize("way", ["at", "composite", "scan", "array", "table"])
@pytest.mark.parametrize("change", ["TRUNCATE t", "ALTER TABLE t ALTER k TYPE bigint USING k + 10"])
def test_a_read_that_waits_for_a_table_to_be_rewritten_is_as_of_after_it(url, pool, table, monkeypatch, way, change):
    table.execute("INSERT INTO t VALUES (1, 'a')")
    monkeypatch.setattr(postgres, "ARRAY_KEYS", 0 if way == "table" else 100)
    source = reader(pool, lookup="composite" if way == "composite" else "auto")
    writer = Session(url)
    writer.execute("BEGIN", change)
    rewriting = writer.rows("SELECT pg_current_xact_id()::text")[0][0]
    keys = pa.table({"k": pa.array([1, 11])})
    with ThreadPoolExecutor(1) as waiting:
        if way == "at":
            under_way = waiting.submit(pool.fetch_at, "SELECT k FROM t", source.locked)
        elif way == "scan":
            under_way = waiting.submit(source.scan, ["k"], [])
        else:
            under_way = waiting.submit(source.lookup, ["k"], keys, [])
        while not table.rows("SELECT FROM pg_locks WHERE NOT granted AND relation = 't'::regclass"):
            pass
        writer.execute("COMMIT")
        found = under_way.result()
    stamp, rows = found if way == "at" else (source.mark(found.position).partition("@")[0], found.rows)
    snapshot = Snapshot(stamp).seen
    writer.close()
    assert table.rows(f"SELECT pg_visible_in_snapshot('{rewriting}'::xid8, '{snapshot}'::pg_snapshot)") == [(True,)]
    assert rows.column("k").to_pylist() == ([] if "TRUNCATE" in change else [11])


def test_columns_that_are_not_declared_may_go(pool, table):
    table.execute("ALTER TABLE t ADD COLUMN more int, ADD COLUMN note text")
    source = reader(pool)
    start = source.position()
    table.execute(
        "INSERT INTO t VALUES (1, 'a', 2, 'n')", "ALTER TABLE t DROP COLUMN more", "INSERT INTO t VALUES (2, 'b', 'm')"
    )
    table.execute("UPDATE t SET note = 'x'", "DELETE FROM t WHERE k = 1", "ALTER TABLE t RENAME note TO remark")
    table.execute("INSERT INTO t VALUES (3, 'c')")
    assert bag(source.changes(start)[0]) == {(2, "b"): 1, (3, "c"): 1}


@pytest.mark.parametrize(
    ("change", "back"),
    [
        ("RENAME v TO w", "RENAME w TO v"),
        ("DROP COLUMN v", "ADD COLUMN v text"),
        ("ALTER v TYPE int USING 5", "ALTER v TYPE text"),
        ("ALTER v TYPE varchar(1)", "ALTER v TYPE text"),
    ],
)
def test_declared_columns_that_change_keep_nobody_from_writing(pool, table, change, back):
    source = reader(pool)
    start = source.position()
    table.execute("INSERT INTO t VALUES (1, '1')", f"ALTER TABLE t {change}", "INSERT INTO t (k) VALUES (2)")
    table.execute("UPDATE t SET k = k + 1", "DELETE FROM t WHERE k = 2")
    gone = "v" not in [
        name for (name,) in table.rows("SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass")
    ]
    if gone:
        with pytest.raises(StepError, match=r"public\.t has no column 'v'; give it back.*\(columns: k"):
            source.changes(start)
        table.execute(f"ALTER TABLE t {back}", "INSERT INTO t VALUES (4, 'more')")
    with pytest.raises(ChangesLostError, match="were renamed, dropped or altered"):
        source.changes(start)
    now = source.scan(["k", "v"], [])
    table.execute(f"ALTER TABLE t {back}") if not gone else None
    table.execute("INSERT INTO t VALUES (5, 'and more')")
    if gone:
        assert bag(source.changes(now.position)[0]) == {(5, "and more"): 1}
    else:
        with pytest.raises(ChangesLostError):
            source.changes(now.position)


def test_columns_that_are_not_declared_may_have_the_names_of_a_change_tables_own(pool, table):
    table.execute("ALTER TABLE t ADD COLUMN change_xid xid8 DEFAULT '7', ADD COLUMN change_count smallint")
    source = reader(pool)
    start = source.position()
    table.execute("INSERT INTO t VALUES (1, 'a')", "ALTER TABLE t RENAME change_count TO more")
    assert bag(source.changes(start)[0]) == {(1, "a"): 1}
    table.execute("TRUNCATE t")
    with pytest.raises(ChangesLostError, match="captured again from now on"):
        source.changes(start)


def test_sources_of_one_capture_may_declare_different_columns(pool, table):
    options = (("table", "t"), ("url", pool.url))
    one, other = (
        PostgresReader(Source(column.name, (column,), "postgres", options, changes="trigger"), pool)
        for column in COLUMNS
    )
    starts = one.position(), other.position()
    table.execute("INSERT INTO t VALUES (1, 'a')")
    assert bag(one.changes(starts[0])[0]) == {(1,): 1}
    assert bag(other.changes(starts[1])[0]) == {("a",): 1}


def test_numerics_without_digits_can_be_declared_with_them(pool, table):
    table.execute("DROP TABLE IF EXISTS n", "CREATE TABLE n (x numeric, y numeric, j jsonb)")
    with pytest.raises(RegistrationError, match="'x' of n has type numeric"):
        columns_of(pool, "n")
    columns = (Column("x", "decimal(10,2)"), Column("y", "decimal(38,0)"))
    options = (("table", "n"), ("url", pool.url))
    source = PostgresReader(Source("n", columns, "postgres", options, changes="trigger"), pool)
    start = source.position()
    table.execute(f"INSERT INTO n VALUES (1.5, 1), (2.5000, {10**37}), (NULL, NULL)")
    rows, middle = source.changes(start)
    held = {(Decimal("1.50"), 1): 1, (Decimal("2.50"), 10**37): 1, (None, None): 1}
    assert bag(rows) == held
    found = source.lookup(["x", "y"], pa.table({"x": pa.array([Decimal("2.50")], pa.decimal128(10, 2))}), [])
    assert bag(found.rows) == {(Decimal("2.50"), 10**37): 1}
    for odd in ("1.234", "123456789.00", "'NaN'"):
        table.execute("DELETE FROM n", f"INSERT INTO n VALUES ({odd}, 0)")
        with pytest.raises(StepError, match=r"'x' does not fit decimal\(10,2\)"):
            source.changes(middle)
        with pytest.raises(StepError, match="more digits"):
            source.scan(["x"], [])


@pytest.mark.parametrize(("limit", "way"), [(0, "auto"), (100, "auto"), (100, "composite")])
def test_lookups_by_array_by_temporary_table_and_by_parts_agree(pool, table, monkeypatch, limit, way):
    monkeypatch.setattr(postgres, "ARRAY_KEYS", limit)
    table.execute("INSERT INTO t SELECT g % 7, 'v' || g FROM generate_series(1, 50) g")
    source = reader(pool, lookup=way)
    start = source.position()
    found = source.lookup(["v"], pa.table({"k": pa.array([2, 3, 99])}), [])
    assert sorted(found.rows.column("v").to_pylist()) == sorted(f"v{g}" for g in range(1, 51) if g % 7 in (2, 3))
    assert found.rows.column_names == ["v", COUNT]
    pairs = pa.table({"k": pa.array([2, 3]), "v": ["v2", "v2"]})
    assert bag(source.lookup(["k", "v"], pairs, []).rows) == {(2, "v2"): 1}
    odd = pa.table({"v": ["v2", "v3\0", "it's"]})
    assert bag(source.lookup(["k", "v"], odd, []).rows) == {(2, "v2"): 1}
    assert source.lookup(["k", "v"], odd.slice(1, 1), []).rows.num_rows == 0
    above = condition(Compare(">", Ref(0, "k"), Literal(2, "bigint")))
    assert bag(source.lookup(["k"], pa.table({"k": pa.array([2, 3])}), [above]).rows) == {(3,): 7}
    # A temporary table is written in a transaction of its own: it must not look like a change that is to come.
    assert source.changes(start)[0].num_rows == 0
    assert source.lookup(["k"], pa.table({"k": pa.array([1])}), []).position <= source.position()


TYPES = [
    ("smallint", "smallint", "3", 3),
    ("integer", "int", "3", 3),
    ("bigint", "bigint", "3", 3),
    ("real", "float", "1.5", 1.5),
    ("double precision", "double", "'-0'", 0.0),
    ("boolean", "boolean", "true", True),
    ("text", "string", "'it''s'", "it's"),
    ("varchar(9)", "string", "'ä'", "ä"),
    ("char(5)", "string", "'ab '", "ab"),
    ("numeric(10,2)", "decimal(10,2)", "1.25", Decimal("1.25")),
    ("date", "date", "'2024-02-29'", date(2024, 2, 29)),
    ("timestamptz", "timestamp", "'2024-02-29 12:00+02'", datetime(2024, 2, 29, 10, tzinfo=UTC)),
    ("timestamp", "timestamp_ntz", "'2024-02-29 12:00:00.000001'", datetime(2024, 2, 29, 12, 0, 0, 1)),  # noqa: DTZ001
]


@pytest.mark.parametrize(("limit", "way"), [(0, "auto"), (100, "auto"), (100, "composite")])
@pytest.mark.parametrize(("declared", "known", "text", "value"), TYPES)
def test_values_of_every_type_come_and_go(pool, table, monkeypatch, declared, known, text, value, limit, way):
    monkeypatch.setattr(postgres, "ARRAY_KEYS", limit)
    table.execute("DROP TABLE IF EXISTS typed", f"CREATE TABLE typed (x {declared}, y int)")
    columns = columns_of(pool, "typed")
    assert columns[0] == Column("x", known)
    options = (("table", "typed"), ("url", pool.url), ("lookup", way))
    source = PostgresReader(Source("typed", columns, "postgres", options, changes="trigger"), pool)
    start = source.position()
    table.execute(f"INSERT INTO typed VALUES ({text}, 1), (NULL, 2)")
    changes, _ = source.changes(start)
    assert bag(changes) == {(value, 1): 1, (None, 2): 1}
    keys = changes.select(["x"]).filter(pa.compute.is_valid(changes.column("x")))
    found = source.lookup(["x", "y"], keys, [])
    assert bag(found.rows) == {(value, 1): 1}
    assert found.rows.schema.field("x").type == changes.schema.field("x").type


# What the table has, as what it is declared, what is stored, and what it is compared with.
OTHERWISE = [
    ("char(3)", "string", ["'x'", "'y  '", "''"], ["x", "x  ", "y", ""]),
    ("domained", "string", ["'x'", "'X '"], ["x", "X", "X "]),
    ("text COLLATE folded", "string", ["'x'", "'X'"], ["x", "X"]),
    ("text COLLATE other", "string", ["'x'", "'X'", "'ä'"], ["x", "X", "z"]),
    ("integer", "string", ["9", "10"], ["9", "10", "a"]),
    ("text", "int", ["'9'", "'10'"], [9, 10]),
    ("numeric", "int", ["1.6", "2", "3.4"], [2, 3]),
    ("integer", "bigint", ["1", "-2"], [1, 2**40]),
    ("double precision", "float", ["0.1", "0.5"], [0.1, 0.5, float(np.float32(0.1))]),
    ("real", "double", ["0.1", "0.5"], [0.1, 0.5, float(np.float32(0.1))]),
    ("integer", "decimal(12,1)", ["1", "2"], [1, 2]),
    ("timestamp", "date", ["'2024-02-29 12:00'", "'2024-03-01'"], [date(2024, 2, 29), date(2024, 3, 1)]),
    ("date", "timestamp", ["'2024-02-29'"], [datetime(2024, 2, 29, tzinfo=UTC)]),
]


@pytest.mark.parametrize(("limit", "way"), [(0, "auto"), (100, "auto"), (100, "composite")])
@pytest.mark.parametrize(("held", "declared", "stored", "values"), OTHERWISE)
def test_values_are_compared_as_they_are_declared(pool, table, monkeypatch, held, declared, stored, values, limit, way):
    monkeypatch.setattr(postgres, "ARRAY_KEYS", limit)
    table.execute("SET allow_system_table_mods = on", "DROP TABLE IF EXISTS held", "DROP DOMAIN IF EXISTS domained")
    table.execute(
        "DROP COLLATION IF EXISTS folded", "DROP COLLATION IF EXISTS other", "CREATE DOMAIN domained AS char(4)"
    )
    table.execute('CREATE COLLATION folded FROM "C"', 'CREATE COLLATION other FROM "C.utf8"')
    table.execute("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'folded'")
    table.execute(f"CREATE TABLE held (x {held})", *(f"INSERT INTO held VALUES ({v})" for v in stored))
    table.execute("INSERT INTO held VALUES (NULL)")
    options = (("table", "held"), ("url", pool.url), ("lookup", way))
    column = Column("x", declared)
    source = PostgresReader(Source("held", (column,), "postgres", options, changes="trigger"), pool)
    rows = source.scan(["x"], []).rows
    kind = rows.schema.field("x").type
    literals = {"string": "string", "int": "bigint", "bigint": "bigint", "float": "double", "double": "double"}
    for value in values:
        shown = Literal(
            value if declared in literals else str(value), literals.get(declared, declared.replace("12,1", "3,0"))
        )
        for op in ("=", "<>", "<", "<=", ">", ">="):
            test = Expression((Ref(0, "x"),), Compare(op, Ref(0, "x"), shown), total=True)
            assert bag(source.scan(["x"], [test]).rows) == bag(select(rows, [test], lambda ref: ref.column)), (
                op,
                value,
            )
        key = pa.table({"x": pa.array([Decimal(value) if declared.startswith("decimal") else value], kind)})
        wanted = {row: n for row, n in bag(rows).items() if row == (key.column("x")[0].as_py(),)}
        found = bag(source.lookup(["x"], key, []).rows)
        assert {row: n for row, n in found.items() if row in wanted} == wanted, value


INFINITE = [
    ("date", "'infinity'"),
    ("date", "'-infinity'"),
    ("timestamp", "'infinity'"),
    ("timestamptz", "'-infinity'"),
    ("timestamptz", "'294276-01-01'"),
]


@pytest.mark.parametrize(("kind", "text"), INFINITE)
def test_infinite_times_are_refused(pool, table, kind, text):
    table.execute("DROP TABLE IF EXISTS endless", f"CREATE TABLE endless (x {kind})")
    columns, options = columns_of(pool, "endless"), (("table", "endless"), ("url", pool.url))
    source = PostgresReader(Source("endless", columns, "postgres", options, changes="trigger"), pool)
    start = source.position()
    table.execute("INSERT INTO endless VALUES ('4714-11-24 BC'), ('294246-12-31'), (NULL)")
    assert source.scan(["x"], []).rows.num_rows == source.changes(start)[0].num_rows == 3
    table.execute(f"INSERT INTO endless VALUES ({text})")
    for ask in (lambda: source.scan(["x"], []), lambda: source.changes(start)):
        with pytest.raises(StepError, match=r"'endless'.*'x' does not fit .*infinite.*replace it by a date or NULL"):
            ask()


def test_all_parts_of_a_lookup_see_one_snapshot(url, pool, table, monkeypatch):
    """A row that moves from a later key to an earlier one between two parts is found exactly once."""
    table.execute("INSERT INTO t SELECT g, 'v' FROM generate_series(0, 9) g")
    source = reader(pool, lookup="composite")
    source.knee = Knee(sizes=(2,))
    source.knee.learn(2, 0.001)
    learn, start = Knee.learn, source.position()

    def moved(self, keys, seconds):
        table.execute("UPDATE t SET k = k - 9 WHERE k = 9", "DELETE FROM t WHERE k = 5")
        learn(self, keys, seconds)

    monkeypatch.setattr(Knee, "learn", moved)
    before = source.requests
    found = source.lookup(["k"], pa.table({"k": pa.array(range(10))}), [])
    assert bag(found.rows) == {(k,): 1 for k in range(10)}
    assert source.requests - before == 5 + 2
    assert found.position == start
    assert bag(source.changes(found.position)[0]) == {(9, "v"): -1, (0, "v"): 1, (5, "v"): -1}


def test_nan_finds_nan(pool, table):
    table.execute("DROP TABLE IF EXISTS f", "CREATE TABLE f (x float8)", "INSERT INTO f VALUES ('NaN'), (0), (1)")
    options = (("table", "f"), ("url", pool.url))
    source = PostgresReader(Source("f", (Column("x", "double"),), "postgres", options, changes="trigger"), pool)
    found = source.lookup(["x"], pa.table({"x": [float("nan"), -0.0]}), [])
    assert sorted(map(str, found.rows.column("x").to_pylist())) == ["0.0", "nan"]


@pytest.mark.parametrize(
    ("term", "kept"),
    [
        (Compare("<", Ref(0, "v"), Literal("a", "string")), {"B"}),  # byte by byte, not as a dictionary would
        (Compare(">=", Literal(2, "bigint"), Ref(0, "k")), {"a", "B", None}),
        (Not(Compare("=", Ref(0, "v"), Literal("a", "string"))), {"B", "c'"}),
        (In(Ref(0, "v"), (Literal("c'", "string"), Literal(None, "void"))), {"c'"}),
        (IsNull(Ref(0, "v")), {None}),
        (Compare("=", Arithmetic("+", Ref(0, "k"), Literal(1, "bigint")), Literal(2, "bigint")), {"a"}),
    ],
)
def test_filters_are_decided_as_spark_would_wherever_they_run(pool, table, term, kept):
    table.execute("INSERT INTO t VALUES (1, 'a'), (2, 'B'), (3, 'c'''), (0, NULL)")
    found = reader(pool).scan(["v"], [condition(term)])
    assert set(found.rows.column("v").to_pylist()) == kept
    assert found.rows.column_names == ["v", COUNT]


def test_a_change_table_of_the_users_own_is_read_by_transaction(pool, table):
    table.execute("DROP TABLE IF EXISTS log", "CREATE TABLE log (k bigint, v text, sign int NOT NULL)")
    options = (("table", "t"), ("url", pool.url), ("sign", "sign"))
    source = Source("t", COLUMNS, "postgres", options, changes="table", change_table="log")
    with pytest.raises(RegistrationError, match="ADD COLUMN change_xid xid8"):
        PostgresReader(source, pool)
    table.execute("ALTER TABLE log ADD COLUMN change_xid xid8 NOT NULL DEFAULT pg_current_xact_id()")
    found = PostgresReader(source, pool)
    start = found.position()
    table.execute("BEGIN", "INSERT INTO t VALUES (1, 'a')", "INSERT INTO log VALUES (1, 'a', 1)", "COMMIT")
    assert bag(found.changes(start)[0]) == {(1, "a"): 1}


LOG = "CREATE TABLE log (k bigint, v text, sign int NOT NULL, change_xid xid8 NOT NULL DEFAULT pg_current_xact_id())"


@pytest.mark.parametrize(
    ("change", "row", "told", "back"),
    [
        ("ALTER sign DROP NOT NULL", "(1, 'a', NULL)", r"'?sign'? .*NULL.*ALTER COLUMN \"sign\" SET NOT NULL",
         "ALTER sign SET NOT NULL"),
        ("ALTER change_xid DROP NOT NULL", "(1, 'a', 1, NULL)",
         r"'?change_xid'? .*NULL.*ALTER COLUMN \"change_xid\" SET NOT NULL", "ALTER change_xid SET NOT NULL"),
        ("ALTER sign TYPE float8", "(1, 'a', 0.4)", r"'sign' of log is no integer.*ALTER COLUMN \"sign\" TYPE smallint",
         "ALTER sign TYPE int"),
    ],
)  # fmt: skip
def test_a_change_table_that_could_lose_changes_is_refused_also_if_it_was_altered_later(
    pool, table, change, row, told, back
):
    table.execute("DROP TABLE IF EXISTS log CASCADE", LOG, f"ALTER TABLE log {change}")
    options = (("table", "t"), ("url", pool.url), ("sign", "sign"))
    source = Source("t", COLUMNS, "postgres", options, changes="table", change_table="log")
    with pytest.raises(RegistrationError, match=told):
        PostgresReader(source, pool)
    table.execute(f"ALTER TABLE log {back}")
    found = PostgresReader(source, pool)
    start = found.position()
    table.execute(f"ALTER TABLE log {change}", "INSERT INTO log VALUES (2, 'b', 1)", f"INSERT INTO log VALUES {row}")
    with pytest.raises(StepError, match=told):
        found.changes(start)


def test_a_view_may_tell_changes_as_long_as_each_has_a_transaction_and_a_sign(pool, table):
    table.execute("DROP TABLE IF EXISTS log CASCADE", LOG.replace("xid8 NOT NULL", "xid8"))
    table.execute(
        "CREATE VIEW told AS SELECT k, v, CASE sign WHEN 1 THEN 1 WHEN 2 THEN -1 END AS sign, change_xid FROM log"
    )
    options = (("table", "t"), ("url", pool.url), ("sign", "sign"))
    found = PostgresReader(Source("t", COLUMNS, "postgres", options, changes="table", change_table="told"), pool)
    start = found.position()
    table.execute("INSERT INTO log VALUES (1, 'a', 1), (2, 'b', 2)")
    changes, middle = found.changes(start)
    assert bag(changes) == {(1, "a"): 1, (2, "b"): -1}
    table.execute("INSERT INTO log VALUES (3, 'c', 3)")
    with pytest.raises(StepError, match="told has changes whose sign is NULL"):
        found.changes(middle)
    table.execute("DELETE FROM log WHERE k = 3", "INSERT INTO log VALUES (4, 'd', 1, NULL)")
    with pytest.raises(StepError, match="told has changes whose change_xid is NULL"):
        found.changes(middle)


def test_mistakes_name_the_cause_and_the_remedy(url, pool, table):
    with pytest.raises(RegistrationError, match="no table 'missing'"):
        columns_of(pool, "missing")
    table.execute("DROP TABLE IF EXISTS odd", "CREATE TABLE odd (j jsonb)")
    with pytest.raises(RegistrationError, match="jsonb, which views do not hold"):
        columns_of(pool, "odd")
    with pytest.raises(RegistrationError, match="cannot connect"):
        Pool("postgresql:///x?host=/nowhere")
    source = reader(pool)
    table.execute("ALTER TABLE t RENAME v TO w")
    with pytest.raises(StepError, match='column "v" does not exist'):
        source.scan(["v"], [])
    table.execute("ALTER TABLE t RENAME w TO v")
    assert source.scan(["v"], []).rows.num_rows == 0  # the connection that failed was replaced


def test_snapshots_are_numbered_by_the_transactions_that_are_over():
    assert Snapshot("10:20:10,14,19").position == 17
    assert Snapshot("20:20:").position == 20
    early, late = Snapshot("10:20:10,14,19/3"), Snapshot("12:12:/4")
    assert (early.over, late.over) == (17, 12)
    assert early.position < late.position  # transactions that a crash has undone are not counted again
    with pytest.raises(ValueError, match="no snapshot"):
        _ = Snapshot("x").position


def test_dropping_a_capture_leaves_nothing_behind(pool, table):
    source = reader(pool)
    source.drop_capture()
    assert table.rows("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass") == [(0,)]
    assert table.rows(f"SELECT to_regclass('{CHANGES}')::text") == [(None,)]
    assert table.rows("SELECT count(*) FROM pg_proc WHERE pronamespace = 'penstock'::regnamespace") == [(0,)]


def test_tables_and_captures_whose_names_run_together_have_change_tables_of_their_own(pool, table):
    table.execute("DROP SCHEMA IF EXISTS t_x CASCADE", "CREATE SCHEMA t_x", "DROP TABLE IF EXISTS t_x")
    table.execute("CREATE TABLE t_x.y (k bigint, v text)", "CREATE TABLE t_x (k bigint, v text)")
    named = [("t_x.y", "changes"), ("t_x", "y_changes"), ("t_x", "changes"), ("t", "x_changes")]
    sources = [reader(pool, table=name, capture=capture) for name, capture in named]
    starts = [source.position() for source in sources]
    table.execute(
        "INSERT INTO t_x.y VALUES (1, 'y')", "INSERT INTO t_x VALUES (2, 'x')", "INSERT INTO t VALUES (3, 't')"
    )
    found = [bag(source.changes(start)[0]) for source, start in zip(sources, starts, strict=True)]
    assert found == [{(1, "y"): 1}, {(2, "x"): 1}, {(2, "x"): 1}, {(3, "t"): 1}]


NAMES = st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0"))] * 2)


@given(one=NAMES, other=NAMES)
def test_names_of_change_tables_tell_captures_apart_and_are_not_cut(one, other):
    assert (change_table(*one) == change_table(*other)) == (one == other)
    assert len(change_table("public." + "ä" * 63, "c" * 63).partition(".")[2].encode()) + len("_write") <= 63


def test_a_change_table_that_is_another_ones_is_refused(pool, table):
    reader(pool)
    table.execute("UPDATE penstock.captures SET base = 'public.other'")
    with pytest.raises(RegistrationError, match=r"holds the changes of public\.other .*OPTIONS \(capture 'name'\)"):
        reader(pool)


def test_a_key_needs_a_unique_index(pool, table):
    table.execute("DROP TABLE IF EXISTS keyed", "CREATE TABLE keyed (a int, b int, c int)", "CREATE INDEX ON keyed (a)")
    options = (("table", "keyed"), ("url", pool.url))

    def opened(*key):
        return PostgresReader(Source("keyed", columns_of(pool, "keyed"), "postgres", options, key, "trigger"), pool)

    with pytest.raises(
        RegistrationError, match=r"no unique index on \(a, b\).*CREATE UNIQUE INDEX ON public.keyed \(a, b\)"
    ):
        opened("a", "b")
    table.execute("CREATE UNIQUE INDEX ON keyed (b) WHERE c > 0")
    with pytest.raises(RegistrationError, match="no unique index"):
        opened("a", "b")
    table.execute("CREATE UNIQUE INDEX ON keyed (b, a)")
    assert opened("a", "b").source.key == ("a", "b")
    with pytest.raises(RegistrationError, match="no unique index"):
        opened("a")


def test_the_server_tells_what_it_knows_of_a_table(pool, table):
    table.execute("DROP TABLE IF EXISTS sized", "CREATE TABLE sized (a int PRIMARY KEY, b int)")
    table.execute("INSERT INTO sized SELECT g, g % 20 FROM generate_series(1, 5000) g")
    source = PostgresReader(
        Source("sized", columns_of(pool, "sized"), "postgres", (("table", "sized"),), changes="trigger"), pool
    )
    assert source.estimate(["a"]).rows == 5000  # never analyzed: counted
    table.execute("ANALYZE sized")
    found = source.estimate(["a", "b"])
    assert (found.rows, found.distinct) == (5000, {"a": 5000, "b": 20})


def test_the_way_to_look_up_is_learned(pool, table):
    """Both ways are tried with many keys, both answer alike, and what they took is remembered."""
    table.execute("INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 20000) g", "ANALYZE t")
    source = reader(pool)
    keys = pa.table({"k": pa.array(range(1, 16_001))})
    for _ in range(5):
        assert source.lookup(["k"], keys, []).rows.num_rows == 16_000
    assert {way for way, _ in source.ways._times} == {"array", "table"}
