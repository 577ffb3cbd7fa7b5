"""The cases of other engines' suites by the reference, by the kernels under every strategy, and by Spark."""

from collections import Counter

import pytest

from penstock.planner.build import STRATEGIES
from penstock.reference import admit, aggregate_results, results
from penstock.sql import parse_query
from tests import effort
from tests.driven import driven
from tests.oracle import duckdb_results
from tests.peers.cases import AGGREGATES, COLUMNS, FIRST, JOINS, LATE, SECOND, Case
from tests.spark.replay import Replay, drain, stream
from tests.workloads import Workload

STREAMS = {name: stream(name, COLUMNS, event_time="t", delay=1_000) for name in ("a", "b")}
STRICT = {name: stream(name, COLUMNS, event_time="t", delay=2) for name in ("a", "b")}
ALL = [*JOINS, *AGGREGATES]
WAYS = (
    {"tasks": 1, "merge_every": 0},
    {"tasks": 3, "merge_every": 2},
)


def named(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def steps_of(case, steps=3):
    """The rows of a case dealt out to steps in turn, so that those of one moment come apart as well."""
    return [{name: case.rows(name)[number::steps] for name in STREAMS} for number in range(steps)]


def late_steps(case):
    both = [dict(zip("ab", step, strict=True)) for step in case.steps]
    return [{name: Case("", "", [], rows).rows("a") for name, rows in step.items()} for step in both]


def answer(query, streams, rows):
    if query.aggregation is None:
        return Counter(results(query, streams, rows))
    return Counter(aggregate_results(query, streams, rows))


def test_each_case_has_a_name_of_its_own():
    names = [case.name for case in (*ALL, *LATE)]
    assert len(names) == len(set(names))


@named(ALL)
def test_the_reference_gives_what_is_written(case):
    rows = {name: case.rows(name) for name in STREAMS}
    query = parse_query(case.statement, STREAMS)
    assert answer(query, STREAMS, rows) == Counter(case.want)
    if query.aggregation is None:
        assert Counter(duckdb_results(query, STREAMS, rows)) == Counter(case.want)


@named(LATE)
def test_the_reference_lets_late_rows_take_part_in_nothing(case):
    steps = late_steps(case)
    admitted = {name: admit(s, [step[name] for step in steps]) for name, s in STRICT.items()}
    rows = {name: [row for step in judged for row in step.accepted] for name, judged in admitted.items()}
    assert answer(parse_query(case.sql, STRICT), STRICT, rows) == Counter(case.want)


@pytest.mark.parametrize("strategy", STRATEGIES)
@named(JOINS)
def test_the_kernels_give_what_is_written(case, strategy):
    for steps in (1, 3):
        work = Workload(STREAMS, (case.statement,), tuple(steps_of(case, steps)))
        for way in WAYS:
            assert Counter(driven(work, strategy=strategy, **way).answer(0)) == Counter(case.want)


@named([case for case in LATE if "count" not in case.sql])
def test_the_kernels_let_late_rows_take_part_in_nothing(case):
    found = driven(Workload(STRICT, (case.sql,), tuple(late_steps(case))))
    assert Counter(found.answer(0)) == Counter(case.want)


def answered(spark, folder, replay, statements):
    """What one engine delivers for each statement, as bags."""
    found = [Counter() for _ in statements]

    def collect(into):
        return lambda table, _step: into.update(zip(*table.to_pydict().values(), strict=True))

    engine = replay.engine(spark, folder / "state")
    for number, sql in enumerate(statements):
        engine.query(sql, name=f"q{number}", into=collect(found[number]))
    drain(engine, final=True)
    return found


@pytest.mark.spark
def test_one_engine_gives_what_is_written(spark, tmp_path):
    """Cases are queries over the same two streams, and share state; rows of all cases come in the same steps."""
    cases = ALL if effort.ALL else ALL[::6]
    replay = Replay(tmp_path / "in", *STREAMS.values())
    for number in range(3):
        of_each = [steps_of(case)[number] for case in ALL]
        replay.add(**{name: [row for step in of_each for row in step[name]] for name in STREAMS})
    found = answered(spark, tmp_path, replay, [case.statement for case in cases])
    assert {c.name: f for c, f in zip(cases, found, strict=True)} == {c.name: Counter(c.want) for c in cases}


@pytest.mark.spark
def test_one_engine_lets_late_rows_take_part_in_nothing(spark, tmp_path):
    cases = [case for case in LATE if case.steps == [FIRST, SECOND]]
    assert len(cases) == 4
    replay = Replay(tmp_path / "in", *STRICT.values())
    for step in late_steps(cases[0]):
        replay.add(**step)
    found = answered(spark, tmp_path, replay, [case.sql for case in cases])
    assert {c.name: f for c, f in zip(cases, found, strict=True)} == {c.name: Counter(c.want) for c in cases}
