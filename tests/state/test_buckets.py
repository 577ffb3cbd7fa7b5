import random

import numpy as np
import pytest

from penstock.state.buckets import BUCKETS, BucketMap, Split, bucket_of, first_key


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


SPLIT = BucketMap((0, 2, 2, 5), 8, (Split(1, (0, 3, 3)), Split(6, (1,))))


def test_a_split_bucket_has_an_owner_and_tasks_with_turns():
    firsts = np.array([first_key(bucket, 8) for bucket in range(8)], dtype=np.int64)
    assert SPLIT.split_of(firsts).tolist() == [-1, 0, -1, -1, -1, -1, 1, -1]
    assert SPLIT.owner_of.tolist() == SPLIT.owners(firsts).tolist() == [0, 0, 2, 2, 2, 3, 3, 3]
    assert SPLIT.probing.tolist() == [[True, False, False, True], [False, True, False, False]]
    assert SPLIT.lent(0) == SPLIT.lent(2) == []
    assert SPLIT.lent(1) == [(first_key(6, 8), first_key(7, 8))]
    assert SPLIT.lent(3) == [(first_key(1, 8), first_key(2, 8))]
    assert [SPLIT.sharers(task) for task in range(4)] == [[3], [], [], [1]]
    assert SPLIT.unsplit == BucketMap((0, 2, 2, 5), 8)


def test_the_last_bucket_is_lent_to_the_end():
    assert BucketMap((0, 4), 8, (Split(7, (0, 1)),)).lent(0) == [(first_key(7, 8), None)]


def test_turns_are_shared_out_by_their_number_and_depend_on_the_row_alone():
    mixed = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 3000)
    splits = np.zeros(3000, dtype=np.int32)
    splits[2000:] = 1
    turns = SPLIT.whose_turn(splits, mixed)
    assert set(turns[2000:].tolist()) == {1}
    counts = np.bincount(turns[:2000], minlength=4)
    assert counts.tolist()[1:3] == [0, 0]
    assert 0.28 < counts[0] / 2000 < 0.38
    order = np.random.default_rng(2).permutation(3000)
    assert (SPLIT.whose_turn(splits[order], mixed[order]) == turns[order]).all()


@pytest.mark.parametrize("starts", [(), (1,), (0, 3, 2), (0, 8)])
def test_starts_in_another_order_or_outside_are_refused(starts):
    with pytest.raises(ValueError, match="must start at 0"):
        BucketMap(starts, 8)


@pytest.mark.parametrize("splits", [[(8, (0,))], [(-1, (0,))], [(1, (0,)), (1, (1,))], [(1, ())], [(1, (2,))]])
def test_splits_of_other_buckets_or_tasks_are_refused(splits):
    with pytest.raises(ValueError, match="split"):
        BucketMap((0, 4), 8, tuple(Split(*split) for split in splits))
