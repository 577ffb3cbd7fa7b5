"""`extent` says what a window means, `wids` which windows a position is in: each is tested by the other."""

from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.time import FOREVER
from penstock.model.windows import Landmark, PerRow, Session, Sliding, SlidingRows

LENGTHS = st.integers(1, 12)
TIMES = st.integers(-40, 40)
ORIGINS = st.none() | st.integers(-15, 15)
NEAR = range(-60, 61)  # more windows than any of these times can be in


@given(LENGTHS, LENGTHS, ORIGINS, TIMES)
def test_a_time_is_in_the_sliding_windows_that_extend_over_it(length, slide, origin, time):
    window = Sliding(length, slide, origin)
    ids = NEAR if origin is None else range(max(NEAR) + 1)
    wanted = [n for n in ids if window.extent(n)[0] <= time < window.extent(n)[1]]
    assert list(window.wids(time)) == wanted
    assert window.windows([time]) == wanted


@given(LENGTHS, LENGTHS, ORIGINS, TIMES)
def test_a_row_is_in_so_many_sliding_windows(length, slide, origin, time):
    count = len(Sliding(length, slide, origin).wids(time))
    if origin is None or time >= origin:
        assert count in (length // slide, -(-length // slide))


@given(LENGTHS, st.integers(0, 40))
def test_tumbling_windows_part_time_and_a_range_below_the_slide_leaves_gaps(length, gap):
    tumbling, gaps = Sliding(length, length), Sliding(length, length + gap)
    period = range(-2 * (length + gap), 2 * (length + gap))
    assert all(len(tumbling.wids(time)) == 1 for time in period)
    assert sum(not gaps.wids(time) for time in period) == 4 * gap


@given(LENGTHS, ORIGINS, TIMES)
def test_a_time_is_in_the_landmark_windows_that_extend_over_it(slide, origin, time):
    window = Landmark(slide, origin)
    ids = NEAR if origin is None else range(max(NEAR) + 1)
    assert [n for n in ids if n in window.wids(time)] == [
        n for n in ids if window.extent(n)[0] <= time < window.extent(n)[1]
    ]


@given(LENGTHS, ORIGINS, st.lists(TIMES, max_size=5))
def test_landmark_windows_go_from_the_first_row_to_the_first_window_with_the_last(slide, origin, times):
    window = Landmark(slide, origin)
    inside = [t for t in times if origin is None or t >= origin]
    found = window.windows(times)
    assert bool(found) == bool(inside)
    if inside:
        assert found[0] in window.wids(min(inside))
        assert found[0] - 1 not in window.wids(min(inside))
        assert all(found[-1] in window.wids(t) for t in inside)
        assert found[-1] - 1 not in window.wids(max(inside))
        assert list(found) == list(range(found[0], found[-1] + 1))


@given(LENGTHS, LENGTHS, st.integers(0, 40))
def test_a_rank_is_in_the_windows_of_rows_that_extend_over_it(length, slide, rank):
    window = SlidingRows(length, slide)
    assert list(window.wids(rank)) == [n for n in range(60) if window.extent(n)[0] <= rank < window.extent(n)[1]]


@given(LENGTHS, st.integers(1, 4), st.lists(TIMES, max_size=8), TIMES)
def test_a_time_is_in_the_windows_of_the_rows_that_follow_it_closely(length, rows, times, time):
    window = PerRow(length, rows)
    ids = window.windows(times)
    assert ids == [t for number, t in enumerate(sorted(times), 1) if number % rows == 0]
    assert window.wids(time, ids) == [w for w in ids if w - length < time <= w]
    assert window.wids(time, ids) == [w for w in ids if window.extent(w)[0] <= time < window.extent(w)[1]]


@given(LENGTHS, st.lists(TIMES, max_size=8))
def test_sessions_are_apart_and_hold_every_row_once(gap, times):
    window = Session(gap)
    sessions = window.windows(times)
    assert all(len(window.wids(time, sessions)) == 1 for time in times)
    for start, end in sessions:
        own = sorted(time for time in times if start <= time < end)
        assert (own[0], own[-1] + gap) == (start, end)
        assert all(later - earlier < gap for earlier, later in pairwise(own))
    assert all(later[0] - earlier[1] >= 0 for earlier, later in pairwise(sessions))


def test_a_gap_of_the_full_length_starts_a_new_session():
    assert Session(5).windows([0, 4, 9, 13]) == [(0, 9), (9, 18)]


@given(st.sampled_from([Sliding, Landmark]), LENGTHS, LENGTHS, ORIGINS, TIMES)
def test_windows_are_closed_iff_progress_has_reached_their_end(kind, length, slide, origin, progress):
    window = Sliding(length, slide, origin) if kind is Sliding else Landmark(slide, origin)
    for n in NEAR:
        assert (n < window.closed(progress)) == (window.extent(n)[1] <= progress)


@given(LENGTHS, LENGTHS, st.integers(0, 50))
def test_a_window_of_rows_is_closed_when_its_last_rank_is_final(length, slide, final):
    window = SlidingRows(length, slide)
    for n in range(60):
        assert (n < window.closed(final)) == ((n + 1) * slide - 1 < final)


@given(LENGTHS, LENGTHS, st.integers(0, 50))
def test_the_last_window_of_rows_is_the_first_that_ends_at_or_after_the_last_row(length, slide, count):
    window = SlidingRows(length, slide)
    ended = [n for n in range(60) if window.extent(n)[1] >= count]
    assert window.ended(count) == (ended[0] + 1 if count else 0)


def test_the_window_of_a_row_is_open_until_progress_is_past_its_time():
    assert PerRow(5).closed(7) == 7
    assert bisect_left([6, 7, 8], PerRow(5).closed(7)) == 1


def test_at_the_end_of_input_everything_is_closed():
    assert Sliding(10, 3).wids(2**61)[-1] < Sliding(10, 3).closed(FOREVER)
    assert Landmark(3).wids(2**61)[0] < Landmark(3).closed(FOREVER)
    assert Session(5).closed((0, 5), FOREVER)


@pytest.mark.parametrize(("n", "extent"), [(0, (0, 1)), (8, (0, 9)), (9, (0, 10)), (10, (1, 11))])
def test_the_first_windows_after_an_origin_are_short(n, extent):
    assert Sliding(10, 1, origin=0).extent(n) == extent


def test_without_an_origin_there_is_nothing_special_about_zero():
    assert Sliding(10, 1).extent(0) == (-9, 1)
    assert list(Sliding(4, 2).wids(-1)) == [-1, 0]
    assert list(Sliding(10, 1, origin=0).wids(0)) == list(range(10))
    assert not Sliding(10, 1, origin=0).wids(-1)


@given(LENGTHS, LENGTHS, ORIGINS, TIMES, st.integers(-9, 9), st.integers(1, 5))
def test_windows_shift_and_scale_with_time(length, slide, origin, time, shift, factor):
    window = Sliding(length, slide, origin)
    moved = Sliding(length * factor, slide * factor, (window.start + shift) * factor)
    if origin is not None:
        assert list(moved.wids((time + shift) * factor)) == list(window.wids(time))
