"""Intervals between steps: the longest that keep the bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.pace import POLLING, Pace, Turn, longest_delay, longest_delays, percentile


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


def looks(arrivals, trigger, steps, wait=0.0):
    """Spark's looks, one by one: turns, and for each the longest that one of its rows took from arrival to results."""
    turns, found, clock, left = [], [], 0.0, sorted(arrivals)
    for step in steps:
        while left and clock < left[0]:  # nothing to find: no batch
            clock = max(clock + trigger, left[0] - (left[0] - clock) % trigger)
        rows = [a for a in left if a <= clock]
        if not rows:
            break
        left = left[len(rows) :]
        turns.append(Turn(clock, clock + step, clock + step + wait))
        found.append(max(clock + step - a for a in rows))
        clock = max(clock + trigger, clock + step + wait)
    return turns, found


@given(
    st.lists(st.floats(0.0, 40.0), min_size=1, max_size=12),
    st.floats(POLLING, 3.0),
    st.lists(st.floats(0.01, 4.0), min_size=12, max_size=12),
    st.floats(0.0, 3.0),
)
def test_no_row_takes_longer_than_is_told_and_what_is_told_is_a_look_and_a_step(arrivals, trigger, steps, wait):
    turns, took = looks(arrivals, trigger, steps, wait)
    told = longest_delays(turns, trigger)
    assert len(told) == max(0, len(turns) - 1)
    for own, delay, before, turn in zip(took[1:], told, turns[:-1], turns[1:], strict=True):
        assert own <= delay + 1e-6
        assert delay <= max(trigger, before.returned - before.planned) + turn.done - turn.planned + 1e-9


@pytest.mark.parametrize("trigger", [0.1, 1.0, 60.0])
def test_a_pause_is_no_delay(trigger):
    before = Turn(1000.0, 1000.2, 1000.2)
    after = Turn(1000.0 + 3600 * 24, 1000.3 + 3600 * 24, 1000.3 + 3600 * 24)
    assert longest_delay(before, after, trigger) == pytest.approx(trigger + 0.3)


def test_a_pause_without_a_trigger_is_as_long_as_spark_rests():
    assert longest_delay(Turn(0, 2, 5), Turn(3600, 3600.5, 3600.5), 0.0) == pytest.approx(POLLING + 0.5)


def test_a_row_that_came_during_a_step_has_waited_for_it():
    assert longest_delay(Turn(0.0, 2.0, 2.0), Turn(2.05, 3.05, 3.05), 0.1) == pytest.approx(2.0 + 1.0)


def test_percentiles():
    assert percentile([], 0.5) is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(100)], 0.99) == 99.0
