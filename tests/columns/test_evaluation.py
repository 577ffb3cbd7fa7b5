import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.terms.evaluation import holds, values
from penstock.model import And, Arithmetic, Compare, In, IsNull, Literal, Not, Or, Ref
from penstock.reference import Raised, evaluate
from tests.effort import examples
from tests.kernels import terms

TRUE, NULL = Literal(True, "boolean"), Literal(None, "void")
OVERFLOW = Compare(">", Arithmetic("+", Ref(0, "i"), Literal(2**63 - 1, "bigint")), Literal(0, "bigint"))


def one_by_one(term, table):
    """For each row the reference's value, and whether evaluating it raised."""
    found = []
    for row in table:
        try:
            found.append((evaluate(term, lambda ref, row=row: row[ref.column]), False))
        except Raised:
            found.append((None, True))
    return found


@settings(max_examples=examples(150))
@given(terms.conditions(), terms.rows(min_size=1, max_size=6))
def test_a_condition_holds_and_raises_where_it_does_in_the_reference(term, table):
    columns = terms.arrays(table)
    true, raised = holds(term, lambda ref: columns[ref.column], len(table))
    expected = one_by_one(term, table)
    assert raised.tolist() == [r for _, r in expected]
    assert true.tolist() == [value is True for value, _ in expected]


@settings(max_examples=examples(100))
@given(st.sampled_from(("bigint", "double")).flatmap(terms.sums), terms.rows(min_size=1, max_size=6))
def test_a_sum_has_the_value_of_the_reference_and_null_where_it_raised(term, table):
    columns = terms.arrays(table)
    found, raised = values(term, lambda ref: columns[ref.column], len(table))
    expected = one_by_one(term, table)
    assert raised.tolist() == [r for _, r in expected]
    for ours, (theirs, _) in zip(found.to_pylist(), expected, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours == theirs or (math.isnan(ours) and math.isnan(theirs))


def test_a_string_is_given_as_it_is():
    column = pa.array(["a", None, "é"])
    found, raised = values(Ref(0, "s"), lambda ref: column, 3)
    assert found.to_pylist() == ["a", None, "é"]
    assert not raised.any()


@pytest.mark.parametrize(
    ("term", "raises"),
    [
        (OVERFLOW, True),
        (Not(OVERFLOW), True),
        (IsNull(OVERFLOW), True),
        (Or((TRUE, OVERFLOW)), False),
        (Or((OVERFLOW, TRUE)), True),
        (Or((NULL, OVERFLOW)), True),
        (And((Not(TRUE), OVERFLOW)), False),
        (And((TRUE, OVERFLOW)), True),
        (And((NULL, OVERFLOW)), True),
        (Or((And((TRUE, TRUE)), OVERFLOW, OVERFLOW)), False),
    ],
)
def test_a_condition_behind_the_deciding_one_cannot_raise(term, raises):
    column = pa.array([1], pa.int64())
    _, raised = holds(term, lambda ref: column, 1)
    assert raised.tolist() == [raises]


def test_every_sum_at_the_edge_of_64_bits_is_checked():
    edges = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
    left, right = (np.array(a) for a in zip(*[(x, y) for x in edges for y in edges], strict=True))
    columns = {"x": pa.array(left), "y": pa.array(right)}
    for op, exact in (("+", lambda x, y: x + y), ("-", lambda x, y: x - y)):
        found, raised = values(Arithmetic(op, Ref(0, "x"), Ref(0, "y")), lambda ref: columns[ref.column], len(left))
        for x, y, ours, bad in zip(left.tolist(), right.tolist(), found.to_pylist(), raised.tolist(), strict=True):
            fits = -(2**63) <= exact(x, y) < 2**63
            assert bad is not fits
            assert ours == (exact(x, y) if fits else None)


def test_a_column_that_was_stored_before_any_query_wanted_it_is_null_in_every_row():
    column = {Ref(0, "k"): pa.nulls(3)}
    found, raised = values(Arithmetic("-", Ref(0, "k"), Literal(1, "bigint")), column.__getitem__, 3)
    assert found.to_pylist() == [None] * 3
    assert not raised.any()
    for condition, answer in ((Compare("=", Ref(0, "k"), Literal("a", "string")), False), (IsNull(Ref(0, "k")), True)):
        truth, raised = holds(condition, column.__getitem__, 3)
        assert truth.tolist() == [answer] * 3
        assert not raised.any()


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.binary(), b"x"), (pa.date32(), 1), (pa.timestamp("us", "UTC"), 1), (pa.decimal128(9, 2), 1),
     (pa.list_(pa.int64()), [1])],
)  # fmt: skip
def test_a_column_of_any_type_is_tested_for_null(kind, value):
    column = pa.array([None, value], kind)
    truth, raised = holds(IsNull(Ref(0, "c")), lambda ref: column, 2)
    assert truth.tolist() == [True, False]
    assert not raised.any()


DECIMALS = st.one_of(st.none(), st.decimals("-2", "2", places=1), st.just(Decimal("9" * 37 + ".5")))


@given(
    st.lists(st.tuples(DECIMALS, st.one_of(st.none(), st.integers(-2, 2), st.just(2**63 - 1))), min_size=1, max_size=6),
    st.sampled_from(("=", "<>", "<", "<=", ">", ">=")),
    st.sampled_from(("0", "1.5", "-0.25", "9223372036854775806.5", "9" * 37 + ".4")),
)
def test_decimals_are_compared_exactly(rows, op, text):
    columns = {
        "m": pa.array([m for m, _ in rows], pa.decimal128(38, 1)),
        "n": pa.array([n for _, n in rows], pa.int64()),
    }
    constant = Literal(text, f"decimal(38,{max(1, -Decimal(text).as_tuple().exponent)})")
    for term in (
        Compare(op, Ref(-3, "m"), constant),
        Compare(op, constant, Ref(-3, "n")),
        Compare(op, Ref(-3, "m"), Ref(-3, "n")),
        Not(In(Ref(-3, "m"), (constant, Literal(1, "bigint")))),
    ):
        true, raised = holds(term, lambda ref: columns[ref.column], len(rows))
        expected = one_by_one(term, [{"m": m, "n": n} for m, n in rows])
        assert true.tolist() == [value is True for value, _ in expected]
        assert not raised.any()
