"""The queue of a run under Spark: its steps are on a thread of their own, and yet belong to Spark's query."""

import threading
import time

import pytest
from pyspark import TaskContext
from pyspark.sql.functions import udf

from penstock import Engine, StateError, StepError
from penstock.spark import job_marks
from tests.spark.replay import Replay, drain, rows_of, stream, wait_until

pytestmark = pytest.mark.spark

STREAM = stream("a", "ts bigint, k bigint")


@pytest.fixture
def replay(tmp_path):
    found = Replay(tmp_path / "source", STREAM)
    found.add(a=[{"ts": 1, "k": 1}])
    return found


def engine_of(spark, tmp_path, replay, by, **queries):
    """An engine on rows of which `by` says something in the task."""
    said = udf(by, "string")
    frame = replay.frame(spark, "a").withColumn("said", said("k"))
    engine = Engine(spark, tmp_path / "state", tasks=1, durable=False)
    engine.stream("a", frame, event_time="ts", delay=0)
    for name, into in queries.items():
        engine.query("SELECT k, said FROM a", name=name, into=into)
    return engine


def marks(_):
    names = (*job_marks.GROUP[::2], job_marks.QUERY, job_marks.BATCH, "spark.scheduler.pool", "tests.own")
    return "|".join(str(TaskContext.get().getLocalProperty(name)) for name in names)


def slow(_):
    time.sleep(60)


def plain(k):
    return str(k)


def test_tasks_know_the_query_the_batch_and_what_the_caller_has_set(spark, tmp_path, replay):
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    spark.sparkContext.setLocalProperty("tests.own", "too")
    try:
        run = engine_of(spark, tmp_path, replay, marks, q=None).start(trigger="0 seconds")
    finally:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)
        spark.sparkContext.setLocalProperty("tests.own", None)
    for number in (1, 2):
        wait_until(lambda number=number: run.status()["batch"] == number - 1)
        time.sleep(1.5)  # ticks come between them
        replay.add(a=[{"ts": 1 + number, "k": number + 1}])
    wait_until(lambda: run.status()["batch"] == 2)
    query = run.spark_query
    run.stop()
    found = dict(rows_of(Engine(spark, tmp_path / "state").results("q")))
    assert found == {n + 1: f"{query.runId}|true|{query.id}|{n}|mine|too" for n in range(3)}


@pytest.mark.parametrize("way", ["stop", "cancel"])
def test_who_stops_sparks_query_or_cancels_its_jobs_cancels_the_running_step(spark, tmp_path, replay, way):
    engine = engine_of(spark, tmp_path, replay, slow, q=None)
    run = engine.start()
    group, tracker = str(run.spark_query.runId), spark.sparkContext.statusTracker()
    wait_until(lambda: set(tracker.getJobIdsForGroup(group)) & set(tracker.getActiveJobsIds()))
    began = time.monotonic()
    if way == "stop":
        run.spark_query.stop()
    else:
        spark.sparkContext.cancelJobGroup(group)
    with pytest.raises(StepError, match=r"nothing of it was committed.*cancelled"):
        run.await_termination(60)
    assert time.monotonic() - began < 30
    assert not run.spark_query.isActive
    again = engine_of(spark, tmp_path, replay, marks, q=None)
    drain(again)
    assert [k for k, _ in rows_of(again.results("q"))] == [1]


def test_a_stop_lets_the_running_step_end_and_a_second_one_waits_too(spark, tmp_path, replay):
    begun, gate = threading.Event(), threading.Event()

    def sink(_table, _step):
        begun.set()
        assert gate.wait(60)

    run = engine_of(spark, tmp_path, replay, plain, q=sink).start(trigger="0 seconds")
    assert begun.wait(60)
    replay.add(a=[{"ts": 2, "k": 2}])
    stopping = [threading.Thread(target=run.stop) for _ in range(2)]
    for thread in stopping:
        thread.start()
    assert not run.await_termination(0.5)
    assert run.active
    gate.set()
    for thread in stopping:
        thread.join(60)
    assert run.await_termination(0)
    assert run.status()["batch"] == 0
    assert not run.status()["active"]


def test_a_sink_may_stop_its_run_and_may_not_change_it(spark, tmp_path, replay):
    said, runs = [], []

    def sink(_table, _step):
        wait_until(lambda: runs)
        with pytest.raises(StateError, match="in the middle of a step") as caught:
            engine.drop("q")
        said.append((caught.value, engine.manifest().step, runs[0].status()["step"]))
        runs[0].stop()

    engine = engine_of(spark, tmp_path, replay, plain, q=sink)
    runs.append(engine.start(trigger="0 seconds"))
    assert runs[0].await_termination(120)
    assert [steps for _, *steps in said] == [[0, 0]]
    assert [q["name"] for q in engine.queries()] == ["q"]


def test_status_is_of_one_moment_while_streams_come_and_go(spark, tmp_path, replay):
    """What is shown changes with a step or with a change, and never in between."""
    engine = engine_of(spark, tmp_path, replay, plain, q=None)
    run = engine.start(trigger="0 seconds")
    seen, failed, over = [], [], threading.Event()

    def look():
        try:
            while not over.is_set():
                status = run.status()
                seen.append((tuple(status["streams"]), tuple(status["queries"])))
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    other = Replay(tmp_path / "other", stream("b", "ts bigint, k bigint"))
    for _ in range(2):
        other.declare(engine, "b")
        engine.query("SELECT k FROM b", name="r")
        engine.drop("r")
        engine.drop_stream("b")
    over.set()
    looking.join()
    run.stop()
    assert not failed
    assert set(seen) == {(("a",), ("q",)), (("a", "b"), ("q",)), (("a", "b"), ("q", "r"))}
