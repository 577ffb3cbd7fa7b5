"""Views over PostgreSQL and Parquet at once: after every refresh they hold what their definition says."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.demo.shop import server
from penstock.errors import PenstockError, RegistrationError, StepError
from penstock.model import Column
from penstock.model.view import Source
from penstock.planner.views.strategies import STRATEGIES
from penstock.reference.view import answer, canonical
from penstock.storage.local import LocalStore
from penstock.views.catalog import ViewCatalog
from penstock.views.postgres.capture import Snapshot, change_table
from tests.effort import examples
from tests.views.postgres import Session
from tests.views.test_parquet import write

ORDERS = (Column("k", "bigint"), Column("cust", "int"), Column("price", "decimal(10,2)"))
LINES = (Column("k", "bigint"), Column("v", "string"))
JOIN = "SELECT o.k, c.name, l.v FROM orders o, custs c, lines l WHERE o.cust = c.cust AND o.k = l.k AND o.price > 1"
FOUR = (
    "SELECT o.k, c.name, l.v, p.price FROM orders o, custs c, lines l, orders p "
    "WHERE o.cust = c.cust AND o.k = l.k AND p.k = l.k"
)
TOTALS = (
    "SELECT c.name, count(*) AS n, sum(o.price) AS total, max(o.k) AS last, avg(o.k) AS mean, avg(o.price) AS fair "
    "FROM orders o, custs c WHERE o.cust = c.cust GROUP BY c.name"
)
SELF = "SELECT a.k AS x, b.k AS y FROM lines a, lines b, orders o WHERE a.v = b.v AND a.k = o.k AND a.k <= b.k"


@pytest.fixture(scope="module")
def url():
    with server() as found:
        yield found


@pytest.fixture
def session(url):
    made = Session(url)
    made.execute(
        "DROP SCHEMA IF EXISTS penstock CASCADE",
        "DROP TABLE IF EXISTS orders, custs",
        "CREATE TABLE orders (k bigint, cust int, price numeric(10,2))",
        "CREATE TABLE custs (cust int, name text)",
    )
    yield made
    made.close()


def catalog(url: str, root) -> ViewCatalog:
    (root / "lines").mkdir(exist_ok=True)
    made = ViewCatalog(None, LocalStore(str(root / "state"), durable=False), None)
    made.add_source(Source("orders", (), "postgres", (("table", "orders"), ("url", url)), changes="trigger"))
    made.add_source(Source("custs", (), "postgres", (("table", "custs"), ("url", url)), changes="trigger"))
    made.add_source(Source("lines", LINES, "parquet", (("path", str(root / "lines")),)))
    return made


def contents(session: Session, root) -> dict[str, Counter]:
    """What the sources hold, read by other means."""
    lines: Counter = Counter()
    for path in (root / "lines").glob("*.parquet"):
        lines.update(tuple(row.values()) for row in pq.read_table(path).to_pylist())
    rows = {name: Counter(session.rows(f"SELECT * FROM {name}")) for name in ("orders", "custs")}
    orders = Counter({(k, c, None if p is None else Decimal(p)): n for (k, c, p), n in rows["orders"].items()})
    return {**rows, "orders": orders, "lines": lines}


def bag(rows: pa.Table) -> Counter:
    return Counter(tuple(map(canonical, row.values())) for row in rows.to_pylist())


def expected(view, made: ViewCatalog, session: Session, root) -> Counter:
    return answer(view.view, made.sources, contents(session, root))


KEYS, NAMES = st.integers(0, 4), st.sampled_from(["a", "b"])
CHANGES = st.lists(
    st.one_of(
        st.builds(
            "INSERT INTO orders VALUES ({}, {}, {})".format, KEYS, KEYS, st.sampled_from(["0.50", "2.25", "NULL"])
        ),
        st.builds("DELETE FROM orders WHERE k = {}".format, KEYS),
        st.builds("UPDATE orders SET cust = {} WHERE k = {}".format, KEYS, KEYS),
        st.builds("INSERT INTO custs VALUES ({}, '{}')".format, KEYS, NAMES),
        st.builds("DELETE FROM custs WHERE cust = {}".format, KEYS),
        st.lists(st.tuples(KEYS, NAMES), max_size=4),
    ),
    max_size=6,
)


@settings(max_examples=examples(8))
@given(
    rounds=st.lists(CHANGES, min_size=1, max_size=4),
    strategy=st.sampled_from(("auto", *(s for s in STRATEGIES if s != "adjacent"))),
    reopened=st.booleans(),
)
def test_views_hold_what_they_say_after_every_refresh(tmp_path_factory, url, session, rounds, strategy, reopened):
    root = tmp_path_factory.mktemp("case")
    session.execute("DROP SCHEMA IF EXISTS penstock CASCADE", "TRUNCATE orders, custs")
    made = catalog(url, root)

    def declared() -> list:
        return [made.add_view(sql, name, strategy=strategy) for name, sql in (("j", JOIN), ("t", TOTALS), ("s", SELF))]

    views, file = declared(), 0
    try:
        for changes in rounds:
            for change in changes:
                if isinstance(change, str):
                    session.execute(change)
                else:
                    write(root / "lines" / f"{file % 3}.parquet", change)
                    file += 1
            if reopened:
                made.close()
                made = catalog(url, root)
                views = declared()
            for view in views:
                view.refresh()
                assert bag(view.to_arrow()) == expected(view, made, session, root), view
    finally:
        made.close()


def test_a_view_over_two_systems_step_by_step(tmp_path, url, session):
    made = catalog(url, tmp_path)
    session.execute("INSERT INTO orders VALUES (1, 7, 2.50), (2, 8, 9.99)", "INSERT INTO custs VALUES (7, 'Ann')")
    write(tmp_path / "lines" / "0.parquet", [(1, "x"), (1, "x"), (2, "y")])
    view = made.add_view(JOIN, "v")
    with pytest.raises(PenstockError, match="call refresh"):
        view.to_arrow()
    first = view.refresh()
    assert (first["strategy"], view.to_arrow().to_pylist()) == ("recompute", [{"k": 1, "name": "Ann", "v": "x"}] * 2)
    assert view.refresh()["rows"] == 0
    assert view.store.newest.number == 1  # nothing has changed, nothing was written
    idle = view.status()
    assert idle["changed_at"] < idle["refreshed_at"]  # but the view is as fresh as the last look
    assert idle["last"]["seconds"] > first["seconds"] - 1e-9  # with the installation
    session.execute("INSERT INTO custs VALUES (8, 'Bob')", "DELETE FROM orders WHERE k = 1")
    facts = view.refresh()
    assert facts["strategy"] != "recompute"
    assert facts["changed"] == [1, 1, 0]
    assert view.to_arrow().to_pylist() == [{"k": 2, "name": "Bob", "v": "y"}]
    status = view.status()
    assert (status["version"], status["last"]["requests"]) == (2, facts["requests"])
    assert 0 <= status["age"] < 60
    text = view.explain()
    assert "o - c: o.cust = c.cust" in text
    assert facts["strategy"] in text
    made.close()


def test_a_view_goes_on_after_a_restart_and_refuses_another_definition(tmp_path, url, session):
    made = catalog(url, tmp_path)
    session.execute("INSERT INTO orders VALUES (1, 7, 2.50)", "INSERT INTO custs VALUES (7, 'Ann')")
    made.add_view(TOTALS, "v").refresh()
    made.close()
    session.execute("INSERT INTO orders VALUES (2, 7, 1.00)")
    again = catalog(url, tmp_path)
    view = again.add_view(TOTALS, "v")
    assert view.refresh()["strategy"] != "recompute"
    wanted = {"name": "Ann", "n": 2, "total": Decimal("3.50"), "last": 2, "mean": 1.5, "fair": Decimal("1.75")}
    assert view.to_arrow().to_pylist() == [wanted]
    again.close()
    other = catalog(url, tmp_path)
    with pytest.raises(RegistrationError, match="another SELECT"):
        other.add_view("SELECT k FROM orders", "v")
    moved = ViewCatalog(None, LocalStore(str(tmp_path / "state")), None)
    for name in ("orders", "custs"):
        options = (("table", name), ("url", url), ("capture", "other"))
        moved.add_source(Source(name, (), "postgres", options, changes="trigger"))
    with pytest.raises(RegistrationError, match="not the one that"):
        moved.add_view(TOTALS, "v")
    other.drop_view("v")  # though it was never declared in this process
    other.drop_view("v", missing=True)
    with pytest.raises(RegistrationError, match="there is no view 'v'"):
        other.drop_view("v")
    other.add_view("SELECT k FROM orders", "v").refresh()
    assert other.view("v").to_arrow().column("k").to_pylist() == [1, 2]
    other.close()
    moved.close()


def test_a_view_whose_database_is_another_or_was_restored_is_computed_anew(tmp_path, url, session):
    made = catalog(url, tmp_path)
    session.execute("INSERT INTO orders VALUES (1, 7, 2.50)", "INSERT INTO custs VALUES (7, 'Ann')")
    view = made.add_view(TOTALS, "v")
    view.refresh()
    (pool,) = {made.reader(name).pool for name in ("orders", "custs")}
    pool._identity = "another"
    with pytest.warns(UserWarning, match="is in another database than before"):
        assert view.refresh()["strategy"] == "recompute"
    made.close()
    pool._identity = None
    again = catalog(url, tmp_path)
    view, reader = again.add_view(TOTALS, "v"), again.reader("orders")
    life = Snapshot(reader.mark(reader.position()).partition("@")[0]).life
    later = f"99999999:99999999:/{life}@{reader.pool.identity}"
    view.store.newest = replace(view.store.newest, marks=dict.fromkeys(("orders", "custs"), later))
    with pytest.warns(UserWarning, match="restored from a backup"):
        assert view.refresh()["strategy"] == "recompute"
    session.execute("INSERT INTO orders VALUES (2, 7, 1.00)")
    assert view.refresh()["changed"] == [1, 0]
    assert view.to_arrow().column("n").to_pylist() == [2]
    again.close()


def test_a_refresh_that_fails_leaves_the_view_and_can_be_repeated(tmp_path, url, session, monkeypatch):
    made = catalog(url, tmp_path)
    session.execute("INSERT INTO orders VALUES (1, 7, 2.50)", "INSERT INTO custs VALUES (7, 'Ann')")
    view = made.add_view(TOTALS, "v")
    view.refresh()
    before = view.to_arrow()
    session.execute("INSERT INTO orders VALUES (2, 7, 1.00)", "ALTER TABLE custs RENAME TO gone")
    with pytest.raises(StepError, match="does not exist"):
        view.refresh()
    assert view.to_arrow() == before
    session.execute("ALTER TABLE gone RENAME TO custs")
    view.refresh()
    assert view.to_arrow().column("n").to_pylist() == [2]
    made.close()


def test_a_delete_of_a_row_that_is_not_there_is_reported(tmp_path, url, session):
    session.execute(
        "DROP TABLE IF EXISTS log",
        "CREATE TABLE log (cust int, name text, _count int NOT NULL, change_xid xid8 NOT NULL DEFAULT "
        "pg_current_xact_id())",
        "INSERT INTO custs VALUES (7, 'Ann')",
    )
    made = catalog(url, tmp_path)
    options = (("table", "custs"), ("url", url))
    made.add_source(Source("told", (), "postgres", options, changes="table", change_table="log"))
    view = made.add_view("SELECT name FROM told", "v")
    view.refresh()
    session.execute("INSERT INTO log VALUES (9, 'Nobody', -1)")
    with pytest.raises(StepError, match=r"Nobody.*not there"):
        view.refresh()
    assert view.to_arrow().to_pylist() == [{"name": "Ann"}]
    view.refresh(full=True)
    assert view.to_arrow().to_pylist() == [{"name": "Ann"}]
    made.close()


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (["DROP TABLE custs", "CREATE TABLE custs (cust int, name text)"], "lost its triggers"),
        (["TRUNCATE custs"], "was truncated"),
    ],
)
def test_a_table_made_anew_is_computed_anew_and_that_is_told(tmp_path, url, session, statements, told):
    made = catalog(url, tmp_path)
    session.execute("INSERT INTO orders VALUES (1, 7, 2.50)", "INSERT INTO custs VALUES (7, 'Ann')")
    views = [made.add_view(TOTALS, "v"), made.add_view("SELECT name FROM custs", "w")]
    for view in views:
        view.refresh()
    session.execute(*statements, "INSERT INTO custs VALUES (7, 'Bob')")
    for view in views:
        with pytest.warns(UserWarning, match=f"{told}|set up anew"):
            facts = view.refresh()
        assert "the view was recomputed" in facts["reason"]
        assert view.status()["last"]["reason"] == facts["reason"]
        assert bag(view.to_arrow()) == expected(view, made, session, tmp_path)
    session.execute("INSERT INTO custs VALUES (7, 'Cid')")
    for view in views:
        assert "reason" not in view.refresh()
        assert bag(view.to_arrow()) == expected(view, made, session, tmp_path)
    made.close()


def test_a_full_refresh_looks_at_files_too(tmp_path, url, session):
    made = catalog(url, tmp_path)
    view = made.add_view("SELECT v FROM lines", "v")
    view.refresh()
    write(tmp_path / "lines" / "0.parquet", [(1, "x")])
    view.refresh(full=True)
    assert view.to_arrow().to_pylist() == [{"v": "x"}]
    made.close()


def test_a_view_keeps_itself_fresh(tmp_path, url, session):
    made = catalog(url, tmp_path)
    view = made.add_view("SELECT name FROM custs", "v").start("20 milliseconds")
    session.execute("INSERT INTO custs VALUES (1, 'Ann')")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (view.store.newest.number and view.to_arrow().num_rows):
        time.sleep(0.02)
    assert view.to_arrow().to_pylist() == [{"name": "Ann"}]
    assert view.status()["every"] == 0.02
    session.execute("ALTER TABLE custs RENAME TO gone", "DROP SCHEMA penstock CASCADE")
    while time.monotonic() < deadline and view.status()["error"] is None:
        time.sleep(0.02)
    assert "public.custs does not exist any more" in view.status()["error"]
    view.stop()
    assert view.to_arrow().to_pylist() == [{"name": "Ann"}]
    session.execute("DROP TABLE gone")
    made.close()


def test_changes_that_all_views_have_taken_in_are_removed_from_the_source(tmp_path, url, session, monkeypatch):
    monkeypatch.setattr("penstock.views.catalog._SETTLE_EVERY", 1)
    made = catalog(url, tmp_path)
    one = made.add_view("SELECT name FROM custs", "one")
    other = made.add_view("SELECT cust FROM custs", "other")
    one.refresh()
    other.refresh()
    session.execute("INSERT INTO custs VALUES (1, 'Ann')")
    one.refresh()
    assert session.rows(f"SELECT count(*) FROM {change_table('public.custs', 'changes')}") == [(1,)]
    other.refresh()
    assert session.rows(f"SELECT count(*) FROM {change_table('public.custs', 'changes')}") == [(0,)]
    assert (one.to_arrow().num_rows, other.to_arrow().num_rows) == (1, 1)
    made.close()


def test_dropping_takes_everything_away(tmp_path, url, session):
    made = catalog(url, tmp_path)
    made.add_view(SELF, "v").refresh()
    with pytest.raises(RegistrationError, match="drop the view first"):
        made.drop_source("lines")
    made.drop_view("v")
    for name in ("lines", "orders", "custs"):
        made.drop_source(name)
    assert [p for p in (tmp_path / "state").rglob("*") if p.is_file()] == []
    assert session.rows("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'penstock%'") == [(0,)]
    with pytest.raises(RegistrationError, match="there is no view 'v'"):
        made.view("v")
    made.close()


def test_a_postgres_table_without_capture_is_compared(tmp_path, url, session):
    made = ViewCatalog(None, LocalStore(str(tmp_path / "state")), None)
    made.add_source(Source("custs", (), "postgres", (("table", "custs"), ("url", url)), changes="snapshot"))
    view = made.add_view("SELECT * FROM custs", "v")
    session.execute("INSERT INTO custs VALUES (1, 'Ann'), (1, 'Ann'), (2, 'Bob')")
    view.refresh()
    session.execute(
        "DELETE FROM custs WHERE ctid = (SELECT min(ctid) FROM custs)", "INSERT INTO custs VALUES (3, NULL)"
    )
    assert view.refresh()["changed"] == [2]
    assert bag(view.to_arrow()) == {(1, "Ann"): 1, (2, "Bob"): 1, (3, None): 1}
    assert session.rows("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'custs'::regclass") == [(0,)]
    made.close()


@pytest.mark.parametrize(
    ("source", "fragment"),
    [
        (Source("s", (), "oracle"), "no system 'oracle'"),
        (Source("s", (), "parquet"), "needs the option 'path'"),
        (Source("s", LINES, "parquet", (("path", "x"),), changes="trigger"), "tells its changes by snapshot"),
        (Source("s", LINES, "parquet", (("path", "x"),), key=("kk",)), "no column 'kk'; did you mean k"),
        (Source("s", LINES, "postgres", (("url", "x"), ("table", "t")), changes="table"), "need a change_table"),
        (
            Source("s", (Column("Change_XID", "int"),), "postgres", (("url", "x"), ("table", "t")), changes="trigger"),
            "views use",
        ),
        (
            Source(
                "s", (Column("change_count", "int"),), "postgres", (("url", "x"), ("table", "t")), changes="trigger"
            ),
            "views use",
        ),
        (Source("s", (Column("x", "array<int>"),), "parquet", (("path", "x"),)), "which views do not hold"),
    ],
)
def test_sources_that_cannot_be_are_refused(tmp_path, source, fragment):
    with pytest.raises(RegistrationError, match=fragment):
        ViewCatalog(None, LocalStore(str(tmp_path)), None).add_source(source)


@pytest.mark.parametrize(
    ("strategy", "fragment"), [("magic", "there is no strategy 'magic'"), ("adjacent", "four sources")]
)
def test_strategies_that_cannot_be_are_refused(tmp_path, strategy, fragment):
    made = ViewCatalog(None, LocalStore(str(tmp_path / "state")), None)
    made.add_source(Source("lines", LINES, "parquet", (("path", str(tmp_path)),)))
    with pytest.raises(RegistrationError, match=fragment):
        made.add_view("SELECT k FROM lines", "v", strategy=strategy)


def test_dates_and_computed_columns(tmp_path, url, session):
    session.execute("DROP TABLE IF EXISTS days", "CREATE TABLE days (d date, n int)")
    session.execute("INSERT INTO days VALUES ('2024-01-31', 3), ('2024-03-01', 5), (NULL, 7)")
    made = ViewCatalog(None, LocalStore(str(tmp_path / "state")), None)
    made.add_source(Source("days", (), "postgres", (("table", "days"), ("url", url)), changes="trigger"))
    view = made.add_view("SELECT d, n * 2 AS twice, n / 2 AS half FROM days WHERE d < DATE '2024-02-01'", "v")
    view.refresh()
    assert view.to_arrow().to_pylist() == [{"d": date(2024, 1, 31), "twice": 6, "half": 1.5}]
    session.execute("UPDATE days SET d = '2023-12-31' WHERE n = 5")
    view.refresh()
    assert {r["half"] for r in view.to_arrow().to_pylist()} == {1.5, 2.5}
    made.close()


def test_a_view_is_right_after_writers_were_at_work_during_its_refreshes(tmp_path, url, session):
    """Transactions on both tables commit in any order during refreshes; when writers pause, views have all commits."""
    made = catalog(url, tmp_path)
    session.execute("INSERT INTO custs SELECT g, 'n' || g % 3 FROM generate_series(0, 9) g")
    session.execute("INSERT INTO orders SELECT g, g % 10, g FROM generate_series(0, 99) g")
    write(tmp_path / "lines" / "0.parquet", [(k, "x") for k in range(0, 100, 3)])
    views = [made.add_view(JOIN, "j"), made.add_view(TOTALS, "t")]
    views += [made.add_view(FOUR, s, strategy=s) for s in STRATEGIES]
    for view in views:
        view.refresh()

    def work(writer: Session, number: int, turns: range) -> None:
        for turn in turns:
            key = 1000 * number + turn
            writer.execute(
                "BEGIN",
                f"INSERT INTO orders VALUES ({key}, {turn % 10}, {turn}.25)",
                f"DELETE FROM orders WHERE k = {4 * turn + number}",
                "COMMIT" if turn % 5 else "ROLLBACK",
            )
            if turn % 6 == number:
                writer.execute(f"UPDATE custs SET name = 'w{number}' WHERE cust = {turn % 10}")

    writers = {number: Session(url) for number in range(1, 4)}
    slow = Session(url)
    refreshes = 0
    for start in range(0, 25, 5):
        slow.execute("BEGIN", f"INSERT INTO orders VALUES ({5000 + start}, {start % 10}, 1.00)")
        turns = range(start, start + 5)
        with ThreadPoolExecutor(len(writers)) as pool:
            at_work = [pool.submit(work, writer, number, turns) for number, writer in writers.items()]
            done = 0
            while not all(future.done() for future in at_work) or not done:
                write(tmp_path / "lines" / f"{1 + refreshes % 2}.parquet", [(1000 + refreshes, "y"), (2001, "z")])
                for view in views:
                    view.refresh()
                refreshes, done = refreshes + 1, done + 1
            assert all(future.result() is None for future in at_work)
        # One transaction is still open, and older than most of what the views have seen.
        for end in (None, "COMMIT"):
            if end is not None:
                slow.execute(end)
            for view in views:
                view.refresh()
                assert bag(view.to_arrow()) == expected(view, made, session, tmp_path), (view, start, end)
    for one in (slow, *writers.values()):
        one.close()
    made.close()
