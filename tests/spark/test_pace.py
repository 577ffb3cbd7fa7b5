"""How often steps run and state is dropped changes what is held and when, never what is answered."""

import time

import pytest

from penstock import Engine
from penstock.errors import RegistrationError
from penstock.model.time import SECOND
from penstock.planner.pace import PAUSE, longest_delays
from tests.spark.replay import Replay, drain, rows_of, stream, wait_until

pytestmark = pytest.mark.spark

SQL = "SELECT a.v AS av, b.v AS bv FROM a [RANGE 2 SECONDS], b [RANGE 2 SECONDS] WHERE a.k = b.k"


def input_of(root, steps=5):
    replay = Replay(root, *(stream(n, "ts timestamp, k bigint, v bigint") for n in "ab"))
    for step in range(steps):
        rows = [{"ts": 3 * step * SECOND, "k": 1, "v": step}]
        replay.add(a=rows, b=rows)
    return replay


def test_a_run_paces_itself_within_the_bound_and_stops_while_it_waits(spark, tmp_path):
    replay = input_of(tmp_path / "source")
    engine = replay.engine(spark, tmp_path / "state", {"j": SQL})
    run = engine.start(trigger="auto", latency="3 seconds")
    wait_until(lambda: run.status()["batch"] >= 3)
    status, took = run.status(), batch_seconds(run)
    run.stop()
    assert 0 < status["interval"] <= 3
    # A row may come just after Spark has looked for rows, and is then read by the next batch: two at most, with the
    # wait between them.
    assert status["delay"]["p99"] <= 2 * max(took)
    assert 0 < status["delay"]["p50"] <= status["delay"]["p99"]
    drain(engine)
    assert sorted(rows_of(engine.results("j"))) == [(n, n) for n in range(replay.steps)]


def batch_seconds(run):
    """What Spark itself says of each batch so far: seconds from its trigger to its end, with the wait after it."""
    batches = {p["batchId"]: p["durationMs"] for p in run.spark_query.recentProgress if "addBatch" in p["durationMs"]}
    return [batches[n]["triggerExecution"] / 1000 for n in sorted(batches)]


def test_a_pause_of_the_source_is_no_delay(spark, tmp_path):
    replay = input_of(tmp_path / "source", steps=2)
    run = replay.engine(spark, tmp_path / "state", {"j": SQL}).start(trigger="100 milliseconds")
    wait_until(lambda: len(run.schedule.turns) == 2)
    time.sleep(2 * PAUSE + 0.5)
    replay.add(a=[{"ts": 9 * SECOND, "k": 1, "v": 2}])
    wait_until(lambda: len(batch_seconds(run)) == 3)
    delays, took = longest_delays(list(run.schedule.turns), run.schedule.trigger_seconds), batch_seconds(run)
    run.stop()
    assert run.schedule.trigger_seconds == 0.1
    # At most the trigger (or the batch before, if that took longer) and the batch itself; Spark counts whole
    # milliseconds.
    assert 0 < delays[0] <= max(0.1, took[0]) + took[1] + 0.002
    assert 0.1 < delays[1] <= 0.1 + took[2] + 0.002


def test_rare_rounds_of_dropping_hold_more_and_answer_the_same(spark, tmp_path):
    replay = input_of(tmp_path / "source")
    held = {}
    for every in (1, 100):
        engine = Engine(spark, tmp_path / f"state{every}", tasks=2, durable=False, expire_every=every)
        replay.declare(engine)
        engine.query(SQL, name="j")
        run = engine.start(available_now=True)
        seen = []
        original = run.stepper._commit

        def commit(*arguments, original=original, seen=seen, run=run):
            original(*arguments)
            seen.append(len(run.stepper.manifest.runs))

        run.stepper._commit = commit
        assert run.await_termination(300)
        held[every] = max(seen)
        assert sorted(rows_of(engine.results("j"))) == [(n, n) for n in range(replay.steps)]
    assert held[100] > held[1]
    with pytest.raises(RegistrationError, match="expire_every"):
        Engine(spark, tmp_path / "bad", expire_every=0)
