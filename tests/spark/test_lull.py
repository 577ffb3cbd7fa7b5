"""Which streams follow the clock, and how far."""

import pytest

from penstock.model import Column, Stream
from penstock.model.time import NEVER, SECOND
from penstock.state.manifest import Progress
from penstock.step.idle import follow_clock

COLUMNS = (Column("ts", "timestamp"),)
NOW = 1_000.0


def stream(**rules):
    return Stream("a", COLUMNS, "ts", 0, **{name: length * SECOND for name, length in rules.items()})


def followed(declared, newest, last, value=None, others=()):
    """Progress of the stream in seconds, and how many warnings there were."""
    known = (
        {"a": Progress((newest if value is None else value) * SECOND, newest * SECOND)} if newest is not None else {}
    )
    known |= {f"b{n}": Progress(other * SECOND, other * SECOND) for n, other in enumerate(others)}
    moved, warnings = follow_clock([declared], known, NOW, {} if last is None else {"a": last}, 900.0)
    return moved.get("a", Progress(NEVER, NEVER)).value // SECOND, len(warnings)


@pytest.mark.parametrize(
    ("declared", "newest", "last", "found"),
    [
        (stream(), 990, 991, 990),  # has no rule
        (stream(idle=10), 985, 985, 990),
        (stream(idle=10), 985, 995, 985),  # had rows a moment ago
        (stream(idle=10), 995, 985, 995),  # is further already
        (stream(idle=99), None, None, 901),  # has never had rows, but the engine runs for long
        (stream(idle=101), None, None, NEVER // SECOND),
        (stream(heartbeat=10), 985, 994, 990),  # its last rows came nine seconds late: it may go on
        (stream(heartbeat=10), 983, 994, 983),  # eleven seconds late: it must be silent first
        (stream(heartbeat=10), 983, 989, 990),
        (stream(heartbeat=10), None, 999, NEVER // SECOND),
    ],
)
def test_progress_by_the_clock(declared, newest, last, found):
    assert followed(declared, newest, last) == (found, 0)


def test_a_stream_of_old_times_follows_the_others():
    assert followed(stream(idle=10, idle_skew=50), 900, 905, others=(970, 960)) == (960, 1)
    assert followed(stream(idle=10, idle_skew=50), 900, 905) == (900, 1)


def test_progress_moves_in_whole_seconds():
    known = {"a": Progress(int(989.5 * SECOND), 980 * SECOND)}
    assert follow_clock([stream(idle=10)], known, NOW, {"a": 985.0}, 900.0) == (known, [])
