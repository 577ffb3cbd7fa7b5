from dataclasses import replace

from msgspec import structs

from penstock.model import Column, Stream
from penstock.model.time import MINUTE, SECOND
from penstock.planner.build import build_network
from penstock.planner.counters import Counters, JoinCounters, QueryCounters, TableCounters, bits_of
from penstock.planner.decisions import Decided
from penstock.planner.explain import explain_network
from penstock.planner.network import StandingQuery
from penstock.planner.orders.decision import Parameters
from penstock.planner.orders.modes import make_mode
from penstock.planner.orders.statistics import Statistics
from penstock.planner.steering import Steering, graph_of
from penstock.sql import parse_query
from tests.recorded import recorded
from tests.state.runs import entry_of

COLUMNS = (Column("at", "timestamp"), Column("location", "bigint"), Column("value", "double"), Column("unit", "string"))
STREAMS = {
    "temperature": Stream("temperature", COLUMNS, "at", delay=5 * SECOND),
    "humidity": Stream("humidity", COLUMNS[:3], "at", delay=MINUTE, late="drop"),
}
HOT = """
    SELECT t.location, h.value FROM temperature [RANGE 1 MINUTE] t, humidity [RANGE 60 MINUTES] h
    WHERE t.location = h.location AND t.value > 30
"""
CELSIUS = """
    SELECT t.value FROM humidity [RANGE ALL] h, temperature [RANGE 5 MINUTES] t
    WHERE t.location = h.location AND t.unit LIKE 'C%' AND t.value > h.value
"""
ALL = "SELECT t.location FROM temperature t"


def network():
    named = {"hot": HOT, "celsius": CELSIUS, "all": ALL}
    return build_network(
        [StandingQuery(n + 1, name, parse_query(text, STREAMS)) for n, (name, text) in enumerate(named.items())],
        STREAMS,
        version=4,
    )


def test_the_whole_network_reads_like_a_plan():
    tables = {"temperature(location)": TableCounters(stored=1234, unwanted=5)}
    measured = Counters(tables=tables, queries={1: QueryCounters(results=7)})
    assert explain_network(network(), measured).splitlines() == [
        "network version 4: 3 queries, 2 streams, 2 joins",
        "strategy state_slice",
        "stream temperature: event time at, delay 5 seconds, late -> side, bad -> side",
        "  shared: 2 state tables with 1 key hash for 3 roles",
        "stream humidity: event time at, delay 1 minute, late -> drop, bad -> side",
        "  shared: 1 state table with 1 key hash for 2 roles",
        "state table temperature(location): 2 roles in its bits, stores location, value",
        "  chain: 1 minute, 5 minutes",
        "  predicate index on value: 1 literal, 2 distinct masks",
        "  computed in the kernel for 1 role: unit LIKE 'C%'",
        "  measured: unwanted 5, stored 1,234",
        "pass-through temperature: nothing is kept",
        "state table humidity(location): 2 roles in its bits, stores value",
        "  chain: 1 hour, for ever",
        "join humidity(location) x temperature(location): 2 queries in one probe",
        "  new rows of humidity: temperature",
        "  new rows of temperature: humidity (with new rows)",
        "  bit 0: hot (reaches back humidity 1 hour, temperature 1 minute), results 7",
        "  bit 1: celsius (reaches back humidity for ever, temperature 5 minutes)",
        "join temperature: 1 query in one probe",
        "  bit 0: all",
    ]


def test_the_plan_of_one_query_shows_only_what_concerns_it():
    assert explain_network(network(), name="all").splitlines() == [
        "network version 4: 3 queries, 2 streams, 2 joins",
        "stream temperature: event time at, delay 5 seconds, late -> side, bad -> side",
        "pass-through temperature: nothing is kept",
        "join temperature: 1 query in one probe",
        "  bit 0: all",
    ]


def test_the_roles_of_a_self_join_are_told_apart_and_integer_times_have_no_unit():
    streams = {"a": Stream("a", (Column("at", "bigint"), Column("k", "bigint")), "at", delay=3)}
    text = "SELECT x.at FROM a [RANGE 7] x, a [RANGE 9] y WHERE x.k = y.k AND soundex(CAST(x.k + y.k AS STRING)) = 'B'"
    plan = explain_network(build_network([StandingQuery(1, "q", parse_query(text, streams))], streams))
    assert plan.splitlines()[2:] == [
        "stream a: event time at, delay 3, late -> side, bad -> side",
        "  shared: 1 state table with 1 key hash for 2 roles",
        "state table a(k): 2 roles in its bits, stores k",
        "  chain: 7, 9",
        "join a(k) x a(k): 1 query in one probe",
        "  new rows of a#1: a#2",
        "  new rows of a#2: a#1 (with new rows)",
        "  bit 0: q (reaches back a#1 7, a#2 9), finished by Spark",
    ]


def test_what_was_counted_shows_what_each_link_and_each_query_holds():
    pair = "SELECT a.at FROM a [RANGE {}] AS a, b [RANGE 10] AS b WHERE a.k = b.k AND a.v > {}"
    columns = (Column("at", "bigint"), Column("k", "bigint"), Column("v", "bigint"))
    streams = {name: Stream(name, columns, "at", delay=0) for name in "ab"}
    queries = [StandingQuery(n, f"q{n}", parse_query(pair.format(10**n, n), streams)) for n in (1, 2)]
    a = TableCounters(
        sampled=100, lives={10: 10, 100: 30}, roles={16: 40, 32: 30}, compared=16,
        probes={0: {10: 95, 100: 7}, 10: {100: 60}}, results={0: {10: 30}, 10: {100: 40}},
    )  # fmt: skip
    b = TableCounters(sampled=100, lives={10: 100}, roles={17: 100, 33: 100}, compared=62)
    counted = Counters(tables={"a(k)": a, "b(k)": b})
    runs = [
        entry_of("1", table="a(k)", rows=40, bytes=400, life=100, min_time=0, max_time=20),
        entry_of("2", table="a(k)", level=1, rows=7, bytes=70, life=10, min_time=0, max_time=20),
        entry_of("3", table="b(k)", rows=100, bytes=1, life=10, min_time=0, max_time=50),
    ]
    plan = explain_network(build_network(queries, streams), counted, runs).splitlines()
    # a: 2 rows per unit of time are kept (a fourth for 10, the rest for 100), 5 arrive; b: 2 for 10
    assert plan[1] == (
        "strategy state_slice; rows that each strategy would hold (estimated): "
        "state_slice 175, push_down 175, pull_up 520, isolated 210"
    )
    assert (
        "  link to 10: estimated 5 rows, holds 7 in 1 run; probes: estimated 100, counted 95; results: "
        "estimated 24, counted 30" in plan
    )
    assert (
        "  link to 100: estimated 150 rows, holds 40 in 1 run; probes: estimated 100, counted 60; results: "
        "estimated 54, counted 40" in plan
    )
    # The only one of b: there is nothing to tell apart.
    assert "  link to 10: estimated 20 rows, holds 100 in 1 run" in plan
    assert "  measured: sampled 100, compared 16, rows 47, bytes 470, runs 2" in plan
    assert plan[-2].endswith("q1 (reaches back a 10, b 10), alone it would hold 40 rows, and probe with 140 so far")
    assert plan[-1].endswith("q2 (reaches back a 100, b 10), alone it would hold 170 rows, and probe with 130 so far")


THREE = {n: Stream(n, (Column("at", "bigint"), Column("k", "bigint")), "at", delay=0) for n in "abc"}


def three_way():
    text = "SELECT a.at FROM a [RANGE 9], b [RANGE 9], c [RANGE 9] WHERE a.k = b.k AND b.k = c.k"
    return build_network([StandingQuery(1, "q", parse_query(text, THREE))], THREE)


def counted(network, pairs):
    flows = {p: {bits_of((p,)): 100, bits_of((0, 1, 2)): 1} for p in range(3)}
    for pair, count in pairs.items():
        for start in pair:
            flows[start][bits_of(pair)] = count
    return Counters(joins={network.joins[0].name: JoinCounters(flows)})


def test_the_last_decision_about_orders_stands_below_the_routes_with_its_numbers_and_its_reason():
    network = three_way()
    steering = Steering(network, "oracle", Parameters(period=100))
    runs = [entry_of(t.name, table=t.name, rows=100, min_time=0, max_time=0) for t in network.tables]
    decisions = []
    for step, pairs in enumerate(({(0, 1): 1, (0, 2): 90, (1, 2): 90}, {(0, 1): 100, (0, 2): 10, (1, 2): 10})):
        found = steering.observe(counted(network, pairs), Counters(), runs, ())
        decisions += [recorded(Decided(step, d)) for d in found]
    plan = explain_network(network, routes=steering.routes, decisions=decisions, checks=steering.checks).splitlines()
    begin = next(n for n, line in enumerate(plan) if line.startswith("join "))
    assert plan[begin + 1 : begin + 9] == [
        "  new rows of a: c -> b",
        "  new rows of b: c -> a (with new rows)",
        "  new rows of c: a (with new rows) -> b (with new rows)",
        "  orders: checks 2, bypassed 0, planned anew 6, of these different 2",
        "  last check: number 2 (oracle) after step 1",
        # 100 rows are looked up, then what they found; both counts of composites go on top
        "    a regenerated: b -> c becomes c -> b, cost 301 before and 121 now; cost 301 becomes 121",
        "    b regenerated: a -> c becomes c -> a, cost 301 before and 121 now; cost 301 becomes 121",
        "    c regenerated: a -> b, cost 121 before and 121 now; cost 121 becomes 121",
    ]
    earlier = explain_network(network, decisions=decisions[:1])
    assert "number 1 (oracle) after step 0" in earlier


def test_a_bypassed_check_shows_distance_probability_and_draw():
    network = three_way()
    mode = make_mode("card", graph_of(network.joins[0]), network.joins[0].name, Parameters(period=1, alpha=0))
    for _ in range(2):
        mode.observe(Statistics.counted((10, 10, 10), (5, 5, 5)))
        decision = mode.check()
    assert decision.bypassed
    plan = explain_network(network, decisions=[Decided(7, decision)], name="q").splitlines()
    at = next(n for n, line in enumerate(plan) if "last check" in line)
    drew = f"{decision.draw:.3g}"
    assert plan[at] == f"  last check: number 2 (card) after step 7, distance 0, probability 0, drew {drew}"
    assert plan[at + 1].startswith("    bypassed: arrival rates moved by 0")
    assert plan[at + 2].startswith("  bit 0: q")
    assert "last check" not in explain_network(
        network, decisions=[Decided(7, structs.replace(decision, query="other"))]
    )


def test_runs_of_a_dropped_query_count_in_the_last_link():
    columns = (Column("at", "bigint"), Column("k", "bigint"))
    streams = {name: Stream(name, columns, "at", delay=0) for name in "ab"}
    text = "SELECT a.at FROM a [RANGE 10] AS a, b [RANGE 10] AS b WHERE a.k = b.k"
    network = build_network([StandingQuery(1, "q1", parse_query(text, streams))], streams)
    counts = Counters(tables={"a(k)": TableCounters(sampled=40, lives={100: 40}, roles={16: 40, 32: 40})})
    runs = [entry_of("1", table="a(k)", rows=40, life=100, min_time=0, max_time=20)]
    plan = explain_network(network, counts, runs).splitlines()
    assert "  link to 10: estimated 20 rows, holds 40 in 1 run" in plan


def test_the_strategy_in_force_has_a_reason():
    columns = (Column("at", "bigint"), Column("k", "bigint"), Column("v", "bigint"))
    streams = {name: Stream(name, columns, "at", delay=0) for name in "ab"}
    pair = "SELECT a.at FROM a [RANGE {}] AS a, b [RANGE 10] AS b WHERE a.k = b.k AND a.v > {}"
    queries = [StandingQuery(n, f"q{n}", parse_query(pair.format(10**n, n), streams)) for n in (1, 2)]
    tables = {
        "a(k)": TableCounters(sampled=100, lives={10: 10, 100: 30}, roles={16: 40, 32: 30}),
        "b(k)": TableCounters(sampled=100, lives={10: 100}, roles={17: 100, 33: 100}),
    }
    counts = Counters(tables=tables)
    runs = [
        entry_of("1", table="a(k)", rows=40, life=100, min_time=0, max_time=20),
        entry_of("2", table="b(k)", rows=100, life=10, min_time=0, max_time=50),
    ]

    def line(chosen, counts=counts, strategy="state_slice", chain=None):
        network = replace(build_network(queries, streams, strategy=strategy), chosen=chosen)
        if chain:
            network = replace(network, tables=(replace(network.tables[0], chain=chain), *network.tables[1:]))
        return explain_network(network, counts, runs).splitlines()[1]

    rows = "rows that each strategy would hold (estimated): state_slice 175, push_down 175, pull_up 520, isolated 210"
    assert line("auto") == f"strategy state_slice (auto: it holds the fewest rows); {rows}"
    assert line("asked") == f"strategy state_slice (asked for); {rows}"
    assert line("asked", Counters()) == "strategy state_slice (asked for)"
    assert line("auto", Counters()) == "strategy state_slice (auto: it holds the fewest rows by the model)"
    assert line("kept", Counters(), "pull_up") == "strategy pull_up (auto: kept, the state was written by it)"
    # One link for both lives: the rows that live for 10 are held for 100.
    assert line("auto", chain=(100,)).startswith(
        "strategy state_slice (auto: the chain in force holds more rows than push_down would); rows that "
    )


def test_joins_of_the_same_streams_say_why_they_are_not_one():
    columns = (Column("at", "bigint"), Column("k", "bigint"), Column("v", "bigint"))
    streams = {name: Stream(name, columns, "at", delay=0, sequence="v") for name in "ab"}
    pair = "SELECT a.at FROM a [RANGE 10] AS a, b [{}] AS b WHERE {}"
    texts = {
        "by_k": pair.format("RANGE 5", "a.k = b.k"),
        "by_v": pair.format("RANGE 5", "a.v = b.v"),
        "by_both": pair.format("RANGE 9", "a.k = b.k AND a.v = b.v"),
        "also_by_k": pair.format("RANGE 7", "a.k = b.k AND a.v > 3"),
        "last": pair.format("ROWS 3", "a.k = b.k"),
        "one": "SELECT a.at FROM a",
    }
    standing = [StandingQuery(n, name, parse_query(text, streams)) for n, (name, text) in enumerate(texts.items(), 1)]

    def reasons(strategy="state_slice", name=None):
        plan = explain_network(build_network(standing, streams, strategy=strategy), name=name).splitlines()
        joins = [n for n, line in enumerate(plan) if line.startswith("join ")]
        ends = [*joins[1:], len(plan)]
        return {
            plan[at].split(":")[0][5:]: [line.strip() for line in plan[at:end] if "shared with" in line]
            for at, end in zip(joins, ends, strict=True)
        }

    assert reasons() == {
        "a": [],
        "a(k) x b(k)": [],
        "a(k) x b(k) closed by b": ["not shared with a(k) x b(k): only one of both waits for windows that count rows"],
        "a(k, v) x b(k, v)": ["not shared with a(k) x b(k) and 1 other: other keys"],
        "a(v) x b(v)": ["not shared with a(k) x b(k) and 2 others: other keys"],
    }
    # Of one query only its own join is shown, so all that it is apart from are named.
    assert reasons(name="also_by_k") == {
        "a(k) x b(k)": [
            "not shared with a(k) x b(k) closed by b: only one of both waits for windows that count rows",
            "not shared with a(k, v) x b(k, v) and 1 other: other keys",
        ]
    }
    apart = reasons(strategy="isolated")
    assert len(apart) == len(texts)
    assert [found for found in apart.values() if found] == [["shared with no other query: strategy isolated"]] * 4


def test_closed_bounds_are_told_as_they_were_written():
    band = (
        "SELECT h.value FROM temperature t, humidity h "
        "WHERE t.location = h.location AND h.at BETWEEN t.at AND t.at + INTERVAL 10 SECONDS"
    )
    streams = {**STREAMS, "humidity": replace(STREAMS["humidity"], idle=MINUTE)}
    text = explain_network(build_network([StandingQuery(1, "lagging", parse_query(band, streams))], streams))
    assert "(reaches back humidity 0 seconds inclusive, temperature 10 seconds inclusive)" in text
    assert "microsecond" not in text
    assert "delay 1 minute, idle 1 minute" in text
