"""Filters and joins over unions through Spark: one query for people, whatever number of combinations answers it."""

from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from penstock.errors import RegistrationError, SqlError
from penstock.model.time import SECOND
from penstock.reference import results
from penstock.sql import parse_query
from tests.effort import examples
from tests.named import evaluate
from tests.oracle import bag
from tests.spark.replay import drain, names, replay_of, rows_of, stream, wait_until
from tests.spark.test_online import started
from tests.unions import united_workload

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*RANGE ALL")]

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
STREAMS = {s.name: s for s in (stream(n, "ts timestamp, k bigint, v bigint", delay=2 * SECOND) for n in "abc")}
JOIN = (
    "SELECT x.v, c.v AS w, result_time FROM (a UNION ALL b) [RANGE 9 SECONDS] AS x, c [RANGE 4 SECONDS] WHERE x.k = c.k"
)
TAGGED = (
    "SELECT x.place, x.v FROM (SELECT 'a' AS place, ts, v FROM a WHERE v > 1 UNION ALL SELECT 'a', ts, v "
    "FROM a WHERE v < 4"
    " UNION ALL SELECT NULL, ts, 0L - v FROM b) AS x WHERE x.v <> 3"
)

CONSTANT = (
    "SELECT x.v, c.v AS w FROM (SELECT ts, v, 1L AS k FROM a UNION ALL SELECT ts, v + 1, k + 1 "
    "FROM b) [RANGE 9 SECONDS] AS x, "
    "c [RANGE 4 SECONDS] WHERE x.k = c.k"
)


def rows_at(number, *quiet):
    moments = [(2 * number + n) for n in range(2)]
    return {n: [{"ts": t * SECOND, "k": t % 3, "v": t} for t in moments] if n not in quiet else [] for n in STREAMS}


def reference(sql, steps):
    rows = {name: [row for step in steps for row in step[name]] for name in STREAMS}
    return bag(results(parse_query(sql, STREAMS), STREAMS, rows))


@pytest.fixture
def live(spark, tmp_path):
    with started(spark, tmp_path, STREAMS.values()) as start:
        yield start


@settings(max_examples=examples(3), deadline=None, phases=PHASES)
@given(united_workload(late=True), st.integers(1, 3), st.integers(0, 3))
def test_every_query_gets_the_answer_of_the_reference_over_a_restart(spark, tmp_path_factory, load, tasks, cut):
    root = tmp_path_factory.mktemp("unions")
    replay = replay_of(load, root / "source", steps=cut)
    drain(replay.engine(spark, root / "state", names(load), tasks=tasks))
    for batch in load.batches[cut:]:
        replay.add(**batch)
    engine = replay.engine(spark, root / "state", names(load), tasks=tasks)
    drain(engine, final=True)
    for name, query in zip(names(load), load.written, strict=True):
        expected = bag(results(query, load.streams, load.accepted))
        assert bag(rows_of(engine.results(name))) == expected, query.sql
        assert engine.query(query.sql, name=name).stats()["results"] == expected.total()
        event("some" if expected else "none")


def test_a_query_over_a_union_comes_changes_and_goes_like_any_other(live, tmp_path):
    calls = []
    one = live({"plain": "SELECT a.v, c.v AS w FROM a [RANGE 9 SECONDS], c [RANGE 4 SECONDS] WHERE a.k = c.k"})
    steps = [rows_at(n) for n in range(6)]
    one.feed(**steps[0])
    one.engine.query(CONSTANT, name="constant")
    one.engine.query(JOIN, name="u", into=tmp_path / "out")
    one.engine.query(JOIN, name="ordered", ordered=True)
    one.engine.query(TAGGED, name="tagged", into=lambda table, step: calls.append((step, table.to_pylist())))
    for step in steps[1:3]:
        one.feed(**step)
    assert one.answer("u") == reference(JOIN, steps[1:3])
    assert one.answer("tagged") == reference(TAGGED, steps[1:3])
    status = one.run.status()["queries"]
    assert one.answer("constant") == reference(CONSTANT, steps[1:3]) != bag([])
    assert set(status) == {"constant", "plain", "u", "ordered", "tagged"} == {q["name"] for q in one.engine.queries()}
    assert status["u"]["results"] == one.answer("u").total()
    assert sum("(reaches back" in line for line in one.engine.explain("u").splitlines()) == 2
    assert "1 query, 3 streams, 2 joins" in one.engine.explain_select(JOIN)
    with pytest.raises(RegistrationError, match="reads stream 'b'; drop the query first"):
        one.engine.drop_stream("b")
    narrow = JOIN.replace("9 SECONDS", "3 SECONDS")
    one.engine.query(narrow, name="u", into=tmp_path / "out", replace=True)
    for step in steps[3:5]:
        one.feed(**step)
    changed = reference(JOIN, steps[1:3]) + reference(narrow, steps[3:5])
    assert one.answer("u") == changed
    one.engine.drop("tagged")
    one.feed(**steps[5])
    changed = reference(JOIN, steps[1:3]) + reference(narrow, steps[3:])
    assert one.answer("u") == changed
    assert one.answer("tagged") == reference(TAGGED, steps[1:5])
    assert not any(t.stateless and t.entries for t in one.engine.network().tables)
    wait_until(lambda: bag(delivered(tmp_path / "out")) == changed)
    # All that a step gives comes in one call.
    assert len({step for step, _ in calls}) == len(calls) >= 4  # a step for each feed, or two
    assert bag((r["place"], r["v"]) for _, rows in calls for r in rows) == reference(TAGGED, steps[1:5])
    one.run.stop(final=True)
    times = [time for *_, time in rows_of(one.engine.results("ordered"))]
    assert times == sorted(times)
    assert one.answer("ordered") == reference(JOIN, steps[1:])
    assert not one.engine.manifest().runs


def delivered(folder):
    files = [pq.read_table(path) for path in sorted(Path(folder).glob("*.parquet"))]
    return [(r["v"], r["w"], r["result_time"].timestamp() * SECOND) for table in files for r in table.to_pylist()]


@pytest.mark.long
def test_results_wait_for_the_slowest_stream_of_a_union_and_others_read_them(live):
    queries = {
        "u": JOIN,
        "counted": "SELECT window_end, count(*) AS n FROM u [TUMBLING 4 SECONDS]",
        "ticked": "SELECT window_end, count(*) AS n, max(x.v) AS m FROM (a "
        "UNION ALL b) [RANGE 4 SECONDS SLIDE 2 SECONDS] AS x, "
        "c [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE x.k = c.k",
        "moments": "SELECT x.ts, c.ts AS u, count(*) AS n FROM (a "
        "UNION ALL b) [RANGE 9 SECONDS] AS x, c [RANGE 4 SECONDS] WHERE x.k = c.k "
        "GROUP BY x.ts, c.ts",
        "low": "SELECT ts, k, v FROM a WHERE v < 5",
        "high": "SELECT ts, k, v FROM b WHERE v > 1",
        "again": "SELECT x.v, c.v AS w FROM (low UNION ALL high) [RANGE 5 SECONDS] AS x, c [RANGE 5 SECONDS] "
        "WHERE x.k = c.k",
        "pairs": "SELECT x.v AS w, result_time AS ts FROM (a UNION ALL b) [RANGE 2 SECONDS] AS x, c [RANGE 2 SECONDS] "
        "WHERE x.k = c.k",
        "renamed": "SELECT x.at, x.number FROM (SELECT ts AS at, v AS number FROM low WHERE k = 1 "
        "UNION ALL SELECT ts, w FROM pairs) AS x",
    }
    one = live(queries)
    steps = [rows_at(n, *(() if n < 2 else ("b",))) for n in range(5)]
    for step in steps:
        one.feed(**step)
    # The newest row of b is of second 3, and 2 seconds may be missing.
    assert one.run.status()["queries"]["u"]["progress"] == 1 * SECOND
    assert one.answer("u") == reference(JOIN, steps)
    one.run.stop(final=True)
    rows = {name: [row for step in steps for row in step[name]] for name in STREAMS}
    for name, expected in evaluate(queries, STREAMS, rows).items():
        assert one.answer(name) == bag(expected), name
    assert not one.engine.manifest().runs


def test_a_query_over_a_union_may_begin_from_the_state(live):
    whole = JOIN.replace("4 SECONDS", "9 SECONDS")
    one = live({"ac": whole.replace("(a UNION ALL b)", "a"), "bc": whole.replace("(a UNION ALL b)", "b")})
    steps = [rows_at(n) for n in range(4)]
    for step in steps[:2]:
        one.feed(**step)
    late = one.engine.query(JOIN, name="u", start="state")
    for step in steps[2:]:
        one.feed(**step)
    complete = late.coverage()["complete_from"]
    assert set(complete) == {"a", "b", "c"}
    assert max(complete.values()) <= 0
    assert one.answer("u") == reference(JOIN, steps)


def test_an_error_stops_all_of_a_query_that_stops_at_errors(live):
    one = live()
    one.engine.query(
        "SELECT x.v FROM (SELECT ts, k, 10 DIV (v - 2) AS v FROM a UNION ALL SELECT ts, k, v FROM b) AS x "
        "WHERE x.v > -99",
        name="u", on_error="stop",
    )  # fmt: skip
    for number in range(3):
        one.feed(**rows_at(number))
    status = one.run.status()["queries"]["u"]
    assert "raised on 1 row(s)" in status["suspended"]
    assert one.answer("u") == bag([(-5,), (-10,), (0,), (1,), (10,), (2,), (3,)])


def test_columns_of_other_types_are_refused_at_the_union(live):
    one = live()
    sql = (
        "SELECT x.w FROM\n  (SELECT ts, element_at(array(v), 1) AS w FROM a UNION ALL SELECT ts, "
        "element_at(array('v'), 1) FROM b) AS x"
    )
    with pytest.raises(SqlError, match="The type of w is bigint, and string with rows of b") as caught:
        one.engine.query(sql, name="u")
    assert (caught.value.line, caught.value.column) == (2, 51)


@pytest.mark.long
def test_upkeep_leaves_the_results_of_all_combinations(live):
    with (
        patch("penstock.results.retention.UPKEEP_EVERY", 1),
        patch("penstock.results.retention.MANY_FILES", 2),
    ):
        one = live({"u": JOIN})
        steps = [rows_at(n) for n in range(6)]
        for step in steps:
            one.feed(**step)
        assert one.answer("u") == reference(JOIN, steps)
