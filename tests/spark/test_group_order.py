"""Queries whose GROUP BY differs only in order share state in a running engine, over changes and restarts."""

from collections import Counter

import pytest

from penstock.model.time import SECOND
from penstock.reference import aggregate_results
from penstock.sql import parse_query
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

SOURCE = stream("a", "ts timestamp, k bigint, s string, v bigint")
ONE = "SELECT k, s, count(*) AS n, sum(v) AS t, window_end FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY s, k"
OTHER = (
    "SELECT k, s, max(v) AS m, window_end FROM a [TUMBLING 2 SECONDS] WHERE v > 2 GROUP BY k, s HAVING k = 1 OR s = 'x'"
)
FIRST = "SELECT s, k, count(*) AS n, window_end FROM a [TUMBLING 2 SECONDS] GROUP BY s, k ORDER BY n DESC LIMIT 1"


def batch(step):
    return [
        {"ts": step * SECOND + n, "k": (step + n) % 3, "s": "xyz"[n % 2], "v": 7 * step + n if n else None}
        for n in range(6)
    ]


def answer(sql, rows):
    return bag([tuple(r) for r in aggregate_results(parse_query(sql, {"a": SOURCE}), {"a": SOURCE}, {"a": rows})])


def aggregates(engine):
    return Counter(len(a.members) for a in engine.network().aggregates)


def test_queries_come_go_and_go_on_with_one_table(spark, tmp_path):
    replay = Replay(tmp_path / "source", SOURCE)
    replay.plain = False
    for step in range(3):
        replay.add(a=batch(step))
    engine = replay.engine(spark, tmp_path / "state", {"one": ONE, "other": OTHER, "first": FIRST})
    drain(engine)
    assert aggregates(engine) == {2: 1, 1: 1}  # what LIMIT takes of equal rows follows from the order of groups
    held = {a.name for a in engine.network().aggregates}
    assert held == {r.table for r in engine.manifest().runs.values()}
    # The first one goes, and what is held stays that of the other.
    engine = replay.engine(spark, tmp_path / "state", {"other": OTHER, "first": FIRST})
    engine.drop("one")
    engine.query(ONE, name="late")
    assert {a.name for a in engine.network().aggregates} == held
    for step in range(3, 8):
        replay.add(a=batch(step))
    drain(engine, final=True)
    rows = [row for step in range(8) for row in batch(step)]
    assert bag(rows_of(engine.results("other"))) == answer(OTHER, rows)
    assert bag(rows_of(engine.results("first"))) == answer(FIRST, rows)
    whole = bag(rows_of(engine.results("late")))
    assert whole
    assert not whole - answer(ONE, rows)
    assert aggregates(engine) == {2: 1, 1: 1}
