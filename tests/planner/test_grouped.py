from dataclasses import replace

import pytest

from penstock.errors import RegistrationError
from penstock.model import Column, Ref
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregate_tables import first_start, reach
from penstock.planner.build import build_network
from penstock.planner.counters import Counters, QueryCounters, TableCounters
from penstock.planner.explain import explain_network
from penstock.planner.network import StandingQuery
from penstock.planner.reached import Closing, as_answered, output_progress
from penstock.sql import parse_query
from tests.aggregates import STREAM, STREAMS

COUNT = "SELECT k, count(*) FROM s [RANGE {} SLIDE {}] GROUP BY k"
ROWS = "SELECT g, count(*) FROM s [RANGE 3 ROWS SLIDE 1 ROW PARTITION BY k] WHERE v > 1 GROUP BY g"


def network_of(*queries, strategy="state_slice", **options):
    standing = [StandingQuery(n + 1, f"q{n}", parse_query(sql, STREAMS), **options) for n, sql in enumerate(queries)]
    return build_network(standing, STREAMS, strategy=strategy)


def test_queries_with_the_same_groups_share_panes_whatever_their_windows_and_predicates():
    others = (
        "SELECT k, max(v), sum(v) FROM s [RANGE 9 SLIDE 6] WHERE v > 1 GROUP BY k",
        "SELECT count(*) FROM s [SESSION 5]",
    )
    network = network_of(COUNT.format(12, 4), *others)
    shared, session = network.aggregates
    assert [m.id for m in shared.members] == [1, 2]
    assert shared.plan.width == 1
    table = network.tables[shared.home]
    assert table.grouped
    assert table.columns == ("k", "v")
    assert [e.query for e in table.entries] == [1, 2]
    assert [index.column for index in table.indexes] == ["v"]
    assert (session.name, network.tables[session.home].key) == ("s by nothing in panes", ())
    assert network.closes == ("s",)
    assert network.bits == {1: (shared.name, 0), 2: (shared.name, 1), 3: (session.name, 0)}


@pytest.mark.parametrize(
    ("window", "first", "lives"),
    [
        ("RANGE 6 SLIDE 2", 50, 7),
        ("SESSION 5", 54, FOREVER),  # a row at 49 would continue into one at 53, and no time is the last of a session
        ("RANGE ALL SLIDE 2", NEVER, FOREVER),
    ],
)
def test_a_query_that_came_later_shows_windows_that_it_saw_whole(window, first, lives):
    query = parse_query(f"SELECT count(*) FROM s [{window}]", STREAMS)
    later = StandingQuery(1, "q", query, since=3, complete_from=(("s", 50),))
    assert first_start(later) == first
    assert first_start(replace(later, complete_from=())) == NEVER
    assert reach(query.aggregation) == lives


@pytest.mark.parametrize(
    ("call", "options", "paned"),
    [("sum(v)", {}, True), ("sum(v)", {"on_error": "stop"}, False), ("count(v)", {"on_error": "stop"}, True)],
)
def test_a_query_that_stops_at_too_large_a_sum_is_not_put_together_later(call, options, paned):
    (aggregate,) = network_of(f"SELECT {call} FROM s [RANGE 4 SLIDE 2]", **options).aggregates
    assert aggregate.members[0].paned is paned


def test_isolated_queries_share_nothing():
    assert len(network_of(COUNT.format(4, 2), COUNT.format(4, 2), strategy="isolated").aggregates) == 2


def test_rows_are_counted_in_one_place_by_queries_that_began_together():
    queries = [
        StandingQuery(n + 1, f"q{n}", parse_query(ROWS, STREAMS), since=since) for n, since in enumerate((0, 0, 7))
    ]
    network = build_network(queries, STREAMS)
    assert [[m.id for m in a.members] for a in network.aggregates] == [[1, 2], [3]]
    table = network.tables[network.aggregates[0].home]
    assert table.key == ((Ref(0, "k"),),)  # and not by the group, so that a partition is whole
    assert [e.counting for e in table.entries] == [False, False, True]  # all rows count
    assert table.order == STREAM.order


def test_explain_says_what_is_shared_how_and_why():
    network = network_of(COUNT.format(12, 4), COUNT.format(9, 6) + " HAVING count(*) > 1", ROWS)
    tables = {"s by k in panes": TableCounters(stored=12)}
    measured = Counters(tables=tables, queries={1: QueryCounters(results=7)})
    assert explain_network(network, measured).splitlines() == [
        "network version 0: 3 queries, 1 stream, 0 joins, 2 aggregates",
        "strategy state_slice",
        "stream s: event time t, delay 0, late -> side, bad -> side",
        "  shared: 2 state tables with 1 key hash for 3 roles",
        "aggregate s by k in panes: 2 queries share panes of 1: count of rows",
        "  bit 0: q0, differential (CF; sums of panes by difference), results kept as panes, results 7",
        (
            "  bit 1: q1, differential (CF; sums of panes by difference), "
            "HAVING in the kernel, results kept as runs of equal windows"
        ),
        "  measured: stored 12",
        "  rows are sent to tasks by mappers, if any",
        "aggregate s by g, k in rows since step 0 counted by k: 1 query has rows",
        "  bit 0: q2, buffered (FCF; windows that end with rows or count them need single rows)",
        "  predicate index on v: 1 literals",
    ]
    assert "q0" not in explain_network(network, measured, name="q2")


@pytest.mark.parametrize(
    ("window", "reached", "expected"),
    [
        ("RANGE 12 SLIDE 5", 7, 10),
        ("RANGE ALL SLIDE 5", 10, 15),
        ("SESSION 5", 7, 8),
        ("RANGE 3 ROWS SLIDE 1 ROW", 7, 7),
        ("RANGE 12 SLIDE 5", NEVER, NEVER),
        ("RANGE 12 SLIDE 5", FOREVER, FOREVER),
    ],
)
def test_output_progress_is_the_end_of_the_first_open_window_as_far_as_steps_have_closed_them(
    window, reached, expected
):
    query = parse_query(f"SELECT count(*) FROM s [{window}]", STREAMS)
    assert output_progress(query, {"s": 10**6, Closing("s"): reached}) == expected


def test_what_no_plan_is_made_for_is_refused():
    with pytest.raises(RegistrationError, match="EMIT EARLY is for windows that slide by time"):
        network_of("SELECT count(*) FROM s [SESSION 5] EMIT EARLY EVERY 1 SECOND")
    with pytest.raises(RegistrationError, match="may fail HAVING in the end"):
        network_of("SELECT count(*) FROM s [TUMBLING 5] HAVING count(*) < 3 EMIT EARLY EVERY 1 SECOND")
    with pytest.raises(RegistrationError, match="may fail HAVING in the end"):
        network_of("SELECT count(*) FROM s [TUMBLING 5] HAVING count(*) > 3 AND max(v) < 3 EMIT EARLY EVERY 1 SECOND")
    stays = "count(*) >= 3 AND (max(v) > 3 OR 5 > min(v))"  # whatever else comes
    assert network_of(f"SELECT count(*) FROM s [TUMBLING 5] HAVING {stays} EMIT EARLY EVERY 1 SECOND").aggregates
    grouped = replace(STREAM, patterns=(Column("t", "bigint"), Column("k", "string")))
    for sql, options in (
        (COUNT.format(4, 2) + " EMIT EARLY EVERY 1 SECOND", {}),
        (COUNT.format(4, 2), {"flush": (5, 2)}),
    ):
        standing = StandingQuery(1, "q", parse_query(sql, STREAMS), **options)
        with pytest.raises(RegistrationError, match="punctuations of its stream end single groups"):
            build_network([standing], {"s": grouped})


@pytest.mark.parametrize(
    ("sql", "options", "paned"),
    [
        (COUNT.format(12, 4), {}, True),
        (COUNT.format(4, 4), {}, False),
        (COUNT.format(9, 6), {}, False),
        (COUNT.format(12, 4) + " HAVING count(*) > 1", {}, False),
        (COUNT.format(12, 4) + " HAVING sqrt(count(*)) > 1", {}, True),
        (COUNT.format(12, 4), {"delivered": True}, False),
        (COUNT.format(12, 4), {"flush": (5, 2)}, False),
        (COUNT.format(12, 4) + " EMIT EARLY EVERY 1 SECOND", {}, False),
        ("SELECT collect_list(v) FROM s [RANGE 12 SLIDE 4]", {}, False),
    ],
)
def test_results_are_kept_as_panes_where_these_are_fewer(sql, options, paned):
    (aggregate,) = network_of(sql, **options).aggregates
    assert aggregate.members[0].paned is paned


def test_a_query_whose_results_are_let_out_slowly_is_kept_and_answered_by_itself():
    slow, other = network_of(COUNT.format(4, 2), flush=(5, 2)), network_of(COUNT.format(4, 2))
    (aggregate,) = slow.aggregates
    assert aggregate.name == "s by k in panes of query 1"
    reached = {"s": 9, Closing("s"): 8, Closing("s", 1): 4}
    assert aggregate.closed(reached) == (4, 9)
    assert other.aggregates[0].closed(reached) == (8, 9)
    query = slow.queries[0].query
    assert output_progress(query, as_answered(reached, 1)) == 6
    assert output_progress(query, as_answered(reached, 11)) == 10
