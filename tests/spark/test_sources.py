"""Two streams on one source with different event times: it is read once; each has its progress, late rows, answers."""

import pytest

from penstock import Engine
from penstock.model.time import SECOND
from penstock.reference import admit, aggregate_results, results
from penstock.sql import parse_query
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

COLUMNS = "begun timestamp, ended timestamp, k bigint, v bigint"
BY_BEGIN = stream("by_begin", COLUMNS, event_time="begun")
BY_END = stream("by_end", COLUMNS, event_time="ended", delay=3 * SECOND)
STREAMS = {"by_begin": BY_BEGIN, "by_end": BY_END}
QUERIES = {
    "begins": "SELECT k, count(*) AS n, window_end FROM by_begin [TUMBLING 2 SECONDS] GROUP BY k",
    "ends": "SELECT k, sum(v) AS s, window_end FROM by_end [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "pairs": "SELECT a.v, b.v AS w FROM by_begin [RANGE 3 SECONDS] a, by_end [RANGE 3 SECONDS] b WHERE a.k = b.k",
}


def rows_at(number):
    """Later ones end before earlier ones, and some come too late for the first stream and not for the second."""
    times = [(2 * number + place, 2 * number + place + length) for place, length in ((0, 5), (1, 1), (-2, 4))]
    return [
        {"begun": b * SECOND, "ended": e * SECOND, "k": (b + e) % 2, "v": 10 * number + place}
        for place, (b, e) in enumerate(times)
    ]


def engine_on(spark, replay, state, *names):
    """Both streams on the very same DataFrame."""
    engine = Engine(spark, state, tasks=2, durable=False)
    frame = replay.frame(spark, "by_begin")
    for declared in (BY_BEGIN, BY_END):
        engine.stream(declared.name, frame, event_time=declared.event_time, delay=declared.delay)
    for name in names:
        engine.query(QUERIES[name], name=name)
    return engine


def expected(name, batches):
    accepted = {n: [row for step in admit(s, batches) for row in step.accepted] for n, s in STREAMS.items()}
    query = parse_query(QUERIES[name], STREAMS)
    answer = results if query.aggregation is None else aggregate_results
    return bag(answer(query, STREAMS, accepted))


def test_a_source_of_two_streams_is_read_once_and_each_row_is_a_row_of_both(spark, tmp_path):
    replay, batches = Replay(tmp_path / "source", BY_BEGIN), []
    for number in range(5):
        batches.append(rows_at(number))
        replay.add(by_begin=batches[-1])
        if number == 2:
            drain(engine_on(spark, replay, tmp_path / "state", *QUERIES))
    engine = engine_on(spark, replay, tmp_path / "state", *QUERIES)
    run = drain(engine, final=True)
    assert len(run.throttle.query.lastProgress["sources"]) == 1
    for name in QUERIES:
        assert bag(rows_of(engine.results(name))) == expected(name, batches), name
    for name, declared in STREAMS.items():
        steps = admit(declared, batches)
        counts = run.status()["streams"][name]
        judged = {kind: sum(len(getattr(s, kind)) for s in steps) for kind in ("accepted", "late", "bad")}
        assert {kind: counts[kind] for kind in judged} == judged
        assert counts["rows"] == sum(judged.values()) == 15
    assert run.status()["streams"]["by_begin"]["late"] > run.status()["streams"]["by_end"]["late"]


def test_a_stream_goes_on_where_it_was_when_the_other_one_on_its_source_is_dropped(spark, tmp_path):
    replay, batches = Replay(tmp_path / "source", BY_BEGIN), [rows_at(number) for number in range(4)]
    for batch in batches[:2]:
        replay.add(by_begin=batch)
    first = engine_on(spark, replay, tmp_path / "state", "ends")
    drain(first)
    first.drop_stream("by_begin")
    for batch in batches[2:]:
        replay.add(by_begin=batch)
    run = drain(first, final=True)
    assert bag(rows_of(first.results("ends"))) == expected("ends", batches)
    assert run.status()["streams"]["by_end"]["rows"] == 12


def test_streams_that_sql_declares_on_the_same_source_are_read_together(spark, tmp_path):
    engine = Engine(spark, tmp_path / "state", durable=False)
    columns = "begun TIMESTAMP, ended TIMESTAMP, k BIGINT, v BIGINT, WATERMARK FOR {0} AS {0} - INTERVAL 1 SECOND"
    one, other = (str(tmp_path / name) for name in ("one", "other"))
    for path in (one, other):
        (tmp_path / path).mkdir()
    for name, time, path, more in (
        ("a", "begun", one, ""),
        ("b", "ended", one, ""),
        ("c", "ended", other, ""),
        ("d", "ended", one, ", w INT"),
    ):
        declared = columns.format(time).replace(", WATERMARK", f"{more}, WATERMARK")
        engine.execute(f"CREATE STREAM {name} ({declared}) USING parquet OPTIONS (path '{path}')")
    records = engine.catalog.registry.streams
    assert [records[name].source_name for name in "abcd"] == ["a_g0", "a_g0", "c_g0", "d_g0"]
