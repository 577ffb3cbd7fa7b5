"""Segments of time: as many as pay, and each with about as many rows."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.time import FOREVER, NEVER
from penstock.planner.segments import Scan, Timing, latency, segment_count, segment_starts


@dataclass(frozen=True)
class Run:
    rows: int
    min_time: int
    max_time: int
    table: str = "t"
    level: int = 0
    bytes: int = 0
    life: int = 0


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
