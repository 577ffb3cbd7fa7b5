"""The definition of a view: every combination that satisfies all conditions, with its multiplicity."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import (
    Arithmetic,
    Column,
    Compare,
    Edge,
    Expression,
    Item,
    Literal,
    Node,
    Ref,
    Source,
    View,
    ViewAggregate,
)
from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE
from penstock.reference import Raised
from penstock.reference.evaluate import compare, evaluate
from penstock.reference.view import answer, joined


def col(node, name):
    return Expression((Ref(node, name),), Ref(node, name), total=True)


TOURS = View(
    "tour_customer",
    "",
    (Node("c", "cust"), Node("f", "flights"), Node("t", "tours")),
    (Edge(0, 1, (("name", "name"),)), Edge(1, 2, (("name", "customer"),))),
    (),
    tuple(Item(None, e) for e in (col(0, "name"), col(0, "age"), col(2, "tour"), col(1, "flight"), col(1, "dest"))),
)
SOURCES = {
    "cust": Source("cust", (Column("name", "string"), Column("age", "int")), "postgres"),
    "flights": Source(
        "flights", (Column("name", "string"), Column("flight", "string"), Column("dest", "string")), "postgres"
    ),
    "tours": Source("tours", (Column("tour", "int"), Column("customer", "string")), "postgres"),
}


def test_customers_on_tours():
    """Liu 2005, Query 9.1, before and after the updates of Table 9.2."""
    before = {
        "cust": Counter({("Tom", 30): 1, ("Ken", 27): 1, ("Ben", 28): 0}),
        "flights": Counter({("Ken", "AA1", "Rome"): 2, ("Ben", "AA69", "Mia"): 1}),
        "tours": Counter({(7, "Ken"): 1, (8, "Ben"): 1}),
    }
    assert joined(TOURS, SOURCES, before) == Counter({("Ken", 27, 7, "AA1", "Rome"): 2})
    after = {
        "cust": before["cust"] + Counter({("Ben", 28): 1}) - Counter({("Ken", 27): 1}),
        "flights": before["flights"] + Counter({("Tom", "DL169", "Bos"): 1, ("Joe", "AA189", "Paris"): 1}),
        "tours": before["tours"] + Counter({(63, "Tom"): 1}),
    }
    assert joined(TOURS, SOURCES, after) == Counter(
        {("Ben", 28, 8, "AA69", "Mia"): 1, ("Tom", 30, 63, "DL169", "Bos"): 1}
    )


ROWS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.integers(0, 3)), max_size=6)
PAIR = (Column("k", "bigint"), Column("v", "bigint"))


@settings(deadline=None)
@given(ROWS, ROWS)
def test_joins_and_aggregates_are_those_of_a_database(left, right):
    sources = {"l": Source("l", PAIR, "dataframe"), "r": Source("r", PAIR, "dataframe")}
    less = Expression((Ref(0, "v"), " <= ", Ref(1, "v")), Compare("<=", Ref(0, "v"), Ref(1, "v")), total=True)
    small = Expression((Ref(0, "v"), " < 3"), Compare("<", Ref(0, "v"), Literal(3, "bigint")), total=True)
    product = Expression((Ref(0, "v"), " * ", Ref(1, "v")), Arithmetic("*", Ref(0, "v"), Ref(1, "v")), total=False)
    nodes, edges = (Node("l", "l"), Node("r", "r")), (Edge(0, 1, (("k", "k"),), (less,)),)
    plain = View("p", "", nodes, edges, (small,), (Item(None, col(0, "k")), Item(None, product)))
    functions = [("count", None), ("sum", product), ("min", product), ("max", col(1, "v")), ("avg", col(0, "v"))]
    grouped = View(
        "g",
        "",
        nodes,
        edges,
        (small,),
        (Item(None, col(GROUP_ROLE, "g0")), *(Item(None, col(AGGREGATE_ROLE, f"a{k}")) for k in range(5))),
        (col(0, "k"),),
        tuple(ViewAggregate(name, argument) for name, argument in functions),
    )
    contents = {"l": Counter(left), "r": Counter(right)}
    base = duckdb.connect()
    for name, rows in (("l", left), ("r", right)):
        columns = [pa.array([row[k] for row in rows], pa.int64()) for k in range(2)]
        base.register(name, pa.table(columns, ["k", "v"]))
    where = "from l join r on l.k = r.k and l.v <= r.v where l.v < 3"
    assert joined(plain, sources, contents) == Counter(base.execute(f"select l.k, l.v * r.v {where}").fetchall())
    found = base.execute(
        f"select l.k, count(*), sum(l.v * r.v)::bigint, min(l.v * r.v), max(r.v), avg(l.v) {where} group by l.k"
    ).fetchall()
    assert answer(grouped, sources, contents) == Counter(found)


def test_without_groups_there_is_always_one_row():
    view = View(
        "v", "", (Node("l", "l"),), (), (),
        (Item(None, col(AGGREGATE_ROLE, "a0")), Item(None, col(AGGREGATE_ROLE, "a1"))),
        (), (ViewAggregate("count", None), ViewAggregate("sum", col(0, "v"))),
    )  # fmt: skip
    sources = {"l": Source("l", PAIR, "dataframe")}
    assert answer(view, sources, {"l": Counter()}) == Counter({(0, None): 1})
    assert answer(view, sources, {"l": Counter({(1, 2): 3})}) == Counter({(3, 6): 1})


def test_values_of_views_compare_and_multiply():
    assert compare(Decimal("1.50"), Decimal("1.5")) == 0
    assert compare(Decimal("1.5"), 2) == -1
    assert compare(Decimal("0.5"), 0.5) == 0
    assert compare(date(2020, 1, 2), date(2020, 1, 1)) == 1

    def value(op, left, right):
        return evaluate(Arithmetic(op, Ref(0, "x"), Ref(0, "y")), lambda ref: {"x": left, "y": right}[ref.column])

    assert value("*", 3, 4) == 12
    assert value("*", Decimal("1.5"), 2) == Decimal("3.0")
    assert value("/", 3, 4) == 0.75
    assert value("/", None, 0) is None
    with pytest.raises(Raised, match="zero"):
        value("/", 1, 0)
    with pytest.raises(Raised, match="64 bits"):
        value("*", 2**62, 2)


def averages(kind, values, argument=None):
    """The average of the values of one column, by the definition of a view."""
    found = ViewAggregate("avg", argument or col(0, "x"))
    view = View("v", "", (Node("l", "l"),), (), (), (Item(None, col(AGGREGATE_ROLE, "a0")),), (), (found,))
    sources = {"l": Source("l", (Column("x", kind),), "dataframe")}
    ((value,),) = answer(view, sources, {"l": Counter((v,) for v in values)})
    return value


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=7), st.integers(0, 6))
def test_an_average_of_decimals_has_four_digits_more_rounded_half_up(units, scale):
    """In whole numbers: n/d rounded half away from zero is (2n + d) // 2d of what has no sign."""
    found = averages(f"decimal(18,{scale})", [Decimal(u).scaleb(-scale) for u in units])
    whole, number = sum(units) * 10**4, len(units)
    rounded = (2 * abs(whole) + number) // (2 * number)
    assert found == Decimal(rounded if whole >= 0 else -rounded).scaleb(-scale - 4)
    assert found.as_tuple().exponent == -scale - 4


def test_averages_of_computed_decimals_have_the_digits_of_the_result():
    x = Ref(0, "x")
    values = [Decimal("0.01"), Decimal("0.01"), Decimal("0.02")]
    product = Arithmetic("*", x, Literal("0.5", "decimal(1,1)"))
    assert averages("decimal(5,2)", values, Expression((x, " * 0.5"), product, total=True)) == Decimal("0.0066667")
    assert averages(
        "decimal(5,2)", values, Expression((x, " + 1"), Arithmetic("+", x, Literal(1, "bigint")), total=True)
    ) == Decimal("1.013333")
    assert averages("bigint", [1, 2, 2]) == 5 / 3
