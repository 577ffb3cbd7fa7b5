"""Views through the engine: SQL, DataFrames, standing queries as sources, and Spark for the first computation."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Engine
from penstock.errors import RegistrationError, SqlError, StepError
from penstock.reference.view import answer
from tests.spark.replay import Replay, stream

pytestmark = pytest.mark.spark


def rows(frame) -> Counter:
    return Counter(tuple(r) for r in frame.collect())


def test_sql_declares_refreshes_shows_and_drops(spark, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    pq.write_table(pa.table({"k": [1, 2, 2], "v": ["x", "y", "y"]}), tmp_path / "a/0.parquet")
    (tmp_path / "b/0.csv").write_text("1,10\n2,20\n")
    engine = Engine(spark, tmp_path / "state")
    shown = engine.execute(f"""
        CREATE SOURCE a USING parquet OPTIONS (path '{tmp_path}/a');
        CREATE SOURCE b (k BIGINT, n INT) USING dataframe OPTIONS (format 'csv', path '{tmp_path}/b') KEY (K, n);
        CREATE MATERIALIZED VIEW v AS SELECT a.v, sum(b.n) AS total, count(*) AS rows FROM a, b WHERE a.k = b.k
          GROUP BY a.v;
        SHOW SOURCES; SHOW VIEWS; EXPLAIN VIEW v
    """)
    view = engine.view_catalog.view("v")
    assert rows(view.read()) == {("x", 10, 1): 1, ("y", 40, 2): 1}
    assert [f.dataType.simpleString() for f in view.read().schema] == ["string", "bigint", "bigint"]
    assert [s["name"] for s in shown[0]] == ["a", "b"]
    assert (shown[1][0]["name"], shown[1][0]["version"]) == ("v", 1)
    assert "a - b: a.k = b.k" in shown[2]
    (tmp_path / "b/1.csv").write_text("1,5\n3,1\n")
    pq.write_table(pa.table({"k": [3], "v": ["x"]}), tmp_path / "a/1.parquet")
    engine.execute("REFRESH VIEW v")
    assert rows(view.read()) == {("x", 16, 3): 1, ("y", 40, 2): 1}
    assert engine.views()[0]["last"]["strategy"] != "recompute"
    assert [s["using"] for s in engine.sources()] == ["parquet", "dataframe"]
    with pytest.raises(SqlError) as caught:
        engine.execute("CREATE MATERIALIZED VIEW w AS\n  SELECT nope FROM a")
    assert (caught.value.line, caught.value.column) == (2, 10)
    engine.execute("DROP VIEW v; DROP VIEW IF EXISTS v; DROP SOURCE b")
    assert engine.views() == []


def test_averages_of_decimals_are_those_of_spark_and_of_the_definition(spark, tmp_path):
    """Ties at the last digit, thirds and sevenths, both signs, wide and narrow types."""
    kinds = {"x": pa.decimal128(7, 2), "y": pa.decimal128(18, 6), "z": pa.decimal128(38, 10)}
    groups = [
        [1],
        [1, 2],
        [1, 1, 2],
        [-1, -2, -2],
        [12345, 1, 0, 0, 0, 0, 1],
        [1, *[0] * 15],
        [5, *[0] * 63],
        [None],
        [7, None],
    ]
    listed = [(g, u) for g, units in enumerate(groups) for u in units]
    columns = {"g": pa.array([g for g, _ in listed], pa.int64())}
    for name, kind in kinds.items():
        units = [None if u is None else Decimal(u).scaleb(-kind.scale) for _, u in listed]
        columns[name] = pa.array(units, kind)
    (tmp_path / "a").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "a/0.parquet")
    engine = Engine(spark, tmp_path / "state")
    engine.execute(f"CREATE SOURCE a USING parquet OPTIONS (path '{tmp_path}/a')")
    select = (
        "SELECT g, avg(x) AS ax, avg(y) AS ay, avg(z) AS az, avg(x * 0.5) AS ap, avg(DISTINCT x + 1) AS ad "
        "FROM a GROUP BY g"
    )
    view = engine.view(select, name="v")
    view.refresh()
    spark.read.parquet(str(tmp_path / "a")).createOrReplaceTempView("a")
    theirs = spark.sql(select)
    assert rows(view.read()) == rows(theirs)
    assert [f.dataType for f in view.read().schema] == [f.dataType for f in theirs.schema]
    held = Counter(tuple(row.values()) for row in pa.table(columns).to_pylist())
    assert answer(view.view, engine.view_catalog.sources, {"a": held}) == rows(theirs)


def test_results_of_a_standing_query_are_a_source(spark, tmp_path):
    """A view joins what a window query found with a table, step after step."""
    streams = (stream("s", "ts timestamp, k bigint, v bigint"),)
    replay = Replay(tmp_path / "source", *streams)
    replay.add(s=[{"ts": 0, "k": 1, "v": 5}, {"ts": 0, "k": 2, "v": 50}])
    engine = Engine(spark, tmp_path / "state", tasks=2)
    replay.declare(engine)
    engine.query("SELECT k, v FROM s WHERE v > 9", name="high")
    names = spark.createDataFrame(pa.table({"k": [2, 3], "name": ["two", "three"]}))
    engine.source("names", names)
    engine.source("high", using="query", query="high")
    view = engine.view("SELECT n.name, h.v FROM high h, names n WHERE h.k = n.k", name="named")
    engine.start(available_now=True).await_termination()
    view.refresh()
    assert rows(view.read()) == {("two", 50): 1}
    replay.add(s=[{"ts": 10, "k": 3, "v": 70}, {"ts": 10, "k": 2, "v": 50}])
    engine.start(available_now=True).await_termination()
    assert view.refresh()["changed"] == [2, 0]
    assert rows(view.read()) == {("two", 50): 2, ("three", 70): 1}
    engine.drop("high")
    assert view.refresh()["changed"] == [0, 0]
    engine.query("SELECT k, v FROM s WHERE v > 99", name="high")
    view.refresh()
    assert rows(view.read()) == {}
    growing = []
    for retain in (" RETAIN 5 SECONDS", ""):
        engine.execute(f"CREATE OR REPLACE QUERY high{retain} AS SELECT k, v FROM s WHERE v > 98")
        growing.append(engine._query_results("high").growing)
    assert growing == [False, False]


def test_a_stream_of_changes_is_a_source(spark, tmp_path):
    """Rows come and go as the stream says; the deletion of one that is not there is reported until it is made good."""
    replay = Replay(tmp_path / "source", stream("s", "ts timestamp, k bigint, op int"))
    replay.add(s=[{"ts": 0, "k": 1, "op": 1}, {"ts": 0, "k": 2, "op": 1}])
    engine = Engine(spark, tmp_path / "state", tasks=2)
    replay.declare(engine)
    engine.query("SELECT k, op FROM s", name="changes")
    engine.execute("CREATE SOURCE held USING query OPTIONS (query 'changes', sign 'op') KEY (k) CHANGES BY STREAM")
    names = spark.createDataFrame(pa.table({"k": [1, 2, 3], "name": ["one", "two", "three"]}))
    engine.source("names", names)
    view = engine.view("SELECT n.name FROM held h, names n WHERE h.k = n.k", name="named")
    engine.start(available_now=True).await_termination()
    view.refresh()
    assert rows(view.read()) == {("one",): 1, ("two",): 1}
    replay.add(s=[{"ts": 10, "k": 1, "op": -1}, {"ts": 10, "k": 3, "op": 1}])
    engine.start(available_now=True).await_termination()
    view.refresh()
    assert rows(view.read()) == {("two",): 1, ("three",): 1}
    replay.add(s=[{"ts": 20, "k": 1, "op": -1}])
    engine.start(available_now=True).await_termination()
    with pytest.raises(StepError, match=r"'held'.* deletion of \{'k': 1\}, which was not there"):
        view.refresh()
    replay.add(s=[{"ts": 30, "k": 1, "op": 1}, {"ts": 30, "k": 2, "op": -1}])
    engine.start(available_now=True).await_termination()
    view.refresh()
    assert rows(view.read()) == {("three",): 1}
    engine.source("other", using="query", query="changes", changes="stream")
    with pytest.raises(RegistrationError, match="need a column '_count' of integers"):
        engine.view("SELECT k FROM other", name="o")


def test_spark_and_local_computation_agree_and_explain_draws_the_shape(spark, tmp_path):
    engine = Engine(spark, tmp_path / "state")
    for name, table in {
        "r": pa.table({"a": [1, 2, 2, None], "b": [0.0, float("nan"), -0.0, 1.0]}),
        "s": pa.table({"b": [0.0, float("nan"), 1.0], "c": ["x", "y", None]}),
        "t": pa.table({"c": ["x", "x", "y"], "d": [1, 2, 3]}),
    }.items():
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "0.parquet")
        engine.source(name, using="parquet", path=tmp_path / name)
    sql = "SELECT r.a, s.c, t.d FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.d + r.a < 5"
    by_spark = engine.view(sql, name="one", computed="spark")
    local = engine.view(sql, name="other", computed="local")
    by_spark.refresh()
    local.refresh()
    assert (
        rows(by_spark.read()) == rows(local.read()) == {(1, "x", 1): 1, (1, "x", 2): 1, (2, "x", 1): 1, (2, "x", 2): 1}
    )
    assert "computed by Spark in " in by_spark.explain()
    pq.write_table(pa.table({"c": ["y"], "d": [0]}), tmp_path / "t" / "1.parquet")
    by_spark.refresh()
    assert rows(by_spark.read())[2, "y", 0] == 1


def test_a_stream_is_no_source(spark, tmp_path):
    engine = Engine(spark, tmp_path / "state")
    with pytest.raises(RegistrationError, match="is a stream; register a query over it"):
        engine.source("s", spark.readStream.format("rate").load())
    with pytest.raises(RegistrationError, match="needs using="):
        engine.source("s")
    with pytest.raises(RegistrationError, match="there is no query 'q'"):
        engine.source("s", using="query", query="q")
    with pytest.raises(RegistrationError, match="needs a format"):
        engine.execute("CREATE SOURCE s USING dataframe")
