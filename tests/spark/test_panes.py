"""Results stored as panes equal those stored as rows, at each step, through merged files, expiry and restarts."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from penstock.model import Sliding
from penstock.results.layout import PANES
from tests.aggregates import ROWS, STREAM, arriving, cases, same_bag
from tests.effort import examples
from tests.spark.replay import Replay, drain, rows_of

pytestmark = pytest.mark.spark

WINDOWS = st.builds(
    lambda slide, times, origin: Sliding(slide * times, slide, origin),
    st.integers(1, 4),
    st.integers(2, 4),
    st.none() | st.integers(-6, 12),
)
CASES = st.lists(
    # What goes to a sink has no two columns of one name.
    st.builds(
        lambda case, window: replace(
            case, window=window, having=None, top=None, calls=tuple(dict.fromkeys(case.calls))
        ),
        cases("sliding"),
        WINDOWS,
    ),
    min_size=5,
    max_size=5,
)


@pytest.mark.long
@settings(max_examples=examples(2), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(CASES, arriving(ROWS, 4, 6), st.integers(0, 6), st.integers(1, 3), st.integers(0, 20))
def test_panes_and_rows_show_the_same(spark, tmp_path_factory, queries, batches, delay, tasks, retain):
    root = tmp_path_factory.mktemp("run")
    replay = Replay(root / "source", replace(STREAM, delay=delay))
    middle = len(batches) // 2
    upkeep = patch.multiple("penstock.results.retention", UPKEEP_EVERY=2, FIRST_UPKEEP=1)
    with upkeep, patch("penstock.results.retention.MANY_FILES", 2):
        for number, batch in enumerate(batches):
            replay.add(s=batch)
            if number in (middle, len(batches) - 1):
                engine = replay.engine(spark, root / "state", tasks=tasks)
                for n, case in enumerate(queries):
                    # The last one drops its oldest results.
                    kept = retain if n == len(queries) - 1 else None
                    engine.query(case.sql, name=f"panes{n}", retain=kept)
                    engine.query(case.sql, name=f"rows{n}", retain=kept, into=lambda *_: None)
                drain(engine, final=number == len(batches) - 1)
                for n, case in enumerate(queries):
                    check(engine, n, case, gives_up=n == len(queries) - 1)
    kinds = {file.kind for file in engine.manifest().results.values()}
    event("with panes" if PANES in kinds else "without panes")


def check(engine, n, case, *, gives_up):
    kept = rows_of(engine.results(f"rows{n}", step=True))
    shown = rows_of(engine.results(f"panes{n}", step=True))
    if gives_up:  # panes are kept for as long as newer windows need them
        shown = [row for row in shown if kept and row[1] >= min(ends for _, ends, *_ in kept)]
    assert same_bag(shown, kept), case.sql
    assert engine._query_stats(f"panes{n}") == engine._query_stats(f"rows{n}")
    for since in sorted({row[-1] for row in kept})[:2]:
        later = rows_of(engine.results(f"panes{n}", since_step=since))
        assert same_bag(later, [row[:-1] for row in kept if row[-1] > since]), case.sql


def test_a_long_window_with_a_short_slide_is_stored_in_fewer_rows_than_it_has_results(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    for number in range(3):
        replay.add(s=[{"t": 20 * number + n, "k": "a", "g": n % 3, "v": n, "x": 0.5} for n in range(0, 20, 4)])
    sql = "SELECT g, count(*) AS n, max(v) AS m, window_end FROM s [RANGE 30 SLIDE 1] GROUP BY g"
    engine = replay.engine(spark, tmp_path / "state", {"q": sql, "same": sql.replace("30", "40")})
    drain(engine, final=True)
    stored = [f for f in engine.manifest().results.values() if f.rows]
    assert {f.kind for f in stored} == {PANES}
    # Fifteen rows, each a pane of its own, stand for the windows of both queries.
    assert sum(f.rows for f in stored) == 15
    shown = rows_of(engine.results("q"))
    assert len(shown) == engine._query_stats("q")["results"] > 150
