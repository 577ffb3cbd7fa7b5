"""Segments of time: as many as pay, and each with about as many rows."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.time import FOREVER, NEVER
from penstock.planner.segments import (
    MOST_PARTS,
    PARTS,
    Scan,
    Timing,
    latency,
    quantiles,
    rows_in_reach,
    segment_count,
    segment_starts,
    segments_in,
    settled_count,
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    rows: int
    min_time: int
    max_time: int
    table: str = "t"
    level: int = 0
    bytes: int = 0
    life: int = 0
    quantiles: tuple[int, ...] = ()
    until: tuple[tuple[str, int], ...] = ()


def run_of(times, tasks, life=0):
    """The line of a run with rows at these times, all of which live so long for stream 'b'."""
    ordered = np.sort(np.array(times, dtype=np.int64))
    first, last = ordered[[0, -1]].tolist()
    return Run(len(times), first, last, quantiles=quantiles(ordered, tasks), until=(("b", last + life),))


def rows_of(runs_times, starts):
    """How many rows lie in each segment."""
    times = np.concatenate([np.array(t, dtype=np.int64) for t in runs_times])
    return np.diff([*(int((times < s).sum()) for s in starts), len(times)])


@given(
    st.floats(1, 1e5), st.floats(0, 1e6), st.integers(2, 5), st.integers(1, 32),
    st.builds(Timing, st.floats(1e-9, 1e-6), st.floats(0, 1e-5), st.floats(1e-5, 0.05)),
)  # fmt: skip
def test_the_number_has_the_least_latency(rows, held, streams, most, timing):
    scan = Scan(rows, held, streams)
    best = segment_count(scan, most, timing)
    assert 1 <= best <= most
    assert all(latency(scan, best, timing) <= latency(scan, n, timing) for n in range(1, most + 1))


def test_latency_falls_and_then_rises():
    scan, timing = Scan(1000, 100_000), Timing(pair=25e-9, send=1.5e-6, task=4e-3)
    curve = [latency(scan, n, timing) for n in range(1, 200)]
    lowest = curve.index(min(curve))
    assert 0 < lowest < 198
    assert curve[: lowest + 1] == sorted(curve[: lowest + 1], reverse=True)
    assert curve[lowest:] == sorted(curve[lowest:])


def test_little_work_is_not_spread():
    assert segment_count(Scan(10, 10), 8) == 1
    assert segment_count(Scan(0, 0), 8) == 1


def test_much_work_is_spread_over_all_tasks():
    assert segment_count(Scan(10_000, 1_000_000), 8) == 8


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(0, 10_000), st.integers(20, 60)), min_size=1, max_size=12),
    st.integers(1, 6),
)
def test_segments_cover_all_time_once_and_are_balanced(shapes, tasks):
    """Rows at even distances, as is assumed of a run."""
    runs = [Run(rows, start, start + (rows - 1) * distance) for rows, start, distance in shapes]
    starts = segment_starts(runs, tasks, tasks)
    assert starts[0] == NEVER
    assert len(starts) == tasks
    assert list(starts) == sorted(starts)
    held = [0] * tasks
    for rows, start, distance in shapes:
        for row in range(rows):
            held[max(n for n in range(tasks) if starts[n] <= start + row * distance)] += 1
    if sum(held) >= 50 * tasks:
        assert max(held) <= 1.5 * min(held)


def test_fewer_segments_than_tasks_leave_the_others_empty():
    starts = segment_starts([Run(100, 0, 99)], 2, 4)
    assert starts[0] == NEVER
    assert starts[1] == pytest.approx(50, abs=1)
    assert starts[2:] == (100, 100)
    assert all(s < FOREVER for s in starts)


def test_no_state_is_one_segment():
    assert segment_starts([], 2, 3) == (NEVER, 1, 1)


@st.composite
def skewed(draw):
    """Times of some runs, distinct in each run: most rows in a small part of the run's time, early or late."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        random = np.random.default_rng(draw(st.integers(0, 2**32)))
        rows, start = (
            draw(st.integers(1, 3000)),
            draw(st.integers(-(10**15), 10**15)) // draw(st.sampled_from((1, 10**9))),
        )
        places = random.random(rows) ** draw(st.sampled_from((0.05, 1.0, 3.0, 30.0)))
        length = draw(st.sampled_from((10**6, 10**10)))
        found.append(np.unique((start + places * length).astype(np.int64)))
    return found


@given(skewed(), st.integers(1, MOST_PARTS // PARTS))
def test_segments_of_skewed_runs_are_balanced(times, tasks):
    held = rows_of(times, segment_starts([run_of(t, tasks) for t in times], tasks, tasks))
    if sum(held) >= 200 * tasks:
        assert max(held) <= 1.5 * min(held)


def test_a_run_with_most_rows_in_its_last_tenth_is_halved():
    times = [*range(0, 900_000, 9_000), *range(900_000, 1_000_000, 111)]
    (late,) = [run_of(times, 2)]
    assert rows_of([times], segment_starts([late], 2, 2)) == pytest.approx([len(times) / 2] * 2, rel=0.01)
    even = Run(late.rows, late.min_time, late.max_time)  # a line from before such times were kept
    assert rows_of([times], segment_starts([even], 2, 2))[0] < 0.1 * len(times)


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=400), min_size=1, max_size=4), st.integers(1, 8))
def test_ties_and_what_lies_between_two_known_times_are_all_that_is_uneven(times, tasks):
    starts = segment_starts([run_of(t, tasks) for t in times], tasks, tasks)
    assert list(starts) == sorted(starts)
    together = np.concatenate([np.array(t) for t in times])
    ties = np.bincount(together).max()
    for number, start in enumerate(starts[1:], start=1):
        unknown = sum(len(t) / min(len(t), PARTS * tasks) for t in times)
        assert abs((together < start).sum() - len(together) * number / tasks) <= ties + unknown


@given(
    st.lists(st.lists(st.integers(0, 10_000), min_size=1, max_size=300, unique=True), min_size=1, max_size=4),
    st.integers(0, 12_000),
    st.integers(1, 3_000),
)
def test_rows_in_reach_are_those_that_live_on(times, progress, life):
    runs = [run_of(t, 2, life) for t in times]
    wanted = sum(time + life > progress for t in times for time in t)
    unknown = sum(len(t) / min(len(t), PARTS * 2) for t in times)
    assert rows_in_reach(runs, {"b": progress}) == pytest.approx(wanted, abs=unknown + 1e-6)
    assert rows_in_reach(runs, {}) == pytest.approx(sum(map(len, times)))


def test_rows_that_live_for_ever_stay_in_reach():
    assert rows_in_reach([Run(7, 0, 2**61, until=(("b", FOREVER),))], {"b": 2**61}) == 7
    assert rows_in_reach([], {"b": 1}) == 0


@given(
    st.lists(st.lists(st.integers(0, 10_000), min_size=1, max_size=400, unique=True), min_size=1, max_size=4),
    st.integers(0, 12_000),
    st.integers(1, 3_000),
    st.integers(1, 5),
)
def test_segments_have_about_the_same_number_of_rows_in_reach(times, progress, life, tasks):
    """Also after the rate of the stream has fallen, when most of the stored rows have expired."""
    runs = [run_of(t, tasks, life) for t in times]
    starts = segment_starts(runs, tasks, tasks, {"b": progress})
    assert list(starts) == sorted(starts)
    left = [[time for time in t if time + life > progress] for t in times]
    whole = sum(map(len, left))
    unknown = sum(len(t) / min(len(t), PARTS * tasks) for t in times)
    if whole > 4 * unknown:
        held = rows_of(left, starts)
        assert max(held) <= whole / tasks + 2 * unknown + 2


def test_expired_rows_are_in_no_balance():
    """Nine tenths of the rows have expired: cut by all rows, one task would scan everything that is left."""
    (run,) = [run_of(range(1000), 2, life=100)]
    assert segment_starts([run], 2, 2)[1] == pytest.approx(500, abs=20)
    assert segment_starts([run], 2, 2, {"b": 1000})[1] == pytest.approx(950, abs=20)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=400), st.integers(1, 8), st.data())
def test_the_number_of_segments_is_known_from_where_they_start(times, tasks, data):
    run = run_of([10 * t for t in times], tasks)
    count = data.draw(st.integers(1, tasks))
    starts = segment_starts([run], count, tasks)
    assert 1 <= segments_in(starts, [run]) <= tasks
    if len(set(times)) > 20:
        assert segments_in(starts, [run]) == count


def test_the_number_stays_unless_much_is_won():
    scan, timing = Scan(1000, 100_000), Timing(pair=25e-9, send=1.5e-6, task=4e-3)
    best = segment_count(scan, 64, timing)
    assert settled_count(scan, best + 1, best, 64, timing) == best + 1
    assert settled_count(scan, 1, best, 64, timing) == best
    assert settled_count(scan, None, best, 64, timing) == best
    assert settled_count(scan, 70, best, 64, timing) == best
