"""Overload begins after several slow steps, and ends after several short ones, group by group."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.deferral.loads import Load
from penstock.planner.deferral.overload import Overload, Parameters, Seen, after

LOADS = tuple(Load(size=10, work=10, output=number) for number in range(10))
CALM, SLOW, BETWEEN = 0.5, 1.1, 0.9


def run(overload, *seconds, reachable=0.0):
    decisions = []
    for step, taken in enumerate(seconds):
        overload, decision = after(overload, Seen(step, taken, 1.0, LOADS, reachable))
        if decision is not None:
            decisions.append((step, decision))
    return overload, decisions


def test_the_least_productive_share_is_put_off_after_several_slow_steps_in_a_row():
    overload, decisions = run(Overload(Parameters()), SLOW, SLOW, BETWEEN, SLOW, SLOW, SLOW)
    assert overload.put_off == {0, 1, 2}
    ((step, decision),) = decisions
    assert step == 5
    assert (decision.before, decision.after, decision.share) == ("0 buckets", "3 buckets", 0.3)
    assert decision.reason == "3 steps in a row took longer than 1 s"


def test_more_is_put_off_while_it_is_not_enough_and_at_last_nothing_is_left():
    overload, decisions = run(Overload(Parameters(steps=1)), *[SLOW] * 20)
    assert overload.put_off == set(range(10))
    assert [len(group) for group in overload.groups] == [3, 3, 2, 1, 1]
    assert len(decisions) == 5


def test_short_steps_take_back_one_group_after_the_other_and_those_between_change_nothing():
    loaded, _ = run(Overload(Parameters(steps=2)), *[SLOW] * 4)
    assert len(loaded.groups) == 2
    same, decisions = run(loaded, *[BETWEEN] * 9)
    assert (same.groups, decisions) == (loaded.groups, [])
    one, decisions = run(loaded, CALM, BETWEEN, CALM, CALM)
    assert one.groups == loaded.groups[:1]
    assert decisions[0][1].reason == "2 steps in a row took less than 70% of 1 s"
    none, _ = run(one, CALM, CALM)
    assert none.put_off == frozenset()


def test_a_rate_that_needs_too_much_state_is_an_overload_too():
    overload, decisions = run(Overload(Parameters(steps=2, budget=100.0)), CALM, CALM, reachable=500.0)
    assert overload.put_off
    assert "500 bytes of state, more than 100" in decisions[0][1].reason
    still, _ = run(overload, CALM, CALM, reachable=90.0)  # not well below
    assert still.put_off == overload.put_off


@given(st.lists(st.sampled_from([CALM, BETWEEN, SLOW]), max_size=60), st.integers(1, 4))
def test_a_change_needs_its_steps_in_a_row_and_is_always_a_decision(seconds, steps):
    overload, decisions = run(Overload(Parameters(steps=steps)), *seconds)
    for step, decision in decisions:
        last = seconds[step - steps + 1 : step + 1]
        assert last in ([SLOW] * steps, [CALM] * steps)
        assert decision.before != decision.after
    assert len(overload.groups) <= len(decisions)


@pytest.mark.parametrize(
    "wrong",
    [{"selector": "best"}, {"share": 0.0}, {"share": 1.1}, {"calm": 0.0}, {"steps": 0}, {"budget": 0}, {"seconds": 0}],
)
def test_senseless_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Parameters(**wrong)


def test_without_a_limit_nothing_is_ever_put_off():
    overload, decision = after(Overload(Parameters(steps=1)), Seen(0, 99.0, inf, LOADS))
    assert decision is None
    assert replace(overload, loads=()).put_off == frozenset()
