from penstock.model import Column, Stream
from penstock.model.time import MINUTE, SECOND
from penstock.planner.build import build_network
from penstock.planner.explain import explain_network
from penstock.planner.network import StandingQuery
from penstock.sql import parse_query

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
    measured = {"table:temperature(location)": {"stored": 1234, "unwanted": 5}, "query:1": {"results": 7}}
    assert explain_network(network(), measured).splitlines() == [
        "network version 4: 3 queries, 2 streams, 2 joins",
        "stream temperature: event time at, delay 5 seconds, late -> side, bad -> side",
        "stream humidity: event time at, delay 1 minute, late -> drop, bad -> side",
        "state table temperature(location): 2 roles in its bits, stores location, value",
        "  chain: 1 minute, 5 minutes",
        "  predicate index on value: 1 literal, 2 distinct masks",
        "  computed by Spark for 1 role: unit LIKE 'C%'",
        "  measured: stored 1,234, unwanted 5",
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
    assert explain_network(network(), {}, "all").splitlines() == [
        "network version 4: 3 queries, 2 streams, 2 joins",
        "stream temperature: event time at, delay 5 seconds, late -> side, bad -> side",
        "pass-through temperature: nothing is kept",
        "join temperature: 1 query in one probe",
        "  bit 0: all",
    ]


def test_the_roles_of_a_self_join_are_told_apart_and_integer_times_have_no_unit():
    streams = {"a": Stream("a", (Column("at", "bigint"), Column("k", "bigint")), "at", delay=3)}
    text = "SELECT x.at FROM a [RANGE 7] x, a [RANGE 9] y WHERE x.k = y.k AND upper(CAST(x.k + y.k AS STRING)) = 'B'"
    plan = explain_network(build_network([StandingQuery(1, "q", parse_query(text, streams))], streams), {})
    assert plan.splitlines()[1:] == [
        "stream a: event time at, delay 3, late -> side, bad -> side",
        "state table a(k): 2 roles in its bits, stores k",
        "  chain: 7, 9",
        "join a(k) x a(k): 1 query in one probe",
        "  new rows of a#1: a#2",
        "  new rows of a#2: a#1 (with new rows)",
        "  bit 0: q (reaches back a#1 7, a#2 9), finished by Spark",
    ]
