"""Probes that steps put off: clean-ups find exactly what is missing, and everything that depends on it waits."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Column, Stream
from penstock.planner.counters import TableCounters
from penstock.planner.decisions import PuttingOff
from penstock.planner.deferral.overload import Overload, Parameters
from penstock.planner.deferral.selectors import SELECTORS
from penstock.results.released import released
from penstock.state.owed import Owed
from penstock.step.owing import Chosen
from penstock.step.relief import Relief
from penstock.testing.engine import Engine
from penstock.testing.generate import scenario
from penstock.testing.runner import Story
from penstock.testing.scenario import Batch, CleanUp, Options, Pressure
from penstock.testing.settings import constants
from tests.effort import examples

COLUMNS = tuple(Column(name, "bigint") for name in ("at", "k", "l", "v"))
STREAMS = [Stream(name, COLUMNS, "at", 2) for name in "abc"]
PAIR = "SELECT x.v AS v, y.v AS w FROM a [RANGE 5] AS x, b [RANGE 5] AS y WHERE x.k = y.k"
CHAIN = (
    "SELECT x.v AS v, y.v AS w, z.v AS u FROM a [RANGE 5] AS x, b [RANGE 5] AS y, c [RANGE 5] AS z "
    "WHERE x.k = y.k AND y.l = z.l"
)
SELF = "SELECT x.v AS v, y.v AS w FROM a [RANGE 5] AS x, a [RANGE 5] AS y WHERE x.k = y.k"
ALL = ((0, 256),)

pytestmark = pytest.mark.filterwarnings("ignore:.*RANGE ALL")


def row(at, v, k=1, l=1):  # noqa: E741  (a column)
    return {"at": at, "k": k, "l": l, "v": v}


def begun(*queries, store=None, source=None, **options):
    engine = Engine(store, source=source, **options)
    for stream in STREAMS:
        engine.stream(stream)
    for number, sql in enumerate(queries):
        engine.query(sql, name=f"q{number}")
    engine.start()
    return engine


def put_off(engine, buckets=ALL):
    """From now on no row probes whose bucket is among these."""
    engine.run.stepper.put_off = Chosen({table.name: buckets for table in engine.run.stepper.network.tables})


def clean_up(engine, owed=None):
    engine.run.stepper.clean_up(owed)


def counted(engine):
    total = TableCounters()
    for counts in engine.manifest.counters.tables.values():
        total.add(counts)
    return total


def test_rows_that_have_not_probed_are_seen_by_others_and_a_clean_up_finds_the_rest():
    engine = begun(PAIR)
    put_off(engine)
    engine.take(a=[row(1, 10)], b=[row(1, 20)])
    engine.run.stepper.put_off = Chosen()
    engine.take(a=[row(2, 11)])  # meets the row of b, which has not probed
    assert engine.results("q0") == [(11, 20)]
    (of_a, of_b) = engine.manifest.owed
    assert {of_a.table, of_b.table} == {"a(k)", "b(k)"}
    assert (of_a.first, of_a.last, of_a.buckets) == (0, 0, ALL)
    clean_up(engine)
    assert sorted(engine.results("q0")) == [(10, 20), (11, 20)]
    assert engine.manifest.owed == ()
    assert (counted(engine).deferred, counted(engine).cleaned) == (2, 2)
    clean_up(engine)  # nothing is left to do
    assert len(engine.results("q0")) == 2


@pytest.mark.parametrize("query", [PAIR, CHAIN, SELF])
@pytest.mark.parametrize("tasks", [1, 3])
def test_each_result_comes_once_whatever_is_put_off_and_in_whatever_order_it_is_cleaned_up(query, tasks):
    steps = [{"a": [row(t, t)], "b": [row(t, 10 + t)], "c": [row(t, 20 + t)]} for t in range(5)]
    plain = begun(query, tasks=tasks)
    for rows in steps:
        plain.take(**rows)
    with constants(Options(fan_in=1)):  # every step merges what the one before it has stored
        engine = begun(query, tasks=tasks)
        for number, rows in enumerate(steps):
            put_off(engine, ALL if number % 2 == 0 else ())
            engine.take(**rows)
        assert len(engine.results("q0")) < len(plain.results("q0"))
        for own in reversed(engine.manifest.owed):
            clean_up(engine, (own,))
    assert sorted(engine.results("q0")) == sorted(plain.results("q0"))


def test_a_row_that_no_later_row_can_join_is_kept_for_the_owed_probes_of_its_own_step():
    engine = begun(PAIR)
    engine.take(a=[row(100, 1, k=7)], b=[row(100, 2, k=8)])
    engine.take(a=[row(100, 1, k=7)], b=[row(100, 2, k=8)])
    engine.advance("a", 99)
    put_off(engine)
    engine.take(a=[row(99, 3)], b=[row(98, 4)])  # the row of b meets none of a after this step
    engine.take(a=[row(200, 5)], b=[row(200, 6)])
    engine.take(a=[row(300, 5)], b=[row(300, 6)])
    assert engine.results("q0") == []
    clean_up(engine)
    assert (3, 4) in engine.results("q0")


def test_nothing_expires_that_owed_probes_may_find_and_everything_does_afterwards():
    engine = begun(PAIR)
    put_off(engine)
    engine.take(a=[row(1, 10)], b=[row(1, 20)])
    engine.run.stepper.put_off = Chosen()
    engine.take(a=[row(100, 11)], b=[row(100, 21)])
    engine.take(a=[row(200, 12)], b=[row(200, 22)])
    engine.tick()
    assert sum(run.rows for run in engine.manifest.runs.values()) == 6
    clean_up(engine)
    engine.tick()
    engine.tick()
    assert sum(run.rows for run in engine.manifest.runs.values()) == 2
    assert sorted(engine.results("q0")) == [(10, 20), (11, 21), (12, 22)]


def test_results_behind_owed_probes_are_not_complete_and_those_of_other_joins_are():
    engine = begun(PAIR, CHAIN)
    assert engine.run.stepper.network.joins[0].name != engine.run.stepper.network.joins[1].name
    engine.take(a=[row(5, 1)], b=[row(5, 2)], c=[row(5, 3)])
    engine.run.stepper.put_off = Chosen({"c(l)": ALL})  # from which only the chain starts
    engine.take(a=[row(20, 1)], b=[row(20, 2)], c=[row(20, 3)])
    known, catalog = engine.manifest, engine.catalog
    assert released(catalog, catalog.record("q0"), known) == 18
    assert released(catalog, catalog.record("q1"), known) == 3
    clean_up(engine)
    assert released(catalog, catalog.record("q1"), engine.manifest) == 18


def test_an_aggregate_over_a_join_waits_for_owed_probes():
    over = "SELECT window_end, count(*) AS n FROM a [RANGE 4 SLIDE 2] AS x, b [RANGE 4 SLIDE 2] AS y WHERE x.k = y.k"
    plain, engine = begun(over), begun(over)
    put_off(engine)
    for own in (plain, engine):
        own.take(a=[row(1, 1)], b=[row(1, 2)])
    engine.run.stepper.put_off = Chosen()
    for own in (plain, engine):
        own.take(a=[row(50, 1)], b=[row(50, 2)])
        for _ in range(5):
            own.tick()
    assert plain.results("q0")
    assert engine.results("q0") == []
    clean_up(engine)
    for _ in range(5):
        engine.tick()
    assert sorted(engine.results("q0")) == sorted(plain.results("q0"))


def test_a_sink_in_order_waits_for_owed_probes():
    got = []
    engine = Engine()
    for stream in STREAMS:
        engine.stream(stream)
    engine.query(PAIR + " ORDER BY result_time", name="q", into=lambda table, _: got.extend(table["v"].to_pylist()))
    engine.start()
    put_off(engine)
    engine.take(a=[row(1, 10)], b=[row(1, 20)])
    engine.run.stepper.put_off = Chosen()
    engine.take(a=[row(50, 11)], b=[row(50, 21)])
    engine.take(a=[row(90, 12)], b=[row(90, 22)])
    assert got == []
    clean_up(engine)
    assert got == [10, 11]


def test_a_change_of_queries_comes_after_a_clean_up():
    engine = begun(PAIR)
    put_off(engine)
    engine.take(a=[row(1, 10)], b=[row(1, 20)])
    engine.run.stepper.put_off = Chosen()
    engine.query(PAIR, name="later")
    assert engine.manifest.owed == ()
    engine.take(a=[row(2, 11)])
    assert sorted(engine.results("q0")) == [(10, 20), (11, 20)]
    assert engine.results("later") == []  # it began after the row of b
    put_off(engine)
    engine.take(b=[row(2, 21)])
    engine.drop("q0")
    assert sorted(engine.results("q0")) == [(10, 20), (10, 21), (11, 20), (11, 21)]


def test_what_is_owed_survives_a_restart_and_is_paid_before_other_declarations_take_effect():
    engine = begun(PAIR)
    put_off(engine)
    engine.take(a=[row(1, 10)], b=[row(1, 20)])
    engine.stop()
    same = begun(PAIR, store=engine.store, source=engine.source, tasks=2)
    assert same.manifest.owed != ()
    assert same.results("q0") == []
    same.stop()
    more = begun(PAIR, CHAIN, store=engine.store, source=engine.source)
    assert more.manifest.owed == ()
    assert more.results("q0") == [(10, 20)]


def test_the_end_of_the_streams_pays_everything():
    engine = begun(PAIR)
    put_off(engine)
    engine.take(a=[row(1, 10)], b=[row(1, 20)])
    engine.stop(final=True)
    assert engine.results("q0") == [(10, 20)]
    assert (engine.manifest.owed, engine.manifest.runs) == ((), {})


def test_joins_that_wait_for_progress_anyway_and_those_without_a_key_owe_nothing():
    rows = "SELECT x.v AS v, y.v AS w FROM a [ROWS 2] AS x, b [ROWS 2] AS y WHERE x.k = y.k"
    band = "SELECT x.v AS v, y.v AS w FROM a [RANGE 5] AS x, b [RANGE 5] AS y WHERE x.v < y.v"
    engine = begun(rows, band)
    put_off(engine)
    engine.take(a=[row(1, 10)], b=[row(1, 20)])
    assert engine.manifest.owed == ()
    assert engine.results("q1") == [(10, 20)]


def test_a_query_without_results_while_it_was_suspended_gets_none_of_that_time_later():
    engine = begun(PAIR)
    put_off(engine)
    engine.take(a=[row(1, 10)], b=[row(1, 20)])
    (own, *_) = engine.manifest.owed
    assert own.without == ()
    known = engine.run.stepper
    clean_up(engine, tuple(Owed(**{**_fields(o), "without": (1,)}) for o in known.manifest.owed))
    assert engine.results("q0") == []


def _fields(owed):
    return {name: getattr(owed, name) for name in owed.__struct_fields__}


@pytest.mark.parametrize("selector", sorted(SELECTORS))
@pytest.mark.parametrize("tasks", [1, 2])
def test_an_overloaded_engine_puts_off_by_what_it_measures_and_pays_when_it_may(selector, tasks):
    """Each step is too slow, until all are short enough; some of what is owed is paid in between."""
    chance = random.Random(f"{selector} {tasks}")
    steps = [
        {
            name: [row(t, chance.randrange(9), k=chance.randrange(40), l=chance.randrange(5)) for _ in range(30)]
            for name in "abc"
        }
        for t in range(12)
    ]
    plain, engine = begun(PAIR, CHAIN, SELF, tasks=tasks), begun(PAIR, CHAIN, SELF, tasks=tasks)
    relief = engine.run.stepper.relief = Relief(
        Overload(Parameters(selector, 0.4, steps=1, seconds=1e-9)), puts_off=True
    )
    for number, rows in enumerate(steps):
        if number == 8:
            relief.overload = replace(relief.overload, parameters=Parameters(selector, steps=1, seconds=3600.0))
        plain.take(**rows)
        engine.take(**rows)
        if number % 3 == 2:
            engine.run.stepper.pay(1e9)
    kinds = [d.decision.after for d in engine.manifest.decisions if isinstance(d.decision, PuttingOff)]
    assert kinds[0] != "0 buckets"
    assert len(set(kinds[:4])) > 1  # more and more, and at last fewer
    assert counted(engine).deferred > 0
    assert len(relief.overload.put_off) < max(int(kind.split()[0]) for kind in kinds)
    for own in (plain, engine):
        own.stop(final=True)
    assert counted(engine).deferred == counted(engine).cleaned
    for name in ("q0", "q1", "q2"):
        assert sorted(engine.results(name)) == sorted(plain.results(name))


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.3, 0.6, 1.0]), st.floats(0, 0.6), st.integers(0, 100))
def test_scenarios_under_pressure_have_the_references_answers(seed, share, cleaned, place):
    """All else of a scenario happens too: changing queries, restarts, crashes, faults, merges."""
    story, events = scenario(seed), []
    for number, event in enumerate(e for e in story.events if not isinstance(e, Pressure | CleanUp)):
        if isinstance(event, Batch):
            events.append(Pressure(share if (number + place) % 4 else 0.0))
        events.append(event)
        if isinstance(event, Batch) and (number * 7 + place) % 10 < 10 * cleaned:
            events.append(CleanUp(0.5))
    Story(replace(story, events=tuple(events))).tell()
