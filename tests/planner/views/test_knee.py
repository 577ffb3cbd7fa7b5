"""The size of a request is where keys stop getting cheaper, and every key is asked for once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.views.knee import FIRST, SIZES, Knee


def used(knee, count, seconds):
    """The sizes of the parts, when a part of so many keys takes what `seconds` says."""
    sizes = []
    for start, end in knee.parts(count):
        sizes.append(end - start)
        knee.learn(end - start, seconds(end - start))
    return sizes


@given(st.integers(0, 3_000), st.floats(1e-5, 1e-2), st.floats(1e-6, 1e-3), st.floats(0, 1e-5))
def test_parts_cover_all_keys_once(count, fixed, each, worse):
    knee, end = Knee(), 0
    for start, end_of in knee.parts(count):
        assert start == end < end_of
        end = end_of
        knee.learn(end_of - start, fixed + each * (end_of - start) + worse * (end_of - start) ** 2)
    assert end == count


@given(st.floats(1e-5, 1e-2), st.floats(1e-6, 1e-3), st.floats(0, 1e-4))
def test_the_size_is_the_smallest_that_is_nearly_the_cheapest_for_a_key(fixed, each, worse):
    def seconds(keys):
        return fixed + each * keys + worse * keys**2

    knee = Knee()
    for _ in range(3):
        used(knee, 2_000, seconds)
    cost = {size: seconds(size) / size for size in SIZES}
    assert cost[knee.size] <= 1.1 * min(cost.values())
    assert all(cost[smaller] > 1.1 * min(cost.values()) for smaller in SIZES if smaller < knee.size)


@pytest.mark.parametrize(
    ("fixed", "each", "worse", "size"),
    [(0.002, 0.00004, 0.0000008, 50), (0.02, 0.00002, 0.0, 400), (0.0, 0.001, 0.00001, 10)],
)
def test_a_fixed_part_asks_for_larger_requests_and_planning_for_smaller_ones(fixed, each, worse, size):
    knee = Knee()
    used(knee, 5_000, lambda keys: fixed + each * keys + worse * keys**2)
    assert knee.size == size


def test_what_is_past_the_knee_is_not_tried_further():
    knee = Knee()
    sizes = used(knee, 2_000, lambda keys: 0.001 + 0.0001 * keys**2)
    assert sizes[:2] == [10, 25]
    assert set(sizes[2:-1]) == {10}


def test_before_anything_was_measured_requests_are_of_a_middle_size_or_what_there_is():
    knee = Knee()
    assert knee.size == FIRST
    assert [end - start for start, end in knee.parts(7)] == [7]
    knee.learn(7, 1.0)
    assert knee.size == FIRST
    assert all(a < b for a, b in pairwise(SIZES))
