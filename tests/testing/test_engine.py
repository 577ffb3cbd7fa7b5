"""The engine for tests: declared in a few lines, without Spark and without files."""

import random

import pytest

from penstock.errors import PenstockError, RegistrationError, StateError
from penstock.model import Column, Stream
from penstock.storage.crash_points import POINTS, watched
from penstock.storage.faulty import Died, FaultyStore
from penstock.storage.memory import MemoryStore
from penstock.testing.engine import Engine

COLUMNS = (Column("at", "bigint"), Column("k", "bigint"), Column("v", "bigint"))
STREAMS = [Stream(name, COLUMNS, "at", 2) for name in "ab"]
JOIN = "SELECT a.v AS v, b.v AS w FROM a [RANGE 5], b [RANGE 5] WHERE a.k = b.k"
SUMS = "SELECT window_end, sum(v) AS s FROM a [TUMBLING 4]"


def engine_of(store=None, source=None, **queries):
    engine = Engine(store, source=source)
    for stream in STREAMS:
        engine.stream(stream)
    for name, sql in queries.items():
        engine.query(sql, name=name)
    engine.start()
    return engine


def row(at, k, v):
    return {"at": at, "k": k, "v": v}


def test_queries_are_declared_rows_handed_over_and_results_read():
    engine = engine_of(join=JOIN, sums=SUMS)
    engine.take(a=[row(1, 7, 10), row(3, 7, 20)], b=[row(2, 7, 1), row(9, 7, 2)])
    assert sorted(engine.results("join")) == [(10, 1), (20, 1)]
    assert engine.results("sums") == []
    engine.advance("a", 4)
    assert engine.results("sums") == [(4, 30)]
    engine.stop(final=True)
    assert not engine.manifest.runs


def test_what_a_step_changed_and_what_is_stored_are_there_to_look_at():
    engine = engine_of(join=JOIN)
    engine.take(a=[row(1, 7, 10)])
    before = engine.manifest
    engine.take(b=[row(2, 7, 1), row(3, 8, 1)])
    assert engine.record(1).counters.table("b(k)").stored == 2
    assert (engine.results("join", before), engine.results("join")) == ([], [(10, 1)])
    (run,) = engine.manifest.runs_of("b(k)")
    assert sorted(engine.rows(run).time.tolist()) == [2, 3]


def test_queries_come_and_go_while_it_runs():
    engine = engine_of(join=JOIN)
    engine.take(a=[row(1, 7, 10)])
    engine.execute(
        f"CREATE QUERY sums AS {SUMS}; CREATE QUERY held "
        f"FROM STATE AS {JOIN}; DROP QUERY join; ALTER STREAM a SET DELAY 0"
    )
    engine.take(a=[row(9, 7, 5)], b=[row(4, 7, 3)])
    engine.stop(final=True)
    assert engine.results("join") == []
    assert engine.results("held") == [(10, 3)]
    assert engine.results("sums") == [(12, 5)]


def test_what_only_spark_can_compute_is_refused_by_name():
    engine = engine_of(join=JOIN)
    with pytest.raises(RegistrationError, match="Spark"):
        engine.query("SELECT v FROM a WHERE sqrt(v) > 1", name="root")
    assert engine.catalog.names() == ["join"]


@pytest.mark.parametrize("point", [p for p in POINTS if p != "after_link"])
def test_an_engine_that_dies_is_followed_by_one_that_goes_on(point):
    store = FaultyStore(MemoryStore(), random.Random(0))
    engine = engine_of(store, join=JOIN)
    engine.take(a=[row(1, 7, 10)])

    def die(at, _step):
        if at == point:
            store.die()
            raise Died

    with watched(die), pytest.raises(Died):
        engine.take(b=[row(2, 7, 1)])
    with pytest.raises(Died):
        engine.take(b=[row(3, 7, 1)])
    again = engine_of(store.restarted(power_cut=True), engine.source)
    assert sorted(again.results("join")) == [(10, 1), (10, 1)]
    again.stop()


def test_a_store_has_one_engine_and_what_has_ended_stays_so():
    engine = engine_of(join=JOIN)
    with pytest.raises(StateError, match="in use"):
        engine_of(engine.store, engine.source)
    with pytest.raises(StateError, match="already runs"):
        engine.start()
    engine.stop(final=True)
    with pytest.raises(PenstockError, match="ended"):
        engine_of(engine.store, engine.source)
    with pytest.raises(StateError, match="start it first"):
        engine.tick()


def test_a_batch_that_comes_again_is_no_step_and_with_other_rows_an_error():
    engine = engine_of(join=JOIN)
    engine.take(a=[row(1, 7, 10)])
    before = engine.manifest
    engine.run.stepper.run_batch({}, 0)
    assert engine.manifest is before
    engine.store.written_elsewhere("checkpoint/offsets/0", b"5\n")
    with pytest.raises(StateError, match="comes again with other rows"):
        engine.run.stepper.run_batch({}, 0)


def test_a_state_whose_declarations_are_lost_is_refused():
    engine = engine_of(join=JOIN)
    engine.take(a=[row(1, 7, 10)])
    assert engine.manifest.version == 1
    engine.query(SUMS, name="sums")
    engine.stop()
    engine.store.delete("registry/00000001.json")
    with pytest.raises(StateError, match="registry version 1 is missing"):
        engine_of(engine.store, engine.source)


def test_more_queries_than_a_word_has_bits_are_told_apart():
    joins = {f"j{n}": f"{JOIN} AND a.v > {n}" for n in range(70)}
    sums = {
        f"s{n}": f"SELECT window_end, k, sum(v) AS s FROM a [TUMBLING 4] WHERE v > {n} GROUP BY k" for n in range(70)
    }
    engine = engine_of(**joins, **sums)
    engine.take(a=[row(1, k, v) for k in (7, 8) for v in range(70)], b=[row(2, 7, 1)])
    engine.stop(final=True)
    for n in range(70):
        above = range(n + 1, 70)
        assert sorted(engine.results(f"j{n}")) == [(v, 1) for v in above]
        assert sorted(engine.results(f"s{n}")) == [(4, k, sum(above)) for k in (7, 8) if above]
