"""A Spark session that stops, or whose Java process dies, during a run: the run ends, says why, and can continue."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.scene import rows_of_step
from tests.effort import ALL

pytestmark = pytest.mark.spark

# Each is a start of Spark: only one of them unless there is time.
STOPPED = (
    ("before_job", "after_job", "after_manifest", "during the job", "tick", "delivery", "between steps")
    if ALL
    else ("between steps",)
)


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    root = tmp_path_factory.mktemp("gone")
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.gone", str(root), *STOPPED, "clean"],
        capture_output=True, text=True, timeout=500, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return {line["case"]: line for line in map(json.loads, filter(lambda t: t[:1] == "{", done.stdout.splitlines()))}


@pytest.mark.parametrize("case", [*STOPPED, "killed"])
def test_a_run_ends_with_its_session_and_says_why(cases, case):
    found = cases[case]
    why = "it was stopped" if case != "killed" else "its Java process has ended"
    kind, text = found["waited"]
    assert kind == "SessionError"
    assert "ended after step" in text or "ended before its first step" in text
    assert f"the Spark session under it is gone: {why}" in text
    assert "make a new session" in text
    assert ("start the program again" in text) == (case == "killed")
    assert "\n" not in text
    assert found["stopped"] == found["waited"]
    assert found["status"] == text
    assert found["active"] is False
    for later in ("results", "again"):
        assert found[later][0] == "SessionError"
        assert f"is gone: {why}" in found[later][1]
        assert "\n" not in found[later][1]


def test_each_time_another_session_goes_on_and_nothing_is_lost_or_repeated(cases):
    batches = len(STOPPED) + 1
    rows = [rows_of_step(step) for step in range(batches)]
    assert cases["clean"]["answers"]["alone"] == sorted([r["v"]] for step in rows for r in step["b"] if r["v"] > 1)
    assert [v for v, _ in cases["clean"]["answers"]["to_function"]] == sorted(
        r["v"] for step in rows for r in step["a"]
    )
