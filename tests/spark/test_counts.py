"""Windows that count rows in a running engine: results come once progress has passed them, and state stays small."""

import time
from unittest.mock import patch

import pytest

from penstock.errors import RegistrationError
from penstock.model.time import SECOND
from penstock.reference import results
from penstock.sql import parse_query
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, stream, wait_until
from tests.spark.test_online import JOIN, STREAMS, live, reference, rows_at  # noqa: F401  (a fixture)

pytestmark = pytest.mark.spark

COUNT = "SELECT a.v, b.v AS w FROM a [ROWS 3] AS a, b [RANGE 3 SECONDS] AS b WHERE a.k = b.k AND a.v <> 4"
BOTH = "SELECT a.v, b.v AS w FROM a [ROWS 2 PARTITION BY k] AS a, b [ROWS 3] AS b WHERE a.k = b.k ORDER BY result_time"


def before(answer, moment):
    """The results with a time below this; a row's `v` is its time in seconds."""
    return bag(row for row in answer.elements() if max(row) * SECOND < moment)


def test_results_come_when_progress_has_passed_them_and_at_the_end(live):  # noqa: F811
    one = live({"q": COUNT})
    got = []
    one.engine.query(BOTH, name="ordered", into=lambda table, _: got.extend(table.to_pylist()))
    for number in range(4):
        one.feed(**rows_at(number))
    # The newest row is of second 7, and rows may be two seconds late: a tick gives what the last step has closed.
    wait_until(lambda: one.answer("q") == before(reference(COUNT, range(4)), 5 * SECOND))
    wait_until(lambda: bag((r["v"], r["w"]) for r in got) == before(reference(BOTH, range(4)), 5 * SECOND))
    late_in_time = [{"ts": 5 * SECOND, "k": 1, "v": 5}]
    one.feed(a=late_in_time, b=late_in_time)
    one.run.stop(final=True)
    streams = {s.name: s for s in STREAMS}
    rows = {name: [*(r for n in range(4) for r in rows_at(n)[name]), *late_in_time] for name in streams}
    for name, sql in (("q", COUNT), ("ordered", BOTH)):
        assert one.answer(name) == bag(results(parse_query(sql, streams), streams, rows))
    times = [max(r["v"], r["w"]) for r in got]
    assert times == sorted(times)
    assert bag((r["v"], r["w"]) for r in got) == one.answer("ordered")
    assert not one.run.stepper.manifest.runs


def test_a_query_counts_the_rows_since_it_began_and_shares_its_tables(live):  # noqa: F811
    one = live({"wide": JOIN.format(9, 9), "first": COUNT})
    for number in range(2):
        one.feed(**rows_at(number))
    one.engine.query(COUNT, name="second")
    held = JOIN.format(2, 2)
    one.engine.query(held, name="held", start="state")
    with pytest.raises(RegistrationError, match="only some are held; let it begin with the rows to come"):
        one.engine.query(COUNT, name="third", start="state")
    for number in range(2, 4):
        one.feed(**rows_at(number))
    one.run.stop(final=True)
    assert one.answer("first") == reference(COUNT, range(4))
    assert one.answer("second") == reference(COUNT, range(2, 4))
    assert one.answer("wide") == reference(JOIN.format(9, 9), range(4))
    assert one.answer("held") == reference(held, range(4))


def test_when_a_stream_is_silent_the_clock_closes_what_it_holds_back(spark, tmp_path):
    columns = "ts timestamp, k bigint, v bigint"
    replay = Replay(tmp_path / "source", *(stream(name, columns, idle=SECOND) for name in "ab"))
    now = int(time.time() * SECOND)
    replay.add(**{name: [{"ts": now, "k": 1, "v": n} for n in range(3)] for name in "ab"})
    engine = replay.engine(
        spark, tmp_path / "state", {"q": "SELECT a.v, b.v AS w FROM a [ROWS 1], b [ROWS 2] WHERE a.k = b.k"}
    )
    run = engine.start("100 milliseconds")
    wait_until(lambda: run.status()["queries"]["q"]["results"] == 2)
    run.stop()
    assert bag(rows_of(engine.results("q"))) == bag([(2, 1), (2, 2)])


def test_state_holds_the_rows_that_windows_count_and_those_of_a_few_steps(spark, tmp_path):
    steps, each, count, fresh = 10, 5, 4, 3
    columns = "ts bigint, k bigint, v bigint"
    replay = Replay(tmp_path / "source", stream("a", columns), stream("b", columns))
    rows = []
    for step in range(steps):
        rows.append([{"ts": step, "k": n % 2, "v": n} for n in range(each)])
        replay.add(a=rows[-1], b=rows[-1])
    sql = f"SELECT a.ts, a.v, b.ts AS t, b.v AS w FROM a [ROWS {count}], b [ROWS {count}] WHERE a.k = b.k AND a.v > 0"
    engine = replay.engine(spark, tmp_path / "state", {"q": sql}, tasks=1)
    with patch("penstock.state.compaction.FAN_IN", fresh):
        drain(engine)
    manifest = engine.manifest()
    for table in engine.network().tables:
        held = sum(run.rows for run in manifest.runs_of(table.name))
        # So many fresh runs are merged, together with what is left of older ones; progress lags a step behind.
        assert held <= count + (fresh + 2) * each < steps * each
        assert manifest.counters.table(table.name).stored == steps * each
    streams = replay.streams
    everything = {name: [row for step in rows for row in step] for name in streams}
    whole = results(parse_query(sql, streams), streams, everything)
    assert bag(rows_of(engine.results("q"))) == bag(r for r in whole if max(r[0], r[2]) < steps - 1)
