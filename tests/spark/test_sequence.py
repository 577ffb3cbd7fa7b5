"""A stream whose sequence is its event time, through Spark: all queries answer as if rows of one time had no order."""

from dataclasses import replace

import pytest

from penstock import Engine
from penstock.reference import aggregate_results, results
from penstock.sql import parse_query
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

QUERIES = {
    "join": "SELECT x.v, y.v AS w FROM a [RANGE 4] x, b [RANGE 4] y WHERE x.k = y.k",
    "last": "SELECT x.v, y.v AS w FROM a [ROWS 2] x, b [RANGE 9] y WHERE x.k = y.k",
    "alone": "SELECT t, v FROM a WHERE v > 1",
    "ends": "SELECT k, first(v), last(v), window_end FROM a [RANGE 6 SLIDE 3] GROUP BY k",
    "rows": "SELECT sum(v), result_time FROM a [RANGE 3 ROWS SLIDE 2 ROWS]",
    "arrival": "SELECT sum(v), result_time FROM a [RANGE 4 SLIDE 2 ROWS BY ARRIVAL]",
    "both": "SELECT count(*), window_end FROM a [RANGE 4 SLIDE 2] x, b [RANGE 4 SLIDE 2] y WHERE x.k = y.k",
}
STEPS = [
    [{"t": 1, "k": 1, "v": 1}, {"t": 1, "k": 1, "v": 2}, {"t": 3, "k": 2, "v": 3}],
    [{"t": 3, "k": 1, "v": 4}, {"t": 6, "k": 1, "v": 5}, {"t": 6, "k": 2, "v": 1}, {"t": 7, "k": 1, "v": 2}],
]


@pytest.mark.parametrize("by_rows", [False, True], ids=["delay", "delay in rows"])
def test_the_event_time_may_be_the_sequence(spark, tmp_path, by_rows):
    replay = Replay(tmp_path / "source", *[stream(n, "t bigint, k bigint, v bigint", event_time="t") for n in "ab"])
    for rows in STEPS:
        replay.add(a=rows, b=rows)
    engine = Engine(spark, tmp_path / "state", tasks=2, durable=False)
    for name in replay.streams:
        delay = "2 rows" if by_rows else 3
        engine.stream(name, replay.frame(spark, name), event_time="T", sequence="t", delay=delay)
    for name, sql in QUERIES.items():
        engine.query(sql, name=name)
    drain(engine, final=True)
    streams = {name: replace(s, sequence="t") for name, s in replay.streams.items()}
    rows = {name: [row for step in STEPS for row in step] for name in streams}
    for name, sql in QUERIES.items():
        query = parse_query(sql, streams)
        evaluated = results if query.aggregation is None else aggregate_results
        assert bag(rows_of(engine.results(name))) == bag(evaluated(query, streams, rows)), name
    assert not engine.manifest().runs
