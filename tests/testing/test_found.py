"""Failures found by scenarios, each shrunk; none of them may return."""

import random

import pytest

from penstock.model import Column, Stream
from penstock.storage.faulty import FaultyStore
from penstock.storage.memory import MemoryStore
from penstock.testing.engine import Engine, tuples
from penstock.testing.scenario import Options
from penstock.testing.settings import constants

COLUMNS = tuple(Column(name, "bigint") for name in ("at", "k", "v", "p"))
PLAIN = Stream("b", COLUMNS, "at", 10)
BY_GROUP = Stream("c", COLUMNS, "at", None, punctuation="p", patterns=(Column("k", "bigint"),))
UNITED = "SELECT window_end, k, count(*) AS n FROM (c UNION ALL b) [RANGE 4 SLIDE 2] GROUP BY k"


def row(at=None, k=None, v=None, p=None):
    return {"at": at, "k": k, "v": v, "p": p}


@pytest.mark.parametrize("how", ["advance", "rows", "delay"])
def test_a_group_that_one_stream_has_ended_closes_when_the_other_has_come_so_far(how):
    """A tick, or a step, recorded the other stream's progress without closing the group's windows: they never came."""
    engine = Engine()
    engine.stream(PLAIN)
    engine.stream(BY_GROUP)
    engine.query(UNITED, name="q")
    engine.start()
    engine.take(c=[row(at=2, k=1), row(k=1, p=6)])
    engine.take(b=[row(at=5, k=4)])
    if how == "advance":
        engine.advance("b", 4)
    elif how == "rows":
        engine.take(b=[row(at=14, k=4)])
        engine.take(b=[row(at=14, k=4)])
    else:
        engine.execute("ALTER STREAM b SET DELAY 1")
    assert engine.results("q") == [(4, 1, 1)]
    engine.stop(final=True)
    assert [found for found in engine.results("q") if found[1] == 1] == [(4, 1, 1), (6, 1, 1)]


@pytest.mark.parametrize("seed", range(6))
def test_merged_results_survive_a_power_cut(seed):
    """The manifest named files merged by upkeep before the folder with their names was durable."""
    with constants(Options(upkeep=2)):
        store = FaultyStore(MemoryStore(), random.Random(seed))
        engine = Engine(store)
        engine.stream(PLAIN)
        engine.query("SELECT v FROM b WHERE v > 0", name="q")
        engine.start()
        for step in range(3):
            engine.take(b=[row(at=step, v=step + 1)])
        again = Engine(store.restarted(power_cut=True), source=engine.source)
        again.stream(PLAIN)
        again.start()
        assert sorted(again.results("q")) == [(1,), (2,), (3,)]


def test_a_step_that_closes_windows_and_shows_others_early_is_read_once():
    """Its file of results was listed once for each of both, so that readers and sinks got its rows twice (seed 39)."""
    now = [0.0]
    engine = Engine(clock=lambda: now[0])
    engine.stream(PLAIN)
    sql = "SELECT window_start, window_end, count(*) AS n FROM b [TUMBLING 8] EMIT EARLY EVERY 1 SECONDS"
    got = []
    engine.query(sql, name="q", into=lambda table, _: got.extend(tuples(table)))
    engine.start()
    for time in (1, 20, 21):
        now[0] += 5.0
        engine.take(b=[row(at=time)])
    assert sorted(engine.results("q")) == [
        (0, 8, 1, 0, False),
        (0, 8, 1, 2, True),
        (16, 24, 1, 1, False),
        (16, 24, 2, 2, False),
    ]
    assert sorted(got) == sorted(engine.results("q"))
    engine.stop()
