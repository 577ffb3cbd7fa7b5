"""Groups that hold their event time, through Spark: the result has that very time, however it is read."""

from collections import Counter
from datetime import date

import pytest

from penstock.model.time import SECOND
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

DAY = 86_400 * SECOND
TIMES = (1, 4, 4, 5, 9, 10)
COUNTED = {time: TIMES.count(time) for time in TIMES}
# Per kind of event time: its type, a time as the source gives it, the same as results show it, a length of five.
KINDS = {
    "a": ("bigint", lambda n: n, lambda n: n, "5"),
    "b": ("timestamp", lambda n: n * SECOND, lambda n: n * SECOND, "5 SECONDS"),
    "c": ("date", lambda n: date(1970, 1, 1 + n), lambda n: n * DAY, "5 DAYS"),
}


def test_the_result_time_is_the_time_that_is_grouped_by(spark, tmp_path):
    streams = [stream(name, f"t {kind}, k bigint", event_time="t") for name, (kind, *_) in KINDS.items()]
    replay = Replay(tmp_path / "source", *streams)
    for some in (TIMES[:3], TIMES[3:]):
        replay.add(**{name: [{"t": KINDS[name][1](n), "k": 1} for n in some] for name in KINDS})
    engine = replay.engine(spark, tmp_path / "state")
    delivered = []
    for name, (_, _, _, five) in KINDS.items():
        counted = f"SELECT count(*) AS n, result_time AS at FROM {name} GROUP BY t"
        engine.query(counted, name=name * 2, into=lambda table, _: delivered.extend(table.to_pylist()))
        engine.query(f"SELECT DISTINCT k, t, result_time FROM {name}", name=f"distinct {name}")
        engine.query(counted, name=f"flushed {name}", flush=1, behind=2)
        engine.query(counted, name=f"early {name}", emit="1 hour")
        engine.query(f"{counted} ORDER BY count(*) LIMIT 1", name=f"best {name}")
        engine.query(f"SELECT sum(n) AS n, window_end FROM {name * 2} [TUMBLING {five}]", name=f"above {name}")
        joined = f"FROM {name} [RANGE {five}] x, {name} [RANGE {five}] y WHERE x.k = y.k GROUP BY x.t, y.t"
        engine.query(f"SELECT count(*) AS n, result_time AS at {joined}", name=f"{name}_pairs")
        engine.query(f"SELECT sum(n) AS n, window_end FROM {name}_pairs [TUMBLING {five}]", name=f"above {name}_pairs")
    drain(engine, final=True)
    for name, (_, _, shown, _) in KINDS.items():
        counts = bag((n, shown(time)) for time, n in COUNTED.items())
        for query in (name * 2, f"flushed {name}", f"best {name}"):
            assert bag(rows_of(engine.results(query))) == counts, query
        assert bag(row[:2] for row in rows_of(engine.results(f"early {name}")) if row[-1]) == counts
        distinct = rows_of(engine.results(f"distinct {name}"))
        assert Counter(row[2] for row in distinct) == Counter(map(shown, COUNTED))
        ends = {0: 3, 5: 2, 10: 1}
        assert bag(rows_of(engine.results(f"above {name}"))) == bag((n, shown(begin + 5)) for begin, n in ends.items())
        pairs = Counter(max(x, y) for x in TIMES for y in TIMES if abs(x - y) < 5)
        found = Counter()
        for n, at in rows_of(engine.results(f"{name}_pairs")):
            found[at] += n
        assert found == {shown(time): n for time, n in pairs.items()}
        windows = Counter()
        for time, n in pairs.items():
            windows[shown(time // 5 * 5 + 5)] += n
        assert {at: n for n, at in rows_of(engine.results(f"above {name}_pairs"))} == windows
    assert Counter(row["n"] for row in delivered) == Counter(list(COUNTED.values()) * 3)
    assert not engine.manifest().runs
