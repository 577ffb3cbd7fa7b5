"""Sorted search misses no pair on which a condition holds or raises, whatever was moved from one side to the other."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.kernels.ranges import build_search, find_ranges
from penstock.model import And, Arithmetic, Compare, Expression, Literal, Ref
from penstock.reference import Raised, evaluate
from tests.effort import examples

INTEGERS = st.one_of(
    st.none(),
    st.integers(-4, 4),
    st.integers(0, 4).map(lambda n: 2**63 - 1 - n),
    st.integers(0, 4).map(lambda n: n - 2**63),
    st.integers(-3, 3).map(lambda n: 2**53 + n),
    st.sampled_from((2**61 - 1, 2**61, 2**62, -(2**62))),
)
DOUBLES = st.one_of(
    st.none(),
    st.integers(-4, 4).map(float),
    st.floats(-3, 3),
    st.floats(),
    st.sampled_from((0.1, 0.2, 0.3, 0.7, -0.0, 1e16, 1e308, -1e308, 1.7e308, 5e-324, float("inf"), float("nan"))),
)
STRINGS = st.sampled_from((None, "", "a", "a", "ab", "B", "é", "\uffff", "\U0001f600"))
KINDS = {"bigint": INTEGERS, "double": DOUBLES, "string": STRINGS}
ROLES = 3  # rows of the last one are looked for


def columns_of(kind, count):
    row = st.fixed_dictionaries({"v": KINDS[kind], "w": KINDS[kind]})
    return st.lists(row, min_size=count, max_size=count)


@st.composite
def sums(draw, kind, most=3):
    leaf = st.one_of(
        *[st.builds(Ref, st.integers(0, ROLES - 1), st.sampled_from("vw"))] * 3,
        KINDS[kind].filter(lambda v: v is not None and repr(v) != "nan").map(lambda v: Literal(v, kind)),
    )
    term = draw(leaf)
    for _ in range(draw(st.integers(0, most - 1)) if kind != "string" else 0):
        term = Arithmetic(draw(st.sampled_from("+-")), *draw(st.permutations((term, draw(leaf)))))
    return term


@st.composite
def conditions(draw, kind):
    """A comparison of sums, or several of which one is left out, as BETWEEN is made."""
    compared = st.builds(Compare, st.sampled_from(("<", "<=", ">", ">=", "=")), sums(kind), sums(kind))
    parts = draw(st.lists(compared, min_size=1, max_size=2))
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def roles(term):
    match term:
        case Ref(role, _):
            return {role}
        case Literal():
            return set()
        case And(terms):
            return set().union(*map(roles, terms))
        case _:
            return roles(term.left) | roles(term.right)


def expression(term, kind):
    """As the parser makes it: sums of integers may raise."""
    refs = tuple(Ref(role, "v") for role in sorted(roles(term)))
    return Expression(refs, term, total=kind != "bigint" or "Arithmetic" not in repr(term))


def a_join(*conditions):
    """As much of a join as a search is made of: the conditions of each query."""
    return SimpleNamespace(leads=[SimpleNamespace(residuals=some) for some in conditions])


def wanted(term, combination):
    """Whether a condition is TRUE, or raises."""
    try:
        return evaluate(term, lambda ref: combination[ref.role][ref.column]) is True
    except Raised:
        return True


def found(search, kind, composites, rows):
    arrow = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string()}[kind]

    def of_rows(ref):
        assert ref.role == ROLES - 1
        return pa.array([row[ref.column] for row in rows], arrow)

    def of_composites(ref):
        return pa.array([c[ref.role][ref.column] for c in composites], arrow)

    ranges = find_ranges(search, of_rows, len(rows), of_composites, len(composites))
    pairs = [
        (i, int(row))
        for order, low, high in ranges.parts
        for i in range(len(composites))
        for row in order[low[i] : high[i]]
    ]
    assert len(pairs) == len(set(pairs)) == ranges.pairs
    return set(pairs)


@st.composite
def scenes(draw):
    kind = draw(st.sampled_from(("bigint", "bigint", "double", "double", "string")))
    queries = draw(st.lists(st.lists(conditions(kind), min_size=1, max_size=2), min_size=1, max_size=2))
    sides = [draw(columns_of(kind, 5)) for _ in range(ROLES)]
    return kind, queries, list(zip(*sides[:-1], strict=True)), sides[-1]


OWN, OTHER, ONE = Ref(2, "v"), Ref(0, "v"), Literal(1, "bigint")


# On a row and a composite such as these the first half raises, and the second says nothing more.
BY_ANOTHER_VALUE = And((Compare("<=", Arithmetic("+", OWN, ONE), OTHER), Compare("<=", Ref(2, "w"), OTHER)))
BY_THE_COMPOSITE = And((Compare(">=", OTHER, Arithmetic("-", Ref(1, "v"), ONE)), Compare("<=", OTHER, OWN)))


def one(value):
    return [({"v": value, "w": 0}, {"v": 0, "w": 0})]


@settings(max_examples=examples(400))
@given(scenes())
@example(("bigint", [[BY_ANOTHER_VALUE]], one(5), [{"v": 2**63 - 1, "w": 6}]))
@example(("bigint", [[BY_THE_COMPOSITE]], [({"v": 5, "w": 0}, {"v": -(2**63), "w": 0})], [{"v": 4, "w": 0}]))
@example(("bigint", [[Compare("<=", Arithmetic("+", OWN, ONE), OTHER)]], one(5), [{"v": 2**63 - 1, "w": 0}]))
@example(("bigint", [[Compare("<=", Arithmetic("-", OWN, OTHER), ONE)]], one(-5), [{"v": 2**63 - 1, "w": 0}]))
@example(
    (
        "double",
        [[Compare(">=", Arithmetic("-", OTHER, OWN), Literal(1.0, "double"))]],
        one(5.0),
        [{"v": float("nan"), "w": 0.0}],
    )
)
@example(
    (
        "double",
        [[Compare("<=", Arithmetic("+", OWN, Literal(0.4, "double")), OTHER)]],
        one(0.5),  # 0.5 - 0.4 is less than 0.1
        [{"v": 0.1, "w": 0.0}],
    )
)
def test_a_pair_on_which_a_condition_holds_or_raises_is_in_range(scene):
    kind, queries, composites, rows = scene
    search = build_search(a_join(*([expression(t, kind) for t in some] for some in queries)), ROLES - 1, (0, 1))
    if search is None:
        return
    pairs = found(search, kind, composites, rows)
    for i, composite in enumerate(composites):
        for number, row in enumerate(rows):
            for some in queries:
                if all(wanted(term, (*composite, row)) for term in some):
                    assert (i, number) in pairs


@pytest.mark.parametrize("kind", ["bigint", "double"])
@pytest.mark.parametrize("shape", ["own", "other", "difference", "negative"])
def test_both_ends_of_a_band_leave_only_its_rows(kind, shape):
    width = Literal(1 if kind == "bigint" else 1.0, kind)
    minus = Literal(-1 if kind == "bigint" else -1.0, kind)

    def plus(term):
        return Arithmetic("+", term, width), Arithmetic("-", term, width)

    up, down = plus(OTHER if shape == "own" else OWN)
    band = {
        "own": And((Compare(">=", OWN, down), Compare("<=", OWN, up))),
        "other": And((Compare(">=", OTHER, down), Compare("<=", OTHER, up))),
        "difference": And((Compare(">=", Arithmetic("-", OTHER, OWN), minus),
          Compare("<=", Arithmetic("-", OTHER, OWN), width))),
        "negative": And((Compare("<=", Arithmetic("-", width, OWN),
           Arithmetic("-", Arithmetic("+", width, width), OTHER)), Compare(">=", width, Arithmetic("-", OWN, OTHER)))),
    }[shape]  # fmt: skip
    values = [n if kind == "bigint" else float(n) for n in range(100)]
    rows = [{"v": n, "w": n} for n in values]
    composites = [(row, row) for row in rows]
    search = build_search(a_join([expression(band, kind)]), ROLES - 1, (0, 1))
    assert found(search, kind, composites, rows) == {(i, j) for i in range(100) for j in range(100) if abs(i - j) <= 1}


def test_queries_with_bands_of_different_widths_share_a_search():
    def band(width):
        ends = (Arithmetic(op, OTHER, Literal(width, "bigint")) for op in "-+")
        return expression(
            And(tuple(Compare(op, OWN, end) for op, end in zip((">=", "<="), ends, strict=True))), "bigint"
        )

    rows = [{"v": n, "w": n} for n in range(100)]
    composites = [(row, row) for row in rows]
    search = build_search(a_join([band(1)], [band(3)], [band(2)]), ROLES - 1, (0, 1))
    pairs = found(search, "bigint", composites, rows)
    assert pairs == {(i, j) for i in range(100) for j in range(100) if abs(i - j) <= 3}
    assert build_search(a_join([band(1)], []), ROLES - 1, (0, 1)) is None


def test_only_values_that_might_overflow_meet_every_row():
    """`OTHER - 1` of the smallest integer raises on every row; a row whose own sum may overflow is in every range."""
    low = Compare(">=", OWN, Arithmetic("-", OTHER, ONE))
    search = build_search(a_join([expression(low, "bigint")]), ROLES - 1, (0, 1))
    rows = [{"v": n, "w": 0} for n in (None, 0, 1, 2, 2**63 - 1)]
    composites = [*one(-(2**63)), *one(2), *one(None)]
    assert found(search, "bigint", composites, rows) == {(0, n) for n in range(5)} | {(1, 2), (1, 3), (1, 4)}
    moved = Compare("<=", Arithmetic("+", OWN, ONE), OTHER)
    search = build_search(a_join([expression(moved, "bigint")]), ROLES - 1, (0, 1))
    assert found(search, "bigint", [*one(2), *one(None)], rows) == {(0, 1), (0, 2), (0, 4), (1, 4)}


def test_strings_are_searched_by_their_bytes():
    texts = ["", "B", "a", "ab", "é", "\uffff", "\U0001f600"]
    rows = [{"v": text, "w": ""} for text in [*texts, None]]
    search = build_search(a_join([expression(Compare("<", OWN, OTHER), "string")]), ROLES - 1, (0, 1))
    composites = [({"v": text, "w": ""}, {"v": "", "w": ""}) for text in texts]
    # A text is in the range of its equal too: the condition decides.
    expected = {(i, j) for i in range(len(texts)) for j in range(i + 1)}
    assert found(search, "string", composites, rows) == expected
    assert found(search, "string", [({"v": None, "w": ""}, {"v": "", "w": ""})], rows) == set()
