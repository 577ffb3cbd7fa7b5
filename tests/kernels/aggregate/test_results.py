import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.aggregate.close import close, merge, partials
from penstock.kernels.aggregate.keep import alive, expire, horizon
from penstock.model import Aggregate, Aggregation, Landmark, PerRow, Session, Sliding, SlidingRows
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates
from tests.effort import examples
from tests.kernels.aggregate.scenes import (
    BOUNDED,
    OTHERS,
    OWN,
    SLIDING,
    TYPES,
    assert_same,
    batches,
    column,
    expected,
    items,
    run,
    table_of,
)  # fmt: skip

COUNT = Aggregate("count", None)


def plan_of(window, *aggregates, groups=("k",), **options):
    queries = {0: Aggregation(window, items(*groups), aggregates or (COUNT,), None)}
    (plan,) = plan_aggregates(queries, {column(n): t for n, t in TYPES.items()}, own=OWN, **options)
    return plan


def row(ts, k=0, **values):
    return {**dict.fromkeys(TYPES), "ts": ts, "k": k, **values}


def table(plan, rows, groups=("k",)):
    return table_of([column(g) for g in groups], plan, rows, ((),))


def through_a_file(stored):
    """The table as another process reads it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, stored.schema) as writer:
        writer.write_table(stored)
    return pa.ipc.open_file(sink.getvalue()).read_all()


@settings(max_examples=examples(60), deadline=None)
@given(SLIDING, st.lists(st.sampled_from(BOUNDED + OTHERS), min_size=1, max_size=3, unique=True).map(tuple), batches())
def test_partials_survive_their_files(window, aggregates, parts):
    aggregation = Aggregation(window, items("k", "p"), aggregates, None)
    plan = plan_of(window, *aggregates, groups=("k", "p"))
    stored = [through_a_file(partials(plan, table(plan, rows, ("k", "p")))) for rows, _ in parts if rows]
    merged = [through_a_file(merge(plan, stored))] if stored else []
    for state in (stored, merged):
        found = [
            (tuple(r[f"g{n}"] for n in range(2)), r["window_start"], r["window_end"],
             tuple(r[f"a{n}"] for n in range(len(aggregates))))
            for closed in close(plan, state, NEVER, FOREVER)
            for r in closed.table.to_pylist()
        ]  # fmt: skip
        assert_same(found, expected(aggregation, parts))


@settings(max_examples=examples(60), deadline=None)
@given(batches())
def test_groups_that_hold_the_event_time_need_no_window(parts):
    aggregation = Aggregation(None, items("ts", "k"), (COUNT,), None)
    found, left = run({0: aggregation}, parts)
    assert_same(found[0], expected(aggregation, parts))
    assert left[0][1] is None


@pytest.mark.parametrize(
    ("window", "expected_horizon"),
    [
        (Sliding(10, 5), 5),  # at 12 the window [5, 15) is open
        (Sliding(2, 5), 13),
        (PerRow(4), 9),
        (PerRow(4, 2), None),
        (SlidingRows(4, 2), None),
        (Landmark(5), None),
        (Session(5), None),
    ],
)
def test_the_horizon_is_the_start_of_the_oldest_open_window(window, expected_horizon):
    assert horizon(plan_of(window), 12) == expected_horizon


def test_panes_below_the_horizon_are_those_that_are_not_alive():
    plan = plan_of(Sliding(10, 5))
    state = partials(plan, table(plan, [row(t) for t in range(20)]))
    assert state.column("_pane").to_pylist() == [0, 5, 10, 15]
    assert alive(plan, state, 12).tolist() == [False, True, True, True]
    assert expire(plan, [state], 12).column("_pane").to_pylist() == [5, 10, 15]
    assert expire(plan, [state], 30) is None


def test_of_old_panes_a_landmark_keeps_one_for_each_group():
    plan = plan_of(Landmark(5))
    state = partials(plan, table(plan, [row(t, k=t % 2) for t in range(40)]))
    kept = expire(plan, [state], 30)
    assert len(kept) == 2 * (1 + 2)
    (closed,) = close(plan, [kept], 30, 40)
    counts = {(r["g0"], r["window_end"]): r["a0"] for r in closed.table.to_pylist()}
    assert sorted(counts.values()) == [17, 18, 20, 20]


def test_of_rows_that_were_counted_only_their_number_is_kept():
    plan = plan_of(SlidingRows(3, 2), groups=())
    state = partials(plan, table(plan, [row(t) for t in range(100)], ()))
    kept = expire(plan, [state], 100)
    assert len(kept) == 1 + 1
    more = partials(plan, table(plan, [row(t) for t in range(100, 103)], ()))
    (closed,) = close(plan, [kept, more], 100, 103)
    assert closed.table.to_pylist() == [{"window_start": 99, "window_end": 101, "a0": 3}]


def test_runs_put_windows_of_equal_content_together():
    plan = plan_of(Sliding(10, 1))
    state = partials(plan, table(plan, [row(0), row(100)]))
    (closed,) = close(plan, [state], NEVER, FOREVER, runs=True)
    assert closed.table.select(["window_end", "_windows", "a0"]).to_pylist() == [
        {"window_end": 1, "_windows": 10, "a0": 1},
        {"window_end": 101, "_windows": 10, "a0": 1},
    ]


def test_narrower_panes_for_a_later_query_leave_older_ones_valid():
    old = plan_of(Sliding(12, 6))
    both = plan_aggregates(
        {n: Aggregation(w, items("k"), (COUNT,), None) for n, w in enumerate((Sliding(12, 6), Sliding(3, 3)))}, {}
    )[0]
    assert (old.width, both.width) == (6, 3)
    state = [
        partials(old, table(old, [row(t) for t in range(12)])),
        partials(both, table(both, [row(t) for t in range(12, 24)])),
    ]
    by_query = {c.query: {r["window_end"]: r["a0"] for r in c.table.to_pylist()} for c in close(both, state, NEVER, 24)}
    assert by_query[0] == {6: 6, 12: 12, 18: 12, 24: 12}


def test_estimates_depend_on_the_values_alone():
    plan = plan_of(Sliding(100, 100), Aggregate("approx_count_distinct", column("x"), parameters=(0.05,)))
    generator = np.random.default_rng(5)
    rows = [
        row(int(t), x=int(x))
        for t, x in zip(generator.integers(0, 100, 4000), generator.integers(0, 3000, 4000), strict=True)
    ]
    estimates = set()
    for pieces in (1, 2, 7):
        generator.shuffle(rows)
        state = [partials(plan, table(plan, rows[n::pieces])) for n in range(pieces)]
        (closed,) = close(plan, state, NEVER, FOREVER)
        estimates.add(closed.table.column("a0")[0].as_py())
    assert len(estimates) == 1
    exact = len({r["x"] for r in rows})
    assert abs(estimates.pop() - exact) < 4 * 0.05 * exact


def test_quantiles_are_within_the_error_of_ranks():
    plan = plan_of(Sliding(100, 50), Aggregate("approx_percentile", column("x"), parameters=(50, 0.1, 0.5, 0.99)))
    generator = np.random.default_rng(6)
    rows = [
        row(int(t), x=int(x))
        for t, x in zip(generator.integers(0, 100, 5000), generator.permutation(5000), strict=True)
    ]
    state = [partials(plan, table(plan, rows[n::4])) for n in range(4)]
    (closed,) = close(plan, state, 50, 100)
    values = np.sort([r["x"] for r in rows])
    for share, found in zip((0.1, 0.5, 0.99), closed.table.column("a0")[0].as_py(), strict=True):
        # Three times the error that was asked for: it holds for most sketches, not for all.
        assert abs(np.searchsorted(values, found) / len(values) - share) < 3 / 50


def test_a_sum_that_does_not_fit_is_null_and_leaves_its_neighbours_alone():
    plan = plan_of(Sliding(2, 1), Aggregate("sum", column("x")))
    state = partials(plan, table(plan, [row(0, x=2**63 - 1), row(1, x=2**63 - 1), row(2, x=-5)]))
    (closed,) = close(plan, [state], NEVER, FOREVER)
    assert closed.table.column("a0").to_pylist() == [2**63 - 1, None, 2**63 - 6, -5]


def test_types_are_those_of_spark():
    functions = {
        "sum": {"x": pa.int64(), "i": pa.int64(), "d": pa.float64(), "m": pa.decimal128(22, 2)},
        "avg": {"x": pa.float64(), "d": pa.float64(), "m": pa.decimal128(16, 6)},
        "max": {"x": pa.int64(), "i": pa.int32(), "d": pa.float64(), "m": pa.decimal128(12, 2), "s": pa.string()},
        "count": {"s": pa.int64()}, "stddev_samp": {"i": pa.float64()}, "first": {"s": pa.string()},
    }  # fmt: skip
    cases = [(f, c, kind) for f, columns in functions.items() for c, kind in columns.items()]
    plan = plan_of(Sliding(2, 1), *(Aggregate(f, column(c)) for f, c, _ in cases))
    (closed,) = close(plan, [partials(plan, table(plan, [row(0)]))], NEVER, FOREVER)
    assert [closed.table.schema.field(f"a{n}").type for n in range(len(cases))] == [kind for _, _, kind in cases]


def test_nothing_comes_of_nothing():
    plan = plan_of(Sliding(2, 1))
    empty = partials(plan, table(plan, []))
    assert len(empty) == 0
    assert close(plan, [empty], NEVER, FOREVER) == []
    assert expire(plan, [empty], 5) is None
