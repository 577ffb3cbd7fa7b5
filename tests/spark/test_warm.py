"""Workers are there before they are needed: the very ones that steps use, and no others."""

import contextlib
import logging
import sys
import threading
from datetime import UTC, datetime

import psutil
import pyarrow as pa
import pytest

from penstock.model.time import SECOND
from penstock.spark import warm
from tests.spark.replay import Replay, rows_of, stream, wait_until

DAEMON = "penstock.spark.daemon"


class Session:
    """Stands in for Spark: notes which thread does what, and fails if asked to."""

    def __init__(self, failing=""):
        self.did, self.failing = {}, failing

    def __getattr__(self, name):
        def call(*_):
            self.did[name] = threading.current_thread()
            if name == self.failing:
                raise OSError("no worker\nand a stack")
            return self

        return call


def test_only_the_job_runs_beside_so_that_no_two_threads_import_what_plans_it():
    session = Session()
    warm.warm_workers(session, 2, []).wait()
    assert session.did["range"] is session.did["mapInArrow"] is threading.current_thread()
    assert session.did["collect"].name == "penstock-warm"


def test_what_fails_is_logged_in_a_line_and_told(monkeypatch, caplog):
    monkeypatch.setattr(warm, "gone", lambda _: None)
    for failing in ("mapInArrow", "collect"):
        told = []
        with caplog.at_level(logging.WARNING, "penstock.warm"):
            warm.warm_workers(Session(failing), 2, told).wait()
        assert caplog.messages == told == ["Python workers could not be started ahead of time: no worker"]
        caplog.clear()


def daemons():
    """The processes that fork this Spark's Python workers, with the CPU seconds of them and their workers."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = process.parent()
            if DAEMON in process.cmdline() and parent is not None and DAEMON not in parent.cmdline():
                own = [process, *process.children(recursive=True)]  # a worker is a copy of its daemon
                found[process.pid] = sum(sum(p.cpu_times()[:2]) for p in own)
    return found


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each worker loads for itself")
def test_a_new_worker_has_loaded_what_steps_use(spark):
    def known(batches):
        import gc
        import sys

        names = ("penstock.step.worker", "penstock.kernels.probe", "pandas", "pyarrow.parquet")
        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"loaded": [gc.get_freeze_count() > 10_000, *(name in sys.modules for name in names)]}
            )

    session = spark.newSession()
    session.conf.set("spark.sql.execution.pandas.udf.buffer.size", "234567")
    assert [row[0] for row in session.range(1).mapInArrow(known, "loaded boolean").collect()] == [True] * 5


@pytest.mark.spark
def test_steps_ticks_and_results_share_the_workers_of_the_warm_up(spark, tmp_path):
    replay = Replay(tmp_path / "source", stream("a", "ts timestamp, k bigint, v bigint"))
    queries = {
        "pairs": "SELECT x.v, y.v AS w, result_time AS at FROM a [RANGE 5 SECONDS] x, a [RANGE 5 SECONDS] y "
        "WHERE x.k = y.k",
        # Overlapping windows are assembled from panes by a job of Python workers, on read.
        "long": "SELECT window_end, k, sum(v) AS s FROM a [RANGE 60 SECONDS SLIDE 1 SECOND] GROUP BY k",
        "above": "SELECT window_end, count(*) AS n FROM pairs [TUMBLING 2 SECONDS]",
    }
    for step in range(4):
        replay.add(a=[{"ts": (3 * step + n) * SECOND, "k": n % 2, "v": n} for n in range(6)])
    session = spark.newSession()
    # Unlike any other, so its workers are new ones.
    session.conf.set("spark.sql.execution.pandas.udf.buffer.size", "123456")
    before = daemons()
    engine = replay.engine(session, tmp_path / "state", queries)
    run = engine.start()
    run.batches.warming.wait()
    (daemon,) = daemons().keys() - before.keys()
    wait_until(lambda: engine.manifest().last_batch == 3)
    step = engine.manifest().step
    engine.advance("a", datetime.fromtimestamp(100, UTC))  # closes windows by a tick
    assert engine.manifest().step > step
    for name in queries:
        assert rows_of(engine.results(name))
    run.stop(final=True)
    after = daemons()
    assert after.keys() - before.keys() == {daemon}
    others = before.keys() & after.keys()
    assert {n: after[n] for n in others} == {n: before[n] for n in others}, "other workers have worked"
    assert run.warnings == []
