"""A stream far ahead in event time is throttled while another catches up, and still read to its end: same answers."""

import json
from pathlib import Path

import pytest

from penstock.model.time import SECOND
from penstock.planner import stream_skew as lead
from penstock.reference import results
from penstock.sql import parse_query
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, stream, wait_until

pytestmark = pytest.mark.spark

COLUMNS = "ts timestamp, k bigint, v bigint"
JOIN = "SELECT a.v, b.v AS w FROM a [RANGE 2 SECONDS], b [RANGE 2 SECONDS] WHERE a.k = b.k"
FILES, AHEAD = 6, 10


def histories(root):
    """In each file `a` covers ten times the event time that `b` does: it is at its end when `b` has just begun."""
    replay = Replay(root / "source", stream("a", COLUMNS), stream("b", COLUMNS))
    given = {"a": [], "b": []}
    for step in range(FILES):
        for name, pace in (("a", AHEAD), ("b", 1)):
            start = step * pace * SECOND
            rows = [{"ts": start + n * pace * SECOND // 4, "k": n % 2, "v": 10 * step + n} for n in range(4)]
            given[name].append(rows)
        replay.add(a=given["a"][-1], b=given["b"][-1])
    return replay, {name: [row for rows in own for row in rows] for name, own in given.items()}


def held_by_step(engine, name):
    """Rows of a stream that were held after each step."""
    (table,) = [t.name for t in engine.network().tables if t.stream == name]
    runs, found = {}, []
    for path in sorted(Path(engine.store.path("manifest")).glob("[0-9]*.json")):
        body = json.loads(path.read_text().partition(" ")[2])
        for gone in body["runs_removed"]:
            runs.pop(gone, None)
        runs |= {run["name"]: run["rows"] for run in body["runs_added"] if run["table"] == table}
        found.append(sum(runs.values()))
    return found


def test_a_leader_waits_in_its_source_and_not_in_state(spark, tmp_path, monkeypatch):
    replay, rows = histories(tmp_path)
    engine = replay.engine(spark, tmp_path / "state", {"q": JOIN})
    status = drain(engine).status()
    # b never comes as far as a: its end sets a free, and what was held back is read before the run ends.
    assert [status["streams"][name]["rows"] for name in "ab"] == [4 * FILES, 4 * FILES]
    assert not status["streams"]["a"]["throttled"]
    query = parse_query(JOIN, replay.streams)
    wanted = bag(results(query, replay.streams, rows))
    assert bag(rows_of(engine.results("q"))) == wanted
    monkeypatch.setattr(lead, "LIVES", 10**6)
    free = replay.engine(spark, tmp_path / "free", {"q": JOIN})
    drain(free)
    assert bag(rows_of(free.results("q"))) == wanted
    # While b was read, a was at most one file further than its windows and what it may be ahead.
    while_read = FILES - 2
    assert max(held_by_step(engine, "a")[:while_read]) == 8
    assert max(held_by_step(free, "a")[:while_read]) >= 4 * (while_read - 1)


def test_a_leader_goes_on_when_the_other_stream_brings_nothing_more(spark, tmp_path):
    replay, _ = histories(tmp_path)
    engine = replay.engine(spark, tmp_path / "state", {"q": JOIN, "alone": "SELECT v FROM a"})
    run = engine.start("100 milliseconds")
    wait_until(lambda: run.status()["streams"]["a"]["throttled"])
    wait_until(lambda: run.status()["streams"]["a"]["rows"] == 4 * FILES)
    run.stop()
    assert len(rows_of(engine.results("alone"))) == 4 * FILES
