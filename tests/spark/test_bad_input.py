"""Rows, declarations, files and disks as they should not be: a clear refusal, or an answer; never a wrong one."""

import contextlib
import errno
import re
import shutil
import subprocess

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions

from penstock import Engine, PenstockError, RegistrationError, Sink, SqlError, StateError, StepError
from penstock.model.time import SECOND
from penstock.reference import admit
from penstock.spark.intake import Intake
from penstock.storage.local import LocalStore
from tests.oracle import bag
from tests.spark.replay import Replay, Saved, drain, rows_of, stream, wait_until

pytestmark = pytest.mark.spark

A = stream("a", "ts timestamp, k bigint, v bigint")
B = stream("b", "ts timestamp, k bigint, v bigint")
JOIN = "SELECT a.v, b.v AS w FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"


def row(second, k, v):
    return {"ts": None if second is None else second * SECOND, "k": k, "v": v}


def one_pair(replay, second, number):
    """One step that brings one result: (number, number)."""
    replay.add(a=[row(second, number, number)], b=[row(second, number, number)])


@pytest.fixture
def root(request, tmp_path):
    """Where source and state of a test lie: in a folder of its own, or in one that was used."""
    return request.getfixturevalue("restored") if "used" in request.fixturenames else tmp_path


@pytest.fixture
def replay(root):
    return Replay(root / "source", A, B)


@pytest.fixture
def state(root):
    return root / "state"


def use(spark, replay, state):
    """Answer two steps, whose rows are still held."""
    one_pair(replay, 0, 1)
    one_pair(replay, 1, 2)
    drain(replay.engine(spark, state, {"q": JOIN}))


@pytest.fixture(scope="module")
def once(spark, tmp_path_factory):
    """A folder that was used, and a copy of it."""
    root, copy = tmp_path_factory.mktemp("used"), tmp_path_factory.mktemp("copy")
    use(spark, Replay(root / "source", A, B), root / "state")
    return Saved(root, copy)


@pytest.fixture
def restored(once):
    return once.restore()


@pytest.fixture
def used(state):
    """The state of a directory that has answered two steps and still holds their rows."""
    return state


# ---------------------------------------------------------------------------------------------------------- rows


def test_null_times_and_null_keys_only_fail_to_match(spark, replay, state):
    replay.add(a=[row(None, 1, 1), row(1, None, 2), row(1, 1, 3)], b=[row(1, None, 4), row(None, 1, 5)])
    replay.add()
    replay.add(b=[row(2, 1, 6)])
    engine = replay.engine(spark, state, {"q": JOIN})
    run = drain(engine, final=True)
    assert rows_of(engine.results("q")) == [(3, 6)]
    assert rows_of(engine.bad("a").select("v")) == [(1,)]
    assert rows_of(engine.bad("b").select("v")) == [(5,)]
    streams = run.status()["streams"]
    assert {k: streams["a"][k] for k in ("rows", "accepted", "late", "bad")} == {
        "rows": 3, "accepted": 2, "late": 0, "bad": 1,
    }  # fmt: skip


def test_a_stream_that_never_gets_a_row_holds_the_others_state(spark, replay, state):
    for second in range(3):
        replay.add(a=[row(100 * second, 1, second)])
    engine = replay.engine(spark, state, {"q": JOIN, "alone": "SELECT v FROM a"})
    run = drain(engine)
    assert rows_of(engine.results("q")) == []
    assert bag(rows_of(engine.results("alone"))) == bag([(0,), (1,), (2,)])
    assert run.status()["streams"]["b"]["progress"] is None
    assert sum(r.rows for r in engine.manifest().runs.values()) == 3


def test_no_input_at_all_ends_at_once(spark, replay, state):
    engine = replay.engine(spark, state, {"q": JOIN})
    drain(engine, final=True)
    assert rows_of(engine.results("q")) == []
    assert engine.results("q").columns == ["v", "w"]


@pytest.mark.parametrize("policy", ["late", "bad"])
def test_the_error_policy_stops_the_step_and_commits_nothing(spark, tmp_path, state, policy):
    strict = Replay(tmp_path / "source", stream("a", "ts timestamp, k bigint, v bigint", **{policy: "error"}), B)
    one_pair(strict, 5, 1)
    strict.add(a=[row(6, 2, 2), row(None if policy == "bad" else 0, 7, 777)], b=[row(6, 2, 2)])
    engine = strict.engine(spark, state, {"q": JOIN})
    with pytest.raises(StepError, match=rf"stream 'a'.*{policy}.*777.*policy is 'error'"):
        drain(engine)
    assert rows_of(engine.results("q")) == [(1, 1)]
    assert engine.manifest().last_batch == 0
    with pytest.raises(StepError, match="777"):
        drain(strict.engine(spark, state))


def test_poison_rows_do_not_stop_any_restart(spark, replay, state):
    for second in range(2):
        replay.add(a=[row(None, 1, second), row(second, 1, second)], b=[row(second, 1, second)])
        engine = replay.engine(spark, state, {"q": JOIN})
        drain(engine)
    assert bag(rows_of(engine.bad("a").select("v", "_reason"))) == bag(
        (v, "event time is NULL or unreadable") for v in range(2)
    )
    assert len(rows_of(engine.results("q"))) == 4


def test_dropped_rows_are_counted_and_not_kept(spark, tmp_path, state):
    careless = Replay(tmp_path / "source", stream("a", "ts timestamp, k bigint, v bigint", late="drop", bad="drop"), B)
    one_pair(careless, 5, 1)
    careless.add(a=[row(1, 1, 2), row(None, 1, 3)], b=[row(5, 1, 4)])
    engine = careless.engine(spark, state, {"q": JOIN})
    status = drain(engine).status()["streams"]["a"]
    assert (status["late"], status["bad"]) == (1, 1)
    assert rows_of(engine.late("a")) == rows_of(engine.bad("a")) == []
    assert bag(rows_of(engine.results("q"))) == bag([(1, 1), (1, 4)])


# -------------------------------------------------------------------------------------------------- declarations


@pytest.mark.parametrize("length", ["0 SECONDS", "-1 SECONDS", "1 MONTH"])
def test_windows_of_no_length_are_refused(spark, replay, state, length):
    engine = replay.engine(spark, state)
    with pytest.raises(SqlError):
        engine.query(JOIN.replace("10 SECONDS", length), name="q")
    assert engine.queries() == []


def test_streams_that_could_not_be_replayed_are_refused(spark, replay, state):
    frame = replay.frame(spark, "a")
    engine = Engine(spark, state, durable=False)
    still = spark.createDataFrame([], frame.schema)
    with pytest.raises(RegistrationError, match=r"'a'.*not streaming.*readStream"):
        engine.stream("a", still, event_time="ts")
    with pytest.raises(RegistrationError, match=r"'a'.*non-deterministic"):
        engine.stream("a", frame.withColumn("r", functions.rand()), event_time="ts")
    with pytest.raises(RegistrationError, match=r"'a'.*stateful.*delay="):
        engine.stream("a", frame.withWatermark("ts", "1 second"), event_time="ts")
    with pytest.raises(RegistrationError, match=r"'a'.*stateful"):
        engine.stream("a", frame.dropDuplicates(), event_time="ts")
    assert engine.streams() == []


def test_streams_that_make_no_sense_are_refused(spark, replay, state):
    frame = replay.frame(spark, "a")
    engine = Engine(spark, state, durable=False)
    with pytest.raises(RegistrationError, match=r"no column 'tss'.*did you mean ts"):
        engine.stream("a", frame, event_time="tss", ordered=True)
    with pytest.raises(RegistrationError, match=r"'x' is double"):
        engine.stream("a", frame.selectExpr("1.5D AS x"), event_time="x", ordered=True)
    with pytest.raises(RegistrationError, match="idle"):
        engine.stream("a", frame, event_time="k", idle="1 second", ordered=True)
    with pytest.raises(RegistrationError, match="late must be one of"):
        engine.stream("a", frame, event_time="ts", late="ignore", ordered=True)
    with pytest.raises(RegistrationError, match="negative"):
        engine.stream("a", frame, event_time="ts", delay=-1)
    with pytest.raises(RegistrationError, match="'_x'"):
        engine.stream("a", frame.withColumnRenamed("v", "_x"), event_time="ts", ordered=True)
    with pytest.raises(RegistrationError, match="'a' says nothing of how late its rows may come"):
        engine.stream("a", frame, event_time="ts")
    with pytest.raises(RegistrationError, match=r"'a', delay: cannot read 'soon'"):
        engine.stream("a", frame, event_time="ts", delay="soon")
    with pytest.raises(RegistrationError, match=r"'a', idle: cannot read"):
        engine.stream("a", frame, event_time="ts", ordered=True, idle="a while")
    with pytest.raises(RegistrationError, match=r"'a': the delay of an integer event time is a whole number"):
        engine.stream("a", frame, event_time="k", delay="5 seconds")
    engine.stream("a", frame, event_time="ts", ordered=True)
    with pytest.raises(RegistrationError, match="'a' is declared twice"):
        engine.stream("a", frame, event_time="ts", ordered=True)


@pytest.mark.parametrize(
    ("sql", "options", "reason"),
    [
        ("SELECT v FROM a", {"name": ""}, "needs a name"),
        ("SELECT v FROM a", {"name": "b"}, "'b' has the name of a stream"),
        ("SELECT v FROM a", {"retain": "a week"}, "'q', retain: "),
        ("SELECT v FROM a", {"into": 3}, "into= is a path, a function or a Sink, and not 3"),
        ("SELECT 1 / count(*) FROM a [TUMBLING 1 SECOND]", {"on_error": "stop"}, "what SELECT computes of aggregates"),
        ("SELECT count(*) FROM a [TUMBLING 1 SECOND] HAVING 1 / count(*) > 0", {"on_error": "stop"}, "what HAVING"),
        ("SELECT v, count(*) FROM a [TUMBLING 1 SECOND] GROUP BY v ORDER BY 1 / v LIMIT 1", {"on_error": "stop"},
         "what ORDER BY"),
    ],
)  # fmt: skip
def test_queries_that_make_no_sense_are_refused(spark, replay, state, sql, options, reason):
    engine = replay.engine(spark, state)
    with pytest.raises(RegistrationError, match=reason):
        engine.query(sql, **{"name": "q", **options})
    assert engine.queries() == []


def test_what_an_engine_cannot_run_with_is_refused(spark, replay, state):
    with pytest.raises(RegistrationError, match="tasks must be at least 1"):
        Engine(spark, state, tasks=0)
    with pytest.raises(TypeError, match="'nonsense' is neither an argument nor a Spark setting"):
        Engine.local(state, nonsense="x")
    engine = replay.engine(spark, state, {"q": "SELECT v FROM a"})
    for words in ({"trigger": "often"}, {"latency": "quick"}):
        with pytest.raises(RegistrationError, match=f"{next(iter(words))}: cannot read"):
            engine.start(**words)
    with pytest.raises(RegistrationError, match="'q' has the name of a query"):
        engine.stream("q", replay.frame(spark, "b"), event_time="ts", ordered=True)


def test_queries_that_repeat_nothing_alike_are_refused(spark, replay, state):
    engine = replay.engine(spark, state)
    with pytest.raises(PenstockError, match="rand is not deterministic"):
        engine.query("SELECT v, rand() FROM a", name="q")
    with pytest.raises(PenstockError, match="uuid is not deterministic"):
        engine.query("SELECT v FROM a WHERE uuid() <> ''", name="q")
    assert engine.queries() == []


def test_a_changed_schema_names_the_column(spark, used, root, replay):
    other = Replay(root / "source", stream("a", "ts timestamp, k string, v bigint"), B)
    with pytest.raises(RegistrationError, match=r"'a' differs.*'k' was bigint, is string"):
        other.engine(spark, used)
    narrower = Replay(root / "source", stream("a", "ts timestamp, k bigint"), B)
    with pytest.raises(RegistrationError, match="'v' was bigint, is absent"):
        narrower.engine(spark, used)
    slower = Replay(root / "source", stream("a", "ts timestamp, k bigint, v bigint", delay=SECOND), B)
    with pytest.raises(RegistrationError, match="delay was 0, is 1000000"):
        slower.engine(spark, used)
    one_pair(replay, 2, 3)
    drain(replay.engine(spark, used))


def test_a_different_query_under_a_name_is_refused_and_an_equal_one_changes_nothing(spark, used, replay):
    engine = replay.engine(spark, used)
    version = engine.network().version
    with pytest.raises(RegistrationError, match=r"'q' is registered with another definition.*CREATE OR REPLACE"):
        engine.query(JOIN.replace("10", "11"), name="q")
    with pytest.raises(RegistrationError, match="another definition"):
        engine.query(JOIN, name="q", on_error="stop")
    engine.query(JOIN.replace(" WHERE", "\n  WHERE"), name="q")
    one_pair(replay, 2, 3)
    drain(engine)
    assert engine.network().version == version
    assert bag(rows_of(engine.results("q"))) == bag([(1, 1), (2, 2), (3, 3)])


def test_a_query_that_the_script_no_longer_declares_goes_on(spark, used, replay):
    one_pair(replay, 2, 3)
    engine = replay.engine(spark, used)
    drain(engine)
    assert bag(rows_of(engine.results("q"))) == bag([(1, 1), (2, 2), (3, 3)])


def test_a_query_whose_stream_is_not_declared_refuses_the_start(spark, used, replay):
    engine = Engine(spark, used, durable=False)
    replay.declare(engine, "a")
    with pytest.raises(RegistrationError, match=r"query 'q'.*stream 'b'.*declare the stream, or drop the query"):
        engine.start(available_now=True)
    engine.drop("q")
    drain(engine)


def test_an_engine_without_streams_refuses_the_start(spark, state):
    with pytest.raises(RegistrationError, match="no stream is declared"):
        Engine(spark, state, durable=False).start()


# ------------------------------------------------------------------------------------------------- start and end


def test_a_finalized_directory_refuses_the_start_and_stays_readable(spark, replay, state):
    one_pair(replay, 0, 1)
    drain(replay.engine(spark, state, {"q": JOIN}), final=True)
    engine = replay.engine(spark, state)
    with pytest.raises(StateError, match=r"final.*new state directory"):
        engine.start(available_now=True)
    assert rows_of(engine.results("q")) == [(1, 1)]


def test_final_needs_available_now(spark, replay, state):
    with pytest.raises(PenstockError, match="available_now"):
        replay.engine(spark, state, {"q": JOIN}).start(final=True)


def test_an_engine_starts_once(spark, used, replay):
    engine = replay.engine(spark, used)
    run = engine.start()
    try:
        with pytest.raises(StateError, match="already runs"):
            engine.start()
    finally:
        run.stop()


# --------------------------------------------------------------------------------------------------------- files


def damage(path, how):
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-7])
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x41
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["missing", "truncated", "corrupted"])
def test_a_damaged_state_file_is_named_and_never_read(spark, replay, state, how):
    use(spark, replay, state)
    engine = replay.engine(spark, state)
    before = engine.manifest()
    # A file that no worker has opened yet, here or in another test: what one has opened, it does not verify again.
    victim = max((run for run in before.runs.values() if run.table.startswith("b")), key=lambda run: run.step).name
    damage(state / victim, how)
    replay.add(a=[row(2, k, k) for k in range(8)])
    with pytest.raises((StateError, StepError), match=victim):
        drain(engine)
    assert replay.engine(spark, state).manifest() == before


@pytest.mark.parametrize("how", ["missing", "truncated", "corrupted"])
def test_a_damaged_manifest_entry_is_named_and_never_read(spark, used, replay, how):
    engine = replay.engine(spark, used)
    damage(used / "manifest" / "000000000000.json", how)
    with pytest.raises(StateError, match=r"manifest.*(000000000000.json|of step 0 is missing)"):
        engine.start(available_now=True)
    with pytest.raises(StateError):
        engine.results("q")


@pytest.mark.parametrize("how", ["missing", "truncated", "corrupted"])
def test_a_damaged_registry_is_named_and_never_read(spark, used, replay, how):
    name = max(p.name for p in (used / "registry").iterdir())
    damage(used / "registry" / name, how)
    with pytest.raises(StateError, match=name):
        drain(replay.engine(spark, used, {"q": JOIN}))


def test_an_altered_registry_is_named_and_never_read(spark, used, replay):
    path = max((used / "registry").iterdir())
    path.write_text(path.read_text().replace("RANGE 10 SECONDS", "RANGE 90 SECONDS"))
    with pytest.raises(StateError, match=path.name):
        drain(replay.engine(spark, used))


@pytest.mark.parametrize("how", ["missing", "truncated"])
def test_a_damaged_result_file_is_named_and_never_read(spark, used, replay, how):
    engine = replay.engine(spark, used)
    victim = next(iter(engine.manifest().results))
    damage(used / victim, how)
    with pytest.raises(StateError, match=victim):
        rows_of(engine.results("q"))


def test_changed_bytes_of_a_result_file_are_never_read(spark, used, replay):
    engine = replay.engine(spark, used)
    victim = used / next(iter(engine.manifest().results))
    group = pq.read_metadata(victim).row_group(0)
    named = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    page = named["r0_c2"]  # v of stream a
    data = bytearray(victim.read_bytes())
    data[page.data_page_offset + page.total_compressed_size - 1] ^= 0x41
    victim.write_bytes(data)
    with pytest.raises((PySparkException, Py4JJavaError), match=r"(?i)crc|checksum"):
        rows_of(engine.results("q"))


# ---------------------------------------------------------------------------------------------------------- disk


@pytest.fixture
def small_disk(tmp_path):
    """A disk of a few megabytes, if this machine lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(ballast):
    """Write until the disk is full."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(ballast.parent).free == 0


def test_a_full_disk_loses_nothing_that_was_committed(spark, replay, small_disk):
    state = small_disk / "state"
    one_pair(replay, 0, 1)
    drain(replay.engine(spark, state, {"q": JOIN}))
    ballast = small_disk / "ballast"
    fill(ballast)
    one_pair(replay, 1, 2)
    engine = replay.engine(spark, state)
    with pytest.raises(Exception, match=r"[Nn]o space left"):
        drain(engine)
    assert rows_of(replay.engine(spark, state).results("q")) == [(1, 1)]
    ballast.unlink()
    one_pair(replay, 2, 3)
    engine = replay.engine(spark, state)
    drain(engine, final=True)
    assert bag(rows_of(engine.results("q"))) == bag([(1, 1), (2, 2), (3, 3)])


@pytest.mark.parametrize("folder", ["manifest", "runs"])
def test_a_disk_that_fills_up_within_a_step_loses_nothing(spark, used, replay, monkeypatch, folder):
    """The same where no small disk can be mounted, for the driver's own writes."""
    engine = replay.engine(spark, used)
    put = LocalStore.put_if_absent
    sync = LocalStore.sync

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    one_pair(replay, 2, 3)
    with monkeypatch.context() as patch:
        if folder == "manifest":
            patch.setattr(LocalStore, "put_if_absent", full)
        else:
            patch.setattr(LocalStore, "sync", full)
        with pytest.raises(Exception, match="No space left"):
            drain(engine)
    assert (LocalStore.put_if_absent, LocalStore.sync) == (put, sync)
    assert bag(rows_of(engine.results("q"))) == bag([(1, 1), (2, 2)])
    engine = replay.engine(spark, used)
    drain(engine)
    assert bag(rows_of(engine.results("q"))) == bag([(1, 1), (2, 2), (3, 3)])


def test_a_step_that_fails_in_java_says_so_and_why(spark, used, replay, monkeypatch):
    engine = replay.engine(spark, used)
    one_pair(replay, 2, 3)
    monkeypatch.setattr(Intake, "run", lambda *_: spark._jvm.java.util.ArrayList().get(5))
    with pytest.raises(StepError, match=r"^step 2 failed and nothing of it was committed: Index 5 out of bounds"):
        drain(engine)


# --------------------------------------------------------------------------------------------------------- sinks


def test_a_failing_sink_delays_only_itself_and_is_served_later(spark, replay, state, tmp_path):
    one_pair(replay, 0, 1)
    broken, got, fine = True, [], []

    def fragile(table, step):
        if broken:
            raise ConnectionError("the other side is away")
        got.append((step, table.to_pylist()))

    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    engine = replay.engine(spark, state)
    engine.query(JOIN, name="fragile", into=fragile)
    engine.query(JOIN, name="folder", into=blocked)
    engine.query(JOIN, name="fine", into=lambda table, step: fine.append((step, table.to_pylist())))
    run = engine.start("100 milliseconds")
    wait_until(lambda: len(fine) == 1)
    one_pair(replay, 1, 2)
    wait_until(lambda: len(fine) == 2)
    sinks = {s["sink"]: s for s in run.status()["sinks"]}
    assert "the other side is away" in sinks["callable:fragile"]["error"]
    assert str(blocked) in sinks[f"path:{blocked}"]["error"]
    assert sinks["callable:fine"]["error"] is None
    assert sinks["callable:fragile"]["delivered"] < sinks["callable:fine"]["delivered"]
    assert len(rows_of(engine.results("fragile"))) == 2
    broken = False
    blocked.unlink()
    wait_until(lambda: len(got) == 2 and len(list(blocked.glob("*.parquet"))) == 2)
    wait_until(lambda: all(s["error"] is None for s in run.status()["sinks"]))
    run.stop()
    assert got == fine
    assert [rows for _, rows in fine] == [[{"v": 1, "w": 1}], [{"v": 2, "w": 2}]]


def test_a_sink_that_would_end_the_program_delays_only_itself(spark, replay, state):
    one_pair(replay, 0, 1)
    tried, fine = [], []

    def leaves(table, step):
        tried.append(step)
        if len(tried) < 3:
            raise [SystemExit("gone"), KeyboardInterrupt()][len(tried) - 1]

    engine = replay.engine(spark, state)
    engine.query(JOIN, name="leaves", into=leaves)
    engine.query(JOIN, name="fine", into=lambda table, step: fine.append(table.to_pylist()))
    run = engine.start("100 milliseconds")
    wait_until(lambda: run.status()["sinks"][0]["error"] == "SystemExit: gone")
    one_pair(replay, 1, 2)
    wait_until(lambda: len(fine) == 2 and len(tried) >= 4)
    wait_until(lambda: run.status()["sinks"][0]["error"] is None)
    run.stop()
    assert tried[0] == tried[1] == tried[2]
    assert sorted(set(tried)) == sorted({step for *_, step in rows_of(engine.results("fine", step=True))})


def test_a_sink_of_spark_gets_one_write_a_step_for_all_queries_of_one_schema(spark, replay, state, tmp_path):
    folder = tmp_path / "delivered"
    one_pair(replay, 0, 1)
    one_pair(replay, 1, 2)
    engine = replay.engine(spark, state)
    engine.query(JOIN, name="q", into=Sink("parquet", path=str(folder)))
    engine.execute(f"CREATE QUERY again AS {JOIN} AND a.v > 1 INTO parquet OPTIONS (path '{folder}')")
    (sink,) = drain(engine).status()["sinks"]
    assert sink["error"] is None
    assert sorted(rows_of(spark.read.parquet(str(folder)))) == [(1, 1), (2, 2), (2, 2)]
    writes = {re.sub(r"part-\d+-([0-9a-f-]{36}).*", r"\1", file.name) for file in folder.glob("*.parquet")}
    assert len(writes) == 2
    one_pair(replay, 2, 3)
    drain(replay.engine(spark, state))
    assert sorted(rows_of(spark.read.parquet(str(folder)))) == [(1, 1), (2, 2), (2, 2), (3, 3), (3, 3)]


def test_what_a_sink_is_owed_is_delivered_after_a_restart(spark, replay, state):
    one_pair(replay, 0, 1)
    one_pair(replay, 1, 2)

    def away(table, step):
        raise ConnectionError("away")

    engine = replay.engine(spark, state)
    engine.query(JOIN, name="q", into=away)
    assert "away" in drain(engine).status()["sinks"][0]["error"]
    with pytest.raises(PenstockError, match="'q' delivers to a function; give it again"):
        replay.engine(spark, state).start(available_now=True)
    got = []
    engine = replay.engine(spark, state)
    engine.query(JOIN, name="q", into=lambda table, step: got.append((step, table.to_pylist())))
    drain(engine)
    assert [rows for _, rows in got] == [[{"v": 1, "w": 1}], [{"v": 2, "w": 2}]]
    assert [step for step, _ in got] == sorted({step for *_, step in rows_of(engine.results("q", step=True))})
    engine = replay.engine(spark, state)
    engine.query(JOIN, name="q", into=lambda table, step: got.append((step, table.to_pylist())))
    drain(engine)
    assert len(got) == 2


@pytest.mark.parametrize("plain", [True, False])
def test_rows_before_every_origin_are_bad_rows(spark, tmp_path, state, plain):
    replay = Replay(tmp_path / "source", stream("a", "ts timestamp, k bigint, v bigint"))
    replay.plain = plain  # plain files are read by the workers themselves, others by Spark
    origin = "FROM a [RANGE 2 SECONDS SLIDE 2 SECONDS ORIGIN TIMESTAMP '1970-01-01 00:00:0{}']"
    queries = {f"q{second}": f"SELECT k, sum(v) AS s {origin.format(second)} GROUP BY k" for second in (2, 5)}
    batches = [[row(1, 1, 1), row(2, 1, 2), row(5, 1, 4)], [row(0, 1, 8), row(1, 1, 16), row(4, 1, 32), row(6, 1, 64)]]
    for batch in batches:
        replay.add(a=batch)
    engine = replay.engine(spark, state, queries)
    run = drain(engine, final=True)
    steps = admit(replay.streams["a"], batches, origin=2 * SECOND)
    bad = [r for step in steps for r in step.bad]
    assert bag(rows_of(engine.bad("a").select("v"))) == bag((r["v"],) for r in bad) == bag([(1,), (8,), (16,)])
    assert {r[0] for r in rows_of(engine.bad("a").select("_reason"))} == {"event time before every ORIGIN"}
    counts = run.status()["streams"]["a"]
    assert {k: counts[k] for k in ("rows", "accepted", "late", "bad")} == {
        "rows": 7,
        "accepted": 3,
        "late": 1,
        "bad": 3,
    }
    assert bag(rows_of(engine.results("q2"))) == bag([(1, 2), (1, 4), (1, 64)])
    assert bag(rows_of(engine.results("q5"))) == bag([(1, 68)])
