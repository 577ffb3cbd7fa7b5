"""EMIT EARLY through Spark: the newest revision of each window is what has come so far, and the last one is final."""

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.errors import RegistrationError
from penstock.model.time import NEVER
from penstock.reference import admit, aggregate_results
from penstock.sql import parse_query
from tests.aggregates import ROWS, STREAM, arriving, cases, same_bag
from tests.effort import examples
from tests.spark.replay import Replay, drain, rows_of, wait_until
from tests.spark.test_aggregates import SLIDING, aggregated
from tests.spark.test_online import STREAMS, live, rows_at  # noqa: F401  (a fixture)

pytestmark = pytest.mark.spark

CASES = st.lists(cases("sliding"), min_size=6, max_size=6).map(
    lambda some: [replace(c, having=None, top=None) for c in some]
)

EVER = "SELECT k, window_end, count(*) AS n FROM s [RANGE ALL SLIDE 3] GROUP BY k"


def newest(rows, keys):
    """The newest revision of each window, and all final rows; `keys` columns in front say which window it is."""
    latest = {}
    for row in rows:
        place = tuple(map(repr, row[:keys]))
        if place not in latest or latest[place][-2] < row[-2]:
            latest[place] = row
    return [row[:-2] for row in latest.values()], [row[:-2] for row in rows if row[-1]]


@pytest.mark.long
@settings(max_examples=examples(2), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(CASES, arriving(ROWS, 2, 4), st.integers(0, 6), st.integers(1, 3))
def test_the_newest_revisions_are_the_answer_so_far(spark, tmp_path_factory, queries, batches, delay, tasks):
    root = tmp_path_factory.mktemp("run")
    source = replace(STREAM, delay=delay)
    replay = Replay(root / "source", source)
    declared = {f"q{n}": f"{case.sql} EMIT EARLY EVERY 1 MILLISECOND" for n, case in enumerate(queries)}
    declared |= {f"once{n}": case.sql for n, case in enumerate(queries)}
    declared |= {"ever": f"{EVER} EMIT EARLY EVERY 1 MILLISECOND", "ever once": EVER}
    streams = {"s": source}
    for number in range(len(batches) + 1):
        final = number == len(batches)
        if not final:
            replay.add(s=batches[number])
        engine = replay.engine(spark, root / "state", declared, tasks=tasks)
        drain(engine, final=final)
        steps = admit(source, batches[: number + 1])
        rows = {"s": [row for step in steps for row in step.accepted]}
        used = max((step.progress for step in steps), default=NEVER)
        latest, finals = newest(rows_of(engine.results("ever")), 2)
        assert same_bag(finals, rows_of(engine.results("ever once")))
        for k, end, count in latest:
            assert count == sum(row["k"] == k and row["t"] < end for row in rows["s"])
        assert {k for k, *_ in latest} == {row["k"] for row in rows["s"]}
        for n, case in enumerate(queries):
            query = parse_query(case.sql, streams)
            found = rows_of(engine.results(f"q{n}"))
            latest, finals = newest(found, 2 + len(case.groups))
            assert same_bag(latest, aggregate_results(query, streams, rows)), case.sql
            shown = rows_of(engine.results(f"once{n}"))
            assert same_bag(finals, shown), case.sql
            if final:
                assert same_bag(finals, aggregate_results(query, streams, rows))
            else:
                assert all(row[1] <= used for row in shown)


def test_open_windows_are_shown_again_after_a_while_without_new_rows_and_go_to_sinks(live):  # noqa: F811
    got = []
    one = live({})
    one.engine.query(SLIDING, name="early", emit="2 seconds", into=lambda table, _: got.extend(table.to_pylist()))
    for number in range(2):
        one.feed(**rows_at(number))
    wait_until(lambda: so_far(one) == whole(range(2)))
    assert "open windows shown every 2 seconds" in one.engine.explain()
    one.run.stop(final=True)
    assert one.engine.results("early").columns == [
        "k",
        "n",
        "total",
        "window_start",
        "window_end",
        "_revision",
        "_final",
    ]
    finals = [row for row in rows_of(one.engine.results("early")) if row[-1]]
    assert sorted(row[:-2] for row in finals) == sorted(aggregated(SLIDING, range(2)).elements())
    assert len(got) == len(rows_of(one.engine.results("early")))
    assert {row["_final"] for row in got} == {True, False}


def so_far(one):
    """The newest revision of each window by its end."""
    latest = {}
    for row in rows_of(one.engine.results("early")):
        if row[4] not in latest or latest[row[4]][-2] < row[-2]:
            latest[row[4]] = row
    return sorted(row[:-2] for row in latest.values())


def whole(numbers):
    return sorted(aggregated(SLIDING, numbers).elements())


def test_windows_that_cannot_be_shown_early_are_refused(spark, tmp_path):
    engine = Replay(tmp_path / "source", *STREAMS).engine(spark, tmp_path / "state")
    with pytest.raises(RegistrationError, match="EMIT EARLY is for windows that slide by time"):
        engine.query("SELECT count(*) AS n FROM a [SESSION 2 SECONDS]", name="q", emit="1 second")
    with pytest.raises(RegistrationError, match="is ordered, and EMIT EARLY shows windows before their time"):
        engine.query(SLIDING, name="q", ordered=True, emit="1 second")
