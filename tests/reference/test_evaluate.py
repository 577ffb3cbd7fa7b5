import math
from itertools import pairwise, product

import pytest

from penstock.model import And, Arithmetic, Compare, Expression, In, IsNull, Literal, Not, Or, Ref
from penstock.reference import Raised, Unspecified, compare, evaluate, holds

NULL = Literal(None, "void")
TRUE = Literal(True, "boolean")
FALSE = Literal(False, "boolean")
LARGEST = 2**63 - 1
OVERFLOW = Compare(">", Arithmetic("+", Literal(LARGEST, "bigint"), Literal(1, "bigint")), Literal(0, "bigint"))


def value(term):
    return evaluate(term, lambda ref: pytest.fail(f"no column {ref}"))


def number(n):
    return Literal(n, "double" if isinstance(n, float) else "bigint")


def test_a_column_has_the_value_that_lookup_gives():
    assert evaluate(Ref(1, "v"), {Ref(1, "v"): 7}.__getitem__) == 7


@pytest.mark.parametrize(("left", "right"), list(product((True, False, None), repeat=2)))
def test_and_or_follow_three_valued_logic(left, right):
    terms = (Literal(left, "boolean"), Literal(right, "boolean"))
    known = [v for v in (left, right) if v is not None]
    unknown = None in (left, right)
    assert value(And(terms)) is (False if False in known else None if unknown else True)
    assert value(Or(terms)) is (True if True in known else None if unknown else False)


@pytest.mark.parametrize(("given", "negated"), [(True, False), (False, True), (None, None)])
def test_not_of_null_is_null(given, negated):
    assert value(Not(Literal(given, "boolean"))) is negated


def test_is_null_is_never_null():
    assert value(IsNull(NULL)) is True
    assert value(IsNull(number(0))) is False


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
def test_a_comparison_with_null_is_null(op):
    assert value(Compare(op, NULL, number(1))) is None
    assert value(Compare(op, number(1), NULL)) is None
    assert value(Compare(op, NULL, NULL)) is None


def test_in_with_null_is_true_or_unknown_but_never_false():
    assert value(In(number(1), (number(1), NULL))) is True
    assert value(In(number(2), (number(1), NULL))) is None
    assert value(In(number(2), (number(1),))) is False
    assert value(In(NULL, (number(1),))) is None


@pytest.mark.parametrize(
    "ascending",
    [
        [-math.inf, -1.5, 0.0, 5e-324, 1.5, math.inf, math.nan],
        [-(2**63), -1, 0, 1, 2**53, 2**53 + 1, LARGEST],
        [-(2**63), -1.5, 0, 0.5, 1, math.inf, math.nan],
        ["", "B", "Z", "a", "aa", "é", "\uffff", "\U0001f600"],
        [False, True],
    ],
)
def test_values_are_ordered_as_in_spark(ascending):
    for lower, upper in pairwise(ascending):
        assert compare(lower, upper) == -1
        assert compare(upper, lower) == 1
    assert [compare(v, v) for v in ascending] == [0] * len(ascending)


def test_nan_equals_nan_and_the_zeros_are_equal():
    assert value(Compare("=", number(math.nan), number(-math.nan))) is True
    assert value(Compare("=", number(-0.0), number(0.0))) is True
    assert value(Compare("<", number(-0.0), number(0.0))) is False


def test_an_integer_is_widened_to_double_before_it_meets_one():
    assert value(Compare("=", number(2**53 + 1), number(2.0**53))) is True
    assert value(Compare("=", number(2**53 + 1), number(2**53))) is False


def test_sums_and_differences():
    assert value(Arithmetic("+", number(2), number(3))) == 5
    assert value(Arithmetic("-", number(2), number(0.5))) == 1.5
    assert value(Arithmetic("+", NULL, number(3))) is None
    assert value(Arithmetic("-", number(-1), number(LARGEST))) == -(2**63)
    assert value(Arithmetic("+", number(1.7e308), number(1.7e308))) == math.inf


@pytest.mark.parametrize(("op", "left", "right"), [("+", LARGEST, 1), ("-", -(2**63), 1), ("-", 0, -(2**63))])
def test_integer_overflow_raises(op, left, right):
    with pytest.raises(Raised):
        value(Arithmetic(op, number(left), number(right)))


def test_a_predicate_that_raises_does_not_hold_and_nor_does_its_negation():
    for term in (OVERFLOW, Not(OVERFLOW), IsNull(OVERFLOW)):
        assert not holds(Expression((), term, total=False), lambda ref: None)


def test_a_term_behind_the_deciding_one_is_not_evaluated():
    assert value(Or((TRUE, OVERFLOW))) is True
    assert value(And((FALSE, OVERFLOW))) is False
    for undecided in (Or((FALSE, OVERFLOW)), Or((NULL, OVERFLOW)), And((NULL, OVERFLOW)), Or((OVERFLOW, TRUE))):
        with pytest.raises(Raised):
            value(undecided)


def test_values_of_different_kinds_are_refused():
    for left, right in (("1", 1), (True, 1), (1.0, "a")):
        with pytest.raises(Unspecified, match="does not compare"):
            compare(left, right)


def test_an_expression_for_spark_alone_is_refused():
    with pytest.raises(Unspecified, match=r"upper\(0\.v\)"):
        holds(Expression(("upper(", Ref(0, "v"), ")"), None, total=True), lambda ref: None)
