"""A thousand queries over two streams are answered, and one more is planned and answered in the running engine."""

import random

import pytest

from penstock.model.time import SECOND
from penstock.reference import results
from penstock.sql import parse_query
from tests.oracle import bag
from tests.spark.replay import Replay, rows_of, stream
from tests.spark.test_online import Live

pytestmark = pytest.mark.spark

STREAMS = (
    stream("a", "ts timestamp, k bigint, v bigint", delay=2 * SECOND),
    stream("b", "ts timestamp, k bigint, v bigint", delay=2 * SECOND),
)
ASKED = 1000


def sql(number):
    draw = random.Random(number)
    low = draw.randrange(90)
    return (
        f"SELECT a.v, b.v AS w FROM a [RANGE {draw.randint(1, 9)} SECONDS] AS a, b [RANGE "
        f"{draw.randint(1, 9)} SECONDS] AS b "
        f"WHERE a.k = b.k AND a.v >= {low} AND a.v < {low + draw.randint(1, 10)} AND b.v <> {draw.randrange(100)}"
    )


def rows_at(step):
    draw = random.Random(step)
    times = [(2 * step + n / 10) * SECOND for n in range(20)]
    return {
        name: [{"ts": int(t), "k": draw.randrange(5), "v": draw.randrange(100)} for t in times] for name in ("a", "b")
    }


@pytest.mark.long
def test_a_thousand_queries_are_answered_and_one_more_joins_them(spark, tmp_path):
    replay = Replay(tmp_path / "source", *STREAMS)
    engine = replay.engine(spark, tmp_path / "state", {f"q{n}": sql(n) for n in range(ASKED)})
    one = Live(replay, engine)
    for step in (0, 1):
        one.feed(**rows_at(step))
    engine.query(sql(ASKED), name="one_more")
    for step in (2, 3):
        one.feed(**rows_at(step))
    one.run.stop()
    streams = {s.name: s for s in STREAMS}
    batches = [rows_at(step) for step in range(4)]
    found = 0
    for name, number, first in (*((f"q{n}", n, 0) for n in range(0, ASKED, 97)), ("one_more", ASKED, 2)):
        rows = {s: [row for batch in batches[first:] for row in batch[s]] for s in streams}
        expected = bag(results(parse_query(sql(number), streams), streams, rows))
        assert bag(rows_of(engine.results(name))) == expected, name
        found += sum(expected.values())
    assert found
    assert len(engine.network().joins[0].members) == ASKED + 1
