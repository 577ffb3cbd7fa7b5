"""Plans of window aggregates, chosen by the engine or by hand and changed between steps, give the reference's bag."""

from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock import Engine
from penstock.errors import RegistrationError
from penstock.model import Sliding
from penstock.planner.pane_sharing import PaneStatistics
from penstock.planner.panes import PLANS, PaneSet, Rates, pane_sets, pane_width
from penstock.reference import admit, aggregate_results
from penstock.results.layout import PANES
from penstock.sql import parse_query
from tests.aggregates import STREAM, same_bag
from tests.effort import examples
from tests.spark.replay import Replay, drain, rows_of

pytestmark = pytest.mark.spark

CALLS = ("count(*), sum(v)", "max(v), min(x)", "avg(v)", "count(DISTINCT v)", "first(v), last(k)", "stddev(v), sum(x)")
ENDS = ("", "", " HAVING count(*) > 1")


def engine_of(spark, replay, state, queries, **options):
    engine = Engine(spark, state, durable=False, **options)
    replay.declare(engine)
    for name, sql in queries.items():
        engine.query(sql, name=name)
    return engine


def answer(sql, source, batches):
    """The reference's."""
    streams = {"s": source}
    rows = {"s": [row for step in admit(source, batches) for row in step.accepted]}
    return aggregate_results(parse_query(sql, streams), streams, rows)


def any_query(chance):
    slide = chance.randrange(1, 6)
    length = chance.randrange(1, 4) * slide + chance.choice((0, 0, 1))
    where = chance.choice(("", "", " WHERE v > 0"))
    return (
        f"SELECT g, window_start, window_end, {chance.choice(CALLS)} "
        f"FROM s [RANGE {length} SLIDE {slide}]{where} GROUP BY g{chance.choice(ENDS)}"
    )


def any_rows(chance, around):
    def one():
        time = around + chance.randrange(-6, 7)
        return {
            "t": time,
            "k": chance.choice("ab"),
            "g": chance.choice((0, 1, 2, None)),
            "v": chance.choice((0, 1, 2, None)),
            "x": 0.5,
        }

    return [one() for _ in range(12)]


@settings(max_examples=examples(3), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.integers(0, 10**6), st.integers(0, 6), st.integers(1, 3))
def test_plans_that_change_with_steps_give_the_bag_of_one_that_does_not(spark, tmp_path_factory, seed, delay, tasks):
    chance = Random(seed)
    root = tmp_path_factory.mktemp("run")
    source = replace(STREAM, delay=delay)
    replay = Replay(root / "source", source)
    batches = [any_rows(chance, 5 * number) for number in range(6)]
    for batch in batches:
        replay.add(s=batch)
    asked = {f"q{n}": any_query(chance) for n in range(4)}

    def any_sets(windows, *_, **__):
        parts = {}
        for number in windows:
            parts.setdefault(chance.randrange(2), []).append(number)
        forms = ("partials", "rows", "either")
        return [
            PaneSet(tuple(own), *pane_width([windows[n] for n in own]), chance.choice(forms)) for own in parts.values()
        ]

    steady = engine_of(
        spark, replay, root / "steady", asked, tasks=tasks, plan="paned" if chance.random() < 0.5 else "auto"
    )
    drain(steady, final=True)
    with (
        patch.object(PaneStatistics, "rates", Rates(1.0, 1.0)),
        patch("penstock.planner.pane_sharing.pane_sets", any_sets),
        patch.multiple("penstock.planner.pane_sharing", EVERY=1, GAIN=-9.0, LEAST=0),
        patch("penstock.state.compaction.FAN_IN", 2),
    ):
        engine = engine_of(spark, replay, root / "state", asked, tasks=tasks)
        drain(engine, final=True)
    changes = [d for d in engine.decisions() if d["mode"] == "panes" and d["action"] == "changed"]
    assert len(changes) > 2
    for name, sql in asked.items():
        kept = rows_of(engine.results(name, step=True))
        assert same_bag(kept, rows_of(steady.results(name, step=True))), sql
        assert same_bag([row[:-1] for row in kept], answer(sql, source, batches)), sql
    stats = [e.manifest().counters.stream("s") for e in (engine, steady)]
    assert stats[0] == stats[1]


def test_plans_by_hand_are_changed_by_a_restart_in_the_middle_of_a_pane(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    sql = {
        "wide": "SELECT g, window_end, count(*) AS n, sum(v) AS total FROM s [RANGE 30 SLIDE 10] GROUP BY g",
        "narrow": "SELECT g, window_end, count(*) AS n, avg(v) AS mean FROM s [RANGE 21 SLIDE 7] GROUP BY g",
        "some": "SELECT g, window_end, count(*) AS n FROM s [RANGE 20 SLIDE 10] WHERE v > 3 GROUP BY g "
        "HAVING count(*) > 1",
    }
    rows = [
        {"t": 3 * n + number % 2, "k": "a", "g": n % 3, "v": n % 11, "x": 0.5} for number, n in enumerate(range(90))
    ]
    for number in range(len(PLANS)):
        replay.add(s=rows[18 * number : 18 * number + 18])
        engine = engine_of(spark, replay, tmp_path / "state", sql, plan=PLANS[number])
        drain(engine, final=number == len(PLANS) - 1)
    assert PANES in {file.kind for file in engine.manifest().results.values()}
    steady = engine_of(spark, replay, tmp_path / "steady", sql)
    drain(steady, final=True)
    for name, text in sql.items():
        assert same_bag(rows_of(engine.results(name)), rows_of(steady.results(name))), name
        assert same_bag(rows_of(engine.results(name)), answer(text, STREAM, [rows])), name
        assert engine._query_stats(name) == steady._query_stats(name)


def test_a_dropped_query_widens_panes_and_nothing_is_lost(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    sql = {
        "wide": "SELECT g, window_end, count(*) AS n FROM s [RANGE 30 SLIDE 10] GROUP BY g",
        "fine": "SELECT g, window_end, count(*) AS n FROM s [RANGE 4 SLIDE 1] GROUP BY g",
    }
    for number in range(4):
        replay.add(s=[{"t": 13 * number + n, "k": "a", "g": 0, "v": n, "x": 0.5} for n in range(13)])
        engine = engine_of(spark, replay, tmp_path / "state", sql if number < 2 else {"wide": sql["wide"]})
        if number == 2:
            engine.drop("fine")
        drain(engine, final=number == 3)
    found = {end: n for _, end, n in rows_of(engine.results("wide"))}
    assert found == {
        end: sum(1 for t in range(52) if end - 30 <= t < end) for end in range(10, 90, 10) if end - 30 < 52
    }


def test_the_engine_keeps_rows_where_each_has_a_group_of_its_own_and_says_why(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    for number in range(6):
        replay.add(s=[{"t": 100 * number + n // 5, "k": f"{number}-{n}", "g": 0, "v": n, "x": 0.5} for n in range(500)])
    sql = {"q": "SELECT k, window_end, count(*) AS n, sum(v) AS total FROM s [RANGE 60 SLIDE 20] GROUP BY k"}
    engine = engine_of(spark, replay, tmp_path / "state", sql)
    drain(engine)
    changed = [d for d in engine.decisions() if d["mode"] == "panes" and d["action"] == "changed"]
    assert [d["before"] for d in changed] == [["partials in panes of 20: q"]]
    assert changed[0]["after"] == ["rows in panes of 20: q"]
    assert changed[0]["new_cost"] < 0.8 * changed[0]["old_cost"]
    text = engine.explain()
    assert "kept rows in panes of 20: q" in text
    assert "buffered (CF; rows are fewer than what panes would cost)" in text
    assert "panes looked at after step" in text
    drain(engine_of(spark, replay, tmp_path / "state", sql), final=True)
    # Each row is in three windows.
    assert sorted(rows_of(engine.results("q")))[:3] == [("0-0", end, 1, 0) for end in (20, 40, 60)]
    assert len(rows_of(engine.results("q"))) == 3 * 3000


def test_the_engine_keeps_narrow_and_wide_panes_apart(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    for number in range(6):
        rows = [{"t": 2000 * number + n // 2, "k": "a", "g": n % 2, "v": n, "x": 0.5} for n in range(4000)]
        replay.add(s=rows)
    sql = {
        "even": "SELECT g, window_end, count(*) AS n FROM s [RANGE 12000 SLIDE 1000] GROUP BY g",
        "odd": "SELECT g, window_end, count(*) AS n FROM s [RANGE 9990 SLIDE 999] GROUP BY g",
    }
    engine = engine_of(spark, replay, tmp_path / "state", sql)
    assert pane_sets({0: Sliding(12000, 1000), 1: Sliding(9990, 999)})[0].width == 1
    drain(engine)
    changed = [d for d in engine.decisions() if d["action"] == "changed"]
    assert len(changed) == 1
    assert len(changed[0]["after"]) == 2
    drain(engine_of(spark, replay, tmp_path / "state", sql), final=True)
    for name, length, slide in (("even", 12000, 1000), ("odd", 9990, 999)):
        found = {(g, end): n for g, end, n in rows_of(engine.results(name))}
        ends = range(slide, 12000 + length, slide)
        wanted = {(g, end): min(end, 12000) - max(0, end - length) for end in ends for g in (0, 1)}
        assert found == {place: n for place, n in wanted.items() if n > 0}


def test_a_plan_that_cannot_be_is_refused_when_the_query_is_registered(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    engine = engine_of(spark, replay, tmp_path / "state", {}, plan="differential")
    with pytest.raises(RegistrationError, match="not differential"):
        engine.query("SELECT max(v) FROM s [RANGE 20 SLIDE 10]", name="q")
    with pytest.raises(RegistrationError, match="there is no plan 'pane'"):
        Engine(spark, tmp_path / "other", plan="pane")
