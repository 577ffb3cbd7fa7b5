import random

import numpy as np
import pytest

from penstock.state.buckets import BUCKETS, BucketMap, bucket_of, first_key


@pytest.mark.parametrize("buckets", [2, 16, BUCKETS, 1 << 12])
def test_buckets_are_ranges_of_hashes_of_equal_size(buckets):
    size = (1 << 64) // buckets
    for bucket in {0, buckets // 2, buckets - 1}:
        first = first_key(bucket, buckets)
        keys = np.array([first, first + size - 1], dtype=np.int64)
        assert bucket_of(keys, buckets).tolist() == [bucket, bucket]
    assert first_key(0, buckets) == -(2**63)


@pytest.mark.parametrize("tasks", [*range(1, 18), 255, 256])
def test_tasks_cover_all_buckets_evenly(tasks):
    ranges = BucketMap.even(tasks).ranges
    assert (ranges[0][0], ranges[-1][1]) == (-(2**63), None)
    assert [high for _, high in ranges[:-1]] == [low for low, _ in ranges[1:]]
    firsts = np.array([first_key(bucket) for bucket in range(BUCKETS)], dtype=np.int64)
    owned = np.bincount(BucketMap.even(tasks).owners(firsts), minlength=tasks)
    assert owned.max() - owned.min() <= 1


@pytest.mark.parametrize("starts", [(0,), (0, 3), (0, 0, 9), (0, 255), (0, 1, 1, 1, 2), tuple(range(256))])
def test_the_owner_of_a_key_is_the_task_whose_range_it_lies_in(starts):
    r = random.Random(len(starts))
    keys = [-(2**63), 2**63 - 1, 0, -1, *(r.randrange(-(2**63), 2**63) for _ in range(500))]
    of = BucketMap(starts)
    for key, owner in zip(keys, of.owners(np.array(keys, dtype=np.int64)).tolist(), strict=True):
        low, high = of.ranges[owner]
        assert low <= key
        assert high is None or key < high
        assert starts[owner] <= bucket_of(np.int64(key)) < (*starts, BUCKETS)[owner + 1]


def test_more_tasks_than_buckets_leave_some_without_any():
    of = BucketMap.even(300)
    firsts = np.array([first_key(bucket) for bucket in range(BUCKETS)], dtype=np.int64)
    assert len(set(of.owners(firsts).tolist())) == BUCKETS
