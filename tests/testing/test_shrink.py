"""A failing scenario is found and shrunk to little."""

from unittest.mock import patch

from penstock.kernels.ranks import rank
from penstock.testing.generate import scenario
from penstock.testing.scenario import Batch, Options
from penstock.testing.shrink import failure, shrunk


def test_what_a_failure_does_not_need_is_left_out():
    story = scenario(3)
    wanted = next(
        row for event in story.events if isinstance(event, Batch) for rows in event.rows.values() for row in rows
    )

    def fails(other):
        return any(
            row is wanted for e in other.events if isinstance(e, Batch) for rows in e.rows.values() for row in rows
        )

    small = shrunk(story, fails)
    assert len(small.events) == small.rows == 1
    assert small.options == Options()


def test_what_is_not_wrong_stays_as_it_is():
    assert failure(scenario(1)) is None
    assert shrunk(scenario(1)) == scenario(1)


def test_a_fault_in_the_engine_is_seen_and_told_small():
    """Rows of which too many count are found by the answers alone."""
    with patch("penstock.step.held.rank", lambda table, runs: [*rank(table, runs[:-1]), *runs[-1:]]):
        seed = next(
            n for n in range(400) if any(q.kind == "ROWS join" for q in scenario(n).queries) and failure(scenario(n))
        )
        small = shrunk(scenario(seed))
        assert failure(small) is not None
        assert small.rows < scenario(seed).rows / 4
