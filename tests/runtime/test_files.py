"""Workers that read Parquet files themselves get what Spark would have brought them."""

from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Engine
from penstock.model.time import SECOND
from penstock.runtime.arrivals import files
from penstock.runtime.declared.inputs import open_stream
from penstock.runtime.steps.job import Job
from penstock.sql import parse_script
from tests.runtime.replay import drain, rows_of

pytestmark = pytest.mark.spark

SCHEMA = "ts timestamp, k int, v bigint, w double, s string"
TYPES = {"ts": pa.timestamp("us", tz="UTC"), "k": pa.int32(), "v": pa.int64(), "w": pa.float64(), "s": pa.string()}
QUERIES = {
    "wide": "SELECT a.v, b.v, a.s, b.w FROM a [RANGE 5 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k AND a.w > 0.5",
    "keys": "SELECT a.v, b.v FROM a [RANGE 5 SECONDS], b [RANGE 3 SECONDS], a [RANGE 2 SECONDS] c WHERE a.k = b.k AND b.v = c.v",
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


def answers(spark, source: Path, state: Path, *, plain: bool) -> tuple[dict[str, Counter], Engine]:
    engine = Engine(spark, state, tasks=2, durable=False)
    for name in "ab":
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source / name))
        engine.stream(name, frame if plain else frame.where("true"), event_time="ts", delay="2 seconds")
    for name, sql in QUERIES.items():
        engine.query(sql, name=name)
    drain(engine, final=True)
    found = {name: Counter(rows_of(engine.results(name))) for name in QUERIES}
    found["late"] = Counter(rows_of(engine.late("a").drop("_step")))
    found["bad"] = Counter(rows_of(engine.bad("a").drop("_step")))
    return found, engine


@pytest.fixture
def batches_read(monkeypatch) -> list[bool]:
    """For each job whether the workers were told to read files."""
    seen: list[bool] = []
    run = Job.run

    def spy(self, frame, task):
        seen.append(task.files is not None)
        return run(self, frame, task)

    monkeypatch.setattr(Job, "run", spy)
    return seen


@pytest.mark.parametrize("bad", [False, True])
def test_files_read_by_workers_give_what_spark_gives(spark, tmp_path, batches_read, bad):
    for seed in range(3):
        for name in "ab":
            write(tmp_path / name, seed, rows(seed + (name == "b"), bad=bad and seed == 1))
    write(tmp_path / "b", 3, {"ts": [4 * SECOND], "k": [1]})  # columns that a file lacks are NULL
    direct, engine = answers(spark, tmp_path, tmp_path / "direct", plain=True)
    assert batches_read == [True] * 4  # also where rows have to be put aside
    through, _ = answers(spark, tmp_path, tmp_path / "through", plain=False)
    assert direct == through
    assert all(direct[name] for name in ("wide", "keys", "scan", "alone"))
    assert bool(direct["bad"]) is bad
    counts = engine.manifest().counters["stream:a"]
    assert counts["rows"] == counts["accepted"] + counts["late"] + counts["bad"] == 120


def test_a_file_that_arrow_might_read_otherwise_is_read_by_spark(spark, tmp_path, batches_read):
    narrow = {**TYPES, "v": pa.int32()}  # a narrower integer is no reason
    other = {**TYPES, "ts": pa.timestamp("ms", tz="UTC")}
    for seed, types in enumerate((TYPES, narrow, other, TYPES)):
        columns = {**rows(seed), "ts": [seed * (1000 if types is other else SECOND)] * 40}
        for name in "ab":
            write(tmp_path / name, seed, columns, types)
    direct, _ = answers(spark, tmp_path, tmp_path / "direct", plain=True)
    assert batches_read == [True, True, True, False, False]  # the third batch twice, and then no more
    through, _ = answers(spark, tmp_path, tmp_path / "through", plain=False)
    assert direct == through
    assert direct["wide"]


@pytest.mark.parametrize(
    ("make", "plain"),
    [
        (lambda reader, path: reader.parquet(path), True),
        (lambda reader, path: reader.parquet(path).where("k > 0"), False),
        (lambda reader, path: reader.parquet(path).select("ts", "k"), False),
        (lambda reader, path: reader.option("mergeSchema", "true").parquet(path), False),
        (lambda reader, path: reader.json(path), False),
    ],
)
def test_only_files_just_as_they_are_are_plain(spark, tmp_path, make, plain):
    assert files.is_plain(make(spark.readStream.schema(SCHEMA), str(tmp_path))) is plain


@pytest.mark.parametrize(("source", "plain"), [("parquet", True), ("json", False)])
def test_files_that_sql_declares_are_taken_as_they_are(spark, tmp_path, source, plain):
    columns = (
        "ts TIMESTAMP, `a``b` STRING, k BIGINT, n INT, d DECIMAL(5, 2), WATERMARK FOR ts AS ts - INTERVAL 1 SECOND"
    )
    (declared,) = parse_script(f"CREATE STREAM s ({columns}) USING {source} OPTIONS (path '{tmp_path}')")
    frame = open_stream(spark, declared.stream)
    assert files.is_plain(frame) is plain
    assert frame.columns == ["ts", "a`b", "k", "n", "d"]


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([1], pa.decimal128(5, 0)), "decimal"),
        (pa.array(["1"]), "string"),
        (pa.array([1], pa.uint32()), "uint32"),
    ],
)
def test_other_types_are_named(tmp_path, column, reason):
    pq.write_table(pa.table({"v": column}), tmp_path / "f.parquet")
    with pytest.raises(files.Unreadable, match=reason):
        list(files._row_groups(str(tmp_path / "f.parquet"), ["v"], TYPES))


def test_names_in_other_case_old_calendars_and_broken_files_are_left_to_spark(tmp_path):
    path = str(tmp_path / "f.parquet")
    for table in (
        pa.table({"V": [1]}),
        pa.table({"v": [1]}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}),
        pa.table({"v": pa.array([Decimal(1)])}),
    ):
        pq.write_table(table, path)
        with pytest.raises(files.Unreadable):
            list(files._row_groups(path, ["v"], TYPES))
    Path(path).write_bytes(b"PAR1 no more")
    with pytest.raises(files.Unreadable, match=r"f\.parquet"):
        list(files._row_groups(path, ["v"], TYPES))
