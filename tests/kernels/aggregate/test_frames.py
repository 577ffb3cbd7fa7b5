import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.aggregate.frames import in_order, landmark, listed, merge_order, sessions, sliding
from penstock.model import Landmark, PerRow, Session, Sliding

POSITIONS = st.lists(st.lists(st.integers(-30, 30), min_size=1, max_size=8).map(sorted), max_size=4)
LENGTHS = st.integers(1, 15)


def laid_out(groups):
    starts = np.cumsum([0, *map(len, groups)]).astype(np.int64)
    return starts, np.array([p for g in groups for p in g], dtype=np.int64)


def windows_of(frames):
    """Every window of every frame: (group, id, entries)."""
    found = []
    for group, first, last, low, high in zip(
        frames.group.tolist(), frames.first.tolist(), frames.last.tolist(), frames.low.tolist(), frames.high.tolist(),
        strict=True,
    ):  # fmt: skip
        assert first <= last
        found += [(group, n, tuple(range(low, high))) for n in range(first, last + 1)]
    return found


def by_extent(groups, ids, extent):
    """All windows with entries, by the definition of their extent."""
    starts, positions = laid_out(groups)
    found = []
    for group in range(len(groups)):
        for n in ids:
            low, high = extent(n)
            inside = tuple(i for i in range(starts[group], starts[group + 1]) if low <= positions[i] < high)
            if inside:
                found.append((group, n, inside))
    return found


def bound(n):
    return np.array([n], dtype=np.int64)


@given(POSITIONS, LENGTHS, LENGTHS, st.integers(-20, 20), st.integers(-40, 40), st.integers(-40, 40))
def test_sliding_frames_hold_each_window_once_with_its_extent(groups, length, slide, origin, first, last):
    window = Sliding(length, slide, None)
    frames = sliding(*laid_out(groups), length, slide, origin, bound(first), bound(last))
    ids = range(first, last + 1)
    shifted = by_extent(groups, ids, lambda n: tuple(edge + origin for edge in window.extent(n)))
    assert windows_of(frames) == shifted


@given(POSITIONS, LENGTHS, LENGTHS)
def test_frames_are_runs_as_long_as_can_be(groups, length, slide):
    frames = sliding(*laid_out(groups), length, slide, 0, bound(-100), bound(100))
    content = list(zip(frames.group.tolist(), frames.low.tolist(), frames.high.tolist(), strict=True))
    assert len(set(content)) == len(content)


@given(POSITIONS, LENGTHS, st.integers(-40, 40), st.integers(-40, 40))
def test_landmark_frames_grow_from_the_first_entry(groups, slide, first, last):
    window = Landmark(slide)
    frames = landmark(*laid_out(groups), slide, 0, first, last)
    assert windows_of(frames) == by_extent(groups, range(first, last + 1), window.extent)


@given(POSITIONS, LENGTHS, st.lists(st.integers(-35, 35), max_size=8).map(sorted))
def test_frames_of_listed_windows_are_open_at_their_start(groups, length, ends):
    window = PerRow(length)
    starts, positions = laid_out(groups)
    count = np.full(len(groups), len(ends), dtype=np.int64)
    frames = listed(starts, positions, length, np.array(ends, dtype=np.int64), np.zeros_like(count), count)
    assert windows_of(frames) == by_extent(groups, range(len(ends)), lambda n: window.extent(ends[n]))


@given(POSITIONS, LENGTHS, st.integers(-40, 50), st.integers(0, 40))
def test_session_frames_are_the_sessions_that_end_in_the_interval(groups, gap, after, length):
    starts, positions = laid_out(groups)
    frames = sessions(starts, positions, positions, gap, after, after + length)
    expected = [
        (g, *session) for g, times in enumerate(groups) for session in Session(gap).windows(times)
        if after < session[1] <= after + length
    ]  # fmt: skip
    assert list(zip(frames.group.tolist(), frames.first.tolist(), frames.last.tolist(), strict=True)) == expected


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5))).map(sorted), min_size=1, max_size=7))
def test_sorted_runs_merge_to_one_order_that_keeps_equal_rows_apart(runs):
    keys, times = (np.array([pair[k] for run in runs for pair in run], dtype=np.int64) for k in range(2))
    bounds = np.cumsum([0, *map(len, runs)])
    assert in_order(keys, times, bounds)
    assert merge_order(keys, times, bounds).tolist() == np.lexsort((times, keys)).tolist()


def test_runs_that_are_not_sorted_are_noticed():
    keys, times = np.array([1, 1, 2], dtype=np.int64), np.array([5, 4, 0], dtype=np.int64)
    assert not in_order(keys, times, np.array([0, 3]))
    assert in_order(keys, times, np.array([0, 1, 3]))
