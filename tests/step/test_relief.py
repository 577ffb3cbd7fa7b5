"""What is put off under pressure, what a clean-up pays at a time, and what status says of it."""

from dataclasses import replace
from math import inf

from penstock.model import Column, Stream
from penstock.planner.deferral.loads import Load
from penstock.planner.deferral.overload import Overload, Parameters
from penstock.state.bucket_counters import BucketCounters
from penstock.state.manifest import Entry, Manifest, Progress
from penstock.state.owed import Owed, without_paid
from penstock.state.run import RunEntry
from penstock.step.relief import Relief, loads_of, owed_status, reachable
from penstock.step.report import Report
from penstock.testing.engine import Engine

BUCKETS = 4
COLUMNS = tuple(Column(name, "bigint") for name in ("at", "k", "v"))
PAIR = "SELECT x.v AS v, y.v AS w FROM a [RANGE 5] AS x, b [RANGE 7] AS y WHERE x.k = y.k"
OWED = Owed("a(k)", (("j", 0),), ((0, 4),), 3, 5, since=1.0)


def engine_of(*queries):
    engine = Engine()
    for name in "ab":
        engine.stream(Stream(name, COLUMNS, "at", 0))
    for number, sql in enumerate(queries):
        engine.query(sql, name=f"q{number}")
    engine.start()
    return engine


def report(*results):
    some = tuple(10 * (result > 0) for result in results)
    return Report(buckets=[BucketCounters(rows=some, probed=some, compared=results, results=results, written=some)])


def test_loads_are_what_tasks_counted_by_bucket():
    counted = BucketCounters((5, 0), (9, 0), (7, 0), (6, 0), (4, 0), (100, 0))
    (one, other) = loads_of([Report(buckets=[counted, counted])], 2)
    assert one == Load(size=200, work=2 * (9 + 6), made=12, inter=8, output=8)
    assert other == Load()
    assert loads_of([Report()], 2) == (Load(), Load())


def test_a_slow_step_puts_off_the_least_productive_buckets_of_joins_for_which_nobody_waits():
    ordered = PAIR.replace("x.v AS v", "x.v + 1 AS v").replace("RANGE 5", "RANGE 6") + " ORDER BY result_time"
    for queries, spared in (((PAIR,), False), ((PAIR, ordered), True)):
        engine = engine_of(*queries)
        stepper = engine.run.stepper
        relief = Relief(Overload(Parameters(steps=1)), puts_off=True, allowed=lambda: 1.0)
        assert relief.chosen(stepper.network, stepper.registry).buckets == {}
        record = relief.learn(stepper.network, Manifest(), Entry(), [report(9, 1, 5, 0)], 2.0, BUCKETS)
        (decided,) = record.decisions
        assert decided.shown()["after"] == ["2 buckets"]
        chosen = relief.chosen(stepper.network, stepper.registry)
        assert set(chosen.buckets.values()) == {((1, 3),)}
        joins = {join.name for join in stepper.network.joins}
        assert chosen.spared == (joins if spared and len(joins) == 1 else chosen.spared)
        assert bool(chosen.spared) == spared
        assert "2 of 4 buckets" in relief.explained()[0]


def test_an_engine_that_does_not_defer_learns_nothing():
    engine = engine_of(PAIR)
    relief = Relief(Overload(Parameters(steps=1)), allowed=lambda: 1.0)
    record = relief.learn(engine.run.stepper.network, Manifest(), Entry(), [report(9, 1)], 2.0, 2)
    assert record == Entry()
    assert relief.explained() == []


def test_a_clean_up_pays_the_most_productive_buckets_first_and_as_many_as_time_allows():
    loads = tuple(Load(size=1, work=1, output=output) for output in (1, 9, 3, 4))
    relief = Relief(Overload(Parameters(), loads=loads))
    owed, order = (OWED,), []
    while owed:
        (part,) = relief.due(owed)
        assert (part.first, part.last) == (3, 5)
        order.append(part.buckets)
        owed = without_paid(owed, [part])
        relief.paid(0.1, 1.0)
    assert order == [((1, 2),), ((2, 4),), ((0, 1),)]
    relief.paid(2.0, 1.0)
    assert relief.portion == 4


def test_without_loads_buckets_are_paid_one_after_the_other():
    (part,) = Relief().due((OWED,))
    assert part.buckets == ((0, 1),)


def test_the_state_that_is_reachable_is_the_rate_by_the_longest_life():
    engine = engine_of(PAIR)
    before = Manifest(progress={"a": Progress(0, 10), "b": Progress(0, 10)})
    run = RunEntry("r", "a(k)", 0, 1, 9, 400, 10, 12, 0, 0, 7, (), 1, 0)
    after = Entry(progress={"a": Progress(0, 12), "b": Progress(0, 10)}, runs_added=(run,))
    life = max(e.life for t in engine.run.stepper.network.tables if t.name == "a(k)" for e in t.entries)
    assert reachable(engine.run.stepper.network, before, after) == 400 / 2 * life
    assert reachable(engine.run.stepper.network, before, replace(after, runs_added=())) == 0.0


def test_status_says_what_is_owed_since_when_and_nothing_else():
    found = owed_status(Manifest(owed=(OWED, replace_buckets(OWED))), 2)
    assert (found["steps"], found["first_step"], found["joins"], found["buckets_put_off"]) == (3, 3, ["j"], 2)
    assert found["seconds"] > 0
    assert owed_status(Manifest(), 0)["seconds"] is None
    assert Relief().allowed() == inf


def replace_buckets(own):
    return Owed(own.table, own.starts, ((7, 9),), own.first, own.last, own.since)
