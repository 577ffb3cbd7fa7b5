"""Pair-wise averaging (Liu 2005, 6.2; Theorem 6.1)."""

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from penstock.state.balance.costs import deviation, loads_of
from penstock.state.balance.decision import Parameters
from penstock.state.balance.pairwise import pairwise
from penstock.state.buckets import BucketMap
from tests.effort import examples
from tests.state.balance import scenes
from tests.state.balance.scenes import costs_of

EAGER = Parameters(theta_r=1.0, tau_m=1.0, least=1e-9)


@settings(max_examples=examples(200))
@given(scenes.maps(least=2), scenes.costs())
def test_a_step_lowers_the_sum_of_squared_deviations_or_is_refused(of, costs):
    before = loads_of(of, costs)
    found, decision = pairwise(of, costs, 10.0, EAGER)
    event(decision.action)
    if decision.action == "moved":
        assert deviation(loads_of(found, costs)) < deviation(before)
        assert all(low < high for low, high in zip(found.starts, (*found.starts[1:], found.buckets), strict=True))
        assert decision.moved == pytest.approx(float((before - loads_of(found, costs))[before.argmax()]))
    else:
        assert found == of
        assert decision.action == "refused" or before.min() == before.max() or not before.any()


@settings(max_examples=examples(100))
@given(scenes.maps(buckets=256, least=2), st.lists(st.integers(1, 9), min_size=5, max_size=5))
def test_with_small_buckets_it_drops_by_half_of_the_squared_gap(of, weights):
    """Each bucket of a task costs the same; there are many, so half of the gap is nearly met."""
    sizes = np.diff([*of.starts, of.buckets])
    assume(sizes.min() > 20)
    each = np.concatenate([np.full(n, w / n) for n, w in zip(sizes, weights, strict=False)])
    costs = costs_of(each.tolist())
    before = loads_of(of, costs)
    gap = before.max() - before.min()
    assume(gap > 0.5)
    found, decision = pairwise(of, costs, 10.0, EAGER)
    assert decision.action == "moved"
    drop = deviation(before) - deviation(loads_of(found, costs))
    assert drop == pytest.approx(gap**2 / 2, rel=0.05, abs=before.max() / 4)


def test_repeated_steps_converge():
    rng = np.random.default_rng(1)
    costs, of = costs_of((rng.random(256) * np.linspace(0, 1, 256) ** 4).tolist()), BucketMap.even(6)
    for _ in range(40):
        of, decision = pairwise(of, costs, 10.0, EAGER)
        if decision.action != "moved":
            break
    loads = loads_of(of, costs)
    assert loads.max() < 1.1 * loads.mean()


def test_what_moves_between_two_tasks_leaves_those_in_between_as_they_were():
    costs = costs_of([1.0] * 12)
    found, decision = pairwise(BucketMap((0, 6, 8, 11), 12), costs, 10.0, EAGER)
    assert (found.starts, decision.moved) == ((0, 4, 6, 9), 2.0)
    found, _ = pairwise(BucketMap((0, 6, 8, 10), 12), costs, 10.0, EAGER)
    assert found.starts == (0, 4, 8, 10)  # of equal loads the first task receives
    found, _ = pairwise(BucketMap((0, 1, 4, 6), 12), costs, 10.0, EAGER)
    assert np.diff([*found.starts, 12]).tolist() == [3, 3, 2, 4]


def test_a_bucket_larger_than_the_gap_stays():
    found, decision = pairwise(BucketMap((0, 2), 4), costs_of([0, 10, 4, 0]), 10.0, EAGER)
    assert (found.starts, decision.action) == ((0, 2), "refused")
    assert "less than the gap" in decision.reason


def test_nothing_moves_between_loads_that_are_even_enough_or_too_soon():
    of, costs = BucketMap((0, 3), 4), costs_of([1.0] * 4)
    known = Parameters(theta_r=0.3, tau_m=5.0, least=1e-9)
    assert pairwise(of, costs, 10.0, known)[1].reason == "the least load is 0.33 of the largest, at least 0.3"
    known = Parameters(theta_r=0.5, tau_m=5.0, least=1e-9)
    assert pairwise(of, costs, 4.0, known)[1].action == "kept"
    assert pairwise(of, costs, 5.0, known)[1].action == "moved"
    assert pairwise(of, costs, 5.0, Parameters(least=9.0))[1].action == "kept"
    assert pairwise(BucketMap((0,), 4), costs, 5.0, known)[1].action == "kept"
