"""Counters by bucket."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.bucket_counters import COUNTERS, BucketCounters, BucketTally, edges_of, together
from penstock.state.buckets import bucket_of

KEYS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60)


@given(KEYS, st.sampled_from((2, 16, 256)))
def test_keys_are_counted_by_their_bucket_sorted_or_not(drawn, buckets):
    keys = np.array(drawn, dtype=np.int64)
    one, other = BucketTally(buckets), BucketTally(buckets)
    one.add_sorted("rows", np.sort(keys))
    other.add_keys("rows", keys)
    wanted = np.bincount(bucket_of(keys, buckets), minlength=buckets)
    assert one.told() == other.told()
    assert one.told().of("rows", buckets).tolist() == wanted.tolist()
    edges = edges_of(np.sort(keys), buckets)
    assert (edges[0], edges[-1], len(edges)) == (0, len(keys), buckets + 1)


@given(KEYS, st.integers(1, 1000))
def test_bytes_are_shared_by_the_rows_of_a_bucket(drawn, size):
    tally = BucketTally(16)
    for part in (drawn, drawn):
        tally.add_sorted("written", np.sort(np.array(part, dtype=np.int64)), size / max(1, len(drawn)))
    assert abs(tally.told().of("written", 16).sum() - (2 * size if drawn else 0)) <= 16


def test_a_counter_that_is_zero_everywhere_is_left_out():
    tally = BucketTally(4)
    tally.add("compared", np.zeros(4, dtype=np.int64))
    assert tally.told() == BucketCounters()
    assert BucketCounters().of("rows", 4).tolist() == [0, 0, 0, 0]


def test_the_counters_of_tasks_add_up():
    one, other = BucketCounters(rows=(1, 2), probed=(3, 0)), BucketCounters(rows=(0, 5), results=(1, 1))
    assert together([one, other]) == BucketCounters(rows=(1, 7), probed=(3, 0), results=(1, 1))
    assert together([one]) is one
    assert together([]) == BucketCounters()
    assert COUNTERS == ("rows", "probed", "candidates", "compared", "results", "written", "stored")
