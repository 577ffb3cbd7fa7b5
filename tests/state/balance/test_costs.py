"""What buckets cost, and what tasks have of it."""

import numpy as np
import pytest
from hypothesis import given, settings

from penstock.state.balance.costs import COPY, PRICES, costs_of, excess, loads_of, smoothed
from penstock.state.bucket_counters import BucketCounters
from penstock.state.buckets import BucketMap, Split
from tests.effort import examples
from tests.state.balance import scenes


def test_a_bucket_costs_its_counters_times_their_prices():
    found = costs_of(BucketCounters(rows=(0, 3), probed=(5, 0), compared=(0, 2), results=(0, 7)), 2)
    assert found.own.tolist() == [0.0, 3 * PRICES.row]
    assert found.shared.tolist() == pytest.approx([5 * PRICES.probed, 2 * PRICES.compared + 7 * PRICES.result])
    assert found.results.tolist() == [0, 7]


@settings(max_examples=examples(100))
@given(scenes.split_maps(), scenes.costs())
def test_the_loads_of_all_tasks_are_the_costs_of_all_buckets(of, known):
    loads = loads_of(of, known)
    assert len(loads) == of.tasks
    copies = sum(len(set(s.turns) - {of.owner_of[s.bucket]}) * COPY * known.own[s.bucket] for s in of.splits)
    assert loads.sum() == pytest.approx(known.whole.sum() + copies)
    assert (loads >= 0).all()


def test_tasks_share_the_probes_of_a_split_bucket_by_turns_and_its_owner_has_the_rows():
    known = scenes.costs_of([1, 1, 1, 1], [0, 8, 0, 0])
    of = BucketMap((0, 2), 4, (Split(1, (0, 1, 1, 1)),))
    assert loads_of(of, known).tolist() == [2 + 2, 2 + 6 + COPY]
    assert loads_of(of.unsplit, known).tolist() == [10, 2]
    assert excess(loads_of(of.unsplit, known)) == pytest.approx(10 / 6 - 1)


def test_older_steps_count_less_and_bytes_are_the_last_ones():
    one = costs_of(BucketCounters(rows=(4, 0), stored=(9, 9)), 2)
    other = costs_of(BucketCounters(rows=(0, 4)), 2)
    mixed = smoothed(one, other, 0.25)
    assert mixed.own.tolist() == pytest.approx([3 * PRICES.row, PRICES.row])
    assert mixed.stored.tolist() == [9, 9]
    assert smoothed(None, one, 0.25) is one


def test_without_costs_no_task_has_more_than_the_others():
    assert excess(np.zeros(3)) == 0
