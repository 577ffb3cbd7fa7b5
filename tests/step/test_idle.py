"""Which streams the clock moves, how far, and which follow the other streams instead."""

import pytest

from penstock.model import Column, Stream
from penstock.model.time import NEVER, SECOND
from penstock.state.manifest import Progress
from penstock.step.idle import follow_clock

NOW = 1_000.0
TIME = 1_000 * SECOND
IDLE = Stream("a", (Column("at", "timestamp"),), "at", 0, idle=10 * SECOND, idle_skew=100 * SECOND)
BEATS = Stream("a", (Column("at", "timestamp"),), "at", 0, heartbeat=10 * SECOND, idle_skew=100 * SECOND)
OTHERS = {"b": Progress(5 * SECOND, 5 * SECOND), "c": Progress(8 * SECOND, 8 * SECOND)}


def moved(stream, newest, last=None, started=0.0, value=NEVER):
    """(progress of the stream, its kind, whether it follows the others)."""
    progress = {"a": Progress(value, newest), **OTHERS}
    last_rows = {} if last is None else {"a": last}
    found, warnings = follow_clock([stream], progress, NOW, last_rows, started)
    assert found.items() >= OTHERS.items()
    return found["a"].value, found["a"].kind, bool(warnings)


def test_a_stream_that_is_idle_for_so_long_is_as_far_as_the_clock_says():
    ahead = (TIME - 10 * SECOND, "idle", False)
    assert moved(IDLE, TIME - 50 * SECOND, last=NOW - 10) == ahead
    assert moved(IDLE, TIME - 50 * SECOND, last=NOW - 9) == (NEVER, "delay", False)
    assert moved(IDLE, TIME - 50 * SECOND, started=NOW - 10) == ahead
    assert moved(IDLE, TIME - 50 * SECOND, started=NOW - 9) == (NEVER, "delay", False)
    assert moved(IDLE, NEVER) == ahead  # it has had no rows at all


@pytest.mark.parametrize("stream", [IDLE, BEATS])
def test_one_whose_rows_are_old_follows_the_others(stream):
    assert moved(stream, TIME - 101 * SECOND) == (5 * SECOND, "heartbeat" if stream is BEATS else "idle", True)
    assert not moved(stream, TIME - 100 * SECOND)[2]


def test_a_heartbeat_moves_a_stream_at_once_if_its_rows_come_in_time():
    beat = (TIME - 10 * SECOND, "heartbeat", False)
    assert moved(BEATS, int((NOW - 1) * SECOND), last=NOW) == beat
    assert moved(BEATS, TIME - 10 * SECOND, last=NOW) == beat
    assert moved(BEATS, TIME - 11 * SECOND, last=NOW) == (NEVER, "delay", False)
    assert moved(BEATS, TIME - 200 * SECOND, last=NOW - 199) == beat  # they came in time, so their age is the clock's


def test_it_moves_by_whole_seconds_and_never_back():
    assert moved(IDLE, TIME, value=TIME - 11 * SECOND)[1] == "idle"
    assert moved(IDLE, TIME, value=TIME - 11 * SECOND + 1)[0] == TIME - 11 * SECOND + 1
    assert moved(IDLE, TIME, value=TIME)[0] == TIME


def test_a_stream_without_either_is_left_alone():
    plain = Stream("a", (Column("at", "timestamp"),), "at", 0)
    assert moved(plain, TIME - 50 * SECOND) == (NEVER, "delay", False)
