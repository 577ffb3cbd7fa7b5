"""EXPLAIN shows the estimate behind each rule of sharing; choices that change in a run are decisions with numbers."""

from dataclasses import replace

import pytest

from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.counters import Counters, EngineCounters, StreamCounters, TableCounters
from penstock.planner.decisions import Decided
from penstock.planner.explain import explain_network
from penstock.planner.network import StandingQuery
from penstock.planner.pane_sharing import EVERY, work_of
from penstock.planner.panes import cost_of, set_costs
from penstock.planner.routes import MOVED, WHOLE
from penstock.planner.share import chain_offers, choose_chains, facts, recuts
from penstock.planner.steering import EXCHANGE, SENT, Steering, rerouted
from penstock.planner.ways import FEW_ROWS, MOST_TASKS, Way, explain_way
from penstock.spark import job
from penstock.sql import parse_query
from tests.planner.test_arranging import NAME, after, network_of
from tests.recorded import recorded
from tests.state.runs import entry_of

COLUMNS = (Column("at", "bigint"), Column("k", "bigint"), Column("v", "bigint"))
STREAMS = {name: Stream(name, COLUMNS, "at", delay=0) for name in "abc"}
PAIR = "SELECT a.at FROM a [RANGE {}] AS a, b [RANGE 10] AS b WHERE a.k = b.k AND a.v > {}"
TWO_KEYS = "SELECT a.at FROM a [RANGE 9], b [RANGE 9], c [RANGE 9] WHERE a.k = b.k AND b.v = c.v"
COUNTED = Counters(
    streams={"a": StreamCounters(accepted=100)},
    tables={
        "a(k)": TableCounters(sampled=50, shipped=80, unwanted=20, lives={10: 10, 100: 30}, roles={16: 40, 32: 30}),
        "a by k in panes": TableCounters(shipped=60),
        "b(k)": TableCounters(sampled=100, lives={10: 100}, roles={17: 100, 33: 100}),
    },
)
RUNS = [
    entry_of("1", table="a(k)", rows=40, bytes=400, life=100, min_time=0, max_time=20),
    entry_of("3", table="b(k)", rows=100, bytes=1, life=10, min_time=0, max_time=50),
]


def network(*texts):
    return build_network(
        [StandingQuery(n, f"q{n}", parse_query(text, STREAMS)) for n, text in enumerate(texts, 1)], STREAMS
    )


def pairs(*more):
    return network(PAIR.format(10, 1), PAIR.format(100, 2), *more)


def test_a_stream_shows_into_how_many_tables_its_rows_go_with_sharing_and_without():
    group = "SELECT k, count(*) AS n FROM a [TUMBLING {}] GROUP BY k"
    plan = explain_network(pairs(group.format(5), group.format(9)), COUNTED, RUNS).splitlines()
    at = plan.index("stream a: event time at, delay 0, late -> side, bad -> side")
    # (80 + 60) / 100; a role of the join takes 40 or 30 of 50 rows, one of the aggregate 60 of 100. NULL is a group, so
    # that keys differ.
    assert plan[at + 1] == (
        "  shared: 2 state tables with 2 key hashes for 4 roles; a row goes to 1.4 tables, with one for each "
        "role to 2.6 (estimated, at most)"
    )
    alone = explain_network(network("SELECT a.at FROM a"), COUNTED).splitlines()
    assert not [line for line in alone if "shared" in line]
    assert not [line for line in explain_network(pairs(), COUNTED, RUNS, "q1").splitlines() if "  shared: " in line]


def test_a_table_shows_what_it_holds_for_all_and_what_other_chains_would_cost():
    plan = explain_network(pairs(), COUNTED, RUNS).splitlines()
    assert "  shared by 2 roles: estimated 155 rows, 170 if each had its own" in plan
    assert "  shared by 2 roles: estimated 20 rows, 40 if each had its own" in plan
    (line,) = [line for line in plan if line.startswith("  chains ")]  # of b there is only one
    assert line.startswith("  chains by rows held and us for a row that probes them (estimated): in force 155 and 0.6")
    assert "; fewest rows the same; least work (100) 200 and 0.30" in line
    cut = replace(pairs(), tables=(replace(pairs().tables[0], chain=(100,)), *pairs().tables[1:]))
    offers = chain_offers(cut.tables[0], COUNTED, RUNS)
    assert {name: offer.chain for name, offer in offers.items()} == {
        "in force": (100,), "fewest rows": (10, 100), "least work": (100,)
    }  # fmt: skip
    assert offers["in force"].rows == facts(cut.tables[0], COUNTED, RUNS).held((100,)) == 200
    assert offers["in force"].seconds < offers["fewest rows"].seconds
    assert "; fewest rows (10, 100) 155 and 0.6" in explain_network(cut, COUNTED, RUNS)


def test_a_chain_that_is_chosen_anew_is_a_decision_that_explain_shows():
    before = pairs()
    cheap = choose_chains(before, "cpu_opt", COUNTED, RUNS)
    assert recuts(before, before, COUNTED, RUNS) == []
    (found,) = recuts(before, cheap, COUNTED, RUNS)
    assert (found.query, found.before, found.after) == ("a(k)", (10, 100), (100,))
    assert (round(found.old_rows), round(found.new_rows)) == (155, 200)
    assert found.old_cost > found.new_cost > 0
    decisions = [recorded(Decided(64, found))]
    (line,) = [t for t in explain_network(cheap, COUNTED, RUNS, decisions=decisions).splitlines() if "changed" in t]
    assert line.startswith("  chain changed after step 64: 10, 100 becomes 100, 155 rows before and 200 now, 0.6")
    assert line.endswith(" now; chosen anew from the rows counted by their lives")
    assert "last check" not in explain_network(cheap, COUNTED, RUNS, decisions=decisions)


def steps(rows):
    tables = {name: TableCounters(shipped=2 * rows) for name in ("a(k)", "b(k)", "b(v)", "c(v)")}
    return Counters(EngineCounters(steps=2), tables=tables)


def test_a_join_shows_what_both_ways_to_rows_of_another_key_cost():
    plan, tasks = network(TWO_KEYS), 3
    most = int(EXCHANGE / (tasks - 1) / SENT)  # as many new rows cost as much as an exchange
    for rows, way in ((most - 1, WHOLE), (most + 1, MOVED)):
        routes = Steering(plan, tasks=tasks, counters=steps(rows)).routes
        text = explain_network(plan, steps(rows), routes=routes, way=Way(tasks))
        cost = f"{rows:,} new rows in a step sent to 3 tasks cost {60 * rows:,}, an exchange 3,000,000"
        assert [line for line in text.splitlines() if line.startswith("  c(v) is")] == [f"  c(v) is {way}: {cost}"]
    assert " an exchange " not in explain_network(plan, steps(5), routes=routes)  # one task has all


def test_a_table_that_is_reached_in_another_way_is_a_decision_that_explain_shows():
    plan, tasks = network(TWO_KEYS), 3
    few, many = (Steering(plan, tasks=tasks, counters=steps(rows)).routes for rows in (10, 10**6))
    assert rerouted(plan, few, few, steps(10), tasks) == []
    found = rerouted(plan, few, many, steps(10**6), tasks)
    assert {d.table for d in found} == {"a(k)", "c(v)"}
    assert all((d.before, d.after, d.old_cost, d.new_cost) == (WHOLE, MOVED, 60 * 10**6, EXCHANGE) for d in found)
    back = rerouted(plan, many, few, steps(10), tasks)
    assert all((d.before, d.after, d.old_cost, d.new_cost) == (MOVED, WHOLE, EXCHANGE, 600) for d in back)
    decisions = [recorded(Decided(7, d)) for d in found]
    text = explain_network(plan, steps(10**6), routes=many, decisions=decisions, way=Way(tasks))
    shown = (
        "  c(v) whole becomes moved after step 7, cost 60,000,000 before and 3,000,000 now; 1,000,000 new rows "
        "in a step"
    )
    assert shown in text.splitlines()
    assert "  a(k) whole becomes moved after step 7" in text
    assert "last check" not in text


@pytest.mark.parametrize(("made", "groups"), [(15, 3), (500, 500)])
def test_an_aggregate_shows_its_rates_and_the_work_of_every_choice(made, groups):
    found, stored, _ = after(network_of((60, 20), (90, 30)), EVERY - 1, 500, made, groups)
    (aggregate,) = found.aggregates
    rates = stored[NAME].rates
    work = work_of(aggregate, rates)
    windows = [q.window for q in aggregate.plan.queries]
    assert work["in force"] == cost_of(aggregate.plan.sets, dict(enumerate(windows, 1)), rates) / rates.rows
    assert work["all as rows"] == set_costs(windows, rates)["rows"] / rates.rows
    assert (work["all as partials"] < work["all as rows"]) == (made < 500)
    assert set(work) == {"in force", "all as partials", "all as rows", "each query apart"}
    (line,) = [t for t in explain_network(found, panes=stored).splitlines() if t.startswith("  panes: ")]
    assert line.startswith(f"  panes: measured 5 rows a unit of time, {rates.held(10):,.1f} groups in a pane of 10; ")
    assert line.endswith(", ".join(f"{name} {cost:,.3g}" for name, cost in work.items()))
    assert "  panes: " not in explain_network(found)


def test_the_way_of_rows_shows_the_last_count_and_the_bound():
    assert (job.FEW_ROWS, job.MOST_TASKS) == (FEW_ROWS, MOST_TASKS)
    assert explain_way(Way(2)) == []
    assert explain_way(Way(2, {"a": 5, "b": 7}, {"b"})) == [
        "rows of the last step, 12:",
        "  pieces, all read by each of 2 tasks (up to 4 tasks read all): b 7",
        "  by Spark to every task (5 rows; up to 16,384 go to every task): a 5",
    ]
    assert explain_way(Way(4, {"a": FEW_ROWS, "b": 1})) == [
        "rows of the last step, 16,385:",
        "  by Spark to mappers (16,385 rows; up to 16,384 go to every task): a 16,384, b 1",
    ]
    assert explain_way(Way(5, {"a": 1, "b": 2}, {"b"})) == [
        "rows of the last step, 3:",
        "  pieces, which mappers read, a share each (up to 4 tasks read all): b 2",
        "  by Spark to mappers (more than 4 tasks): a 1",
    ]
    assert explain_way(Way(1, {"a": 1}))[1:] == ["  by Spark to one task: a 1"]
    assert "rows of the last step, 1:" in explain_network(pairs(), way=Way(1, {"a": 1})).splitlines()
