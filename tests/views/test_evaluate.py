"""Expressions of views equal the reference's in value, and raise for a row if and only if the reference does."""

from __future__ import annotations

from decimal import Decimal
from itertools import product
from math import isnan

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.columns.types import arrow_type
from penstock.errors import StepError
from penstock.model import And, Arithmetic, Compare, Expression, In, IsNull, Literal, Not, Or, Ref
from penstock.reference.evaluate import Raised, evaluate
from penstock.views.rows.evaluate import column, select

NAN = float("nan")
VALUES = {
    "int": [0, 1, -7, 2**20], "bigint": [0, 3, -(2**40), 2**62],
    "float": [0.0, -0.0, 1.5, NAN], "double": [0.0, 0.1, 1.5, -999.99, NAN],
    "decimal(5,2)": [Decimal("0.00"), Decimal("1.50"), Decimal("-999.99")], "decimal(9,0)": [Decimal(3), Decimal(-7)],
    "string": ["", "a", "b"], "boolean": [True, False],
}  # fmt: skip
FAMILIES = (
    (("int", "bigint"), (Literal(2, "bigint"), Literal(2**33, "bigint"), Literal(None, "void"))),
    (("int", "float", "double"), (Literal(0.5, "double"), Literal(None, "void"))),
    (("int", "decimal(5,2)", "decimal(9,0)"), (Literal("0.5", "decimal(1,1)"), Literal(3, "bigint"))),
)


@st.composite
def numbers(draw, family, depth=2):
    kinds, constants = family
    leaf = st.sampled_from((*(Ref(0, kind) for kind in kinds), *constants))
    if depth == 0 or draw(st.booleans()):
        return draw(leaf)
    if family is not FAMILIES[2] and draw(st.integers(0, 4)) == 0:
        return Arithmetic("/", draw(leaf), draw(leaf))
    return Arithmetic(draw(st.sampled_from("+-*")), draw(numbers(family, depth - 1)), draw(numbers(family, depth - 1)))


@st.composite
def truths(draw, depth=2):
    family = draw(st.sampled_from(FAMILIES))
    if depth and draw(st.booleans()):
        parts = tuple(draw(st.lists(truths(depth - 1), min_size=2, max_size=3)))
        return draw(st.sampled_from((And(parts), Or(parts), Not(parts[0]))))
    compared = st.builds(
        Compare, st.sampled_from(("=", "<>", "<", "<=", ">", ">=")), numbers(family, 1), numbers(family, 1)
    )
    among = st.builds(In, numbers(family, 0), st.just(family[1]))
    text = st.builds(Compare, st.sampled_from("=<"), st.just(Ref(0, "string")), st.just(Literal("a", "string")))
    return draw(st.one_of(compared, among, text, st.builds(IsNull, numbers(family, 0)), st.just(Ref(0, "boolean"))))


rows = st.lists(st.fixed_dictionaries({k: st.none() | st.sampled_from(v) for k, v in VALUES.items()}), max_size=4)


def table_of(made):
    return pa.table({kind: pa.array([row[kind] for row in made], arrow_type(kind)) for kind in VALUES})


def expected(term, made):
    found = []
    for row in made:
        try:
            found.append(evaluate(term, lambda ref, row=row: row[ref.column]))
        except Raised:
            return None
    return found


def alike(one, other):
    both = isinstance(one, float) and isinstance(other, float)
    return one == other or (both and ((isnan(one) and isnan(other)) or one == pytest.approx(other, rel=1e-6)))


def narrow(term, made):
    """Whether an INT overflows, which the reference, with 64 bits for all integers, does not see."""
    match term:
        case Arithmetic(_, left, right):
            small = all(
                isinstance(s, Literal) or s == Ref(0, "int") or isinstance(s, Arithmetic) for s in (left, right)
            )
            own = expected(term, made) or []
            wide = any(isinstance(v, int) and not -(2**31) <= v < 2**31 for v in own)
            return (small and wide) or narrow(left, made) or narrow(right, made)
        case Compare(_, left, right):
            return narrow(left, made) or narrow(right, made)
        case And(terms) | Or(terms):
            return any(narrow(t, made) for t in terms)
        case Not(inner) | IsNull(inner):
            return narrow(inner, made)
    return False


@given(st.one_of(truths(), *(numbers(family) for family in FAMILIES)), rows)
def test_values_are_the_references(term, made):
    expression, wanted = Expression(("x",), term, total=False), expected(term, made)
    if narrow(term, made):
        return
    try:
        found = column(table_of(made), expression, lambda ref: ref.column).to_pylist()
    except StepError:
        assert wanted is None
        return
    assert wanted is not None
    assert all(map(alike, found, wanted)), (found, wanted)


@given(truths(), rows)
def test_rows_are_kept_where_a_filter_is_true(term, made):
    wanted = expected(term, made)
    if wanted is None or narrow(term, made):
        return
    table = table_of(made).append_column("row", pa.array(range(len(made)), pa.int64()))
    kept = select(table, [Expression(("x",), term, total=False)], lambda ref: ref.column)
    assert kept.column("row").to_pylist() == [row for row, truth in enumerate(wanted) if truth is True]


@pytest.mark.parametrize("op", ["=", "<", ">="])
def test_numbers_of_all_types_compare(op):
    kinds = [kind for kind in VALUES if kind not in ("string", "boolean")]
    for one, other in product(kinds, kinds):
        made = [{**dict.fromkeys(VALUES), one: a, other: b} for a, b in product(VALUES[one], VALUES[other])]
        term = Compare(op, Ref(0, one), Ref(0, other))
        found = column(table_of(made), Expression(("x",), term, total=True), lambda ref: ref.column)
        assert found.to_pylist() == expected(term, made), (one, other)


def test_an_int_overflows_at_its_own_width_and_what_a_guard_excludes_does_not_raise():
    table = pa.table({"i": pa.array([2**31 - 1, 0], pa.int32()), "k": pa.array([1, 2], pa.int64())})

    def of(term):
        return column(table, Expression((Ref(0, "i"), " .."), term, total=False), lambda ref: ref.column).to_pylist()

    i, k, one = Ref(0, "i"), Ref(0, "k"), Literal(1, "bigint")
    assert of(Arithmetic("+", i, k)) == [2**31, 2]
    for term in (Arithmetic("+", i, one), Arithmetic("/", k, i)):
        with pytest.raises(StepError, match=r"`i` \.\. cannot be computed for every row: .*guard it with a condition"):
            of(term)
    zero = Compare("<>", i, Literal(0, "bigint"))
    assert of(And((zero, Compare("<", Arithmetic("/", k, i), one)))) == [True, False]


@pytest.mark.parametrize(
    ("term", "kind"),
    [
        (Literal(1, "bigint"), pa.int64()), (Arithmetic("+", Ref(0, "int"), Literal(1, "bigint")), pa.int32()),
        (Arithmetic("*", Ref(0, "float"), Ref(0, "float")), pa.float32()),
        (Arithmetic("/", Ref(0, "float"), Ref(0, "float")), pa.float64()),
        (Arithmetic("-", Ref(0, "float"), Ref(0, "int")), pa.float64()),
        (Arithmetic("+", Ref(0, "decimal(5,2)"), Ref(0, "decimal(9,0)")), pa.decimal128(12, 2)),
        (Arithmetic("*", Ref(0, "decimal(5,2)"), Ref(0, "int")), pa.decimal128(16, 2)),
        (Arithmetic("+", Literal(None, "void"), Ref(0, "decimal(5,2)")), pa.decimal128(5, 2)),
        (Literal("2020-01-01", "date"), pa.date32()), (Compare("=", Ref(0, "int"), Ref(0, "double")), pa.bool_()),
        (Literal("1969-12-31T23:59:59.999999+00:00", "timestamp"), pa.timestamp("us", "UTC")),
    ],
)  # fmt: skip
def test_values_have_sparks_types(term, kind):
    found = column(table_of([dict.fromkeys(VALUES)]), Expression(("x",), term, total=False), lambda ref: ref.column)
    assert found.type == kind
    if isinstance(term, Literal) and term.type == "timestamp":
        assert found.cast(pa.int64()).to_pylist() == [-1]
