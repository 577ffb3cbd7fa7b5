"""Aggregate functions over the values of one group."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Aggregate, Expression, Ref
from penstock.reference import Unspecified
from penstock.reference.functions import aggregate_value

X = Expression((Ref(0, "x"),), Ref(0, "x"), total=True)
INTEGERS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=8)
DOUBLES = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=8)


def value(function, values, *parameters, distinct=False, own=None):
    return aggregate_value(Aggregate(function, X, distinct, parameters), values, own or {})


@given(INTEGERS)
def test_sums_of_integers_are_exact_and_null_beyond_64_bits(values):
    present = [v for v in values if v is not None]
    total = sum(present)
    fits = present and -(2**63) <= total < 2**63
    assert value("sum", values) == (total if fits else None)
    assert value("count", values) == len(present)
    assert aggregate_value(Aggregate("count", None), values, {}) == len(values)


@given(DOUBLES, st.randoms(use_true_random=False))
def test_sums_of_doubles_depend_on_no_order(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    for function in ("sum", "avg", "var_pop", "stddev_pop"):
        assert value(function, values) == value(function, shuffled)
    assert value("sum", values) == math.fsum(values)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1.0, math.inf], math.inf), ([math.inf, -math.inf], math.nan), ([math.nan, 1.0], math.nan),
        ([-math.inf], -math.inf),
        ([1e308, 1e308], math.inf), ([-1e308, -1e308], -math.inf), ([1e308, 1e308, -1e308], 1e308),
    ],
)  # fmt: skip
def test_sums_of_doubles_at_their_limits(values, wanted):
    assert repr(value("sum", values)) == repr(wanted)


def test_decimals_are_exact():
    cents = [Decimal("0.10"), Decimal("0.20"), None]
    assert value("sum", cents) == Decimal("0.30")
    assert value("avg", [Decimal("1.00"), Decimal("0.00"), Decimal("0.00")]) == Decimal("0.333333")
    assert value("avg", [Decimal("2.00"), Decimal("0.00"), Decimal("0.00")]) == Decimal("0.666667")
    assert value("max", cents) == Decimal("0.20")
    assert value("sum", [Decimal(10) ** 37 * 9, Decimal(10) ** 37 * 9]) is None


@pytest.mark.parametrize(
    ("function", "values", "digits", "wanted"),
    [
        ("sum", ["99999999999999999999999999999999999999"], (38, 0), "99999999999999999999999999999999999999"),
        ("sum", ["0.6", "0.6"], (38, 38), None),
        ("sum", ["9.99"] * 2, (3, 2), "19.98"),
        ("sum", ["99999999999999.000000000000000000000001"] * 2, (38, 24), None),
        ("avg", ["9999999999999.99999"] * 2, (38, 21), "9999999999999.99999"),
        ("avg", ["99999999999999.0"] * 2, (38, 21), None),
        ("avg", ["0.6", "0.8"], (38, 38), "0.7"),
    ],
)
def test_decimals_beyond_their_type_are_null(function, values, digits, wanted):
    found = aggregate_value(Aggregate(function, X), [Decimal(v) for v in values], {}, digits)
    assert found == (None if wanted is None else Decimal(wanted))


@given(st.lists(st.integers(-100, 100), min_size=2, max_size=8))
def test_spread_by_its_definition(values):
    mean = Fraction(sum(values), len(values))
    squares = sum((v - mean) ** 2 for v in values)
    assert value("var_pop", values) == float(squares / len(values))
    assert value("var_samp", values) == float(squares / (len(values) - 1))
    assert value("stddev_samp", values) == math.sqrt(float(squares / (len(values) - 1)))


def test_a_sample_of_one_has_no_spread():
    assert value("var_samp", [3]) is None
    assert value("var_pop", [3]) == 0.0
    assert math.isnan(value("var_pop", [1.0, math.inf]))


@pytest.mark.parametrize(
    "function",
    ["sum", "avg", "min", "max", "var_pop", "stddev_samp", "approx_percentile", "any_value", "first", "last"],
)
def test_no_values_give_null(function):
    assert value(function, [], 100, 0.5) is None
    assert value(function, [None, None], 100, 0.5) is None


def test_the_order_of_spark_holds_for_extremes():
    assert math.isnan(value("max", [1.0, math.nan, math.inf]))
    assert value("min", [math.nan, 1.0]) == 1.0
    assert value("min", ["b", "B", None]) == "B"


def test_first_and_last_take_nulls_unless_told_otherwise():
    assert value("first", [None, 1, 2]) is None
    assert value("first", [None, 1, 2], 1) == 1
    assert value("last", [1, 2, None]) is None
    assert value("last", [1, 2, None], 1) == 2


def test_lists_keep_the_order_of_rows_and_drop_nulls():
    assert value("collect_list", [3, None, 1, 3]) == [3, 1, 3]
    assert value("collect_list", [3, None, 1, 3], distinct=True) == [3, 1]
    assert value("collect_list", [None]) == []


def test_one_value_is_counted_once():
    assert value("count", [1, 1, None, 2], distinct=True) == 2
    assert value("count", [0.0, -0.0, math.nan, -math.nan], distinct=True) == 2
    assert value("sum", [1, 1, 2], distinct=True) == 3
    assert value("approx_count_distinct", ["a", "a", "b", None]) == 2


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.floats(0, 1))
def test_a_percentile_is_the_smallest_value_with_its_share_below_or_at_it(values, share):
    found = value("approx_percentile", values, 100, share)
    assert found in values
    needed = Fraction(repr(share)) * len(values)
    assert sum(v <= found for v in values) >= needed
    assert all(sum(v <= lower for v in values) < needed for lower in values if lower < found)


def test_a_share_is_what_was_written():
    assert value("approx_percentile", list(range(10)), 100, 0.1) == 0
    assert value("approx_percentile", list(range(100)), 100, 0.07) == 6
    assert value("heavy_hitters", list(range(10)), 0.1) == [(v, 1) for v in range(10)]


def test_several_percentiles_are_a_list():
    assert value("approx_percentile", [1, 2, 3, 4], 100, 0.25, 1) == [1, 4]


def test_frequent_items_come_first_and_ties_in_their_order():
    items = ["b", "a", "c", "b", "a", None, "b"]
    assert value("approx_top_k", items, 2, 100) == [("b", 3), ("a", 2)]
    assert value("heavy_hitters", items, 0.3) == [("b", 3), ("a", 2)]
    assert value("heavy_hitters", items, 0.5) == [("b", 3)]
    assert value("heavy_hitters", ["a", "b"], 0.5) == [("a", 1), ("b", 1)]


def test_there_is_one_nan_and_one_zero():
    assert repr(value("approx_top_k", [math.nan, -0.0, math.nan, 0.0], 5, 100)) == "[(0.0, 2), (nan, 2)]"
    assert repr(value("collect_list", [-0.0, math.nan, 0.0, -math.nan], distinct=True)) == "[0.0, nan]"
    assert math.isnan(value("approx_percentile", [1.0, math.nan, math.nan], 100, 0.5))


def test_a_function_of_the_users_own_is_folded_over_what_is_not_null():
    class Product:
        type = "bigint"

        def zero(self):
            return 1

        def add(self, state, value):
            return state * value

        def merge(self, left, right):
            return left * right

        def finish(self, state):
            return -state

    assert value("product", [2, None, 3, 3], own={"product": Product()}) == -18
    assert value("product", [2, 3, 3], distinct=True, own={"product": Product()}) == -6
    assert value("product", [], own={"product": Product()}) == -1


def test_what_the_reference_does_not_know_it_does_not_guess():
    with pytest.raises(Unspecified):
        value("median", [1])
    with pytest.raises(Unspecified):
        value("sum", ["a"])
    with pytest.raises(Unspecified):
        value("count", [[1]], distinct=True)
