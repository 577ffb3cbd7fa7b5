"""A number is found in a column of another type exactly where Spark holds the two equal."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.columns.types import arrow_type
from penstock.errors import NotSupportedError
from penstock.model import Column, Edge, Item, Node, Source, View
from penstock.reference.evaluate import compare
from penstock.sql import parse_view
from penstock.sql.view_terms import joins_equal
from penstock.views.refresh.maintain import compute, graph_of, maintain
from penstock.views.rows.fit import as_double, fitted
from penstock.views.rows.match import Coder, common_type, pairs

from .memory import MemorySource, bag, ref
from .test_maintain import PLANS, expected

TYPES = (
    "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(9,0)", "decimal(10,2)", "decimal(15,15)",
    "decimal(20,4)", "decimal(38,0)", "decimal(38,18)", "decimal(38,19)",
)  # fmt: skip


def numbers(kind):
    """Values of a type, many of them near those of another."""
    known = arrow_type(kind)
    if pa.types.is_integer(known):
        most = 2 ** (known.bit_width - 1)
        return st.one_of(st.integers(-3, 3), st.integers(-most, most - 1))
    if pa.types.is_floating(known):
        width = known.bit_width
        some = st.floats(width=width) | st.integers(-(10**6), 10**6).map(float)
        return some | st.sampled_from([0.1, 0.3, 1e300, -0.0, 0.5]).map(lambda x: pa.scalar(x, known).as_py())
    most = 10**known.precision - 1
    unscaled = st.one_of(st.integers(-3, 3).map(lambda k: k * 10**known.scale), st.integers(-most, most))
    inside = unscaled.filter(lambda k: abs(k) <= most)
    return inside.map(lambda k: Decimal(k).scaleb(-known.scale))


JOINED = [(one, other) for one in TYPES for other in TYPES if joins_equal(one, other) is None]


@st.composite
def keys(draw):
    """(type of the keys, type of the column, keys, values of the column, some of them the keys themselves)."""
    one, other = draw(st.sampled_from(JOINED))
    mine = draw(st.lists(numbers(one), min_size=1, max_size=5))
    theirs = draw(st.lists(numbers(other), max_size=5))
    if draw(st.booleans()):
        mine += [k for k in theirs if _holds(arrow_type(one), k)]
    return one, other, mine, theirs


def _holds(kind, value):
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


@given(keys())
@example(("bigint", "decimal(10,2)", [2**62, 5], [Decimal("5.00"), Decimal("5.01")]))
@example(("decimal(9,0)", "int", [Decimal(10**9 - 1)], [10**9 - 1]))
@example(("double", "decimal(15,15)", [0.1, 0.3, float("nan"), float("inf")], [Decimal("0.1"), Decimal("0.3")]))
@example(("decimal(38,18)", "tinyint", [Decimal(10**19), Decimal("1.5"), Decimal(7)], [7, 1]))
def test_a_key_finds_what_is_equal_to_it(made):
    one, other, mine, theirs = made
    left, right = pa.array(mine, arrow_type(one)), pa.array(theirs, arrow_type(other))
    found, fits = fitted(left, right.type) if left.type != right.type else (left, pa.array([True] * len(left)))
    brute = {
        (i, j) for i, x in enumerate(left.to_pylist()) for j, y in enumerate(right.to_pylist()) if not compare(x, y)
    }
    for i, j in brute:
        assert fits[i].as_py(), (mine[i], theirs[j])
        assert compare(found[i].as_py(), theirs[j]) == 0
    for x, y, fit in zip(left.to_pylist(), found.to_pylist(), fits.to_pylist(), strict=True):
        assert (y is not None and compare(x, y) == 0) == fit
    kind, coder = common_type(left.type, right.type), Coder()
    matched = pairs(coder.encode(left, kind), coder.encode(right, kind))
    assert set(zip(*(side.tolist() for side in matched), strict=True)) == brute


@given(st.one_of(numbers("decimal(38,18)"), numbers("decimal(10,2)"), numbers("bigint")))
@example(Decimal("0.3"))
@example(2**53 + 1)
def test_a_double_is_the_nearest(value):
    kind = pa.int64() if isinstance(value, int) else pa.decimal128(38, 18)
    found = as_double(pa.array([value], kind))[0].as_py()
    away = abs(Fraction(found) - Fraction(value))
    for other in (math.nextafter(found, math.inf), math.nextafter(found, -math.inf)):
        assert away <= abs(Fraction(other) - Fraction(value))


@pytest.mark.parametrize(
    ("one", "other"),
    [("bigint", "decimal(10,2)"), ("int", "decimal(9,0)"), ("decimal(10,2)", "double"), ("int", "float"),
     ("bigint", "decimal(38,18)")],
)  # fmt: skip
@pytest.mark.parametrize("strategy", sorted(PLANS))
def test_columns_of_different_types_join_in_every_refresh(one, other, strategy):
    sources = {n: Source(n, (Column("k", kind),), "dataframe") for n, kind in (("s", one), ("t", other))}
    nodes = (Node("s", "s"), Node("t", "t"))
    view = View("v", "", nodes, (Edge(0, 1, (("k", "k"),)),), (), (Item(None, ref(0, "k")), Item(None, ref(1, "k"))))
    values = {
        "int": [(7,), (8,)],
        "bigint": [(7,), (2**62,)],
        "double": [(0.3,), (1e300,), (7.0,)],
        "float": [(0.5,), (7.0,)],
    }
    readers = {
        n: MemorySource(s, values.get(s.columns[0].type, [(Decimal(7),), (Decimal(8),)])) for n, s in sources.items()
    }
    if one == "decimal(10,2)":
        readers["s"].change((Decimal("0.30"),), 1)
    done = compute(view, readers)
    assert bag(done.rows) == expected(view, readers, done.positions)
    held = bag(done.rows)
    for name in ("s", "t"):
        for row in list(readers[name].content):
            readers[name].change(row, 1)
    after = maintain(view, readers, done.positions, lambda _: PLANS[strategy](graph_of(view)))
    change = bag(after.rows)
    found = change if after.whole else held + change
    assert found == expected(view, readers, after.positions)
    assert found


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ("bigint", "double", "a double holds 15 digits exactly, bigint has more"),
        ("float", "decimal(16,0)", r"decimal\(16,0\) has more"),
        ("decimal(38,0)", "decimal(38,18)", "no decimal of 38 digits"),
        ("bigint", "decimal(38,19)", "no decimal of 38 digits"),
    ],
)
def test_columns_that_only_rounding_makes_equal_are_not_joined(one, other, why):
    sources = {n: Source(n, (Column("k", kind),), "dataframe") for n, kind in (("s", one), ("t", other))}
    with pytest.raises(NotSupportedError, match=rf"(?s){why}.* .line 1, column 28.*cast it in its source"):
        parse_view("SELECT s.k FROM s, t WHERE s.k = t.k", sources, name="v")
