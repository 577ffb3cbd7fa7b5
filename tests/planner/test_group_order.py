"""Queries with the same groups share a table in whatever order GROUP BY names them, and answer as they did."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Ref
from penstock.model.expression import GROUP_ROLE
from penstock.planner.build import build_network
from penstock.planner.group_order import in_one_order
from penstock.planner.network import StandingQuery
from penstock.reference import aggregate_results
from penstock.sql import parse_query
from tests.aggregates import ROWS, STREAMS
from tests.effort import examples

GROUPS = ("k", "g", "v", "x")
WINDOWS = ("RANGE 6 SLIDE 2", "TUMBLING 4", "RANGE ALL SLIDE 5", "SESSION 2", "RANGE 4 SLIDE 2 ORIGIN 3")
HAVINGS = ("", " HAVING g > 0 OR count(*) > 1", " HAVING k = 'a'", " HAVING count(*) > 1 AND k IS NULL")


def sql(groups, window, having="", tail=""):
    shown = ", ".join(reversed(groups))
    return (
        f"SELECT window_end, {shown}, count(*) AS n, sum(v) AS s FROM s [{window}] "
        f"GROUP BY {', '.join(groups)}{having}{tail}"
    )


@given(st.permutations(GROUPS), st.integers(1, 4), st.sampled_from(WINDOWS), st.sampled_from(HAVINGS), ROWS)
@settings(max_examples=examples(150))
def test_the_order_of_groups_changes_no_answer(groups, count, window, having, rows):
    groups = groups[:count]
    having = having if {"k", "g"} <= set(groups) else ""
    query = parse_query(sql(groups, window, having), STREAMS)
    other = in_one_order(query)
    assert in_one_order(other) == other
    assert {i.expression for i in other.aggregation.groups} == {i.expression for i in query.aggregation.groups}
    assert answers(other, rows) == answers(query, rows)


def answers(query, rows):
    return Counter(map(repr, aggregate_results(query, STREAMS, {"s": rows})))


def network_of(*texts):
    standing = [StandingQuery(n, f"q{n}", in_one_order(parse_query(t, STREAMS))) for n, t in enumerate(texts, 1)]
    return build_network(standing, STREAMS)


@given(st.permutations(GROUPS), st.permutations(GROUPS), st.sampled_from(WINDOWS), st.sampled_from(WINDOWS))
@settings(max_examples=examples(50))
def test_queries_with_the_same_groups_share_a_table_whoever_comes_first(one, other, window, another):
    texts = sql(one, window), sql(other, another)
    (aggregate,) = network_of(*texts).aggregates
    assert len(aggregate.members) == 2
    assert [a.name for a in network_of(*reversed(texts)).aggregates] == [aggregate.name]
    # Nor does it change when the one that came first is dropped.
    assert [t.key for t in network_of(texts[1]).tables] == [t.key for t in network_of(*texts).tables]


def test_groups_stay_as_they_are_written_where_that_has_a_meaning():
    kept = (
        "SELECT k, g, count(*) AS n FROM s [TUMBLING 4] GROUP BY k, g ORDER BY n DESC LIMIT 1",
        "SELECT v, g, count(*) AS n FROM s [RANGE 3 ROWS SLIDE 2 ROWS PARTITION BY g] GROUP BY v, g",
        "SELECT v, g, count(*) AS n FROM s [RANGE 3 SLIDE 2 ROWS PARTITION BY g] GROUP BY v, g",
        "SELECT v FROM s",
    )
    for text in kept:
        query = parse_query(text, STREAMS)
        assert in_one_order(query) is query
    moved = in_one_order(parse_query(sql(("k", "g"), "TUMBLING 4", " HAVING g > 0"), STREAMS))
    assert [item.name for item in moved.aggregation.groups] == ["g", "k"]
    assert moved.aggregation.having.refs == (Ref(GROUP_ROLE, "g0"),)
    assert len(network_of(kept[0], kept[0].replace("GROUP BY k, g", "GROUP BY g, k")).aggregates) == 2
