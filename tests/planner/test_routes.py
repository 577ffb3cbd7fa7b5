"""Routes: which key finds the rows of each hop, and where that happens."""

from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.planner.routes import HERE, MOVED, WHOLE, build_routes, default_order, neighbours
from penstock.sql import parse_query

STREAMS = {
    name: Stream(name, tuple(Column(c, t) for c,
      t in (("ts", "timestamp"), ("x", "bigint"), ("y", "bigint"), ("v", "double"))), "ts", 0)
    for name in "abcd"
}  # fmt: skip


def network_of(where, roles="abc"):
    tables = ", ".join(f"{r} [RANGE 10 SECONDS]" for r in roles)
    sql = f"SELECT {roles[0]}.v FROM {tables} WHERE {where}"
    return build_network([StandingQuery(1, "q", parse_query(sql, STREAMS))], STREAMS)


def walk(network, replicate):
    """Each route as (start, everywhere, [(position, access)])."""
    routes = build_routes(network, replicate=replicate).joins[0]
    return [(r.start, r.everywhere, [(h.position, h.access) for h in r.hops]) for r in routes]


def yes(_table):
    return True


def no(_table):
    return False


def test_one_key_needs_no_exchange():
    network = network_of("a.x = b.x AND b.x = c.x")
    for replicate in (yes, no):
        routes = build_routes(network, replicate=replicate)
        assert routes.exchanges == 0
        assert not routes.replicated
        assert all(h.access == HERE and not h.rekey for r in routes.joins[0] for h in r.hops)


def test_another_key_is_an_exchange_of_composites_or_a_lookup_in_the_whole_table():
    network = network_of("a.x = b.x AND b.y = c.y")
    names = [t.name for t in network.tables if t.stream in "abc"]
    assert names == ["a(x)", "b(x)", "b(y)", "c(y)"]
    assert walk(network, no) == [
        (0, False, [(1, HERE), (2, MOVED)]),
        (1, False, [(0, HERE), (2, MOVED)]),
        (2, False, [(1, HERE), (0, MOVED)]),
    ]
    assert build_routes(network, replicate=no).exchanges == 1
    assert walk(network, yes) == [
        (0, False, [(1, HERE), (2, WHOLE)]),
        (1, False, [(0, HERE), (2, WHOLE)]),
        (2, False, [(1, HERE), (0, WHOLE)]),
    ]
    routes = build_routes(network, replicate=yes)
    assert routes.exchanges == 0
    assert {network.tables[t].name for t in routes.replicated} == {"a(x)", "c(y)"}


def test_the_start_is_taken_from_the_table_that_saves_exchanges():
    """From b, the two hops by y come before the one by x."""
    network = network_of("a.x = b.x AND b.y = c.y AND c.y = d.y", "abcd")
    orders = {0: {1: (2, 3, 0)}}
    route = build_routes(network, orders, no).joins[0][1]
    assert [h.access for h in route.hops] == [HERE, HERE, MOVED]
    assert network.tables[route.table].name == "b(y)"


def test_rows_without_a_key_are_sent_to_every_task_and_scanned():
    network = network_of("a.v < b.v", "ab")
    assert all(t.timed for t in network.tables if t.stream in "ab")
    assert walk(network, no) == [(0, True, [(1, HERE)]), (1, True, [(0, HERE)])]


def test_a_scan_in_the_middle_looks_at_the_whole_table():
    network = network_of("a.x = b.x AND b.v < c.v")
    routes = build_routes(network, replicate=no)
    assert [[(h.position, h.access, h.source) for h in r.hops] for r in routes.joins[0]] == [
        [(1, HERE, 0), (2, WHOLE, None)],
        [(0, HERE, 1), (2, WHOLE, None)],
        [(1, HERE, None), (0, HERE, 1)],
    ]
    assert routes.joins[0][2].everywhere


def test_a_cycle_is_closed_by_a_check():
    network = network_of("a.x = b.x AND b.y = c.y AND c.x = a.y")
    route = build_routes(network, {0: {0: (1, 2)}}, no).joins[0][0]
    first, second = route.hops
    assert not first.checks
    assert len(second.checks) == 1  # c is found by one key and compared by the other


def test_an_equality_inside_a_larger_key_is_a_condition():
    network = network_of("a.x = b.x AND b.x = c.x AND a.y = b.y")
    assert [t.name for t in network.tables if t.stream in "abc"] == ["a(x)", "b(x)", "c(x)"]
    (member,) = network.joins[0].members
    assert [r.roles for r in member.residuals] == [(0, 1)]


def test_orders_go_by_equality_first():
    network = network_of("a.x = b.x AND b.y = c.y AND a.v < d.v", "abcd")
    assert default_order(network.joins[0], 0) == (1, 2, 3)
    assert default_order(network.joins[0], 3) == (0, 1, 2)


def test_a_band_of_time_ties_its_two_positions():
    """c is near b and d near c; no two others have anything between them."""
    where = (
        "a.x = b.x AND {0} BETWEEN {1} - INTERVAL 1 SECOND AND {1} + INTERVAL 1 SECOND AND {2} <= {0} + INTERVAL "
        "1 SECOND"
    )
    (join,) = network_of(where.format("c.ts", "b.ts", "d.ts"), "abcd").joins
    assert join.ties == {frozenset({1, 2}), frozenset({2, 3})}
    assert neighbours(join, {0}) == {1}
    assert neighbours(join, {0, 1}) == {2}
    assert default_order(join, 0) == (1, 2, 3)
    (other,) = network_of(where.format("d.ts", "b.ts", "c.ts"), "abcd").joins
    assert default_order(other, 0) == (1, 3, 2)
