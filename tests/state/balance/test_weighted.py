"""Weighted cuts are the best consecutive ones; hot buckets are split, and whole again when they are not hot."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.state.balance.costs import excess, loads_of
from penstock.state.balance.cuts import cuts, split_cuts
from penstock.state.balance.decision import Parameters
from penstock.state.balance.weighted import weighted
from penstock.state.buckets import BucketMap, Split
from tests.effort import examples
from tests.state.balance import scenes
from tests.state.balance.scenes import costs_of

EAGER = Parameters(theta_r=1.0, tau_m=1.0, least=1e-9)


def squares(costs, starts):
    return sum(part.sum() ** 2 for part in np.split(costs, starts[1:]))


@settings(max_examples=examples(100))
@given(scenes.costs(buckets=8), st.integers(1, 4))
def test_no_other_cuts_have_a_lesser_sum_of_squares(costs, tasks):
    found = cuts(costs.whole, tasks)
    assert (found[0], len(found)) == (0, tasks)
    others = [(0, *rest) for rest in combinations(range(1, 8), tasks - 1)]
    least = min(squares(costs.whole, other) for other in others)
    assert found in others
    assert squares(costs.whole, found) <= least * (1 + 1e-4) + 1e-9


def test_equal_buckets_are_cut_evenly():
    assert cuts(np.ones(256), 4) == BucketMap.even(4).starts
    assert cuts(np.zeros(256), 4) == BucketMap.even(4).starts
    assert cuts(np.ones(4), 6) == BucketMap.even(6, 4).starts


@settings(max_examples=examples(200))
@given(scenes.maps(), scenes.costs(), st.booleans())
def test_a_change_lowers_the_largest_load(of, costs, split):
    before = loads_of(of, costs)
    found, decision = weighted(of, costs, 10.0, Parameters(theta_r=1.0, tau_m=1.0, least=1e-9, split=split))
    event(decision.action)
    if decision.action == "moved":
        assert loads_of(found, costs).max() < before.max()
        assert (split and decision.split) or not found.splits
        assert decision.skew == pytest.approx((1 + excess(before), 1 + excess(loads_of(found, costs))))
    else:
        assert found == of


@settings(max_examples=examples(200))
@given(scenes.costs(), st.integers(1, 8))
def test_a_cut_within_a_hot_bucket_makes_neighbours_take_turns(costs, tasks):
    found = split_cuts(costs, tasks)
    assert found.tasks == tasks
    for split in found.splits:
        assert costs.shared[split.bucket] > 0
        turns = list(split.turns)
        assert turns == sorted(turns)
        assert set(turns) == set(range(turns[0], turns[-1] + 1))
        assert found.owner_of[split.bucket] == turns[-1]


def test_one_bucket_of_probes_is_shared_by_any_number_of_tasks():
    for hot in (0, 7, 15):
        probes = [1.0] * 16
        probes[hot] = 400.0
        costs = costs_of([0.0] * 16, probes)
        for tasks in (2, 5, 16):
            assert excess(loads_of(split_cuts(costs, tasks), costs)) < 0.1


def test_probes_of_one_hot_bucket_are_shared_by_all_tasks():
    costs = costs_of([0.0, 0.1, 0.0, 0.0], [1.0, 96.0, 1.0, 1.0])
    found, decision = weighted(BucketMap.even(4, 4), costs, 10.0, EAGER)
    assert [s.bucket for s in found.splits] == [1]
    assert set(found.splits[0].turns) == {0, 1, 2, 3}
    assert excess(loads_of(found, costs)) < 0.1 < excess(loads_of(BucketMap.even(4, 4), costs))
    assert decision.split == (1,)


def test_a_bucket_of_rows_that_hardly_probe_stays_whole():
    found, decision = weighted(BucketMap.even(2, 4), costs_of([1, 90, 1, 1], [1, 2, 1, 1]), 10.0, EAGER)
    assert (found.splits, decision.action) == ((), "refused")
    assert "bucket 1 alone" in decision.reason


def test_a_bucket_that_is_no_longer_hot_is_whole_again():
    of = BucketMap.even(2, 4)
    split = BucketMap(of.starts, 4, (Split(1, (0, 1)),))
    costs = costs_of([0.0] * 4, [1.0] * 4)
    known = Parameters(theta_r=0.5, tau_m=5.0, least=1e-9)
    assert weighted(split, costs, 4.0, known)[0] == split
    found, decision = weighted(split, costs, 5.0, known)
    assert (found, decision.action) == (of, "moved")
    assert "no longer hot" in decision.reason
