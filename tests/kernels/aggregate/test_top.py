"""The first rows of each window: the kernels take the same as the reference, for any windows, keys and ties."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.aggregate.results import leading
from penstock.model import (
    Aggregate,
    Aggregation,
    Arithmetic,
    Expression,
    Literal,
    PerRow,
    Ref,
    SlidingRows,
    SortKey,
    Top,
)
from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE
from penstock.planner.aggregates import is_cut_by_kernels, plan_aggregates
from tests.effort import examples
from tests.kernels.aggregate.scenes import (
    LANDMARKS,
    OWN,
    SLIDING,
    TYPES,
    assert_same,
    at_least,
    batches,
    column,
    expected,
    items,
    run,
)

CALLS = (
    Aggregate("count", None),
    Aggregate("sum", column("i")),
    Aggregate("max", column("d")),
    Aggregate("min", column("s")),
    Aggregate("max", column("m")),
)
MORE = Arithmetic("+", Ref(AGGREGATE_ROLE, "a0"), Literal(1, "bigint"))
KEYS = st.sampled_from(
    [
        *(column(f"a{n}", AGGREGATE_ROLE) for n in range(len(CALLS))),
        column("g0", GROUP_ROLE),
        Expression((Ref(AGGREGATE_ROLE, "a0"), " + 1"), MORE, total=False),
    ]
)
TOPS = st.builds(
    Top,
    st.lists(st.builds(SortKey, KEYS, st.booleans(), st.booleans()), min_size=1, max_size=2).map(tuple),
    st.integers(1, 3),
)
HAVING = st.none() | st.builds(at_least, st.just(0), st.integers(1, 2))


@settings(max_examples=examples(120), deadline=None)
@given(SLIDING | LANDMARKS, TOPS, HAVING, batches(), st.booleans(), st.sets(st.integers(0, 4)))
def test_windows_of_time_are_cut_to_their_first_rows(window, top, having, parts, runs, settled):
    aggregation = Aggregation(window, items("k", "p"), CALLS, having, top=top)
    found, _ = run({0: aggregation}, parts, runs=runs, settled=settled)
    assert_same(found[0], expected(aggregation, parts))


@settings(max_examples=examples(120), deadline=None)
@given(
    st.builds(SlidingRows, st.integers(1, 6), st.integers(1, 4), st.sampled_from(((), ("p",))))
    | st.builds(PerRow, st.integers(1, 8), st.integers(1, 3), st.sampled_from(((), ("p",)))),
    TOPS,
    HAVING,
    batches(),
)
def test_windows_of_rows_are_cut_each_by_itself_though_several_end_at_one_time(window, top, having, parts):
    aggregation = Aggregation(window, items("k", "p"), CALLS, having, top=top)
    found, _ = run({0: aggregation}, parts)
    assert_same(found[0], expected(aggregation, parts))


def test_equal_rows_are_told_apart_by_their_groups_and_nulls_stand_where_the_key_says():
    values = pa.array([5, 5, None, 5, None])
    groups = [pa.array(["b", "a", "z", None, "y"])]
    windows = np.zeros(5, dtype=np.int64)

    def first(count, **options):
        return np.flatnonzero(leading(Top((SortKey(column("a0"), **options),), count), [values], groups, windows))

    assert first(2, descending=True, nulls_first=False).tolist() == [1, 3]
    assert first(3, descending=True, nulls_first=True).tolist() == [2, 3, 4]
    assert first(1).tolist() == [4]


def test_a_key_that_kernels_cannot_compute_or_compare_is_left_to_spark():
    def cut(key, having=None):
        calls = (CALLS[0], Aggregate("collect_list", column("x")))
        aggregation = Aggregation(SlidingRows(3, 1), items("k"), calls, having, top=Top((SortKey(key),), 1))
        (plan,) = plan_aggregates({0: aggregation}, {column(n): t for n, t in TYPES.items()}, own=OWN)
        assert plan.queries[0].cut == is_cut_by_kernels(aggregation, OWN)
        return plan.queries[0].cut

    count, values = (column(name, AGGREGATE_ROLE) for name in ("a0", "a1"))
    unknown = Expression(("sqrt(", Ref(AGGREGATE_ROLE, "a0"), ") > 2"), None, total=True)
    assert cut(count)
    assert not cut(values)
    assert not cut(unknown)
    assert not cut(count, unknown)
