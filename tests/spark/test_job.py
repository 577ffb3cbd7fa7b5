"""How rows reach the tasks of a job: by mappers, counted once despite retries, or directly; the same answer."""

from pathlib import Path
from unittest.mock import patch

import pytest

from penstock.model.time import SECOND
from penstock.planner.counters import StreamCounters
from penstock.spark import job
from penstock.step import loop
from penstock.step.report import Report
from penstock.step.run_mapper import run_mapper
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

COLUMNS = "ts timestamp, k bigint, s string, v bigint"
QUERIES = {
    "pairs": "SELECT a.v, b.v AS w, a.s FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k AND b.v <> 3",
    "texts": "SELECT s, count(*) AS n FROM a [TUMBLING 2 SECONDS] GROUP BY s",
    "theta": "SELECT a.v, b.v AS w FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.v < b.v",
}


def rows_at(step):
    """Two rows in time, one late (but in the first step), one without a time."""
    times = [step * SECOND * 3, step * SECOND * 3 + 1, step - 1, None]
    return [{"ts": t, "k": n % 2, "s": f"s{n % 3}", "v": 4 * step + n} for n, t in enumerate(times)]


def answers(spark, root, tasks=2):
    replay = Replay(root / "source", stream("a", COLUMNS), stream("b", COLUMNS))
    replay.plain = False
    for step in range(3):
        replay.add(a=rows_at(step), b=rows_at(step))
    engine = replay.engine(spark, root / "state", QUERIES, tasks=tasks)
    engine.query("SELECT s, v FROM a WHERE k = 1", name="single", into=root / "single")
    with patch.object(loop, "QUIET_SECONDS", 1e9):  # no ticks between batches, so that step numbers are alike
        drain(engine, final=True)
    found = {name: bag(rows_of(engine.results(name))) for name in QUERIES}
    found["single"] = bag(rows_of(engine.results("single")))
    assert bag(rows_of(spark.read.parquet(str(root / "single")))) == found["single"]
    found |= {f"late {n}": bag(rows_of(engine.late(n))) for n in "ab"}
    found |= {f"bad {n}": bag(rows_of(engine.bad(n))) for n in "ab"}
    manifest = engine.manifest()
    tables = {name: (counts.unwanted, counts.stored) for name, counts in manifest.counters.tables.items()}
    found["counts"] = manifest.counters.streams, tables
    return found, {Path(file.name).name for file in (*manifest.sides, *manifest.results.values())}


def test_a_mapper_that_fails_after_it_has_written_is_counted_once(spark, tmp_path, monkeypatch):
    expected, _ = answers(spark, tmp_path / "calm")
    marker = tmp_path / "fail"
    marker.touch()

    def failing_once(*given):
        sent = list(run_mapper(*given))
        account = Report.decode(sent[-1].column("_body")[0].as_py())
        if account.sides and account.results and marker.exists():
            marker.unlink()
            raise RuntimeError("this mapper fails after it has written")
        return iter(sent)

    monkeypatch.setattr(job, "run_mapper", failing_once)
    monkeypatch.setattr(job, "FEW_ROWS", -1)
    found, named = answers(spark, tmp_path / "failing")
    assert not marker.exists()
    assert found == expected
    for folder in ("sides", "results"):
        written = {path.name for path in (tmp_path / "failing" / "state" / folder).iterdir()}
        assert written - named, "the failed mapper has left no file behind"
        assert written & named


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_the_ways_of_rows_to_tasks_give_the_same(spark, tmp_path, monkeypatch, tasks):
    few, _ = answers(spark, tmp_path / "few", tasks)
    monkeypatch.setattr(job, "FEW_ROWS", -1)
    many, _ = answers(spark, tmp_path / "many", tasks)
    assert few == many
    assert few["counts"][0]["a"] == StreamCounters(rows=12, accepted=7, late=2, bad=3)
    assert all(few.values())


@pytest.mark.parametrize("few", [True, False])
def test_a_run_says_where_the_time_of_mappers_and_of_tasks_went(spark, tmp_path, monkeypatch, few):
    monkeypatch.setattr(job, "FEW_ROWS", 1 << 14 if few else -1)
    replay = Replay(tmp_path / "source", stream("a", COLUMNS), stream("b", COLUMNS))
    replay.plain = few
    for step in range(2):
        replay.add(a=rows_at(step), b=rows_at(step))
    phases = drain(replay.engine(spark, tmp_path / "state", QUERIES)).status()["phases"]
    assert phases["mappers"].keys() == {"read", "judge", "compute", "hash", "place", "pack"}
    assert phases["tasks"].keys() >= {"receive", "prepare", "probe", "store"}
    assert all(0 <= seconds < 60 for seconds in phases["mappers"].values())
    assert phases["mappers"]["read"] > 0


def test_what_crosses_the_exchange_does_not_grow_with_the_number_of_queries(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "FEW_ROWS", -1)
    replay = Replay(tmp_path / "source", stream("a", COLUMNS), stream("b", COLUMNS))
    replay.plain = False
    for step in range(2):
        replay.add(a=rows_at(step), b=rows_at(step))
    one = "SELECT a.v, b.v AS w, a.s FROM a [RANGE {0} SECONDS], b [RANGE {0} SECONDS] WHERE a.k = b.k AND b.v >= {1}"
    sent = []
    for number in (1, 20):
        queries = {f"q{n}": one.format(n + 1, -n) for n in range(number)}
        engine = replay.engine(spark, tmp_path / f"of {number}", queries)
        drain(engine)
        counts = engine.manifest().counters.engine
        sent.append((counts.sent_rows, counts.sent_bytes))
    assert sent[0] == sent[1]
    accepted = sum(engine.manifest().counters.stream(name).accepted for name in "ab")
    assert sent[0][0] == accepted > 0


@pytest.mark.parametrize(("most", "bounded"), [(1 << 26, [True, False, False]), (0, [True, True, True])])
def test_arrow_batches_are_bounded_in_bytes_after_a_step_that_sent_much_and_at_first(
    spark, tmp_path, monkeypatch, most, bounded
):
    """Adding up sizes costs time for each row, and parcels that do not fit into one batch cost the JVM its life."""
    found, sent = [], job.Job.sent

    def spy(self, session, *args):
        found.append(int(session.conf.get("spark.sql.execution.arrow.maxBytesPerBatch")) < 1 << 30)
        return sent(self, session, *args)

    monkeypatch.setattr(job.Job, "sent", spy)
    monkeypatch.setattr("penstock.spark.job.FEW_ROWS", 0)  # so that mappers send parcels
    monkeypatch.setattr("penstock.spark.executor.MOST_SENT", most)
    replay = Replay(tmp_path / "source", stream("a", "ts timestamp, k bigint"))
    replay.plain = False
    for step in range(3):
        replay.add(a=[{"ts": step * SECOND, "k": step}])
    engine = replay.engine(
        spark,
        tmp_path / "state",
        {"pairs": "SELECT a.k FROM a [RANGE 9 SECONDS], a [RANGE 9 SECONDS] b WHERE a.k = b.k"},
    )
    drain(engine)
    assert found == bounded
    assert sorted(rows_of(engine.results("pairs"))) == [(0,), (1,), (2,)]
