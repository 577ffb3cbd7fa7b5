"""The anonymous memory of an engine's processes stays within its budget: with real processes, by their RssAnon."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.memory.scene import expected

CGROUPS = Path("/sys/fs/cgroup/memory")
MEMORY, OVER = 1400, 1.2  # MB; and by how much it may be exceeded
SMALL = {"memory": f"{MEMORY} MB", "heap": "512m", "rows": 16_000, "width": 1000, "batches": 3, "seconds": 10}
SMALL |= {"keys": 200_000, "window": 1000}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc"),
]


@contextmanager
def limited(size):
    """A memory cgroup of that many bytes for the processes that `enter` it, or None where none can be made.

    It counts files that are cached, too, and drops them: only what belongs to no file can exceed it.
    """
    group = CGROUPS / f"penstock-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(size))
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        group.rmdir()


def run(folder, job, group=None):
    def enter():
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    done = subprocess.run(
        [sys.executable, "-m", "tests.memory.scene", str(folder), json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=enter,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def check(folder, job, found):
    assert found["found"] == expected(folder / "in", job)
    assert found["pieces"] > 0, "nothing was put aside, so nothing was tried"
    assert found["most"] <= OVER * job["bytes"], found["then"]


def test_a_batch_of_20_times_the_usual_size_stays_within_the_budget(tmp_path):
    job = SMALL | {"bytes": MEMORY << 20}
    check(tmp_path, job, run(tmp_path, job))


@pytest.mark.long
def test_state_of_10_times_the_budget_stays_within_it_in_a_cgroup(tmp_path):
    job = SMALL | {"rows": 40_000, "width": 4000, "batches": 24, "bytes": MEMORY << 20, "keys": 2_000_000}
    # The program that starts the engine, with DuckDB's and the test's modules, is in the group too.
    with limited(int(OVER * MEMORY + 300) << 20) as group:
        if group is None:
            pytest.skip(f"no memory cgroup can be made below {CGROUPS} (cgroup v1, as root)")
        found = run(tmp_path, job, group)
    assert found["input"] >= 10 * job["bytes"]
    check(tmp_path, job, found)
