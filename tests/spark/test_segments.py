"""Several tasks scan state without a key, each a segment of time; the costs are measured while running."""

from unittest.mock import patch

import pytest

from penstock.model.time import SECOND
from penstock.planner.segments import Timing
from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

SQL = "SELECT a.v AS av, b.v AS bv FROM a [RANGE 20 SECONDS], b [RANGE 20 SECONDS] WHERE a.v < b.v"
STEPS, ROWS = 6, 30


def brought(step, shift):
    """Most rows of a step lie in the last tenth of its time."""
    places = [n if n < 3 else 9_000 + 30 * n for n in range(ROWS)]
    return [{"ts": 5 * step * SECOND + 500 * p, "v": (7 * n + step + shift) % 50} for n, p in enumerate(places)]


def expected(steps):
    a, b = ([row for step in range(steps) for row in brought(step, shift)] for shift in (0, 3))
    return sorted((x["v"], y["v"]) for x in a for y in b if x["v"] < y["v"] and abs(x["ts"] - y["ts"]) < 20 * SECOND)


def test_segments_follow_the_rows_and_their_costs_are_measured(spark, tmp_path):
    replay = Replay(tmp_path / "source", *(stream(n, "ts timestamp, v bigint") for n in "ab"))
    for step in range(STEPS):
        replay.add(a=brought(step, 0), b=brought(step, 3))
    # So few rows would be scanned by one task alone.
    with patch("penstock.step.compose.segment_count", lambda _scan, most, _timing: most):
        run = replay.engine(spark, tmp_path / "state", {"j": SQL}).start(available_now=True)
        assert run.await_termination(300)
    stepper = run.stepper
    assert len(stepper.optimizer.scans.rows) == STEPS
    assert stepper.optimizer.scans.rows[-1] == {"a": ROWS, "b": ROWS}
    assert all(
        seconds > 0
        for samples in (stepper.optimizer.scans.compared, stepper.optimizer.scans.sent)
        for _, seconds in samples
    )
    assert stepper.optimizer.scans.timing != Timing()
    timed = [run for run in stepper.manifest.runs.values() if run.table in ("a()", "b()")]
    assert timed
    assert all(
        list(r.quantiles) == sorted(r.quantiles) and len(r.quantiles) == r.rows - 1 for r in timed if r.rows <= 20
    )
    # Both tasks have compared about as many pairs, though the rows of each step lie close together.
    pairs = [sum(t.candidates for t in report.counters.tables.values()) for report in stepper.last_reports]
    assert len(pairs) == 2
    assert max(pairs) <= 1.5 * min(pairs)

    replay.add(a=brought(STEPS, 0), b=brought(STEPS, 3))
    again = replay.engine(spark, tmp_path / "state", {"j": SQL})
    drain(again)  # nothing that was learned is left, and nothing is missing
    assert sorted(rows_of(again.results("j"))) == expected(STEPS + 1)
