"""Random views over sources in memory: chains, stars, cycles, cliques and anything between, with self-joins."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from hypothesis import strategies as st

from penstock.model import Arithmetic, Column, Compare, Edge, Item, Literal, Node, Ref, Source, View

from .memory import expression, ref

COLUMNS = (
    Column("a", "bigint"),
    Column("b", "int"),
    Column("s", "string"),
    Column("d", "double"),
    Column("e", "decimal(10,2)"),
    Column("f", "decimal(38,18)"),
    Column("day", "date"),
    Column("at", "timestamp"),
)
VALUES = (
    st.one_of(st.none(), st.integers(0, 2)),
    st.integers(0, 2),
    st.sampled_from(["x", "y", None]),
    st.sampled_from([0.0, -0.0, 1.0, 0.3, float("nan")]),
    st.sampled_from([Decimal("0.00"), Decimal("1.00"), Decimal("0.30"), Decimal("99999999.99"), None]),
    st.sampled_from([Decimal(0), Decimal(1), Decimal("0.3"), Decimal("1.000000000000000001")]),
    st.sampled_from([date(1969, 12, 31), date(2024, 2, 29), None]),
    st.sampled_from([datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2024, 2, 29, microsecond=1, tzinfo=UTC)]),
)
ROWS = st.tuples(*VALUES)
PAIRS = [
    ("a", "a"), ("a", "b"), ("b", "b"), ("b", "a"), ("s", "s"), ("d", "d"), ("d", "b"), ("b", "d"),
    ("e", "a"), ("a", "e"), ("b", "e"), ("e", "d"), ("d", "e"), ("e", "f"), ("f", "a"), ("f", "f"),
    ("day", "day"), ("at", "at"),
]  # fmt: skip


@st.composite
def shapes(draw, largest):
    """Pairs of nodes that make a connected graph."""
    n = draw(st.integers(1, largest))
    shape = draw(st.sampled_from(["chain", "star", "cycle", "clique", "any"]))
    if shape == "chain":
        return n, [(k, k + 1) for k in range(n - 1)]
    if shape == "star":
        return n, [(0, k) for k in range(1, n)]
    if shape == "cycle":
        return n, sorted({(k, k + 1) for k in range(n - 1)} | ({(0, n - 1)} if n > 2 else set()))
    if shape == "clique":
        return n, [(a, b) for a in range(n) for b in range(a + 1, n)]
    pairs = {(draw(st.integers(0, k - 1)), k) for k in range(1, n)}
    extra = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=3))
    return n, sorted(pairs | {(min(p), max(p)) for p in extra if p[0] != p[1]})


@st.composite
def views(draw, largest=7):
    """(a view, its sources by name)."""
    n, pairs = draw(shapes(largest))
    names = [f"s{draw(st.integers(0, k))}" for k in range(n)]
    sources = {name: Source(name, COLUMNS, "dataframe") for name in sorted(set(names))}
    edges = []
    for a, b in pairs:
        equal = tuple(draw(st.lists(st.sampled_from(PAIRS), min_size=1, max_size=2, unique=True)))
        others = ()
        if draw(st.integers(0, 5)) == 0:
            left, right = Ref(a, "b"), Ref(b, "b")
            others = (expression(Compare("<=", left, right), left, right),)
            equal = equal if draw(st.booleans()) else ()
        edges.append(Edge(a, b, equal, others))
    filters = []
    for node in range(n):
        if draw(st.integers(0, 4)) == 0:
            column = Ref(node, "b")
            filters.append(expression(Compare("<", column, Literal(2, "bigint")), column))
    items = [ref(draw(st.integers(0, n - 1)), draw(st.sampled_from([c.name for c in COLUMNS]))) for _ in range(3)]
    if draw(st.booleans()):
        one, other = Ref(0, "b"), Ref(n - 1, "a")
        items.append(expression(Arithmetic(draw(st.sampled_from("+-*")), one, other), one, other))
    residuals = ()
    if n > 2 and draw(st.integers(0, 4)) == 0:
        x, y, z = Ref(0, "b"), Ref(1, "b"), Ref(2, "b")
        residuals = (expression(Compare(">=", Arithmetic("+", x, y), z), x, y, z),)
    nodes = tuple(Node(f"t{k}", name) for k, name in enumerate(names))
    made = tuple(Item(None, e) for e in items)
    return View("v", "", nodes, tuple(edges), tuple(filters), made, residuals=residuals), sources
