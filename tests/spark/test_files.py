"""Mappers that read Parquet files themselves get the same as through Spark, also beside streams that Spark reads."""

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Engine
from penstock.model.time import SECOND
from penstock.spark.job import Job
from penstock.spark.open_stream import open_stream
from penstock.spark.selected import selection_of
from penstock.sql import parse_script
from tests.spark.replay import FOR_SPARK, drain, rows_of

pytestmark = pytest.mark.spark

SCHEMA = "ts timestamp, k int, v bigint, w double, s string"
TYPES = {"ts": pa.timestamp("us", tz="UTC"), "k": pa.int32(), "v": pa.int64(), "w": pa.float64(), "s": pa.string()}
QUERIES = {
    "wide": "SELECT a.v, b.v, a.s, b.w FROM a [RANGE 5 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k AND a.w > 0.5",
    "keys": "SELECT a.v, b.v FROM a [RANGE 5 SECONDS], b [RANGE 3 SECONDS], a [RANGE 2 SECONDS] c "
    "WHERE a.k = b.k AND b.v = c.v",
    "scan": "SELECT a.v, b.v FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.v < b.v",
    "alone": "SELECT k, s FROM a WHERE v > 3",
}


def rows(seed: int, *, bad: bool = False) -> dict[str, list[object]]:
    numbers = [(seed * 7919 + i * 104729) % 1009 for i in range(40)]
    return {
        "ts": [None if bad and n % 47 == 0 else seed * SECOND + n * SECOND // 500 for n in numbers],
        "k": [None if n % 13 == 0 else n % 5 - 2 for n in numbers],
        "v": [n % 9 for n in numbers],
        "w": [float(n % 3) for n in numbers],
        "s": [f"s{n % 4}" for n in numbers],
    }


def write(
    folder: Path, step: int, columns: dict[str, list[object]], types: dict[str, pa.DataType] | None = None
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {name: (types or TYPES)[name] for name in columns}
    table = pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})
    pq.write_table(table, folder / f"{step}.parquet", row_group_size=17)
    os.utime(folder / f"{step}.parquet", (1000 + step, 1000 + step))  # the order in which Spark reads them


def answers(
    spark, source: Path, state: Path, *, plain: str, tasks: int = 2, more: dict[str, str] | None = None
) -> tuple[dict[str, Counter], Engine]:
    """The answers of an engine for which those streams are plain files; Spark reads all others."""
    engine = Engine(spark, state, tasks=tasks, durable=False)
    queries = QUERIES | (more or {})
    for name in "ab":
        frame = spark.readStream.schema(f"{SCHEMA}, more int").option("maxFilesPerTrigger", 1)
        frame = frame.parquet(str(source / name)).select("w", "s", "ts", "k", "v")
        engine.stream(name, frame if name in plain else frame.where(FOR_SPARK), event_time="ts", delay="2 seconds")
    for name, sql in queries.items():
        engine.query(sql, name=name)
    drain(engine, final=True)
    found = {name: Counter(rows_of(engine.results(name))) for name in queries}
    found["late"] = Counter(rows_of(engine.late("a").drop("_step")))
    found["bad"] = Counter(rows_of(engine.bad("a").drop("_step")))
    return found, engine


@pytest.fixture
def pieces_read(monkeypatch) -> list[set[str]]:
    """For each job the streams whose files mappers read themselves."""
    seen: list[set[str]] = []
    sent = Job.sent

    def spy(self, session, rows, pieces, task, expected):
        seen.append({piece.stream for piece in pieces})
        return sent(self, session, rows, pieces, task, expected)

    monkeypatch.setattr(Job, "sent", spy)
    return seen


@pytest.mark.parametrize("bad", [False, True])
def test_files_read_by_mappers_give_what_spark_gives(spark, tmp_path, pieces_read, bad):
    for seed in range(3):
        for name in "ab":
            write(tmp_path / name, seed, rows(seed + (name == "b"), bad=bad and seed == 1))
    write(tmp_path / "b", 3, {"ts": [4 * SECOND], "k": [1]})  # columns that a file lacks are NULL
    direct, engine = answers(spark, tmp_path, tmp_path / "direct", plain="ab")
    assert pieces_read[:4] == [{"a", "b"}] * 3 + [{"b"}]  # also where rows have to be put aside
    through, _ = answers(spark, tmp_path, tmp_path / "through", plain="")
    assert direct == through
    assert all(direct[name] for name in ("wide", "keys", "scan", "alone"))
    assert bool(direct["bad"]) is bad
    counts = engine.manifest().counters.stream("a")
    assert counts.rows == counts.accepted + counts.late + counts.bad == 120


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_files_beside_rows_from_spark_and_results_of_queries_give_the_same(spark, tmp_path, pieces_read, tasks):
    more = {
        "upper": "SELECT result_time AS at, CAST(sin(CAST(a.v AS DOUBLE)) AS STRING) AS s, b.v "
        "FROM a [RANGE 2 SECONDS], b [RANGE 1 SECOND] WHERE a.k = b.k",
        "above": "SELECT window_end, s, count(*) AS n FROM wide [TUMBLING 1 SECOND] GROUP BY s",
        "computed": "SELECT window_end, s, count(*) AS n FROM upper [TUMBLING 1 SECOND] GROUP BY s",
        "ticked": "SELECT window_end, count(*) AS n, sum(a.v) AS s "
        "FROM a [RANGE 2 SECONDS SLIDE 1 SECOND], b [RANGE 1 SECOND SLIDE 1 SECOND] WHERE a.k = b.k",
        "substring": "SELECT v FROM b WHERE md5(s) > '8'",  # Spark has to look at the rows of b
    }
    more["wide"] = QUERIES["wide"].replace("a.v, b.v,", "result_time AS at, a.v, b.v AS w2,", 1)
    for step, seed in enumerate((0, 1, 0)):  # the last brings late rows
        for name in "ab":
            write(tmp_path / name, step, rows(seed + (name == "b"), bad=step == 1))
    found = {}
    for plain in ("", "a", "ab"):
        pieces_read.clear()
        found[plain], _ = answers(spark, tmp_path, tmp_path / f"of {plain}", plain=plain, tasks=tasks, more=more)
        assert {name for names in pieces_read for name in names} >= set(plain) - {"b"}
        assert not any("b" in names for names in pieces_read)
        assert any("wide" in name for names in pieces_read for name in names)
        assert not any("upper" in name for names in pieces_read for name in names)
    assert found[""] == found["a"] == found["ab"]
    assert all(found[""].values())


def test_a_file_that_arrow_might_read_otherwise_is_read_by_spark(spark, tmp_path, pieces_read):
    narrow = {**TYPES, "v": pa.int32()}  # a narrower integer is no reason
    other = {**TYPES, "ts": pa.timestamp("ms", tz="UTC")}
    for seed, types in enumerate((TYPES, narrow, other, TYPES)):
        columns = {**rows(seed), "ts": [seed * (1000 if types is other else SECOND)] * 40}
        write(tmp_path / "a", seed, columns, types)
        write(tmp_path / "b", seed, {**columns, "ts": [seed * SECOND] * 40}, TYPES)
    direct, _ = answers(spark, tmp_path, tmp_path / "direct", plain="ab")
    # The third batch twice; and then no more of that stream.
    assert pieces_read[:5] == [{"a", "b"}] * 3 + [{"b"}] * 2
    through, _ = answers(spark, tmp_path, tmp_path / "through", plain="")
    assert direct == through
    assert direct["wide"]


@pytest.mark.parametrize(("source", "plain"), [("parquet", True), ("json", False)])
def test_files_that_sql_declares_are_taken_as_they_are(spark, tmp_path, source, plain):
    columns = (
        "ts TIMESTAMP, `a``b` STRING, k BIGINT, n INT, d DECIMAL(5, 2), WATERMARK FOR ts AS ts - INTERVAL 1 SECOND"
    )
    (declared,) = parse_script(f"CREATE STREAM s ({columns}) USING {source} OPTIONS (path '{tmp_path}')")
    frame = open_stream(spark, declared.stream)
    assert (selection_of(frame) is not None) is plain
    assert frame.columns == ["ts", "a`b", "k", "n", "d"]
