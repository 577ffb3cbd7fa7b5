"""Aggregates over joins with many ticks, through Spark: the reference's answers; work independent of RANGE / SLIDE."""

from contextlib import nullcontext
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.model import Column, Stream
from penstock.planner.panes import DIFFERENTIAL, PLANS
from tests.effort import examples
from tests.named import evaluate
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of
from tests.spark.test_derived import BATCHES, check, eager_upkeep
from tests.spark.test_online import STREAMS, rows_at

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*RANGE ALL")]

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # an example takes seconds: a failing one is shown as drawn
LENGTHS = st.integers(1, 9) | st.integers(1, 40)
LISTED = {"ordered", "listed"}  # need rows, of which some plans have none


@st.composite
def ticked(draw):
    """Aggregates over joins with functions of all kinds, each with windows of its own."""

    def sides(*names):
        slide, origin = draw(st.integers(1, 6)), draw(st.sampled_from(("", "", " ORIGIN 3", " ORIGIN -4")))
        return [f"{name} [RANGE {draw(LENGTHS)} SLIDE {slide}{origin}]" for name in names]

    def pair():
        return ", ".join(sides("p", "q"))

    some = draw(st.integers(1, 4))
    united = sides("(p UNION ALL q)", "q")
    return {
        "sums": f"SELECT window_start, window_end, p.k, count(*) AS n, sum(q.v) AS s, avg(p.v) AS a FROM {pair()} "
        "WHERE p.g = q.g GROUP BY p.k",
        "many": f"SELECT window_end AS at, p.k, count(*) AS n, max(q.v) AS m FROM {pair()} WHERE p.g = q.g "
        f"GROUP BY p.k HAVING count(*) >= {some}",
        "doubles": f"SELECT window_end, sum(p.x) AS s, var_pop(q.v) AS r, min(q.t) AS m FROM {pair()} WHERE p.k = q.k",
        "groups": "SELECT window_end, q.g, p.v, count(DISTINCT q.v) AS d, approx_count_distinct(q.k) AS c "
        f"FROM {pair()} WHERE p.k = q.k GROUP BY q.g, p.v",
        "first": f"SELECT window_end, p.k, sum(q.v) AS s FROM {pair()} WHERE p.g = q.g "
        f"GROUP BY p.k ORDER BY s DESC, p.k LIMIT {some}",
        "ordered": f"SELECT window_end, first(p.v) AS f, last(q.v) AS l, count(*) AS n FROM {pair()} WHERE p.k = q.k",
        "listed": f"SELECT window_end, p.g, collect_list(q.v) AS l FROM {pair()} WHERE p.k = q.k GROUP BY p.g",
        "three": f"SELECT window_end, count(*) AS n, sum(r.v) AS s FROM {', '.join(sides('p', 'q', 'p'))} AS r "
        "WHERE p.k = q.k AND q.g = r.g",
        "united": f"SELECT window_end, x.k, count(*) AS n, max(q.v) AS m FROM {united[0]} AS x, {united[1]} "
        "WHERE x.g = q.g AND q.v > 0 GROUP BY x.k",
        "above": f"SELECT window_end, max(n) AS m FROM many [RANGE {some} SLIDE {some}]",
    }


def run(spark, root, queries, batches, delay, tasks, cuts, plan, spark_reads):
    if plan not in {"auto", "buffered"}:
        queries = {name: sql for name, sql in queries.items() if name not in LISTED}
    reads = patch("penstock.step.taken.is_scannable", return_value=False) if spark_reads else nullcontext()
    with eager_upkeep(), reads:
        check(spark, root, queries, batches, delay=delay, tasks=tasks, cuts=cuts, plan=plan)


GIVEN = (
    ticked(), BATCHES, st.integers(0, 8), st.sampled_from((1, 2, 5)), st.sets(st.integers(0, 3)),
    st.sampled_from(("auto", "auto", *(plan for plan in PLANS if plan != DIFFERENTIAL))), st.booleans(),
)  # fmt: skip


@settings(max_examples=examples(4), deadline=None, phases=PHASES)
@given(*GIVEN)
def test_results_are_the_references(spark, tmp_path_factory, queries, batches, delay, tasks, cuts, plan, spark_reads):
    run(spark, tmp_path_factory.mktemp("run"), queries, batches, delay, tasks, cuts, plan, spark_reads)


@pytest.mark.long
@settings(max_examples=examples(20), deadline=None, phases=PHASES)
@given(*GIVEN)
def test_many_results_are_the_references(
    spark, tmp_path_factory, queries, batches, delay, tasks, cuts, plan, spark_reads
):
    run(spark, tmp_path_factory.mktemp("run"), queries, batches, delay, tasks, cuts, plan, spark_reads)


TICKED = (
    "SELECT a.k, window_end, count(*) AS n, sum(b.v) AS s{0} "
    "FROM a [RANGE {1} SLIDE 1 SECOND], b [RANGE {1} SLIDE 1 SECOND] WHERE a.k = b.k GROUP BY a.k"
)


@pytest.mark.parametrize("tasks", [2, 5])  # of more than four tasks each gets its rows through the exchange
def test_rows_on_their_way_do_not_grow_with_the_number_of_ticks(spark, tmp_path, tasks):
    """One row per result: judged, sent and received, even where the worker expands it to a row per tick at the end."""
    replay = Replay(tmp_path / "source", *STREAMS)
    for number in range(2):
        replay.add(**rows_at(number))
    functions = {"partials": "", "rows": ", first(b.v) AS f"}
    queries = {
        f"{name} {r}": TICKED.format(more, f"{r} SECONDS") for name, more in functions.items() for r in (20, 400)
    }
    sent = []
    engine = replay.engine(spark, tmp_path / "state", queries, tasks=tasks)
    drain(engine, final=True)
    network, counters = engine.network(), engine.manifest().counters
    for derived in network.derived_streams:
        (aggregate,) = (a for a in network.aggregates if derived.name in a.streams)
        (name,) = (m.name for m in aggregate.members)
        judged, received = counters.stream(derived.name), counters.table(aggregate.name)
        made = counters.query(derived.query).results
        assert judged.rows == judged.accepted == received.shipped == received.aggregated == made > 0, name
        sent.append(made)
    assert len(set(sent)) == 1
    # Each result counts at as many ticks as its window is long.
    for name in functions:
        short, long = (sum(row[2] for row in rows_of(engine.results(f"{name} {r}"))) for r in (20, 400))
        assert long > 15 * short > 15 * 10 * sent[0]


def test_windows_shown_early_and_let_out_slowly_hold_the_same(spark, tmp_path):
    replay = Replay(tmp_path / "source", *STREAMS)
    sql = TICKED.format("", "20 SECONDS")
    for number in range(3):
        replay.add(**rows_at(number))
        engine = replay.engine(
            spark, tmp_path / "state", {"once": sql, "early": f"{sql} EMIT EARLY EVERY 1 MILLISECOND"}
        )
        engine.query(sql, name="slow", flush=7, behind=5)
        drain(engine, final=number == 2)
    rows = {s.name: [row for number in range(3) for row in rows_at(number)[s.name]] for s in STREAMS}
    whole = bag(evaluate({"q": sql}, {s.name: s for s in STREAMS}, rows)["q"])
    assert bag(rows_of(engine.results("once"))) == bag(rows_of(engine.results("slow"))) == whole
    early = rows_of(engine.results("early"))
    assert bag(row[:-2] for row in early if row[-1]) == whole
    assert not all(row[-1] for row in early)


def test_a_query_with_more_windows_in_a_step_than_a_task_can_make_stops_alone(spark, tmp_path):
    streams = [Stream(name, (Column("t", "bigint"), Column("k", "bigint")), "t", 0) for name in "ab"]
    replay = Replay(tmp_path / "source", *streams)
    rows = [{"t": 1, "k": k} for k in range(120)]
    replay.add(a=rows, b=rows)
    sql = (
        "SELECT a.k, window_end, count(*) AS n FROM a [RANGE {0} SLIDE 1], b [RANGE {0} SLIDE 1] WHERE a.k = b.k "
        "GROUP BY a.k"
    )
    engine = replay.engine(spark, tmp_path / "state", {"long": sql.format(1_000_000), "short": sql.format(10)}, tasks=1)
    run = drain(engine, final=True)
    queries = run.status()["queries"]
    assert (
        "count in 120,000,000 windows of its groups in one step, and a task can make 50,000,000"
        in queries["long"]["suspended"]
    )
    assert not queries["short"]["suspended"]
    assert len(rows_of(engine.results("short"))) == 1200
