"""Bins, one row at a time, give what the definition of windows that end with each row gives."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.model import PerRow
from penstock.model.time import FOREVER
from penstock.reference import aggregate_results
from penstock.reference.bins import Bins
from tests.aggregates import STREAMS, Case


def largest(state, value):
    return value if state is None else max(state, value)


@given(st.integers(1, 8), st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=4), max_size=5))
def test_bins_give_the_windows_of_rows_in_any_order_of_arrival(length, steps):
    """The rows of each step lie at or after the progress that the step before left, in any order."""
    bins = Bins(length, None, largest)
    rows, found, reached = [], [], 0
    for step in steps:
        for after, value in step:
            bins.row(reached + after, value)
            rows.append((reached + after, value))
        reached = max([reached, *(reached + after - 2 for after, _ in step)])
        found += bins.progress(reached)
        case = Case(PerRow(length), (), ("max(v)",))
        given_rows = [{"t": t, "k": None, "g": None, "v": v, "x": None} for t, v in rows]
        closed = aggregate_results(case.query, STREAMS, {"s": given_rows}, {"s": reached})
        assert sorted(found) == sorted((end, value) for _, end, value in closed)
    bins.progress(FOREVER)
    assert not bins.times
    assert not bins.states
    assert not bins.results


def test_the_worked_example():
    """Three rows in order, one beyond the end of the first, then a late one between the first two."""
    bins = Bins(10, 0, lambda state, _: state + 1)
    for time in (1, 4, 7):
        bins.row(time, None)
    assert [bins.states[t] for t in (1, 4, 7, 11, 14)] == [1, 2, 3, 2, 1]
    bins.row(12, None)
    assert bins.states[12] == 3
    bins.row(2, None)
    assert [bins.states[t] for t in (1, 2, 4, 7, 11, 12)] == [1, 2, 3, 4, 3, 3]
    assert bins.progress(5) == [(1, 1), (2, 2), (4, 3)]
    assert bins.base == 3
    bins.row(5, None)
    assert bins.progress(6) == [(5, 4)]


def test_rows_of_one_time_have_a_result_each():
    bins = Bins(5, 0, lambda state, _: state + 1)
    bins.row(3, None)
    bins.row(3, None)
    assert bins.progress(4) == [(3, 2), (3, 2)]
