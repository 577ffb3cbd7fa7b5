"""Intervals between steps: the longest that keep the bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.pace import Pace, percentile


def steady(bound, fixed, each, rate, steps=40):
    """An engine whose steps cost what they cost, under a steady rate, waiting as it is told."""
    pace = Pace(bound)
    interval, spans = 0.2, []
    for number in range(steps):
        rows = rate * interval * (1 + 0.1 * (number % 3))
        seconds = fixed + each * rows
        span = max(interval, seconds)
        pace.observe(rows, seconds, span)
        interval = max(seconds, seconds + pace.wait(seconds))
        spans.append(interval)
    return pace, spans


def test_costs_are_those_of_the_steps():
    pace, _ = steady(bound=2.0, fixed=0.3, each=1e-6, rate=100_000)
    fixed, each = pace.costs
    assert fixed == pytest.approx(0.3, rel=1e-3)
    assert each == pytest.approx(1e-6, rel=1e-3)


@given(bound=st.floats(0.5, 10), fixed=st.floats(0.05, 0.4), each=st.floats(0, 2e-6), rate=st.floats(1, 300_000))
def test_a_row_is_answered_within_the_bound_and_no_sooner_than_need_be(bound, fixed, each, rate):
    pace, _ = steady(bound, fixed, each, rate)
    # The longest wait is the interval, then a step over all rows of it.
    assert pace.interval + fixed + each * pace.rate * pace.interval == pytest.approx(bound, rel=0.02)


def test_an_engine_that_cannot_keep_the_bound_does_not_wait():
    pace, _ = steady(bound=0.2, fixed=0.3, each=0.0, rate=10)
    assert pace.interval == 0
    assert pace.wait(0.3) == 0


def test_nothing_known_means_the_whole_bound():
    assert Pace(3.0).interval == 3.0
    assert Pace(3.0).rate == 0


def test_percentiles():
    assert percentile([], 0.5) is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(100)], 0.99) == 99.0
