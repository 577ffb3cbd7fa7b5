"""The values of aggregates at the edges of their types, in literal numbers."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.aggregate.close import close, partials
from penstock.kernels.aggregate.codes import squares, whole_numbers
from penstock.model import Aggregate, Aggregation, Ref, Sliding
from penstock.model.expression import AGGREGATE_ROLE
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates
from tests.kernels.aggregate.scenes import column, condition


def value(function, values, kind, *parameters, distinct=False, merged=False):
    """The aggregate over all values; `merged` through partials of two panes."""
    aggregate = Aggregate(function, column("v"), distinct, parameters)
    queries = {0: Aggregation(Sliding(10, 10), (), (aggregate,), None)}
    if merged:
        queries[1] = Aggregation(Sliding(5, 5), (), (Aggregate("count", None),), None)
    (plan,) = plan_aggregates(queries, {column("v"): kind[0]})
    rows = pa.table({
        "_key": pa.array([0] * len(values), pa.int64()),
        "_ts": pa.array([n % 10 for n in range(len(values))], pa.int64()),
        "a0": pa.array(values, kind[1]),
        **({"o0": pa.array(range(len(values)), pa.int64())} if plan.ordered else {}),
    })  # fmt: skip
    (found,) = close(plan, [partials(plan, rows)], NEVER, FOREVER)[0].table.column("a0").to_pylist()
    return found


BIGINT, DOUBLE = ("bigint", pa.int64()), ("double", pa.float64())


def decimal(precision, scale):
    return f"decimal({precision},{scale})", pa.decimal128(precision, scale)


def pairs(found):
    return [(one["item"], one["count"]) for one in found]


@pytest.mark.parametrize("merged", [False, True])
def test_a_share_is_what_was_written(merged):
    assert pairs(value("heavy_hitters", range(10), BIGINT, 0.1, merged=merged)) == [(v, 1) for v in range(10)]
    assert value("approx_percentile", range(10), BIGINT, 100, 0.1, merged=merged) == 0
    assert value("approx_percentile", range(100), BIGINT, 1000, 0.07, merged=merged) == 6


@pytest.mark.parametrize(
    ("function", "values", "digits", "wanted"),
    [
        ("sum", ["9" * 38], (38, 0), "9" * 38),
        ("sum", ["9" * 38, "1"], (38, 0), None),
        ("sum", ["0." + "9" * 38], (38, 38), "0." + "9" * 38),
        ("sum", ["0.6", "0.6"], (38, 38), None),
        ("sum", ["9.99", "9.99"], (3, 2), "19.98"),
        ("avg", ["9999999999999.99999"] * 2, (38, 21), "9999999999999.99999"),
        ("avg", ["9" * 14 + ".0"] * 2, (38, 21), None),
        ("avg", ["0.6", "0.8"], (38, 38), "0.7"),
        ("avg", ["-" + "9" * 30 + ".9999"] * 2, (38, 4), "-" + "9" * 30 + ".9999"),
    ],
)
def test_decimals_are_exact_up_to_the_edge_of_their_type_and_null_beyond(function, values, digits, wanted):
    found = value(function, [Decimal(v) for v in values], decimal(*digits))
    assert found == (None if wanted is None else Decimal(wanted))


@pytest.mark.parametrize("merged", [False, True])
def test_there_is_one_nan_and_one_zero(merged):
    def found(function, values, *parameters, distinct=False):
        return value(function, values, DOUBLE, *parameters, distinct=distinct, merged=merged)

    nan = math.nan
    assert repr(pairs(found("approx_top_k", [nan, 1.0, nan], 5, 100))) == "[(nan, 2), (1.0, 1)]"
    assert repr(pairs(found("approx_top_k", [-0.0, 0.0, 2.0, nan], 5, 100))) == "[(0.0, 2), (2.0, 1), (nan, 1)]"
    assert math.isnan(found("approx_percentile", [nan, 1.0, nan], 100, 0.5))
    assert repr(found("approx_percentile", [nan, -0.0, nan], 100, 0.1, 0.3, 0.4, 1.0)) == "[0.0, 0.0, nan, nan]"
    assert math.isnan(found("approx_percentile", [nan], 100, 0.0))
    assert found("approx_count_distinct", [-0.0, 0.0, nan, -nan]) == 2


def test_a_list_shows_values_as_they_came_and_one_of_different_values_each_once():
    values = [-0.0, 0.0, math.nan, -math.nan]
    assert repr(value("collect_list", values, DOUBLE)) == "[-0.0, 0.0, nan, nan]"
    assert repr(value("collect_list", values, DOUBLE, distinct=True)) == "[0.0, nan]"


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("distinct", [False, True])
def test_variances_of_exact_numbers_lose_nothing_far_from_zero(merged, distinct):
    def found(function, values, kind):
        return value(function, values, kind, merged=merged, distinct=distinct)

    for far in (0, 2**31, 2**53, 2**63 - 4, -(2**63)):
        values = [far, far + 1, far + 2, far + 3]
        assert found("var_pop", values, BIGINT) == 1.25
        assert found("var_samp", values, BIGINT) == 5 / 3
        assert found("stddev_pop", values, BIGINT) == math.sqrt(1.25)
    assert found("var_pop", [-(2**63), 2**63 - 1], BIGINT) == ((2**64 - 1) / 2) ** 2
    assert found("var_pop", [-(2**31), 2**31 - 1], ("int", pa.int32())) == (2**32 - 1) ** 2 / 4
    large = [Decimal("9999999999.98"), Decimal("9999999999.99"), None]
    assert found("var_pop", large, decimal(12, 2)) == 0.000025
    edge = [Decimal("-" + "9" * 38), Decimal("9" * 38)]
    assert found("var_pop", edge, decimal(38, 0)) == (10**38 - 1) ** 2 / 1
    assert found("var_samp", [3], BIGINT) is None
    assert found("var_pop", [3, None], BIGINT) == 0.0


NUMBERS = st.one_of(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-(2**64), 2**64), st.integers(-9, 9))


@given(st.lists(NUMBERS, min_size=1))
def test_squares_in_limbs_are_squares(numbers):
    whole = pa.array([Decimal(n) for n in numbers], pa.decimal128(38, 0))
    assert whole_numbers(squares(whole)) == [n * n for n in numbers]
    for bits, kind in ((63, pa.int64()), (31, pa.int32()), (7, pa.int8())):
        own = [max(-(2**bits), min(2**bits - 1, n)) for n in numbers]
        assert whole_numbers(squares(pa.array(own, kind))) == [n * n for n in own]


def test_variances_of_decimals_with_all_digits_behind_the_point():
    values = [Decimal("0.1"), Decimal("0.3")]
    assert math.isclose(value("var_pop", values, decimal(38, 38)), 0.01, rel_tol=1e-12)
    tiny = [Decimal("0." + "0" * 37 + "1"), Decimal("0." + "0" * 37 + "3")]
    assert math.isclose(value("var_pop", tiny, decimal(38, 38)), 1e-76, rel_tol=1e-12)


@pytest.mark.parametrize("distinct", [False, True])
def test_windows_whose_sum_is_too_large_are_errors(distinct):
    calls = tuple(Aggregate(f, column("v"), distinct) for f in ("sum", "avg", "count"))
    having = condition(Ref(AGGREGATE_ROLE, "a0"), ">", 0)
    queries = {
        0: Aggregation(Sliding(10, 10), (), calls, None),
        1: Aggregation(Sliding(20, 10), (), calls, None),
        2: Aggregation(Sliding(10, 10), (), calls, having),
        3: Aggregation(Sliding(10, 10), (), calls[2:], None),
    }
    (plan,) = plan_aggregates(queries, {column("v"): "bigint"})
    values = [2**63 - 1, 1, None, 5, None]
    rows = pa.table({
        "_key": pa.array([0] * 5, pa.int64()),
        "_ts": pa.array([1, 2, 11, 12, 31], pa.int64()),
        "a0": pa.array(values, pa.int64()),
    })  # fmt: skip
    for runs in (False, True):
        closed = close(plan, [partials(plan, rows)], NEVER, FOREVER, runs=runs)
        # Two windows of 20 hold both large values; one without any value has no sum, and that is none.
        assert [found.errors for found in closed] == [1, 2, 1, 0]
        assert closed[0].table.column("a0").to_pylist() == [None, 5, None]
        assert closed[2].table.column("a0").to_pylist() == [5]


@pytest.mark.parametrize("merged", [False, True])
def test_variances_of_doubles_whose_squares_overflow(merged):
    def found(function, values):
        return value(function, values, DOUBLE, merged=merged)

    assert found("var_pop", [1e160]) == found("var_pop", [1e160, None]) == found("stddev_samp", [1e200, 1e200]) == 0.0
    assert found("stddev_samp", [1e160]) is None
    assert found("var_pop", [1e200, 3e200]) == found("stddev_pop", [1.5e308, -1.5e308, 1.0, 2.0]) == math.inf
    assert found("stddev_pop", [3e150, 1e150]) == pytest.approx(1e150)
    assert math.isnan(found("var_pop", [math.inf, 1.0]))
    assert math.isnan(found("var_pop", [math.inf]))
