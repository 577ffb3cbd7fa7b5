"""A view over tables of one database is what scans of them would give, at one snapshot of all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.demo.shop import server
from penstock.errors import StepError
from penstock.model import Arithmetic, Column, Compare, Edge, Item, Literal, Node, Ref, Source, View
from penstock.planner.views.strategies import batch, conditional
from penstock.views.postgres.capture import Snapshot
from penstock.views.postgres.join_pushdown import computed_together
from penstock.views.postgres.pool import Pool
from penstock.views.postgres.source import PostgresReader
from penstock.views.refresh.maintain import compute, graph_of, join_all, maintain
from penstock.views.rows.delta import Joins
from tests.views.postgres import Session

from .memory import bag, expression, ref

COLUMNS = (
    Column("k", "bigint"),
    Column("n", "int"),
    Column("s", "string"),
    Column("d", "double"),
    Column("m", "decimal(9,2)"),
)


@pytest.fixture(scope="module")
def database():
    with server() as url:
        user = Session(url)
        for name in ("one", "two"):
            user.execute(f"CREATE TABLE {name} (k bigint, n int, s text, d double precision, m numeric(9,2))")
            user.execute(
                f"INSERT INTO {name} SELECT nullif(g % 7, 3), g % 5, 'x' || g % 3, CASE g % 4 WHEN 0 THEN "
                "'NaN' ELSE g::double precision END, g / 4.0 "
                "FROM generate_series(1, 40) g"
            )
        user.execute("INSERT INTO one SELECT * FROM one WHERE k = 1")
        pool = Pool(url)
        readers = {
            name: PostgresReader(Source(name, COLUMNS, "postgres", (("table", name),), changes="trigger"), pool)
            for name in ("one", "two")
        }
        yield user, readers
        pool.close()
        user.close()


def view(*, others=(), filters=(), residuals=()):
    """Two tables, one of them twice."""
    nodes = (Node("a", "one"), Node("b", "two"), Node("c", "one"))
    edges = (Edge(0, 1, (("k", "k"), ("s", "s")), others), Edge(1, 2, (("d", "d"), ("m", "m"))))
    product = expression(Arithmetic("*", Ref(0, "n"), Ref(2, "n")), Ref(0, "n"), Ref(2, "n"))
    items = (Item(None, ref(0, "k")), Item(None, ref(1, "m")), Item(None, ref(2, "d")), Item(None, product))
    return View("v", "", nodes, edges, filters, items, residuals=residuals)


def compared(left, op, right, *refs):
    return expression(Compare(op, left, right), *refs)


A, B, C = Ref(0, "n"), Ref(1, "n"), Ref(2, "n")
VIEWS = {
    "plain": view(),
    "filters": view(
        filters=(
            compared(A, "<", Literal(4, "bigint"), A),
            compared(Arithmetic("+", C, C), ">", Literal(2, "bigint"), C),
            compared(Ref(1, "s"), "<=", Literal("x1", "string"), Ref(1, "s")),
        )
    ),
    "others": view(
        others=(compared(A, "<=", B, A, B),), residuals=(compared(Arithmetic("+", A, B), ">=", C, A, B, C),)
    ),
}


def by_scans(view, readers):
    """As `compute` does where no one database holds all sources."""
    from penstock.views.refresh.changes import schemas

    joins = Joins(view, schemas(view, readers))
    rows = [
        joins.rows[k].append(readers[node.source].scan(view.columns(k), view.local(k)).rows)
        for k, node in enumerate(view.nodes)
    ]
    return bag(joins.outputs([join_all(graph_of(view), joins, rows)]))


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_it_is_what_scans_give_and_goes_on_from_there(database, name):
    user, readers = database
    made = VIEWS[name]
    first = compute(made, readers)
    assert (first.requests, first.whole) == (1, True)
    held = bag(first.rows)
    assert held == by_scans(made, readers)
    assert held
    user.execute(
        "DELETE FROM two WHERE n = 1 AND k = 2",
        "INSERT INTO one VALUES (1, 3, 'x1', 'NaN', 1.00), (5, 1, 'x2', 5, 1.25)",
        "UPDATE two SET s = 'x0' WHERE k = 5",
    )
    for plan in (batch(graph_of(made)), conditional(graph_of(made))):
        done = maintain(made, readers, first.positions, lambda _, plan=plan: plan)
        change = bag(done.rows)
        assert change
        now = {row: held[row] + change[row] for row in {**held, **change}}
        assert {row: times for row, times in now.items() if times} == by_scans(made, readers)


def test_it_is_left_to_scans_where_it_cannot_be(database):
    _, readers = database
    made = VIEWS["plain"]
    assert computed_together(made, readers) is not None
    loose = replace(made, edges=(replace(made.edges[0], equal=(), others=(compared(A, "=", B, A, B),)), made.edges[1]))
    assert computed_together(loose, readers) is None
    other = Pool(readers["two"].pool.url)
    mixed = {"one": readers["one"], "two": PostgresReader(readers["two"].source, other)}
    assert computed_together(made, mixed) is None
    other.close()


# The join column in both tables, as it is declared there, what both hold, and whether the database may join it.
JOINED = [
    (("text", "varchar(9)"), ("string", "string"), "'ab '", True),
    (("integer", "bigint"), ("int", "bigint"), "7", True),
    (("numeric(9,2)", "numeric"), ("decimal(9,2)", "decimal(9,1)"), "1.5", True),
    (("char(5)", "varchar(9)"), ("string", "string"), "'ab '", False),
    (("char(5)", "char(9)"), ("string", "string"), "'ab '", False),
    (("numeric", "integer"), ("int", "int"), "1.6", False),
    (("numeric", "numeric"), ("int", "int"), "1.6", False),
    (("integer", "text"), ("string", "string"), "12", False),
    (('text COLLATE "C"', 'text COLLATE "POSIX"'), ("string", "string"), "'x'", False),
    (("real", "double precision"), ("float", "double"), "0.1", False),
]


@pytest.mark.parametrize(("held", "declared", "value", "sent"), JOINED)
def test_columns_are_joined_as_they_are_declared(database, held, declared, value, sent):
    user, readers = database
    pool, odd = readers["one"].pool, {}
    for name, kind, known in zip(("left_one", "right_one"), held, declared, strict=True):
        user.execute(
            f"DROP TABLE IF EXISTS {name}",
            f"CREATE TABLE {name} (x {kind})",
            f"INSERT INTO {name} VALUES ({value}), (NULL)",
        )
        options = (("table", name), ("capture", "odd"))
        odd[name] = PostgresReader(Source(name, (Column("x", known),), "postgres", options, changes="trigger"), pool)
    nodes = (Node("a", "left_one"), Node("b", "right_one"))
    made = View("v", "", nodes, (Edge(0, 1, (("x", "x"),)),), (), (Item(None, ref(0, "x")), Item(None, ref(1, "x"))))
    first = compute(made, odd)
    assert (computed_together(made, odd) is not None) == sent
    assert bag(first.rows) == by_scans(made, odd)
    user.execute(f"INSERT INTO left_one VALUES ({value})")
    done = maintain(made, odd, first.positions, lambda _: batch(graph_of(made)))
    now = bag(first.rows)
    now.update(bag(done.rows))
    assert now == by_scans(made, odd)


def test_a_value_that_a_view_does_not_hold_is_refused_with_its_place(database):
    user, readers = database
    user.execute("CREATE TABLE endless (k bigint, x date)", "INSERT INTO endless VALUES (1, 'infinity')")
    columns = (Column("k", "bigint"), Column("x", "date"))
    source = Source("endless", columns, "postgres", (("table", "endless"),), changes="trigger")
    both = {"one": readers["one"], "endless": PostgresReader(source, readers["one"].pool)}
    nodes = (Node("a", "one"), Node("b", "endless"))
    made = View("v", "", nodes, (Edge(0, 1, (("k", "k"),)),), (), (Item(None, ref(0, "k")), Item(None, ref(1, "x"))))
    with pytest.raises(StepError, match="source 'endless': a value of column 'x' does not fit date: it is infinite"):
        computed_together(made, both)


def test_the_snapshot_is_that_of_the_rows_and_costs_no_transaction_id(database):
    pool = database[1]["one"].pool
    asked = (
        "SELECT pg_current_snapshot()::text, pg_current_xact_id_if_assigned()::text, "
        "current_setting('transaction_isolation')"
    )
    snapshot, rows = pool.fetch_at(asked)
    assert [column[0].as_py() for column in rows.columns] == [Snapshot(snapshot).seen, None, "repeatable read"]
    assert pool.fetch("SELECT current_setting('transaction_isolation')").column(0)[0].as_py() == "read committed"
