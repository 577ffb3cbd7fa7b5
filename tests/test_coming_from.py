"""The claims of the page for users of Flink and Spark: its statements give Spark's results, or differ as stated."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.functions import expr, session_window, window, window_time

from penstock import Engine
from penstock.model import Column, Stream
from penstock.reference import admit, aggregate_results
from penstock.sql import parse_query
from tests.oracle import bag
from tests.spark.replay import drain, rows_of
from tests.test_pages import blocks

PAGE = "docs/coming-from-flink-and-spark.md"
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
BIDS = [(0, 1, 10), (4, 2, 11), (9, 1, 12), (10, 1, 13), (14, 1, 14), (19, 2, 15), (24, 2, 16), (31, 1, 17)]
AUCTIONS = [(0, 1, 7), (4, 2, 8), (9, 2, 9)]
BY_TIME = Stream("a", (Column("t", "bigint"),), "t", delay=2)


def counted(sql, *batches):
    steps = admit(BY_TIME, [[{"t": t} for t in times] for times in batches])
    accepted = [row for step in steps for row in step.accepted]
    return sorted(aggregate_results(parse_query(sql, {"a": BY_TIME}), {"a": BY_TIME}, {"a": accepted}))


def test_a_late_row_is_late_for_an_open_window_too():
    assert counted("SELECT window_end, count(*) FROM a [TUMBLING 100]", [50], [40, 49]) == [(100, 2)]


def test_lateness_is_judged_by_what_the_step_before_has_committed():
    assert counted("SELECT window_end, count(*) FROM a [TUMBLING 100]", [50, 40]) == [(100, 2)]


def test_rows_exactly_the_gap_apart_are_two_sessions():
    assert counted("SELECT count(*) FROM a [SESSION 5]", [10, 15]) == [(1,), (1,)]
    assert counted("SELECT count(*) FROM a [SESSION 6]", [10, 15]) == [(2,)]


@pytest.mark.spark
def test_its_statements_give_what_spark_gives(spark, tmp_path):
    tables = {}
    for name, columns, rows in (("bids", "auction, price", BIDS), ("auctions", "id, seller", AUCTIONS)):
        schema = f"t timestamp, {columns.replace(',', ' bigint,')} bigint"
        table = spark.createDataFrame([(START + timedelta(seconds=t), *rest) for t, *rest in rows], schema)
        table.coalesce(1).write.parquet(str(tmp_path / name))
        tables[name] = spark.read.parquet(str(tmp_path / name))
    engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
    engine.execute("\n".join(blocks("sql", PAGE)).replace("'data/", f"'{tmp_path}/"))
    drain(engine, final=True)

    bids, auctions = tables["bids"], tables["auctions"]
    inner = bids.groupBy(window("t", "10 seconds")).count()
    expected = {
        "tumble": bids.groupBy(window("t", "10 seconds"), "auction").count().select("window.end", "auction", "count"),
        "hop": bids.groupBy(window("t", "10 seconds", "5 seconds"), "auction").count().select("window.end", "auction",
         "count"),
        "uneven": bids.groupBy(window("t", "10 seconds", "4 seconds", "2 seconds")).count().select("window.end",
         "count"),
        "sessions": bids.groupBy(session_window("t", "5 seconds"), "auction").count().select("auction", "count"),
        "interval_join": auctions.alias("a")
        .join(bids.alias("b"), expr("id = auction AND b.t BETWEEN a.t AND a.t + INTERVAL 10 SECONDS"))
        .select("id", "seller", "price"),
        "window_join": auctions.withColumn("w", window("t", "10 seconds")).alias("a")
        .join(bids.withColumn("w", window("t", "10 seconds")).alias("b"), expr("id = auction AND a.w = b.w"))
        .select("id", "price"),
    }  # fmt: skip
    for name, frame in expected.items():
        assert bag(rows_of(engine.results(name))) == bag(rows_of(frame)), name
    # The ends of the outer windows are one microsecond later, by their ORIGIN.
    outer = inner.groupBy(window(window_time("window"), "20 seconds")).agg(expr("sum(count)"))
    shifted = outer.select(expr("window.end + INTERVAL 1 MICROSECOND"), "sum(count)")
    assert bag(rows_of(engine.results("cascade"))) == bag(rows_of(shifted))
