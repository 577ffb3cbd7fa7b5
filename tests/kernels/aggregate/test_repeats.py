"""Runs of windows written out, cut and counted: as if every window were a row, whatever their number."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.aggregate import results
from penstock.kernels.aggregate.close import close, gather, partials
from penstock.kernels.aggregate.early import marked, open_windows
from penstock.kernels.aggregate.flush import Cap, flush
from penstock.kernels.aggregate.panes import assembled, closed_panes, window_counts
from penstock.kernels.aggregate.repeats import RUN, cut, written_out
from penstock.kernels.aggregate.results import total_of
from penstock.model import Aggregate, Aggregation, Landmark, PerRow, Sliding, SortKey, Top
from penstock.model.expression import AGGREGATE_ROLE
from penstock.model.limits import MOST_BUILT
from penstock.model.time import EARLIEST, FOREVER, LATEST, NEVER
from penstock.planner.aggregates import plan_aggregates
from tests.kernels.aggregate.scenes import TYPES, column, items, table_of

COUNT = Aggregate("count", None)
RUNS = st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 9)), max_size=6)
WINDOWS = st.builds(Sliding, st.integers(1, 9), st.integers(1, 4), st.none() | st.integers(-9, 9))
FAR = 2**60


def table(rows, window):
    begins = [
        end - window.range if window.origin is None else max(end - window.range, window.origin) for end, _ in rows
    ]
    columns = {"window_start": begins, "window_end": [end for end, _ in rows], RUN: [n for _, n in rows]}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def each(rows, window):
    ends = [end + k * window.slide for end, count in rows for k in range(count)]
    return [
        (end - window.range if window.origin is None else max(end - window.range, window.origin), end) for end in ends
    ]


def shown(tables):
    return [(r["window_start"], r["window_end"]) for t in tables for r in t.to_pylist()]


@given(RUNS, WINDOWS, st.integers(1, 12), st.integers(-30, 50), st.integers(-30, 50))
def test_runs_are_written_out_in_tables_of_bounded_size(rows, window, at_once, first, before):
    runs = table(rows, window)
    pieces = list(written_out(runs, window, at_once))
    assert shown(pieces) == each(rows, window)
    assert all(0 < len(piece) <= at_once for piece in pieces)
    part = written_out(cut(runs, window, first, before), window, at_once)
    assert shown(part) == [w for w in each(rows, window) if first <= w[1] < before]
    assert cut(runs, window, NEVER, FOREVER) is runs


def test_of_a_run_without_end_only_what_is_asked_for_is_built():
    window = Sliding(5, 1)
    runs = table([(0, 7), (100, 2**61)], window)
    pieces = written_out(runs, window, 10)
    assert [len(next(pieces)) for _ in range(3)] == [7, 10, 10]
    (rest,) = written_out(cut(runs, window, 10**15, 10**15 + 3), window, 10)
    assert rest.column("window_end").to_pylist() == [10**15, 10**15 + 1, 10**15 + 2]
    assert total_of(np.array([2**62] * 3)) == 3 * 2**62


def plan_of(window, *aggregates, groups=(), **more):
    aggregation = Aggregation(window, items(*groups), aggregates or (COUNT,), None, **more)
    return plan_aggregates({1: aggregation}, {column(n): t for n, t in TYPES.items()})[0]


def row(ts):
    return {"ts": ts, "k": 1, "p": None, "x": ts % 5, "i": 1, "d": 0.5, "m": None, "s": "a", "w": None}


def state_of(plan, *times, groups=()):
    return partials(plan, table_of([column(g) for g in groups], plan, [row(t) for t in times], ((),)))


@pytest.mark.parametrize("window", [Landmark(1), Sliding(2 * FAR, 1)])
def test_windows_of_one_content_are_one_row_however_many_they_are(window):
    plan = plan_of(window)
    state = state_of(plan, -FAR, 0, FAR)
    (closed,) = close(plan, [state], NEVER, FOREVER, runs=True)
    assert len(closed.table) <= 6
    assert total_of(closed.table.column(RUN).to_numpy()) >= 2 * FAR
    (alone,) = close(plan, [state], NEVER, FOREVER)
    assert "windows that it needs one by one, of which a task can build" in alone.refused
    assert len(alone.table) == 0


def test_panes_are_counted_and_put_together_without_building_windows():
    plan = plan_of(Sliding(FAR, 1))
    state = state_of(plan, EARLIEST, 0, LATEST)
    panes = closed_panes(plan, [state], plan.queries, NEVER, FOREVER)
    found = assembled(
        plan, panes.rename_columns(panes.column_names), [(0, NEVER, 7), (1, 7, 10), (2, 10, FOREVER)], NEVER
    )
    assert window_counts(plan, [state], [(plan.queries[0], NEVER)], NEVER, FOREVER) == [3 * FAR]
    assert total_of(found.column(RUN).to_numpy()) == 3 * FAR
    by_step = dict.fromkeys(range(3), 0)
    for step, count in zip(found.column("_step").to_pylist(), found.column(RUN).to_pylist(), strict=True):
        by_step[step] += count
    assert by_step == {0: FAR + 7, 1: 3, 2: 2 * FAR - 10}


def test_open_windows_are_runs_too():
    plan = plan_of(Sliding(FAR, 1))
    gathered = gather(plan, [marked(state_of(plan, 0, 5), 3)])
    early = open_windows(gathered, plan.queries[0], 0, 2, runs=True)
    assert len(early.table) == 3
    assert total_of(early.table.column(RUN).to_numpy()) == FAR + 5
    assert open_windows(gathered, plan.queries[0], 0, 2).refused


def test_a_few_results_at_a_time_are_cut_from_runs():
    plan = plan_of(Landmark(1))
    gathered = gather(plan, [state_of(plan, 0, FAR)])
    (closed,), reached = flush(gathered, plan.queries[0], [], (0, None), FAR, Cap(5, FAR + 10))
    assert closed.table.column("window_end").to_pylist() == [1, 2, 3, 4, 5]
    assert (reached.until, closed.refused) == (4, None)  # of the next window the keys below the bound are out
    (closed,), _ = flush(gathered, plan.queries[0], [], (0, None), FAR, Cap(5, 3))
    assert closed.refused


def test_lists_and_windows_of_rows_are_counted_before_they_are_built(monkeypatch):
    monkeypatch.setattr(results, "MOST_BUILT", 20)
    many = range(8)
    for plan, what in (
        (plan_of(Landmark(1), Aggregate("collect_list", column("x"))), "items of lists"),
        (plan_of(Landmark(1), Aggregate("sum", column("x"), distinct=True)), "distinct values in windows"),
        (plan_of(PerRow(5), groups=("k",)), None),
    ):
        (closed,) = close(plan, [state_of(plan, *many, groups=("k",) if what is None else ())], NEVER, FOREVER)
        assert (closed.refused is None) == (what is None)
        assert what is None or what in closed.refused
    assert MOST_BUILT > 20


def test_the_first_groups_of_each_window_are_not_looked_for_among_too_many():
    key = SortKey(column("a0", AGGREGATE_ROLE))
    plan = plan_of(Landmark(1), groups=("k",), top=Top((key,), 1))
    (closed,) = close(plan, [state_of(plan, 0, FAR, groups=("k",))], NEVER, FOREVER)
    assert "windows that it needs one by one" in closed.refused
