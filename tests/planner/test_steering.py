"""Steering: counts of steps become statistics, statistics orders, orders routes; and all of it survives a restart."""

from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.planner.orders.decision import Parameters
from penstock.planner.routes import MOVED, WHOLE
from penstock.planner.steering import EXCHANGE, SENT, Steering, graph_of, statistics
from penstock.sql import parse_query

STREAMS = {
    name: Stream(name, tuple(Column(c, t) for c, t in (("ts", "timestamp"), ("x", "bigint"), ("y", "bigint"), ("v", "double"))), "ts", 0)
    for name in "abc"
}  # fmt: skip
ONE_KEY = "a.x = b.x AND b.x = c.x"


def network_of(where):
    sql = f"SELECT a.v FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS], c [RANGE 10 SECONDS] WHERE {where}"
    return build_network([StandingQuery(1, "q", parse_query(sql, STREAMS))], STREAMS)


def counted(network, rows, pairs):
    """A step with `rows` arrivals each, and so many composites of each pair and start."""
    flows = {f"{p}:{p}": rows for p in range(3)}
    for (x, y), count in pairs.items():
        flows |= {f"{x}:{x},{y}": count, f"{y}:{x},{y}": count}
    return {f"join:{network.joins[0].name}": flows}


def held(network, rows):
    return {t.name: rows for t in network.tables}


def test_two_streams_have_nothing_to_choose():
    sql = "SELECT a.v FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.x = b.x"
    network = build_network([StandingQuery(1, "q", parse_query(sql, STREAMS))], STREAMS)
    steering = Steering(network)
    assert not steering.modes
    assert [r.order for r in steering.routes.joins[0]] == [(1,), (0,)]


def test_counts_become_statistics():
    network = network_of(ONE_KEY)
    found = statistics(network, network.joins[0], counted(network, 100, {(0, 1): 7}), held(network, 50))
    assert found.arrivals == (100.0, 100.0, 100.0)
    assert found.held == (50.0, 50.0, 50.0)
    assert found.flows == {(0, frozenset({0, 1})): 7.0, (1, frozenset({0, 1})): 7.0}


def test_conditions_are_edges_of_the_graph():
    graph = graph_of(network_of("a.x = b.x AND b.v < c.v").joins[0])
    assert graph.joined(0, 1)
    assert graph.joined(1, 2)
    assert not graph.joined(0, 2)


def test_orders_follow_what_was_counted_and_are_remembered():
    network = network_of(ONE_KEY)
    steering = Steering(network, "adaptive", Parameters(period=100))
    decisions = []
    for _ in range(40):
        # Whoever probes b finds a hundred partners, whoever probes c one in a hundred rows.
        pairs = {(0, 1): 10_000, (0, 2): 1, (1, 2): 1}
        step = counted(network, 100, pairs)
        name = next(iter(step))
        step[name] |= {f"{start}:0,1,2": 1 for start in range(3)}
        decisions += steering.observe(step, {}, held(network, 1000))
    assert steering.routes.joins[0][0].order == (2, 1)
    assert steering.routes.joins[0][1].order == (2, 0)
    assert any(d.changed for d in decisions) or steering.modes[0].orders[0] == (2, 1)
    again = Steering(network, "adaptive", Parameters(period=100), stored=steering.states)
    assert again.routes == steering.routes
    other = Steering(network, "static", Parameters(period=100), stored=steering.states)
    assert other.modes[0].name == "static"


def test_what_is_stored_of_another_join_is_left_alone():
    network, other = network_of(ONE_KEY), network_of("a.x = b.x AND b.y = c.y")
    (state,) = Steering(network).states.values()
    states = {other.joins[0].name: state}
    steering = Steering(other, stored=states)
    assert steering.modes[0].graph == graph_of(other.joins[0])


def test_many_new_rows_are_not_sent_to_every_task():
    network = network_of("a.x = b.x AND b.y = c.y")
    table = next(t.index for t in network.tables if t.name == "c(y)")
    rows = EXCHANGE / SENT

    def steered(shipped):
        counters = {
            "engine:": {"steps": 10},
            **{f"table:{t.name}": {"shipped": int(10 * shipped)} for t in network.tables},
        }
        return Steering(network, tasks=2, counters=counters)

    assert steered(rows * 0.9).replicate(table)
    assert not steered(rows * 1.1).replicate(table)
    assert WHOLE in {h.access for r in steered(10).routes.joins[0] for h in r.hops}
    assert MOVED in {h.access for r in steered(rows * 2).routes.joins[0] for h in r.hops}
