"""The engine in one process answers as the reference does, however its steps are executed."""

import contextlib
import random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.errors import RegistrationError
from penstock.reference import results
from penstock.testing.engine import Engine
from penstock.testing.executor import Manner
from tests.effort import examples
from tests.oracle import bag
from tests.unions import united_workload
from tests.workloads import workload

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
@given(united_workload(late=True), MANNERS, st.integers(1, 3))
def test_unions_are_the_references(load, manner, tasks):
    engine, names = answered(load, load.queries, manner, tasks, 0)
    for number, query in enumerate(load.written):
        if f"q{number}" in names:
            assert bag(engine.results(f"q{number}")) == bag(results(query, load.streams, load.accepted)), query.sql
