from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.counters import Counters, PaneCounters, TableCounters
from penstock.planner.network import StandingQuery
from penstock.planner.pane_sharing import EVERY, arrange, check, observe
from penstock.sql import parse_query
from tests.recorded import recorded

STREAM = Stream("s", (Column("t", "bigint"), Column("k", "bigint"), Column("v", "bigint")), "t", delay=0)
SQL = "SELECT k, count(*), sum(v) FROM s [RANGE {} SLIDE {}] GROUP BY k"
NAME = "s by k in panes"


def network_of(*windows, plan=None):
    queries = [
        StandingQuery(n + 1, f"q{n}", parse_query(SQL.format(*window), {"s": STREAM}), share=1)
        for n, window in enumerate(windows)
    ]
    return build_network(queries, {"s": STREAM}, plan=plan)


def counters(network, rows, made, groups):
    width = min(own.width for own in network.aggregates[0].plan.sets)
    table = network.tables[network.aggregates[0].home].name
    counts = Counters(tables={NAME: TableCounters(panes=PaneCounters(groups, {width: made}))})
    counts.add(Counters(tables={table: TableCounters(aggregated=rows)}))
    return counts


def after(network, steps, rows, made, groups, stored=None):
    stored, decisions = stored or {}, []
    for _ in range(steps):
        stored, decided = check(network, observe(network, stored, counters(network, rows, made, groups), {"s": 100}))
        decisions += decided
        network = arrange(network, stored)
    return network, stored, decisions


def test_sets_are_looked_at_every_few_steps_and_changed_where_it_pays():
    network, stored, decisions = after(network_of((60, 20)), EVERY - 1, 500, 500, 500)
    assert decisions == []
    network, stored, decisions = after(network, 1, 500, 500, 500, stored)
    assert [d.action for d in decisions] == ["changed"]
    assert network.aggregates[0].plan.sets[0].kept == "rows"
    assert "buffered" in {c.plan for c in network.aggregates[0].plan.choices}
    # A restart reads the same, and a query that comes later is taken in.
    assert arrange(network_of((60, 20)), stored).aggregates[0].plan.sets == network.aggregates[0].plan.sets
    more = arrange(network_of((60, 20), (90, 30)), stored).aggregates[0].plan
    assert sorted(n for own in more.sets for n in own.queries) == [1, 2]
    # Now there are few groups again.
    network, stored, decisions = after(network, 4 * EVERY, 500, 15, 3, stored)
    assert network.aggregates[0].plan.sets[0].kept == "partials"
    assert [d.action for d in decisions if d.action == "changed"] == ["changed"]


def test_a_change_that_saves_little_is_not_made_and_the_reason_is_told():
    for made in range(60, 500, 10):
        network, _, decisions = after(network_of((60, 20)), EVERY, 500, made, made // 5)
        for decision in decisions:
            assert (decision.action == "changed") == (decision.new_cost < 0.8 * decision.old_cost)
            assert (decision.action == "changed") == (network.aggregates[0].plan.sets[0].kept == "rows")
            assert ("would save only" in decision.reason) == (decision.action == "kept")


def test_a_plan_that_was_asked_for_stays():
    network, stored, decisions = after(network_of((60, 20), plan="paned"), 3 * EVERY, 500, 500, 500)
    assert decisions == []
    assert network.aggregates[0].plan.choices[0].plan == "paned"
    assert arrange(network, stored) == network


def test_what_is_known_is_stored_whole():
    _, stored, _ = after(network_of((60, 20)), EVERY, 500, 500, 500)
    known = recorded(stored[NAME])
    assert known.steps == EVERY
    assert known.sets == (((1,), "rows"),)
    assert known == stored[NAME]
