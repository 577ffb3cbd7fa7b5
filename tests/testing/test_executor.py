"""The engine in one process answers as the reference does, however its steps are executed."""

import contextlib
import random
from unittest.mock import patch

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.errors import RegistrationError
from penstock.model import Column, Stream
from penstock.reference import aggregate_results, results
from penstock.state import registry
from penstock.state.buckets import BucketMap
from penstock.storage.memory import MemoryStore
from penstock.testing.engine import Engine
from penstock.testing.executor import Manner
from penstock.testing.source import HandedOver
from tests.driven import without_spark
from tests.effort import examples
from tests.oracle import bag
from tests.unions import united_workload
from tests.workloads import Workload, workload

pytestmark = pytest.mark.filterwarnings("ignore:.*RANGE ALL")
MANNERS = st.builds(
    Manner, mappers=st.integers(0, 3), retried=st.sampled_from((0.0, 0.5)), shuffled=st.booleans()
)  # fmt: skip


def answered(load, queries, manner, tasks, seed):
    """An engine after all steps of a workload, without the queries that need Spark."""
    engine, names = Engine(tasks=tasks, manner=manner, chance=random.Random(seed)), {}
    for stream in load.streams.values():
        engine.stream(stream)
    for number, sql in enumerate(queries):
        with contextlib.suppress(RegistrationError):  # what only Spark can compute
            engine.query(sql, name=f"q{number}")
            names[f"q{number}"] = sql
    engine.start()
    for batch in load.batches:
        engine.take(**batch)
    engine.stop(final=True)
    return engine, names


@settings(max_examples=examples(60))
@given(workload(late=True), MANNERS, st.integers(1, 4), st.integers(0, 99))
def test_joins_are_the_references(load, manner, tasks, seed):
    engine, names = answered(load, load.queries, manner, tasks, seed)
    for number, query in enumerate(load.parsed):
        if f"q{number}" in names:
            expected = bag(results(query, load.streams, load.accepted))
            assert bag(engine.results(f"q{number}")) == expected, query.sql
            event("some results" if expected else "no result")
    for name in load.streams:
        counts = engine.manifest.counters.stream(name)
        assert counts.rows == counts.accepted + counts.late + counts.bad
    assert not engine.manifest.runs


@settings(max_examples=examples(30))
@given(workload(late=True).map(without_spark), st.randoms(use_true_random=False), st.sampled_from((4, 256)), st.data())
def test_any_map_of_buckets_to_tasks_gives_the_same_and_another_one_in_each_step(load, r, buckets, data):
    """The number of buckets belongs to the state: the second engine keeps that of the first."""
    maps, store, source = [], MemoryStore(), HandedOver()

    def any_map(_, count):
        maps.append(BucketMap((0, *sorted(r.randrange(count) for _ in range(r.randrange(3)))), count))
        return maps[-1]

    cut = data.draw(st.integers(1, len(load.batches)))
    for batches, wanted in ((load.batches[:cut], buckets), (load.batches[cut:], 16)):
        with patch.object(BucketMap, "even", any_map), patch.object(registry, "BUCKETS", wanted):
            engine = Engine(store, source=source, tasks=2)
            for stream in load.streams.values():
                engine.stream(stream)
            for number, sql in enumerate(load.queries):
                engine.query(sql, name=f"q{number}")
            engine.start()
            for batch in batches:
                engine.take(**batch)
            engine.stop(final=wanted == 16)
    assert {known.buckets for known in maps} == {buckets}
    for number, query in enumerate(load.parsed):
        assert bag(engine.results(f"q{number}")) == bag(results(query, load.streams, load.accepted)), query.sql
    assert not engine.manifest.runs


SEQUENCED = {
    "join": "SELECT x.v, y.v AS w FROM a [RANGE 4] x, b [RANGE 4] y WHERE x.k = y.k",
    "last": "SELECT x.v, y.v AS w FROM a [ROWS 2] x, b [RANGE 9] y WHERE x.k = y.k",
    "alone": "SELECT t, v FROM a WHERE v > 1",
    "ends": "SELECT k, first(v) AS f, last(v) AS l, window_end FROM a [RANGE 6 SLIDE 3] GROUP BY k",
    "rows": "SELECT sum(v) AS s, result_time FROM a [RANGE 3 ROWS SLIDE 2 ROWS]",
    "arrival": "SELECT sum(v) AS s, result_time FROM a [RANGE 4 SLIDE 2 ROWS BY ARRIVAL]",
    "both": "SELECT count(*) AS n, window_end FROM a [RANGE 4 SLIDE 2] x, b [RANGE 4 SLIDE 2] y WHERE x.k = y.k",
}
STEPS = [
    [{"t": 1, "k": 1, "v": 1}, {"t": 1, "k": 1, "v": 2}, {"t": 3, "k": 2, "v": 3}],
    [{"t": 3, "k": 1, "v": 4}, {"t": 6, "k": 1, "v": 5}, {"t": 6, "k": 2, "v": 1}, {"t": 7, "k": 1, "v": 2}],
]


@pytest.mark.parametrize("delay", [{"delay": 3}, {"delay": None, "delay_rows": 2}], ids=["delay", "delay in rows"])
def test_the_event_time_may_be_the_sequence(delay):
    """All queries answer as if rows of one time had no order."""
    columns = tuple(Column(name, "bigint") for name in "tkv")
    streams = {name: Stream(name, columns, "t", sequence="t", **delay) for name in "ab"}
    load = Workload(streams, tuple(SEQUENCED.values()), tuple({"a": rows, "b": rows} for rows in STEPS))
    engine, names = answered(load, load.queries, Manner(), 2, 0)
    assert len(names) == len(SEQUENCED)
    for number, query in enumerate(load.parsed):
        evaluated = results if query.aggregation is None else aggregate_results
        assert bag(engine.results(f"q{number}")) == bag(evaluated(query, streams, load.accepted)), query.sql
    assert not engine.manifest.runs


@settings(max_examples=examples(30))
@given(united_workload(late=True), MANNERS, st.integers(1, 3))
def test_unions_are_the_references(load, manner, tasks):
    engine, names = answered(load, load.queries, manner, tasks, 0)
    for number, query in enumerate(load.written):
        if f"q{number}" in names:
            assert bag(engine.results(f"q{number}")) == bag(results(query, load.streams, load.accepted)), query.sql
