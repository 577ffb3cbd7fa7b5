"""Steps without a batch, idle streams, the end of streams, and expiry by progress."""

import json
import time

import pytest

from penstock import Engine, RegistrationError, StateError
from penstock.model.time import HOUR, SECOND
from penstock.step import loop
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, stream, wait_until

pytestmark = pytest.mark.spark

COLUMNS = "ts timestamp, k bigint, v bigint"
JOIN = "SELECT a.v, b.v AS w FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"


def now():
    return int(time.time() * SECOND)


def row(micros, v):
    return {"ts": micros, "k": 1, "v": v}


def pair(root, **options):
    return Replay(root / "source", stream("a", COLUMNS, **options), stream("b", COLUMNS, **options))


def entries(state):
    """The steps that were committed, as (batch, progress kinds)."""
    found = []
    for path in sorted((state / "manifest").glob("[0-9]*.json")):
        body = json.loads(path.read_text().partition(" ")[2])
        found.append((body["batch"], {name: p["kind"] for name, p in body["progress"].items()}))
    return found


def held(manifest, stream):
    return sum(run.rows for run in manifest.runs.values() if run.table.startswith(stream))


def test_when_all_streams_are_silent_progress_follows_the_clock(spark, tmp_path):
    replay = pair(tmp_path, idle=2 * SECOND)
    start = now()
    replay.add(a=[row(start, 1)], b=[row(start, 2)])
    engine = replay.engine(spark, tmp_path / "state", {"q": JOIN})
    run = engine.start("100 milliseconds")
    wait_until(lambda: run.status()["state"]["rows"] == 2)
    wait_until(lambda: run.status()["streams"]["a"]["progress_kind"] == "idle")
    wait_until(lambda: run.status()["state"]["runs"] == 0)
    status = run.status()
    assert status["batch"] == 0
    assert status["step"] > 0
    for name in ("a", "b"):
        assert status["streams"][name]["progress_kind"] == "idle"
        assert start + SECOND <= status["streams"][name]["progress"] <= now() - 2 * SECOND
        assert status["streams"][name]["newest"] == start
    # What comes behind the clock's progress is late.
    replay.add(a=[row(start, 3)], b=[row(now(), 4)])
    wait_until(lambda: run.status()["streams"]["a"]["rows"] == 2)
    run.stop()
    assert run.status()["streams"]["a"]["late"] == 1
    assert run.status()["streams"]["b"]["late"] == 0
    assert rows_of(engine.results("q")) == [(1, 2)]
    steps = entries(tmp_path / "state")
    assert [batch for batch, _ in steps if batch is not None] == [0, 1]
    assert any(batch is None and kinds["a"] == "idle" for batch, kinds in steps)


def test_the_lull_rule_is_off_while_present_input_is_read(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(loop, "QUIET_SECONDS", 0.0)
    replay = pair(tmp_path, idle=1)
    start = now() - 10 * SECOND
    for step in range(3):
        replay.add(a=[row(start + step * SECOND, step)], b=[row(start + step * SECOND, step)])
    engine = replay.engine(spark, tmp_path / "state", {"q": JOIN})
    status = drain(engine).status()
    assert {s["progress_kind"] for s in status["streams"].values()} == {"delay"}
    assert status["streams"]["a"]["late"] == 0
    assert bag(rows_of(engine.results("q"))) == bag((v, v) for v in range(3))


def test_a_silent_stream_of_old_times_follows_the_others_with_a_warning(spark, tmp_path):
    replay = pair(tmp_path, idle=SECOND, idle_skew=HOUR)
    old = now() - 3 * HOUR
    replay.add(a=[row(old, 1)], b=[row(old + 60 * SECOND, 2)])
    engine = replay.engine(spark, tmp_path / "state", {"q": JOIN})
    run = engine.start("100 milliseconds")
    wait_until(lambda: run.status()["warnings"])
    wait_until(lambda: run.status()["streams"]["a"]["progress"] == old + 60 * SECOND)
    run.stop()
    assert any("'a'" in w and "idle_skew" in w for w in run.status()["warnings"])
    assert run.status()["streams"]["b"]["progress"] == old + 60 * SECOND
    assert held(engine.manifest(), "b") == 1


def test_a_stream_without_idle_waits(spark, tmp_path):
    replay = Replay(tmp_path / "source", stream("a", COLUMNS, idle=SECOND), stream("b", COLUMNS))
    start = now()
    replay.add(a=[row(start, 1)], b=[row(start, 2)])
    engine = replay.engine(spark, tmp_path / "state", {"q": JOIN})
    run = engine.start("100 milliseconds")
    # The clock moves a's progress, which lets b's row go; a's row waits for b.
    wait_until(lambda: run.status()["state"]["rows"] == 1)
    run.stop()
    assert run.status()["streams"]["b"]["progress"] == start
    assert (held(engine.manifest(), "a"), held(engine.manifest(), "b")) == (1, 0)


def test_state_goes_when_the_other_streams_have_passed_it(spark, tmp_path):
    replay = pair(tmp_path)
    replay.add(a=[row(0, 1), row(SECOND // 2, 2)], b=[row(0, 3)])
    replay.add(b=[row(SECOND - 1, 4)])
    engine = replay.engine(spark, tmp_path / "state", {"q": JOIN})
    drain(engine)
    assert held(engine.manifest(), "a") == 2
    replay.add(b=[row(100 * SECOND, 5)])
    engine = replay.engine(spark, tmp_path / "state")
    drain(engine)
    manifest = engine.manifest()
    assert (held(manifest, "a"), held(manifest, "b")) == (0, 3)
    assert not list((tmp_path / "state" / "runs").glob(f"*{next(iter(manifest.runs))}*x"))
    on_disk = {f"runs/{p.name}" for p in (tmp_path / "state" / "runs").iterdir()}
    assert on_disk == set(manifest.runs)
    # A row out of b's reach already is probed, but not stored.
    replay.add(a=[row(SECOND - 1, 6)])
    engine = replay.engine(spark, tmp_path / "state")
    drain(engine)
    assert held(engine.manifest(), "a") == 0
    table = next(t for t in engine.network().tables if t.stream == "a")
    assert engine.manifest().counters.table(table.name).out_of_reach == 1
    assert bag(rows_of(engine.results("q"))) == bag([(1, 3), (2, 3), (1, 4), (2, 4), (6, 3), (6, 4)])


def test_stop_with_final_ends_the_streams(spark, tmp_path):
    replay = pair(tmp_path)
    replay.add(a=[row(0, 1)], b=[row(0, 2)])
    engine = replay.engine(spark, tmp_path / "state", {"q": JOIN})
    run = engine.start("100 milliseconds")
    wait_until(lambda: run.status()["step"] == 0)
    run.stop(final=True)
    assert not run.active
    assert engine.manifest().final
    assert not engine.manifest().runs
    assert {p.kind for p in engine.manifest().progress.values()} == {"final"}
    assert rows_of(engine.results("q")) == [(1, 2)]
    with pytest.raises(StateError, match="final"):
        replay.engine(spark, tmp_path / "state").start()


def test_stop_without_final_goes_on_later_as_if_nothing_had_been(spark, tmp_path):
    replay = pair(tmp_path)
    got = []
    for start in range(3):
        replay.add(a=[row(start, start)], b=[row(start, start)])
        engine = replay.engine(spark, tmp_path / "state", {"q": JOIN})
        run = engine.start("100 milliseconds")
        wait_until(lambda run=run, batch=start: run.status()["batch"] == batch)
        run.stop()
        assert not engine.manifest().final
        got.append(len(rows_of(engine.results("q"))))
    assert got == [1, 4, 9]


def test_a_silent_stream_does_not_stall_a_busy_one(spark, tmp_path):
    replay = pair(tmp_path, idle=2 * SECOND)
    start = now()
    replay.add(a=[row(start, 1)], b=[row(start, 2)])
    engine = replay.engine(spark, tmp_path / "state", {"q": JOIN})
    run = engine.start("100 milliseconds")
    wait_until(lambda: run.status()["streams"]["a"]["rows"] == 1)

    def more():
        replay.add(b=[row(now(), 3)])
        return run.status()["streams"]["a"]["progress_kind"] == "idle"

    wait_until(more)
    run.stop()
    status = run.status()["streams"]
    assert status["a"]["progress"] > start
    # Batches of b alone moved it, not ticks, for which b was too busy.
    assert any(batch is not None and kinds.get("a") == "idle" for batch, kinds in entries(tmp_path / "state"))
    assert status["b"]["late"] == 0


COUNTS = "SELECT k, count(*) AS n FROM a [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k"


def test_a_bound_that_is_declared_closes_windows_and_outlives_the_run(spark, tmp_path):
    replay = Replay(tmp_path / "source", stream("a", COLUMNS, delay=HOUR))
    replay.add(a=[row(0, 1), row(SECOND // 2, 2)])
    engine = replay.engine(spark, tmp_path / "state", {"q": COUNTS})
    with pytest.raises(StateError, match="start it first"):
        engine.advance("a", "1970-01-01 00:00:01")
    run = engine.start("100 milliseconds")
    wait_until(lambda: run.status()["batch"] == 0)
    engine.advance("a", "1970-01-01 00:00:01")
    assert rows_of(engine.results("q")) == [(1, 2)]
    engine.execute("ALTER STREAM a ADVANCE TO TIMESTAMP '1970-01-01 00:00:02'")
    engine.advance("a", "1970-01-01 00:00:00.5")  # it never falls
    assert rows_of(engine.results("q")) == [(1, 2), (1, 2)]
    for wrong, words in ((5, "a time"), ("soon", "cannot read"), ("-", "cannot read")):
        with pytest.raises(RegistrationError, match=words):
            engine.advance("a", wrong)
    run.stop()
    replay.add(a=[row(2 * SECOND - 1, 3), row(2 * SECOND, 4)])
    engine = replay.engine(spark, tmp_path / "state")
    status = drain(engine, final=True).status()
    assert status["streams"]["a"]["late"] == 1
    assert engine.manifest().counters.stream("a").accepted == 3
    assert bag(rows_of(engine.results("q"))) == bag([(1, 2), (1, 2), (1, 1), (1, 1)])


def test_progress_follows_the_heartbeat_of_a_stream_also_without_rows(spark, tmp_path):
    replay = Replay(tmp_path / "source", stream("a", COLUMNS))
    start = now()
    replay.add(a=[row(start, 1)])
    engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
    engine.stream("a", replay.frame(spark, "a"), event_time="ts", heartbeat="20 seconds")
    engine.query(COUNTS, name="q")
    assert "heartbeat 20 seconds" in engine.explain()
    run = engine.start("100 milliseconds")
    wait_until(lambda: run.status()["streams"]["a"]["progress_kind"] == "heartbeat")
    first = run.status()["streams"]["a"]["progress"]
    assert start - 20 * SECOND <= first <= now() - 20 * SECOND
    wait_until(lambda: run.status()["streams"]["a"]["progress"] >= first + SECOND)  # no further row has come
    assert run.status()["batch"] == 0
    run.stop()


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("ts bigint, k bigint", {}, "not an integer"),
        (COLUMNS, {"idle": "5 seconds"}, "leave out idle"),
        (COLUMNS, {"heartbeat": "0 seconds"}, "above zero"),
    ],
)
def test_a_heartbeat_that_could_not_hold_is_refused(spark, tmp_path, columns, options, words):
    replay = Replay(tmp_path / "source", stream("a", columns))
    engine = Engine(spark, tmp_path / "state", durable=False)
    with pytest.raises(RegistrationError, match=words):
        engine.stream("a", replay.frame(spark, "a"), event_time="ts", **{"heartbeat": "5 seconds", **options})
