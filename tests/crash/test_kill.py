"""kill -9 of the whole driver at every named point of a step: nothing is lost, nothing comes twice."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from penstock.errors import StateError
from penstock.storage.cache import FOLDER_VARIABLE
from penstock.storage.crash_points import POINTS
from tests.crash.scene import FOLDERS, STATE, answers_of, deliveries, engine_of, expected, in_folders, source
from tests.spark.replay import drain, rows_of
from tests.storage.s3_server import server

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
OWN = f"{ROOT / 'src'}:{ROOT}"  # the code beside these tests, whatever is installed
STEPS = 6
TIMEOUT = 300


def start(root, *arguments, **variables):
    """A child in a process group of its own, so that its JVM can be ended with it."""
    environment = {**os.environ, "PYTHONPATH": OWN, **variables}
    with (root / "child.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.crash.child", str(root), *arguments],
            cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def end(child):
    """The child's exit code, once it and what it started are gone."""
    code = child.wait(TIMEOUT)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return code


def log_of(root):
    return (root / "child.log").read_text()[-4000:]


def killed_at(root, point):
    code = end(start(root, PENSTOCK_KILL_AT=point))
    assert code == -signal.SIGKILL, f"{point} was not reached: {log_of(root)}"


def finished(root, **variables):
    code = end(start(root, "final", **variables))
    assert code == 0, log_of(root)


def assert_nothing_lost_or_doubled(spark, root, steps=STEPS):
    engine = engine_of(spark, root)
    answers, found = expected(steps), answers_of(engine)
    assert answers.keys() == found.keys()
    for name, answer in answers.items():
        assert answer, name
        assert found[name] == answer, name
    assert in_folders(root) == {name: answers[name] for name in FOLDERS}
    by_step = {}
    for *values, step in rows_of(engine.results("to_function", step=True)):
        by_step.setdefault(step, []).append(values[0])
    got = deliveries(root)
    assert got.keys() == by_step.keys()
    for step, values in by_step.items():
        # A delivery may be repeated, but then it is the same rows under the same step.
        assert all(delivery == sorted(values) for delivery in got[step]), step


EVERY_POINT = (
    "before_job:0", "after_job:0", "before_manifest:1", "after_manifest:2", "after_link:3", "after_delivery:4",
)  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "steps"),
    [
        pytest.param(("before_manifest:1", "after_link:1"), 3, id="before the commit, and behind a link"),
        pytest.param(EVERY_POINT, STEPS, id="every point", marks=pytest.mark.long),
    ],
)
def test_every_point_of_a_step_survives_kill_9(spark, tmp_path, plan, steps):
    assert {point.split(":")[0] for point in EVERY_POINT} == set(POINTS)
    source(tmp_path, steps)
    for point in plan:
        killed_at(tmp_path, point)
    drain(engine_of(spark, tmp_path), final=True)
    assert_nothing_lost_or_doubled(spark, tmp_path, steps)


@pytest.mark.long
def test_the_end_of_the_streams_survives_kill_9_between_the_levels_of_derived_ones(spark, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for root in (whole, killed):
        source(root, STEPS)
    finished(whole)
    last = int(log_of(whole).rpartition("ended at step ")[2])
    code = end(start(killed, "final", PENSTOCK_KILL_AT=f"after_manifest:{last - 3}"))
    assert code == -signal.SIGKILL, log_of(killed)
    manifest = engine_of(spark, killed).manifest()
    assert {p.kind for p in manifest.progress.values()} >= {"final"}
    assert not manifest.final
    # The next start only brings out what was still to come.
    with pytest.raises(StateError, match="have ended"):
        drain(engine_of(spark, killed), final=True)
    assert engine_of(spark, killed).manifest().final
    assert_nothing_lost_or_doubled(spark, killed)


@pytest.mark.long
@pytest.mark.parametrize("second", POINTS)
def test_each_batch_survives_two_kills_at_any_two_points(spark, tmp_path, second):
    source(tmp_path, STEPS)
    for step, first in enumerate(POINTS[:3]):
        killed_at(tmp_path, f"{first}:{step}")
        killed_at(tmp_path, f"{second}:{step}")
    finished(tmp_path)
    assert_nothing_lost_or_doubled(spark, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_kills_at_random_moments_survive(spark, tmp_path, seed):
    source(tmp_path, STEPS)
    moments = random.Random(seed)
    for _ in range(6):
        child = start(tmp_path)
        # Half of them die while the session starts, the others anywhere behind the first manifest.
        deadline = time.monotonic() + moments.uniform(3, 25)
        while time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.01)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        end(child)
    finished(tmp_path)
    assert_nothing_lost_or_doubled(spark, tmp_path)


WORKER_FAILS_ONCE = """
import sys
if "penstock.spark.daemon" in sys.orig_argv:
    import os
    from penstock.step import task

    report_batch = task.report_batch

    def fail_once(report):
        if report.runs:
            try:
                os.rename({marker!r}, {marker!r} + "-used")
            except FileNotFoundError:
                pass
            else:
                raise RuntimeError("this attempt fails after it has written its files")
        return report_batch(report)

    task.report_batch = fail_once  # before those that make reports have it
"""


@pytest.mark.long
def test_a_task_that_fails_after_writing_is_repeated_and_its_files_are_never_read(spark, tmp_path):
    root, patches = tmp_path / "run", tmp_path / "patches"
    patches.mkdir()
    source(root, STEPS)
    marker = tmp_path / "fail"
    marker.touch()
    (patches / "sitecustomize.py").write_text(WORKER_FAILS_ONCE.format(marker=str(marker)))
    finished(root, PYTHONPATH=f"{patches}:{OWN}")
    assert marker.with_name("fail-used").exists()
    engine = engine_of(spark, root)
    manifest = engine.manifest()
    written = {p.name for folder in ("runs", "results") for p in (root / "state" / folder).iterdir()}
    named = {Path(name).name for name in (*manifest.runs, *manifest.results)}
    assert named < written, "the failed attempt has left no file behind"
    found = answers_of(engine)
    for name, answer in expected(STEPS).items():
        assert found[name] == answer, name


@pytest.mark.long
def test_nothing_is_lost_or_doubled_with_state_in_an_object_store(spark, tmp_path, monkeypatch):
    """Each start begins with a step of its own, after the lease of the one that was killed has ended."""
    obstore = pytest.importorskip("obstore", reason="pip install 'penstock[object]'")
    monkeypatch.setattr(sys.modules[__name__], "OWN", f"{OWN}:{Path(obstore.__file__).parents[1]}")  # wherever it is
    source(tmp_path, STEPS)
    place = f"s3://bucket/{uuid.uuid4().hex}"
    for name, value in (server().environment | {STATE: place, FOLDER_VARIABLE: str(tmp_path / "cache")}).items():
        monkeypatch.setenv(name, value)
    for point in ("before_manifest:2", "after_manifest:4", "after_link:6", "after_delivery:8"):
        killed_at(tmp_path, point)
    finished(tmp_path)
    assert_nothing_lost_or_doubled(spark, tmp_path)
