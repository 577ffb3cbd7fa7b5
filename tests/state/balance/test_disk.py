"""Lazy-disk and active-disk (Liu 2005, 6.3)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.balance.active_disk import active_disk
from penstock.state.balance.decision import Parameters
from penstock.state.balance.lazy_disk import lazy_disk, short_of_memory, to_disk
from penstock.state.balance.pairwise import pairwise
from penstock.state.buckets import BucketMap
from tests.effort import examples
from tests.state.balance.scenes import costs_of

OF = BucketMap.even(2, 4)
EVEN = [1.0] * 4
SHORT = Parameters(theta_r=0.5, tau_m=1.0, least=1e-9, memory=100.0, theta_s=0.9, spill=0.3)


def test_the_least_productive_buckets_of_a_task_go_first_and_the_first_of_equal_ones():
    costs = costs_of(EVEN, results=[9, 1, 5, 5], stored=[50, 50, 10, 10])
    assert lazy_disk(OF, costs, 9.0, SHORT)[1].spilled == (1,)
    equal = costs_of(EVEN, results=[3, 3, 5, 5], stored=[50, 50, 10, 10])
    assert lazy_disk(OF, equal, 9.0, SHORT)[1].spilled == (0,)
    assert lazy_disk(OF, costs, 9.0, SHORT, spilled=(1,))[1].spilled == ()


def test_a_task_that_takes_part_in_a_relocation_does_not_spill():
    costs = costs_of([2, 6, 1, 1], results=EVEN, stored=[50, 50, 50, 50])
    of = BucketMap((0, 2, 3), 4)
    found, decision = lazy_disk(of, costs, 9.0, SHORT)
    assert (found, decision.action) == (pairwise(of, costs, 9.0, SHORT)[0], "moved")
    assert found.starts == (0, 1, 3)
    assert decision.spilled == ()
    assert short_of_memory(of, costs, SHORT, ()) == (0,)


@settings(max_examples=examples(100))
@given(
    st.lists(st.integers(0, 9), min_size=8, max_size=8), st.lists(st.integers(0, 9), min_size=8, max_size=8),
    st.sampled_from((0.1, 0.3, 1.0)), st.sets(st.integers(0, 7)),
)  # fmt: skip
def test_a_spill_is_large_enough_and_by_less_than_one_bucket_too_large(results, stored, share, spilled):
    of, costs = BucketMap.even(2, 8), costs_of([1.0] * 8, results=results, stored=stored)
    for task in range(2):
        own = [b for b in range(4 * task, 4 * task + 4) if b not in spilled]
        resident = sum(stored[b] for b in own)
        found = to_disk(of, costs, task, share * resident, spilled)
        moved = [stored[b] for b in found]
        assert set(found) <= set(own)
        assert sum(moved) >= share * resident - 1e-9
        assert not moved or sum(moved[:-1]) < share * resident
        left = [costs.productivity[b] for b in own if b not in found and stored[b]]
        assert not found or not left or max(costs.productivity[b] for b in found) <= min(left)


def test_where_loads_are_even_the_least_productive_task_is_forced_to_spill():
    costs = costs_of(EVEN, results=[9, 9, 1, 2], stored=[10, 10, 10, 10])
    known = Parameters(theta_r=0.5, least=1e-9, lambda_r=2.0, forced=100.0)
    found, decision = active_disk(OF, costs, 99.0, known)
    assert (found, decision.spilled) == (OF, (2,))
    assert "task 1 has 6.0 times fewer results" in decision.reason
    assert active_disk(OF, costs, 99.0, known, forced=100.0)[1].spilled == ()
    assert active_disk(OF, costs, 99.0, Parameters(theta_r=0.5, least=1e-9, lambda_r=7.0))[1].spilled == ()


def test_without_any_results_in_a_task_it_is_forced_within_the_limit():
    costs = costs_of(EVEN, results=[9, 9, 0, 0], stored=[10, 10, 10, 10])
    known = Parameters(theta_r=0.5, least=1e-9, spill=1.0, forced=15.0)
    assert active_disk(OF, costs, 99.0, known)[1].spilled == (2, 3)
    assert active_disk(OF, costs, 99.0, known, forced=14.0)[1].spilled == (2,)


def test_a_relocation_comes_before_a_forced_spill():
    costs = costs_of([3, 6, 1, 1], results=[9, 9, 0, 0], stored=[10, 10, 10, 10])
    _, decision = active_disk(BucketMap((0, 2), 4), costs, 99.0, Parameters(least=1e-9))
    assert (decision.action, decision.spilled) == ("moved", ())


def test_a_bucket_without_bytes_has_nothing_to_spill():
    costs = costs_of(EVEN, results=[0, 1, 0, 0], stored=[0, 99, 0, 0])
    assert np.isinf(costs.productivity[0])
    assert short_of_memory(OF, costs, SHORT, ()) == (1,)
    assert to_disk(OF, costs, 1, 1.0, ()) == []
    assert costs.productivity[1] == pytest.approx(1 / 99)
