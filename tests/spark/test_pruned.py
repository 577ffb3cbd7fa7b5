"""Spark reads only the columns that queries need, if no row of a stream is ever stored as rejected; same answers."""

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Engine
from penstock.catalog.requests import RequestLog
from penstock.model.time import SECOND
from penstock.reference import admit, aggregate_results, results
from penstock.spark import job as jobs
from penstock.spark import pruned
from penstock.sql import parse_query
from tests.effort import examples
from tests.oracle import bag
from tests.spark.replay import FOR_SPARK, Replay, drain, rows_of, stream, wait_until
from tests.spark.test_online import PHASES, Live, changing, check_changes

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*RANGE ALL")]

COLUMNS = "ts timestamp, k bigint, v bigint, w bigint, s string"
DROPPED = {"late": "drop", "bad": "drop"}
A, B = (stream(name, COLUMNS, delay=2 * SECOND, **DROPPED) for name in "ab")
PAIRS = "SELECT a.v, b.v AS o FROM a [RANGE 9 SECONDS] AS a, b [RANGE 9 SECONDS] AS b WHERE a.k = b.k"
# Spark alone knows `md5`; no other query needs `s`.
WEIGHTS = (
    "SELECT a.w, b.w AS o FROM a [RANGE 5 SECONDS] AS a, b [RANGE 5 SECONDS] AS b WHERE a.k = b.k AND md5(a.s) >= '8'"
)


def rows_at(number):
    """Two rows of each stream in a step, and one that is late."""
    times = (2 * number, 2 * number + 1, *((0,) if number == 4 else ()))
    return {
        name: [{"ts": t * SECOND, "k": t % 2, "v": 10 * number + n, "w": 7 * number + n, "s": f"s{t}"} for n,
         t in enumerate(times)]
        for name in "ab"
    }  # fmt: skip


def expected(sql, numbers, *declared):
    streams = {s.name: s for s in declared or (A, B)}
    judged = {name: admit(s, [rows_at(n)[name] for n in range(8)]) for name, s in streams.items()}
    rows = {n: [row for number in numbers for row in steps[number].accepted] for n, steps in judged.items()}
    chosen = [f"'s{n}'" for n in range(20) if hashlib.md5(f"s{n}".encode()).hexdigest() >= "8"]
    query = parse_query(sql.replace("md5(a.s) >= '8'", f"a.s IN ({', '.join(chosen)})"), streams)
    answer = results if query.aggregation is None else aggregate_results
    return bag(answer(query, streams, rows))


def read(run):
    """By stream the columns that Spark reads beside its times."""
    return {name: set(slots) for name, slots in run.stepper.layout.slots.items()}


def scans(run):
    """The schemas that Spark reads of files in its last batch."""
    plan = run.spark_query._jsq.streamingQuery().lastExecution().executedPlan().toString()
    return {part.split(">")[0] for part in plan.split("ReadSchema: struct<")[1:]}


@pytest.fixture
def started(spark, tmp_path):
    runs = []

    def start(queries, *streams, plain=False):
        replay = Replay(tmp_path / "source", *streams)
        replay.plain = plain
        runs.append(Live(replay, replay.engine(spark, tmp_path / "state", queries)))
        return runs[-1]

    yield start
    for one in runs:
        if one.run.active:
            one.run.stop()


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_of_two_thousand_columns_only_those_that_queries_need_are_read(spark, tmp_path, monkeypatch, kind):
    names = [f"c{n}" for n in range(2000)]
    folder = tmp_path / "source"
    folder.mkdir()
    schema = "ts timestamp, " + ", ".join(f"{name} bigint" for name in names)
    rows = spark.range(20).selectExpr("timestamp_seconds(id) AS ts", *(f"id % 7 + {n} AS c{n}" for n in range(2000)))
    rows.write.mode("append").format(kind).save(str(folder))
    crossed = []
    project = jobs.project
    monkeypatch.setattr(jobs, "project", lambda *args: crossed.append(project(*args)) or crossed[-1])
    answers = []
    for late in ("drop", "side"):
        engine = Engine(spark, tmp_path / late, tasks=2, durable=False)
        frame = spark.readStream.schema(schema).format(kind).load(str(folder)).where(FOR_SPARK)
        engine.stream("a", frame, event_time="ts", delay="1 second", late=late, bad=late)
        engine.query("SELECT c5, sum(c7) AS n, window_end FROM a [TUMBLING 5 SECONDS] GROUP BY c5", name="sums")
        engine.query("SELECT c9 FROM a WHERE hex(c11) = '11'", name="chosen")
        run = drain(engine, final=True)
        answers.append([bag(rows_of(engine.results(name))) for name in ("sums", "chosen")])
        if late == "drop":
            assert read(run) == {"a": {"c5", "c7", "c9", "c11"}}
            (schema_read,) = scans(run)
            assert {field.split(":")[0] for field in schema_read.split(",")} == {"ts", "c5", "c7", "c9", "c11"}
            assert len(crossed[0].columns) < 8
        else:
            assert len(read(run)["a"]) == 2001
    assert answers[0] == answers[1]
    assert all(answers[0])


def test_a_query_that_needs_another_column_lets_spark_read_it_from_its_first_step_on(started):
    one = started({"pairs": PAIRS}, A, B)
    for number in (0, 1):
        one.feed(**rows_at(number))
    assert read(one.run) == {"a": {"k", "v"}, "b": {"k", "v"}}
    assert one.run.status()["restarts"] == {"count": 0, "seconds": 0.0, "last": None}
    one.engine.query(WEIGHTS, name="weights")
    assert read(one.run) == {"a": {"k", "v", "w", "s"}, "b": {"k", "v", "w"}}
    told = one.run.status()["restarts"]
    assert (told["count"], told["last"]["columns"]) == (1, {"a": ["s", "w"], "b": ["w"]})
    assert told["last"]["seconds"] > 0
    json.dumps(told)
    for number in (2, 3):
        one.feed(**rows_at(number))
    assert one.answer("weights") == expected(WEIGHTS, (2, 3))
    one.engine.drop("weights")
    one.engine.query("SELECT w FROM a WHERE v > 30", name="single")
    assert one.run.status()["restarts"]["count"] == 1  # neither needs what is not read
    one.feed(**rows_at(4))
    one.run.stop()
    # After a restart only what is needed now is read.
    one = started({"pairs": PAIRS, "single": "SELECT w FROM a WHERE v > 30"}, A, B)
    assert read(one.run) == {"a": {"k", "v", "w"}, "b": {"k", "v"}}
    one.feed(**rows_at(5))
    one.engine.query(WEIGHTS, name="again")
    one.feed(**rows_at(6))
    assert one.run.status()["restarts"]["count"] == 1
    assert one.answer("pairs") == expected(PAIRS, range(7))
    assert one.answer("weights") == expected(WEIGHTS, (2, 3))
    assert one.answer("single") == expected("SELECT w FROM a WHERE v > 30", (4, 5, 6))
    assert one.answer("again") == expected(WEIGHTS, (6,))
    counts = one.run.status()["streams"]["a"]
    assert (counts["rows"], counts["late"]) == (15, 1)


def test_other_processes_may_ask_for_queries_that_need_other_columns(started):
    one = started({"pairs": PAIRS}, A, B)
    one.feed(**rows_at(0))
    log = RequestLog(one.engine.store)
    asked = log.ask(f"CREATE QUERY weights AS {WEIGHTS}")
    wait_until(lambda: log.wait(asked, 0))
    one.feed(**rows_at(1))
    assert one.run.status()["restarts"]["count"] == 1
    one.run.stop()
    later = log.ask("CREATE QUERY single AS SELECT v, s FROM b WHERE w >= 0")
    one = started({"pairs": PAIRS}, A, B)
    assert log.wait(later, 0).ok
    assert read(one.run) == {"a": {"k", "v", "w", "s"}, "b": {"k", "v", "w", "s"}}
    assert one.run.status()["restarts"]["count"] == 0
    one.feed(**rows_at(2))
    assert one.answer("pairs") == expected(PAIRS, range(3))
    assert one.answer("weights") == expected(WEIGHTS, (1, 2))
    assert one.answer("single") == expected("SELECT v, s FROM b WHERE w >= 0", (2,))


def test_a_batch_that_was_planned_when_the_engine_died_is_read_with_the_columns_of_a_new_query(started, monkeypatch):
    one = started({"pairs": PAIRS}, A, B)
    one.feed(**rows_at(0))

    def fail(*_):
        raise OSError("no more")

    with monkeypatch.context() as patched:
        patched.setattr(one.run.stepper, "run_batch", fail)
        one.replay.add(**rows_at(1))
        wait_until(lambda: not one.run.active)
    one = started({"pairs": PAIRS, "weights": WEIGHTS}, A, B)
    wait_until(lambda: one.rows("a") == one.rows("b") == 4)
    one.feed(**rows_at(2))
    assert one.answer("pairs") == expected(PAIRS, range(3))
    assert one.answer("weights") == expected(WEIGHTS, (1, 2))


@pytest.mark.parametrize("late", ["drop", "side"])
def test_streams_with_all_their_columns_need_no_restart(started, late):
    """Files that mappers read, column by column; and rows that may be put aside, as a whole."""
    streams = [replace(s, late=late) for s in (A, B)]
    one = started({"pairs": PAIRS}, *streams, plain=late == "drop")
    one.feed(**rows_at(0))
    assert read(one.run)["a"] == {"ts", "k", "v", "w", "s"}
    weights = WEIGHTS.replace("md5(a.s) >= '8'", "a.s >= 's'")
    one.engine.query(weights, name="weights")
    for number in range(1, 5):
        one.feed(**rows_at(number))
    assert one.run.status()["restarts"]["count"] == 0
    assert one.answer("weights") == expected(weights, range(1, 5), *streams)
    if late == "side":
        assert [row["s"] for row in one.engine.late("a").collect()] == ["s0"]


def test_files_that_spark_has_to_read_for_one_query_are_read_with_the_columns_of_all(started):
    one = started({"pairs": PAIRS, "weights": WEIGHTS}, A, B, plain=True)
    assert read(one.run) == {"a": {"k", "v", "w", "s"}, "b": {"ts", "k", "v", "w", "s"}}
    for number in (0, 1):
        one.feed(**rows_at(number))
    one.engine.drop("weights")  # mappers read them now
    one.feed(**rows_at(2))
    assert one.answer("pairs") == expected(PAIRS, range(3))
    assert one.answer("weights") == expected(WEIGHTS, range(2))


def test_streams_on_one_source_read_what_either_needs(spark, tmp_path):
    begun, ended = (
        stream(n, "begun timestamp, ended timestamp, k bigint, v bigint, w bigint", event_time=n, **DROPPED)
        for n in ("begun", "ended")
    )
    replay, batches = Replay(tmp_path / "source", begun), []
    queries = {
        "begins": "SELECT k, count(*) AS n, window_end FROM begun [TUMBLING 2 SECONDS] GROUP BY k",
        "ends": "SELECT v, window_end FROM ended [TUMBLING 4 SECONDS] GROUP BY v",
    }
    for number in range(6):
        rows = [
            {"begun": n * SECOND, "ended": (n + 3) * SECOND, "k": n % 2, "v": n % 3, "w": n}
            for n in (number, number + 1)
        ]
        batches.append(rows)
        replay.add(begun=rows)
        if number in (2, 5):
            engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
            frame = replay.frame(spark, "begun").where(FOR_SPARK)
            for s in (begun, ended):
                engine.stream(s.name, frame, event_time=s.event_time, delay=s.delay, late="drop", bad="drop")
            for name, sql in queries.items():
                engine.query(sql, name=name)
            run = drain(engine, final=number == 5)
    assert read(run) == {"begun": {"k"}, "ended": {"v"}}
    assert len(run.throttle.query.lastProgress["sources"]) == 1
    assert all(schema.count(":") == 4 for schema in scans(run))  # both times, k and v
    streams = {"begun": begun, "ended": ended}
    accepted = {n: [row for step in admit(s, batches) for row in step.accepted] for n, s in streams.items()}
    for name, sql in queries.items():
        found = bag(rows_of(engine.results(name)))
        assert found == bag(aggregate_results(parse_query(sql, streams), streams, accepted))
        assert found


def test_malformed_rows_are_the_same_whatever_is_read_of_them(spark, tmp_path):
    """With a mode that drops them, a row with an invalid value in an unused column would come back."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.json").write_text('{"n": 1, "k": 1, "v": 1}\n{"n": 2, "k": 2, "v": "x"}\n')
    reader = spark.readStream.schema("n bigint, k bigint, v bigint").format("json")
    for number, (mode, rows) in enumerate((("DROPMALFORMED", [(1,)]), ("PERMISSIVE", [(1,), (2,)]))):
        engine = Engine(spark, tmp_path / f"state{number}", durable=False)
        frame = reader.option("mode", mode).load(str(tmp_path / "a"))
        engine.stream("a", frame, event_time="n", delay=0, **DROPPED)
        engine.query("SELECT k FROM a", name="q")
        run = drain(engine)
        assert sorted(rows_of(engine.results("q"))) == rows
        assert read(run)["a"] == ({"k"} if mode == "PERMISSIVE" else {"n", "k", "v"})
    corrupt = spark.readStream.schema("n bigint, k bigint, bad string").option("columnNameOfCorruptRecord", "bad")
    assert not pruned._is_prunable(corrupt.json(str(tmp_path / "a")))
    assert pruned._is_prunable(corrupt.option("columnNameOfCorruptRecord", "other").json(str(tmp_path / "a")))


@settings(max_examples=examples(2), deadline=None, phases=PHASES)
@given(changing(), st.integers(1, 3), st.integers(1, 3))
def test_every_sequence_of_changes_gives_every_query_its_own_answer(spark, tmp_path_factory, case, tasks, restart):
    load, lifetimes = case
    load = replace(load, streams={n: replace(s, **DROPPED) for n, s in load.streams.items()})
    check_changes(
        spark, tmp_path_factory.mktemp("pruned"), (load, lifetimes), "state_slice", tasks, restart, plain=False
    )
