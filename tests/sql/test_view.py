"""The SELECT of a view: nodes, edges, filters, aggregates; and what is refused, where."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from penstock.errors import NotSupportedError, SqlError
from penstock.model import And, Arithmetic, Column, Compare, In, Literal, Ref
from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE
from penstock.model.view import Edge, Node, Source
from penstock.sql import parse_view


def source(name: str, columns: str) -> Source:
    return Source(name, tuple(Column(*c.split()) for c in columns.split(", ")), "parquet")


SOURCES = {
    s.name: s
    for s in (
        source("orders", "k bigint, day date, price decimal(10,2), cust int, weight double, at timestamp"),
        source("lines", "k bigint, n int, price decimal(10,2), discount decimal(4,2), flag string, ok boolean"),
        source("Cust", "cust int, name string"),
        source("wide", "d decimal(38,0), f float"),
    )
}


def view(text: str):
    return parse_view(text, SOURCES, name="v")


def term(text: str, tables: str = "orders o"):
    return view(f"SELECT {text} AS x FROM {tables}").items[0].expression.term


def condition(text: str):
    return view(f"SELECT o.k FROM orders o WHERE {text}").filters[0].term


def test_a_join_of_three_sources_is_a_graph():
    found = view(
        "SELECT o.k, name, l.price AS p FROM orders o, lines l JOIN Cust ON o.cust = Cust.cust "
        "WHERE l.k = o.k AND l.flag = 'x' AND o.weight > l.n AND (o.day < DATE '1995-03-15' AND o.k > 0)"
    )
    assert found.nodes == (Node("o", "orders"), Node("l", "lines"), Node("Cust", "Cust"))
    assert [(e.left, e.right, e.equal, len(e.others)) for e in found.edges] == [
        (0, 1, (("k", "k"),), 1),
        (0, 2, (("cust", "cust"),), 0),
    ]
    assert [f.roles for f in found.filters] == [(1,), (0,), (0,)]
    assert [(i.name, i.expression.term) for i in found.items] == [
        ("k", Ref(0, "k")), ("name", Ref(2, "name")), ("p", Ref(1, "price")),
    ]  # fmt: skip


def test_all_conditions_between_two_nodes_are_one_edge_with_the_earlier_node_first():
    found = view(
        "SELECT a.k FROM orders a, orders b WHERE b.k = a.k AND a.cust = b.cust AND a.price < b.price AND b.k = a.k"
    )
    assert len(found.edges) == 1
    assert found.edges[0].equal == (("k", "k"), ("cust", "cust"))
    assert [e.term for e in found.edges[0].others] == [Compare("<", Ref(0, "price"), Ref(1, "price"))]


def test_a_self_join_has_a_node_for_each_occurrence():
    found = view("SELECT a.k AS x, b.k AS y FROM orders a, orders b WHERE a.k = b.cust")
    assert found.nodes == (Node("a", "orders"), Node("b", "orders"))
    assert found.edges == (Edge(0, 1, (("k", "cust"),)),)


def test_a_condition_over_three_nodes_is_no_edge():
    found = view("SELECT o.k FROM orders o, lines l, Cust c WHERE o.k = l.k AND o.cust = c.cust AND o.k + l.n > c.cust")
    assert [e.roles for e in found.residuals] == [(0, 1, 2)]


def test_star_is_all_columns_in_order():
    assert [i.name for i in view("SELECT * FROM Cust").items] == ["cust", "name"]
    found = view("SELECT c.*, o.k FROM orders o, Cust c WHERE o.cust = c.cust")
    assert [(i.name, i.expression.term) for i in found.items][:2] == [
        ("cust", Ref(1, "cust")),
        ("name", Ref(1, "name")),
    ]


def test_groups_and_aggregates_are_below_the_select_list():
    found = view(
        "SELECT flag, sum(l.price * (1 - discount)) AS revenue, count(*), avg(weight) / 2 AS half, n + 1 AS "
        "m, count(DISTINCT n) AS d, "
        "sum(l.price * (1 - discount)) + 1 AS again FROM orders o, lines l WHERE o.k = l.k GROUP BY flag, n + 1"
    )
    assert [g.term for g in found.groups] == [Ref(1, "flag"), Arithmetic("+", Ref(1, "n"), Literal(1, "bigint"))]
    assert [(a.function, a.distinct, a.argument is None) for a in found.aggregates] == [
        ("sum", False, False), ("count", False, True), ("avg", False, False), ("count", True, False),
    ]  # fmt: skip
    assert [i.expression.term for i in found.items] == [
        Ref(GROUP_ROLE, "g0"),
        Ref(AGGREGATE_ROLE, "a0"),
        Ref(AGGREGATE_ROLE, "a1"),
        Arithmetic("/", Ref(AGGREGATE_ROLE, "a2"), Literal(2, "bigint")),
        Ref(GROUP_ROLE, "g1"),
        Ref(AGGREGATE_ROLE, "a3"),
        Arithmetic("+", Ref(AGGREGATE_ROLE, "a0"), Literal(1, "bigint")),
    ]
    assert [n for n, _ in found.outputs] == ["g0", "g1", "a0", "a2", "a3"]


def test_an_aggregate_without_groups_and_a_group_without_aggregates():
    assert view("SELECT max(day) AS newest FROM orders").aggregates[0].function == "max"
    found = view("SELECT flag FROM lines GROUP BY flag")
    assert (len(found.groups), found.aggregates, found.aggregated) == (1, (), True)


def test_constants_take_the_type_of_what_they_are_compared_with():
    assert condition("o.day < '1995-03-15'") == Compare("<", Ref(0, "day"), Literal("1995-03-15", "date"))
    assert condition("o.at >= TIMESTAMP '1995-03-15 10:00:00'").right == Literal(
        "1995-03-15T10:00:00+00:00", "timestamp"
    )
    assert condition("o.k <= '65'") == Compare("<=", Ref(0, "k"), Literal(65, "bigint"))
    assert condition("o.price > 0.05").right == Literal("0.05", "decimal(2,2)")
    assert condition("o.weight > -0.5").right == Literal("-0.5", "decimal(1,1)")
    assert condition("o.weight > 1e3").right == Literal(1000.0, "double")
    assert condition("o.cust IN (1, NULL)") == In(Ref(0, "cust"), (Literal(1, "bigint"), Literal(None, "void")))
    assert isinstance(condition("o.day BETWEEN '1995-01-01' AND '1995-12-31'"), And)


def test_arithmetic_of_numbers_is_a_term():
    assert term("k * 2") == Arithmetic("*", Ref(0, "k"), Literal(2, "bigint"))
    assert term("k / cust") == Arithmetic("/", Ref(0, "k"), Ref(0, "cust"))
    assert term("-weight") == Arithmetic("-", Literal(0, "bigint"), Ref(0, "weight"))


@pytest.mark.parametrize(
    ("text", "column", "fragment", "kind"),
    [
        ("SELECT o.k FROM orders o, lines l", 27, "No condition connects l with o", NotSupportedError),
        (
            "SELECT o.k FROM orders o, lines l, Cust c WHERE o.k = l.k AND o.k + l.n = c.cust",
            36, "No condition connects c", NotSupportedError,
        ),
        ("SELECT o.k FROM orders o CROSS JOIN lines l", 37, "No condition connects", NotSupportedError),
        ("SELECT sum(name) FROM Cust", 8, "sum takes numbers, not string", SqlError),
        ("SELECT k, count(*) FROM orders GROUP BY cust", 8, "k must be in GROUP BY", SqlError),
        ("SELECT k, count(*) FROM orders", 8, "k must be in GROUP BY", SqlError),
        ("SELECT *, count(*) FROM orders GROUP BY k", 8, "* cannot stand beside", SqlError),
        ("SELECT upper(name) AS u FROM Cust", 8, "UPPER is not supported in a view", NotSupportedError),
        ("SELECT stddev(k) FROM orders", 8, "stddev is not maintained", NotSupportedError),
        ("SELECT sum(count(*)) FROM orders", 8, "cannot stand inside another", SqlError),
        ("SELECT count(1) FROM orders", 8, "count of a constant", NotSupportedError),
        ("SELECT k FROM orders WHERE day > 'x'", 28, "'x' is no date", SqlError),
        ("SELECT k FROM orders WHERE name LIKE 'a%'", 28, "Unknown column name", SqlError),
        ("SELECT cust FROM Cust WHERE name LIKE 'a%'", 29, "LIKE is not supported in a view", NotSupportedError),
        ("SELECT k FROM orders WHERE 1 = 1", 28, "names no column", NotSupportedError),
        ("SELECT k FROM orders WHERE k", 28, "must be true or false", SqlError),
        ("SELECT k FROM orders WHERE day = k", 28, "date and bigint are not compared", NotSupportedError),
        ("SELECT o.k FROM orders o, Cust c WHERE o.k = c.name", 40, "bigint column is not joined", NotSupportedError),
        ("SELECT price / 2 AS h FROM orders", 8, "Decimals are not divided", NotSupportedError),
        ("SELECT d * 10 AS h FROM wide", 8, "could have 41 digits", NotSupportedError),
        ("SELECT o.k, l.k FROM orders o, lines l WHERE o.k = l.k", 1, "Two columns of the view are named k", SqlError),
        ("SELECT k FROM orders [RANGE 5 MINUTES]", 22, "A source has no window", SqlError),
        ("SELECT k FROM orders ORDER BY k", 22, "A view has no order", NotSupportedError),
        ("SELECT k FROM orders LIMIT 3", 22, "LIMIT is not supported", NotSupportedError),
        ("SELECT DISTINCT k FROM orders", 8, "SELECT DISTINCT is not supported", NotSupportedError),
        ("SELECT k FROM orders GROUP BY k HAVING count(*) > 1", 33, "HAVING is not supported", NotSupportedError),
        ("SELECT k FROM orders GROUP BY 1", 31, "GROUP BY a position", NotSupportedError),
        ("SELECT o.k FROM orders o LEFT JOIN lines l ON o.k = l.k", 26, "LEFT JOIN is not supported",
         NotSupportedError),
        ("SELECT k FROM order", 15, "Unknown source order", SqlError),
        ("SELECT o.kk FROM orders o", 8, "Source orders has no column kk", SqlError),
        ("SELECT x.k FROM orders o", 8, "x is no source or alias", SqlError),
        ("SELECT k FROM orders, lines WHERE orders.k = lines.k", 8, "Column k is ambiguous", SqlError),
        ("SELECT a.k FROM orders a, lines a WHERE a.k = 1", 33, "used twice in FROM", SqlError),
        ("SELECT (SELECT 1) AS x FROM orders", 9, "Subqueries are not supported", NotSupportedError),
        ("SELECT rand() AS x FROM orders", 8, "not deterministic", SqlError),
        ("SELECT result_time FROM orders", 8, "Unknown column result_time", SqlError),
    ],
)  # fmt: skip
def test_what_a_view_cannot_have_is_refused_at_its_place(text, column, fragment, kind):
    with pytest.raises(SqlError) as caught:
        view(text)
    assert isinstance(caught.value, kind)
    assert fragment in caught.value.message
    assert caught.value.column == column


def test_errors_point_into_the_script():
    with pytest.raises(SqlError) as caught:
        parse_view("SELECT nope FROM Cust", SOURCES, name="v", script="-- a\n  SELECT nope FROM Cust", line=2, column=3)
    assert (caught.value.line, caught.value.column) == (2, 10)


@pytest.mark.parametrize(
    "condition",
    [
        "at = TIMESTAMP '2024-01-01 00:00:00'", "at = '2024-01-01'", "'2024-01-01T00:00' = at",
        "at IN ('2024-01-01', NULL)",
        "at BETWEEN '2024-01-01' AND TIMESTAMP '2024-01-01'", "at = TIMESTAMP '2024-01-01 05:00:00+05:00'",
    ],
)  # fmt: skip
def test_a_timestamp_without_an_offset_is_in_utc_whoever_reads_it(condition):
    found = (
        parse_view(f"SELECT k FROM orders WHERE {condition}", SOURCES, name="v").filters[0].sql(lambda ref: ref.column)
    )
    times = re.findall(r"'([^']*)'", found)
    assert times
    assert {datetime.fromisoformat(time) for time in times} == {datetime(2024, 1, 1, tzinfo=UTC)}


def test_a_group_with_a_timestamp_in_it_is_found_in_the_select_list():
    text = (
        "SELECT at > TIMESTAMP '2024-01-01' AS late, k, count(*) AS n, at > TIMESTAMP '2024-01-01' AS again "
        "FROM orders GROUP BY at > TIMESTAMP '2024-01-01', k"
    )
    view = parse_view(text, SOURCES, name="v")
    assert [item.expression.sql(lambda ref: ref.column) for item in view.items] == ["g0", "g1", "a0", "g0"]
