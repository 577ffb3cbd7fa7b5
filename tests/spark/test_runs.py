"""Results stored as combined windows equal those stored row by row, through merged files, expiry and restarts."""

from dataclasses import replace
from functools import partial
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.results.part import Part
from penstock.results.read import holds_runs
from penstock.results.released import horizon
from penstock.results.views import view_of
from tests.aggregates import STREAM, same_bag
from tests.effort import examples
from tests.spark.replay import Replay, drain, rows_of

pytestmark = pytest.mark.spark

KINDS = (
    "RANGE {long} SLIDE {slide}",
    "RANGE {long} SLIDE {slide} ORIGIN -4",
    "RANGE ALL SLIDE {slide}",
    "SESSION 4",  # has no runs, but may share files with what has
)


def listed(table):
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def collect(delivered, number, table, step):
    delivered.setdefault((number, step), []).extend(listed(table))


def any_query(chance, kind):
    slide = chance.randrange(1, 4)
    window = kind.format(long=chance.randrange(3, 6) * slide + chance.choice((0, 1)), slide=slide)
    where = chance.choice(("", " WHERE v > 0"))
    return (
        f"SELECT window_start, window_end, g, count(*) AS n, max(v) AS most FROM s [{window}]{where} GROUP BY g "
        "HAVING count(*) > 0"
    )


@settings(max_examples=examples(2), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.integers(0, 10**6), st.integers(0, 6), st.integers(1, 3))
def test_runs_and_rows_show_the_same(spark, tmp_path_factory, seed, delay, tasks):
    chance, root = Random(seed), tmp_path_factory.mktemp("run")
    replay = Replay(root / "source", replace(STREAM, delay=delay))
    queries = [any_query(chance, kind) for kind in KINDS]
    retain = chance.randrange(20)
    got = {}
    upkeep = patch.multiple("penstock.results.retention", UPKEEP_EVERY=2, FIRST_UPKEEP=1)
    with upkeep, patch("penstock.results.retention.MANY_FILES", 2):
        for number in range(4):
            times = [15 * number + chance.randrange(-5, 15) for _ in range(6)]
            replay.add(s=[{"t": t, "k": "a", "g": t % 2, "v": chance.choice((0, 1, None)), "x": 0.5} for t in times])
            if number in (1, 3):
                engine = replay.engine(spark, root / "state", tasks=tasks)
                # The last one comes later, so that windows of which it has not seen all rows are left out.
                for n, sql in enumerate([*queries, queries[0]] if number == 3 else queries):
                    kept = retain if n == 1 else None
                    engine.query(sql, name=f"runs{n}", retain=kept)
                    # A condition on the window itself is decided window by window.
                    engine.query(f"{sql} AND window_end > -1000", name=f"rows{n}", retain=kept, into=lambda *_: None)
                    delivered = got.setdefault(n, {})
                    engine.query(sql, name=f"sink{n}", into=partial(collect, delivered, number))
                drain(engine, final=number == 3)
    assert any(holds_runs(file) for file in engine.manifest().results.values())
    for n in range(5):
        kept, shown = (rows_of(engine.results(f"{kind}{n}", step=True)) for kind in ("rows", "runs"))
        if n == 1:  # files go whole
            least = min((row[1] for row in kept), default=0)
            shown = [row for row in shown if row[1] >= least]
        assert same_bag(shown, kept)
        assert engine._query_stats(f"runs{n}") == engine._query_stats(f"rows{n}")
        for since in sorted({row[-1] for row in kept})[:1]:
            later = rows_of(engine.results(f"runs{n}", since_step=since))
            assert same_bag(later, [row[:-1] for row in kept if row[-1] > since])
        record, manifest = engine.catalog.record(f"runs{n}"), engine.manifest()
        part = Part(horizon=horizon(engine.catalog, record, manifest), before=30)
        at_once = chance.randrange(1, 9)
        plain = list(view_of(engine.catalog, record).tables(manifest, part, at_once=at_once))
        assert all(0 < len(table) < 2 * at_once + 8 for table in plain)
        wanted = [row[:-1] for row in rows_of(engine.results(f"runs{n}", step=True)) if row[1] < 30]
        assert same_bag([row for table in plain for row in listed(table)], wanted)
        sunk = [row[:-1] for row in rows_of(engine.results(f"sink{n}", step=True))]
        once = {step: rows for (_, step), rows in sorted(got[n].items(), reverse=True)}  # of a step that came twice
        assert same_bag([row for rows in once.values() for row in rows], sunk)


def test_windows_in_which_nothing_changes_are_one_row(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    for number in range(3):
        replay.add(s=[{"t": 100 * number, "k": "a", "g": 0, "v": number, "x": 0.5}])
    sql = "SELECT g, count(*) AS n, window_end FROM s [RANGE 50 SLIDE 1] GROUP BY g HAVING count(*) > 0"
    engine = replay.engine(spark, tmp_path / "state", {"q": sql})
    drain(engine, final=True)
    files = [f for f in engine.manifest().results.values() if f.rows]
    assert sum(f.rows for f in files) == 3
    assert engine._query_stats("q")["results"] == 150
    assert sorted(rows_of(engine.results("q"))) == [(0, 1, 100 * n + end) for n in range(3) for end in range(1, 51)]
    assert "results kept as runs of equal windows" in engine.explain()
