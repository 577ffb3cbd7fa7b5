"""What mappers make of files in place of Spark: the same rows, or nothing at all."""

import os
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812

from penstock import Engine
from penstock.columns.parcels import one_array
from penstock.model import Column
from penstock.model.time import SECOND
from penstock.spark.job import Job
from penstock.spark.selected import selection_of
from penstock.spark.types import types_of
from penstock.step.pieces import Unreadable
from tests.effort import examples
from tests.spark.replay import FOR_SPARK, drain, rows_of

pytestmark = pytest.mark.spark

SCHEMA = "ts timestamp, day date, k int, v bigint, w double, s string, d decimal(9,2), b boolean, tags array<string>"
TYPES = {
    "ts": pa.timestamp("us", tz="UTC"), "day": pa.date32(), "k": pa.int32(), "v": pa.int64(), "w": pa.float64(),
    "s": pa.string(),
    "d": pa.decimal128(9, 2), "b": pa.bool_(), "tags": pa.list_(pa.string()),
}  # fmt: skip


def source(spark, path):
    return spark.readStream.schema(SCHEMA).parquet(str(path))


SELECTED = {
    "some columns": lambda f: f.select("s", "ts", "k").select("ts", "k"),
    "other names": lambda f: f.withColumnRenamed("s", "t").withColumn("again", F.col("t")),
    "a filter": lambda f: f.where("k > 0 AND s IS NOT NULL"),
    "computed": lambda f: f.selectExpr("ts", "abs(v) AS v", "upper(s) AS s", "tags", "k + 1 AS k", "w * 2 AS w"),
    "step by step": lambda f: (
        f.withColumn("k", F.col("k") % 7).where("k <> 3").withColumn("v", F.expr("v + k")).drop("w")
    ),
    "cases": lambda f: f.select(
        "ts", F.when(F.col("b"), F.lit("yes")).otherwise(F.lit("no's")).alias("x"), F.year("ts").alias("y")
    ),
    "types": lambda f: f.selectExpr(
        "CAST(k AS BIGINT) AS k", "CAST(v AS STRING) AS v", "CAST(day AS TIMESTAMP) AS ts", "d + d AS d"
    ),
}
SPARKS_OWN = {
    "a function that only Spark has": lambda f: f.selectExpr("ts", "md5(s) AS s"),
    "a filter that only Spark can say": lambda f: f.where(FOR_SPARK),
    "chance": lambda f: f.where("rand() < 2"),
    "a generator": lambda f: f.selectExpr("ts", "explode(tags) AS tag"),
    "no rows as they are": lambda f: f.dropDuplicates(["k"]),
    "names alike": lambda f: f.selectExpr("ts", "k AS a", "v AS A"),
    "metadata of files": lambda f: f.select("ts", "_metadata"),
    "columns with a comment": lambda f: f.select("ts", F.col("k").alias("k", metadata={"comment": "x"})),
}


@pytest.mark.parametrize("make", SELECTED.values(), ids=SELECTED)
def test_what_has_terms_is_computed_by_mappers(spark, tmp_path, make):
    frame = make(source(spark, tmp_path))
    found = selection_of(frame)
    assert found is not None
    assert list(found.items) == frame.columns


@pytest.mark.parametrize("make", SPARKS_OWN.values(), ids=SPARKS_OWN)
def test_everything_else_is_left_to_spark(spark, tmp_path, make):
    assert selection_of(make(source(spark, tmp_path))) is None


def test_other_files_and_options_that_change_rows_are_left_to_spark(spark, tmp_path):
    reader = spark.readStream.schema(SCHEMA)
    assert selection_of(reader.parquet(str(tmp_path))) is not None
    assert selection_of(reader.json(str(tmp_path))) is None
    assert selection_of(reader.option("mergeSchema", "true").parquet(str(tmp_path))) is None


def test_the_mode_and_the_zone_that_went_into_a_source_count(spark, tmp_path):
    """Spark decides both when it creates an expression; later settings change only the meaning of the same text."""
    plain, zoned = (
        source(spark, tmp_path).selectExpr("ts", "k + 1 AS k"),
        source(spark, tmp_path).selectExpr("hour(ts) AS h", "ts"),
    )
    assert selection_of(plain) is not None
    found = selection_of(zoned)
    assert found is not None
    before = {name: spark.conf.get(name) for name in ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")}
    try:
        spark.conf.set("spark.sql.ansi.enabled", "false")
        assert selection_of(plain) is None  # it still raises, and the text would wrap around now
        assert selection_of(source(spark, tmp_path).selectExpr("ts", "k + 1 AS k")) is None
        assert selection_of(source(spark, tmp_path).where("k > 0")) is not None
        spark.conf.set("spark.sql.ansi.enabled", "true")
        spark.conf.set("spark.sql.session.timeZone", "+05:30")
        assert selection_of(zoned) is None
        moved = selection_of(source(spark, tmp_path).selectExpr("hour(ts) AS h", "ts"))
        assert moved is not None
        assert moved.items["h"] != found.items["h"]
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        assert selection_of(source(spark, tmp_path).selectExpr("hour(ts) AS h", "ts")) is None
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


MOMENTS = st.integers(-(10**15), 4 * 10**15)
ROWS = st.fixed_dictionaries({
    "ts": st.none() | MOMENTS, "day": st.none() | st.integers(-100_000, 100_000),
    "k": st.none() | st.integers(-(2**31), 2**31 - 2),
    "v": st.none() | st.integers(-(2**62), 2**62), "w": st.none() | st.floats(width=32),
    "s": st.none() | st.text("aß'\\ Z", max_size=4),
    "d": st.none() | st.decimals(-9_000_000, 9_000_000, places=2), "b": st.none() | st.booleans(),
    "tags": st.none() | st.lists(st.text("xy", max_size=2), max_size=2),
})  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=30), which=st.sampled_from(sorted(SELECTED)))
def test_computed_columns_and_rows_are_those_of_spark(spark, tmp_path_factory, rows, which):
    folder = tmp_path_factory.mktemp("selected")
    columns = {name: pa.array([row[name] for row in rows], TYPES[name]) for name in TYPES}
    pq.write_table(pa.table(columns), folder / "0.parquet")
    frame = SELECTED[which](spark.read.schema(SCHEMA).parquet(str(folder)))
    found = selection_of(SELECTED[which](source(spark, folder)))
    kinds = types_of(spark, tuple(Column(f.name, f.dataType.simpleString()) for f in frame.schema.fields))
    try:
        shown = found.computed(found.passing(pa.table(columns)), kinds)
    except Unreadable:
        with pytest.raises(Exception, match="OVERFLOW"):
            frame.collect()
        return
    expected = frame.toArrow()
    for name, kind in kinds.items():
        assert shown[name].equals(one_array(expected.column(name).cast(kind))) or _bits(shown[name]) == _bits(
            expected.column(name)
        )


def _bits(column):
    """Values as text: NaN is like itself there."""
    return [repr(value) for value in column.to_pylist()]


def write(folder, step, rows):
    folder.mkdir(exist_ok=True)
    file = folder / f"{step}.parquet"
    pq.write_table(
        pa.table({name: pa.array([r.get(name) for r in rows], kind) for name, kind in TYPES.items()}),
        file,
        row_group_size=7,
    )
    os.utime(file, (1000 + step, 1000 + step))


def test_steps_that_compute_their_sources_give_what_spark_gives(spark, tmp_path, monkeypatch):
    """Late and invalid rows are reported as the source shows them; values that raise are left to Spark."""
    read: list[set[str]] = []
    sent = Job.sent

    def spy(self, session, rows, pieces, task, expected):
        read.append({piece.stream for piece in pieces})
        return sent(self, session, rows, pieces, task, expected)

    monkeypatch.setattr(Job, "sent", spy)
    for step in range(4):
        start = (step if step < 3 else 0) * SECOND  # the last brings late rows
        write(tmp_path / "a", step, [
            {"ts": None if n == 5 else start + n, "k": n % 5 - 2, "v": n, "s": f"s{n % 3}",
             "d": Decimal(n)} for n in range(20)
        ])  # fmt: skip

    def answers(state, *, through_spark):
        engine = Engine(spark, state, tasks=2, durable=False)
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "a"))
        frame = frame.where("s <> 's1'").selectExpr("ts", "abs(k) AS k", "upper(s) AS s", "v * 2 AS twice", "d")
        engine.stream("a", frame.where(FOR_SPARK) if through_spark else frame, event_time="ts", delay="1 second")
        queries = {
            "pairs": "SELECT a.twice, b.twice AS other, a.s FROM a [RANGE 2 SECONDS], a [RANGE 1 SECOND] b "
            "WHERE a.k = b.k",
            "sums": "SELECT s, sum(twice) AS n, window_end FROM a [TUMBLING 1 SECOND] GROUP BY s",
            "rows": "SELECT k, s FROM a WHERE twice > 10",
        }
        for name, sql in queries.items():
            engine.query(sql, name=name)
        drain(engine, final=True)
        found = {name: Counter(rows_of(engine.results(name))) for name in queries}
        found["late"] = Counter(rows_of(engine.late("a").drop("_step")))
        found["bad"] = Counter(rows_of(engine.bad("a").drop("_step")))
        return found

    own = answers(tmp_path / "own", through_spark=False)
    assert read[:4] == [{"a"}] * 4
    read.clear()
    assert own == answers(tmp_path / "spark", through_spark=True)
    assert not any(read)
    assert all(own.values())
    write(tmp_path / "a", 4, [{"ts": 9 * SECOND, "k": -(2**31), "v": 1, "s": "s2", "d": Decimal(1)}])
    with pytest.raises(Exception, match="OVERFLOW"):  # Spark's own words for it
        answers(tmp_path / "raises", through_spark=False)
