"""Window aggregates through Spark: every answer is the reference's, however the input is split; windows come once.

A run costs seconds whatever it computes, so each one answers many queries at once, with windows of all kinds; a join on
the same stream must not be affected.
"""

import time
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from penstock.errors import RegistrationError, ResultsError
from penstock.model import Landmark, Sliding
from penstock.model.time import NEVER, SECOND
from penstock.planner.panes import PLANS
from penstock.reference import admit, aggregate_results, results
from penstock.results.views import results_table
from penstock.sql import parse_query
from tests.aggregates import ARRIVALS, STREAM, WINDOWS, arriving, cases, fits, same_bag
from tests.effort import examples
from tests.monitors import check_bounded
from tests.oracle import bag
from tests.spark.monitored import answers, committed, monitor, without_steps
from tests.spark.replay import Replay, drain, rows_of, stream, wait_until
from tests.spark.test_online import JOIN as JOINS
from tests.spark.test_online import STREAMS, live, reference, rows_at  # noqa: F401  (a fixture)

pytestmark = pytest.mark.spark

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # an example takes seconds: a failing one is shown as drawn
AT_ONCE = 12
JOINED = JOINS.format(9, 9)
JOIN = "SELECT x.v, y.v AS w FROM s [RANGE 5] AS x, s [RANGE 3] AS y WHERE x.k = y.k AND x.v > 0"

# In `make test` there is one example: not the simplest of all, in which all windows are alike.
QUERIES = (
    st.lists(cases(), min_size=AT_ONCE, max_size=AT_ONCE).filter(lambda found: len({type(c.window) for c in found}) > 2)
    | st.tuples(*(cases(kind) for kind in WINDOWS for _ in range(2))).map(list)
)  # fmt: skip
BATCHES = arriving(ARRIVALS, 1, 5)
# Given in turn to the engines of a run; a query that one of them cannot compute is left out.
ANY_PLANS = st.lists(st.sampled_from(("auto", *PLANS)), min_size=1, max_size=3)
GENERAL_PLANS = st.permutations(["auto", "buffered"])  # by which every query can be computed
# Groups that are single moments need no window.
MOMENTS = {
    "moments": "SELECT t, k, count(*) AS n, sum(v) AS s, result_time FROM s GROUP BY t, k",
    "distinct": "SELECT DISTINCT t, g FROM s WHERE v > 0",
}


def answer(case, source, steps):
    """The reference's answer to all accepted rows; for landmarks with the windows closed after the last row."""
    streams = {"s": source}
    query = parse_query(case.sql, streams)
    rows = {"s": [row for step in steps for row in step.accepted]}
    found = aggregate_results(query, streams, rows)
    progress = steps[-1].progress if steps else NEVER
    if isinstance(case.window, Landmark) and progress > NEVER:
        shown = {row[1] for row in found}
        early = aggregate_results(query, streams, rows, {"s": progress})
        found += [row for row in early if row[1] not in shown and row[1] > max(shown, default=NEVER)]
    return found


def assert_accounts(engine, steps):
    """Every row is accounted for, by the engine's own counters and as the reference judges it."""
    manifest = engine.manifest()
    judged = {kind: sum(len(getattr(s, kind)) for s in steps) for kind in ("accepted", "late", "bad")}
    counts = manifest.counters.stream("s")
    assert {kind: getattr(counts, kind) for kind in judged} == judged
    assert counts.rows == sum(judged.values())
    for aggregate in engine.network().aggregates:
        counts = manifest.counters.table(aggregate.name)
        assert counts.aggregated + counts.unwanted == judged["accepted"], aggregate.name
        held = sum(r.rows for r in manifest.runs_of(aggregate.name))
        assert counts.stored - counts.dropped == held, aggregate.name


def check_held(aggregate, manifests):
    """State is never more than the rows of each query by itself, and empty at the end.

    That open windows need it is tested without Spark.
    """
    steps = sorted(manifests)
    came = [manifests[step].counters.stream("s").accepted for step in steps]
    held = [sum(run.rows for run in manifests[step].runs_of(aggregate.name)) for step in steps]
    check_bounded(held, lambda number: len(aggregate.members) * came[number], ended=True)


def check(spark, root, queries, batches, *, delay=4, tasks=2, cuts=(), plain=True, plans=("auto",)):
    """Answer all batches, by several engines one after the other if `cuts` says so, each with the next of the plans."""
    source = replace(STREAM, delay=delay)
    replay = Replay(root / "source", source)
    replay.plain = plain
    steps = admit(source, batches)
    cuts = [number for number in range(len(batches)) if number in cuts]
    used = (plans * (1 + len(cuts)))[: 1 + len(cuts)]
    kept = {f"q{n}": case for n, case in enumerate(queries) if all(fits(case, plan) for plan in used)}
    event(f"plans {used}, {len(kept)} of {len(queries)} queries")
    declared = {name: case.sql for name, case in kept.items()} | MOMENTS | {"join": JOIN}
    with committed() as manifests:
        for number, batch in enumerate(batches):
            replay.add(s=batch)
            if number in cuts:
                plan = used[cuts.index(number)]
                drain(replay.engine(spark, root / "state", declared, tasks=tasks, plan=plan))
        engine = replay.engine(spark, root / "state", declared, tasks=tasks, plan=used[-1])
        drain(engine, final=True)
    found = answers(engine, declared)
    given = {name: without_steps(own) for name, own in found.items()}
    for name, case in kept.items():
        expected = answer(case, source, steps)
        assert same_bag(given[name], expected), case.sql
        event("some results" if expected else "no result")
    streams = {"s": source}
    rows = {"s": [row for step in steps for row in step.accepted]}
    for name, sql in MOMENTS.items():
        assert bag(given[name]) == bag(aggregate_results(parse_query(sql, streams), streams, rows)), sql
    assert bag(given["distinct"]) == bag({(r["t"], r["g"]) for r in rows["s"] if (r["v"] or 0) > 0})
    for name, case in kept.items():
        if case.predicate is None and isinstance(case.window, Sliding | Landmark):
            none = sum(not case.window.wids(row[source.event_time]) for row in rows["s"])
            assert engine._query_stats(name)["outside"] == none, case.sql
    assert bag(given["join"]) == bag(results(parse_query(JOIN, streams), streams, rows))
    assert not engine.manifest().runs
    assert_accounts(engine, steps)
    assert monitor(engine, manifests, found) == len(kept) + 1
    for aggregate in engine.network().aggregates:
        check_held(aggregate, manifests)
    return engine


@settings(max_examples=examples(3), deadline=None, phases=PHASES)
@given(QUERIES, BATCHES, st.integers(0, 8), st.integers(1, 3), st.booleans(), ANY_PLANS)
def test_results_are_the_references(spark, tmp_path_factory, queries, batches, delay, tasks, plain, plans):
    check(spark, tmp_path_factory.mktemp("run"), queries, batches, delay=delay, tasks=tasks, plain=plain, plans=plans)


@settings(max_examples=examples(2), deadline=None, phases=PHASES)
@given(QUERIES, BATCHES, st.integers(0, 8), st.integers(1, 3), st.sets(st.integers(0, 4), min_size=1), GENERAL_PLANS)
def test_restarts_and_merges_change_nothing(spark, tmp_path_factory, queries, batches, delay, tasks, cuts, plans):
    with patch("penstock.state.compaction.FAN_IN", 1), patch("penstock.state.manifest.SNAPSHOT_EVERY", 2):
        check(spark, tmp_path_factory.mktemp("run"), queries, batches, delay=delay, tasks=tasks, cuts=cuts, plans=plans)


@pytest.mark.long
@settings(max_examples=examples(25), deadline=None, phases=PHASES)
@given(
    QUERIES,
    BATCHES,
    st.integers(0, 8),
    st.integers(1, 3),
    st.sets(st.integers(0, 4)),
    st.booleans(),
    ANY_PLANS | GENERAL_PLANS,
)
def test_many_results_are_the_references(spark, tmp_path_factory, queries, batches, delay, tasks, cuts, plain, plans):
    root = tmp_path_factory.mktemp("run")
    with patch("penstock.state.compaction.FAN_IN", 2), patch("penstock.state.manifest.SNAPSHOT_EVERY", 3):
        check(spark, root, queries, batches, delay=delay, tasks=tasks, cuts=cuts, plain=plain, plans=plans)


# ----------------------------------------------------------------------------------------------------- one by one

SLIDING = (
    "SELECT k, count(*) AS n, sum(v) AS total, window_start, window_end FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] "
    "GROUP BY k"
)
SESSIONS = "SELECT count(*) AS n, max(v) AS m, window_end FROM a [SESSION 2 SECONDS] WHERE v <> 4"
LATEST = "SELECT last(v) AS v, result_time FROM a [RANGE 3 ROWS SLIDE 2 ROWS] ORDER BY result_time"


def aggregated(sql, numbers, progress=None, since=NEVER):
    """The reference's answer to the rows of these steps; windows that start before `since` are left out."""
    streams = {s.name: s for s in STREAMS}
    rows = {"a": [row for number in numbers for row in rows_at(number)["a"]]}
    query = parse_query(sql, streams)
    reached = None if progress is None else {"a": progress}
    found = aggregate_results(query, streams, rows, reached)
    return bag(row for row in found if since == NEVER or row[-2] >= since)


def test_windows_come_when_progress_has_passed_them_each_once_and_go_to_sinks(live):  # noqa: F811
    got = []
    one = live({"q": SLIDING, "s": SESSIONS, "join": JOINED})
    one.engine.query(LATEST, name="ordered", into=lambda table, _: got.extend(table.to_pylist()))
    for number in range(4):
        one.feed(**rows_at(number))
    # The newest row is of second 7, and rows may be two seconds late: a tick gives what the last step has closed.
    for name, sql in (("q", SLIDING), ("s", SESSIONS)):
        wait_until(lambda name=name, sql=sql: one.answer(name) == aggregated(sql, range(4), 5 * SECOND))
    wait_until(lambda: len(got) == aggregated(LATEST, range(4), 5 * SECOND).total())
    text = one.engine.explain()
    assert "aggregate a by k in panes: 1 query has panes of 2 seconds: count of rows, count of v, sum of v" in text
    assert "q, differential (CF; sums of panes by difference)" in text
    one.run.stop(final=True)
    for name, sql in (("q", SLIDING), ("s", SESSIONS), ("ordered", LATEST)):
        assert one.answer(name) == aggregated(sql, range(4)), name
    assert one.answer("join") == reference(JOINED, range(4))
    assert [r["result_time"] for r in got] == sorted(r["result_time"] for r in got)
    assert bag((r["v"],) for r in got) == bag((v,) for v, _ in one.answer("ordered").elements())
    assert not one.run.stepper.manifest.runs


def test_a_query_that_comes_later_has_the_windows_that_start_from_then_on_and_disturbs_nobody(live):  # noqa: F811
    one = live({"first": SLIDING, "gone": SLIDING.replace("sum(v)", "min(v)").replace("4 S", "6 S")})
    finer = (
        "SELECT max(v) AS m, count(*) AS n, window_start, window_end FROM a [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k"
    )
    for number in range(2):
        one.feed(**rows_at(number))
    one.engine.query(finer, name="later")
    with pytest.raises(RegistrationError, match="cannot begin from the state"):
        one.engine.query(finer, name="state", start="state")
    for number in range(2, 4):
        one.feed(**rows_at(number))
    one.engine.drop("gone")
    for number in range(4, 6):
        one.feed(**rows_at(number))
    one.run.stop(final=True)
    assert one.answer("first") == aggregated(SLIDING, range(6))
    # Four seconds had passed when it came.
    assert one.answer("later") == aggregated(finer, range(2, 6), since=4 * SECOND)
    assert one.answer("gone").total() > 0


def test_windows_over_a_union_close_with_the_slower_stream(live):  # noqa: F811
    both = "(a UNION ALL b) [{}]"
    queries = {
        "sum": f"SELECT k, sum(v) AS s, window_end FROM {both.format('RANGE 4 SECONDS SLIDE 2 SECONDS')} "
        "WHERE v > 0 GROUP BY k",
        "session": f"SELECT count(*) AS n, window_end FROM {both.format('SESSION 2 SECONDS')}",
        "rows": f"SELECT sum(v + 2) AS s, result_time FROM {both.format('RANGE 3 ROWS SLIDE 2 ROWS')}",
    }
    one = live(queries | {"single": SLIDING})
    streams = {s.name: s for s in STREAMS}
    rows = {"a": [], "b": []}
    for number in range(4):
        given = rows_at(number) if number < 3 else {"a": rows_at(number)["a"], "b": []}
        rows = {name: rows[name] + given[name] for name in rows}
        one.feed(**given)
    # Stream b ends with second 5, and rows may be two seconds late.
    for name, sql in queries.items():
        expected = bag(aggregate_results(parse_query(sql, streams), streams, rows, {"a": 5 * SECOND, "b": 3 * SECOND}))
        wait_until(lambda name=name, expected=expected: one.answer(name) == expected)
    one.run.stop(final=True)
    for name, sql in queries.items():
        assert one.answer(name) == bag(aggregate_results(parse_query(sql, streams), streams, rows)), name
    assert one.answer("single") == aggregated(SLIDING, range(4))
    assert not one.run.stepper.manifest.runs


def test_what_only_spark_can_evaluate_is_evaluated_on_the_way_in_or_when_results_are_read(live):  # noqa: F811
    sql = (
        "SELECT CAST(k AS STRING) AS g, 12 DIV (sum(v) - 1) AS d, sum(10 DIV v) AS s, count(*) AS n "
        "FROM a [RANGE 2 SECONDS "
        "SLIDE 2 SECONDS] WHERE length(CAST(v AS STRING)) = 1 GROUP BY CAST(k AS STRING) HAVING sqrt(count(*)) > 1"
    )
    one = live({"q": sql})
    for number in range(3):
        one.feed(**rows_at(number))
    one.run.stop(final=True)
    # Seconds 0 and 1: the quotient of v = 0 is an error, counted and left out; the sum of values less one is zero.
    assert one.answer("q") == bag([("1", None, 10, 2), ("1", 3, 8, 2), ("1", 1, 4, 2)])
    assert one.run.status()["queries"]["q"]["errors"] == 1
    with pytest.raises(ResultsError, match="query 'q': its results are computed by Spark when they are read: SELECT"):
        results_table(one.engine.catalog, "q", one.engine.manifest())


def test_when_a_stream_is_silent_the_clock_closes_its_windows(spark, tmp_path):
    # Of the second stream no row ever comes: a union with it must not wait for one.
    streams = [stream(name, "ts timestamp, k bigint, v bigint", idle=SECOND) for name in "ab"]
    replay = Replay(tmp_path / "source", *streams)
    now = int(time.time() * SECOND)
    replay.add(a=[{"ts": now, "k": n, "v": n} for n in range(3)])
    sql = "SELECT sum(v) AS s FROM {} [RANGE 1 SECOND SLIDE 1 SECOND]"
    queries = {"alone": sql.format("a"), "united": sql.format("(a UNION ALL b)")}
    engine = replay.engine(spark, tmp_path / "state", queries)
    run = engine.start("100 milliseconds")
    wait_until(lambda: all(run.status()["queries"][name]["results"] == 1 for name in queries))
    run.stop()
    for name in queries:
        assert rows_of(engine.results(name)) == [(3,)], name


def test_what_no_plan_is_made_for_is_refused_with_the_reason(spark, tmp_path):
    engine = Replay(tmp_path / "source", *STREAMS).engine(spark, tmp_path / "state")
    with pytest.raises(RegistrationError, match="the type 'map<bigint,bigint>' is not supported"):
        engine.query("SELECT first(map(k, v)) FROM a [RANGE 2 SECONDS SLIDE 1 SECOND]", name="nested")


BEST = "SELECT k, v, count(*) AS n, window_end FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k, v {} LIMIT 2"


def test_the_first_rows_of_each_window_are_found_among_what_all_tasks_have_kept(live):  # noqa: F811
    got = []
    orders = {
        "kernel": "HAVING v > 0 ORDER BY n DESC, v DESC",
        "spark": "HAVING v > 0 ORDER BY n * 1 DESC, 0 - v",
        "filtered": "HAVING sqrt(v) > 0 ORDER BY n DESC, v DESC",
    }
    one = live({name: BEST.format(order) for name, order in orders.items()})
    one.engine.query(BEST.format(orders["kernel"]), name="sink", into=lambda table, _: got.extend(table.to_pylist()))
    one.engine.query("SELECT sum(n) AS s FROM kernel [TUMBLING 2 SECONDS]", name="above")
    for number in range(4):
        one.feed(**rows_at(number))
    text = one.engine.explain()
    assert "the first 2 rows of each window in the kernel" in text
    assert "the first 2 rows of each window by Spark when results are read" in text
    one.run.stop(final=True)
    expected = aggregated(BEST.format(orders["kernel"]), range(4))
    everything = aggregated(BEST.format("HAVING v > 0").removesuffix(" LIMIT 2"), range(4))
    assert expected.total() < everything.total()
    for name in orders:
        assert one.answer(name) == expected, name
    # Each task has kept more than are results; of what Spark decides when results are read no number is known.
    counted = {name: one.engine._query_stats(name)["results"] for name in orders}
    assert counted == {"kernel": expected.total(), "spark": None, "filtered": None}
    shown = one.run.status()["queries"]
    assert {name: shown[name]["results"] for name in orders} == counted
    assert bag((r["k"], r["v"], r["n"]) for r in got) == bag(row[:3] for row in expected.elements())
    sums = {}
    for _, _, n, end in expected.elements():
        sums[end] = sums.get(end, 0) + n
    assert sorted(s for (s,) in one.answer("above").elements()) == sorted(sums.values())


def test_every_nth_row_by_arrival_ends_a_window_whatever_came_in_the_same_step(spark, tmp_path):
    source = stream("a", "ts timestamp, seq bigint, k bigint, v bigint", delay=4 * SECOND, sequence="seq")
    replay = Replay(tmp_path / "source", source)
    times = (5, 2, 7, 4, 3, 9, 8, 6, 12, 11, 10, 9)
    rows = [{"ts": t * SECOND, "seq": n, "k": n % 2, "v": n} for n, t in enumerate(times)]
    for low in range(0, len(rows), 3):
        replay.add(a=rows[low : low + 3][::-1])
    sql = "SELECT k, sum(v) AS s, result_time FROM a [RANGE 3 SECONDS SLIDE 2 ROWS BY ARRIVAL{}] GROUP BY k"
    queries = {
        "all": sql.format(""),
        "apart": sql.format(" PARTITION BY k"),
        "by_time": sql.format("").replace(" BY ARRIVAL", ""),
    }
    with patch("penstock.state.compaction.FAN_IN", 1):
        engine = replay.engine(spark, tmp_path / "state", queries)
        drain(engine, final=True)
    given = {}
    for name, text in queries.items():
        given[name] = bag(rows_of(engine.results(name)))
        assert given[name] == bag(aggregate_results(parse_query(text, {"a": source}), {"a": source}, {"a": rows})), name
    assert given["all"] != given["by_time"]
    assert "by arrival" in engine.explain()


def test_what_kernels_compute_of_groups_and_aggregates_is_what_spark_computes(spark, tmp_path):
    items = (
        "sum(v) + g",
        "max(x) - min(x)",
        "avg(v) + 1",
        "sum(v) > 2 AND min(v) IS NOT NULL",
        "sum(v) + 9223372036854775807",
    )
    replay = Replay(tmp_path / "source", replace(STREAM, delay=0))
    for number in range(3):
        times = range(10 * number, 10 * number + 10)
        replay.add(
            s=[{"t": t, "k": "aé"[t % 2], "g": t % 3, "v": (t % 5, None)[t % 7 == 0], "x": t / 4} for t in times]
        )
    windows = {"tumbling": "RANGE 3 SLIDE 3", "sliding": "RANGE 7 SLIDE 2"}
    queries = {
        f"{name}{n}": f"SELECT g, window_end, {item} AS found FROM s [{window}] GROUP BY g"
        for name, window in windows.items()
        for n, item in enumerate(items)
    }
    engine = replay.engine(spark, tmp_path / "state", queries)
    drain(engine, final=True)
    for name, rows in answers(engine, queries).items():
        assert rows
        assert len(results_table(engine.catalog, name, engine.manifest())) == len(rows)
    assert None in {row[2] for row in rows_of(engine.results("tumbling4"))}, "a sum that overflows is NULL"
