"""Which other partials a mapper can make an aggregate's from, and when it does: from three rows per partial on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.decisions import Decided
from penstock.planner.explain import explain_network
from penstock.planner.folding import FoldingStatistics
from penstock.planner.network import StandingQuery
from penstock.planner.panes import PaneSet
from penstock.planner.rollup import Rollup, check_rollups, is_cut_alike, rolled_in, rollup_of
from penstock.sql import parse_query

COLUMNS = (*(Column(c, "bigint") for c in "takgv"), Column("x", "double"), Column("s", "string"))
STREAMS = {name: Stream(name, COLUMNS, "t", delay=0) for name in ("r", "q")}
FINE = "SELECT k, g, count(*), sum(v), max(x) FROM r [RANGE 60 SLIDE 20] GROUP BY k, g"
COARSE = "SELECT g, sum(v) FROM r [TUMBLING 40] GROUP BY g"


def network_of(*texts, types=()):
    """The plan of queries, with the types of groups and arguments where Spark knows them."""
    queries = [
        StandingQuery(n + 1, f"q{n}", parse_query(text, STREAMS), types=types[n] if types else ())
        for n, text in enumerate(texts)
    ]
    return build_network(queries, STREAMS)


def rule(coarse, *fine):
    """How the aggregate of the first query is made of that of the others."""
    network = network_of(coarse, *(fine or (FINE,)))
    return rollup_of(network, network.aggregates[0], network.aggregates[-1])


def test_group_columns_and_pieces_are_those_of_the_other():
    found = rule(COARSE)
    assert isinstance(found, Rollup)
    assert found.groups == (1,)
    assert found.sets == (0,)
    assert len(found.selections) == 1
    network = network_of(COARSE, FINE)
    coarse, fine = network.aggregates
    assert [fine.plan.pieces[n].kind for n in found.pieces] == [piece.kind for piece in coarse.plan.pieces]


@pytest.mark.parametrize(
    ("coarse", "fine"),
    [
        (COARSE, FINE),
        ("SELECT count(*) FROM r [TUMBLING 20]", FINE),
        ("SELECT s, count(*) FROM r [TUMBLING 20] GROUP BY s", FINE.replace("k", "s")),
        ("SELECT x, count(*) FROM r [TUMBLING 20] GROUP BY x", FINE.replace("k", "x")),
        (COARSE.replace("[TUMBLING 40]", "[RANGE ALL SLIDE 40]"), FINE),
        (COARSE.replace("[TUMBLING 40]", "[SESSION 40]"), FINE.replace("[RANGE 60 SLIDE 20]", "[SESSION 20]")),
        (COARSE.replace("GROUP", "WHERE v > 3 GROUP"), FINE.replace("GROUP", "WHERE v > 3 GROUP")),
        (COARSE.replace("GROUP", "WHERE v % 3 = 1 GROUP"), FINE.replace("GROUP", "WHERE v % 3 = 1 GROUP")),
        ("SELECT v % 2 AS p, count(*) FROM r [TUMBLING 20] GROUP BY v % 2", FINE.replace("k", "v % 2")),
    ],
)
def test_what_can_be_rolled_up(coarse, fine):
    assert isinstance(rule(coarse, fine), Rollup)


STREAM, GROUPS = "their rows are not those of one stream", "its groups are not some of the other's"
WINDOWS, PIECES = "rows may be in no window", "the other does not keep all that it keeps"
PANES = "no panes of the other that its own are made of hold its rows"
DEAR = "values that are kept each by itself, sketches and states of users' own are no cheaper to merge than to make"
ORDER = "the other does not order rows of one time"
KEYS = "the hash of its groups does not follow from their values"


@pytest.mark.parametrize(
    ("coarse", "fine", "reason"),
    [
        (COARSE.replace("FROM r", "FROM q"), FINE, STREAM),
        (COARSE.replace("FROM r", "FROM (r UNION ALL q)"), FINE, STREAM),
        (COARSE.replace("g", "a"), FINE, GROUPS),
        (FINE, COARSE, GROUPS),
        (COARSE.replace("GROUP BY g", "GROUP BY g % 2").replace("SELECT g", "SELECT g % 2"), FINE, GROUPS),
        (COARSE.replace("sum(v)", "sum(k)"), FINE, PIECES),
        (COARSE.replace("sum(v)", "min(x)"), FINE, PIECES),
        (COARSE.replace("sum(v)", "first(v)"), FINE, ORDER),
        (COARSE.replace("sum(v)", "first(v)"), FINE.replace("sum(v)", "last(v)"), PIECES),
        (COARSE.replace("[TUMBLING 40]", "[SESSION 40]"), FINE, PIECES),
        (COARSE.replace("sum(v)", "count(DISTINCT v)"), FINE.replace("sum(v)", "count(DISTINCT v)"), DEAR),
        (
            COARSE.replace("sum(v)", "approx_count_distinct(v)"),
            FINE.replace("sum(v)", "approx_count_distinct(v)"),
            DEAR,
        ),
        (COARSE.replace("40", "30"), FINE, PANES),
        (COARSE.replace("GROUP", "WHERE v > 3 GROUP"), FINE, PANES),
        (COARSE, FINE.replace("GROUP", "WHERE v > 3 GROUP"), PANES),
        (COARSE.replace("GROUP", "WHERE v > 3 GROUP"), FINE.replace("GROUP", "WHERE v > 4 GROUP"), PANES),
        (COARSE.replace("GROUP", "WHERE v % 3 = 1 GROUP"), FINE.replace("GROUP", "WHERE v % 3 = 2 GROUP"), PANES),
        (COARSE.replace("[TUMBLING 40]", "[RANGE 40 SLIDE 60]"), FINE, WINDOWS),
        (COARSE.replace("[TUMBLING 40]", "[RANGE ALL SLIDE 40 ORIGIN 20]"), FINE, WINDOWS),
        (COARSE, FINE.replace("SLIDE 20", "SLIDE 20 ORIGIN 0"), WINDOWS),
        (COARSE, FINE.replace("RANGE 60 SLIDE 20", "RANGE 20 SLIDE 40"), WINDOWS),
    ],
)
def test_what_cannot_be_rolled_up_and_why(coarse, fine, reason):
    assert rule(coarse, fine) == reason


def test_what_is_hashed_in_another_form_than_it_is_grouped_by_is_not_rolled_up():
    texts = [f"SELECT {by}, count(*) FROM r [TUMBLING 20] GROUP BY {by}" for by in ("v / 2", "g, v / 2")]
    types = [((("double",), ("",))), ((("bigint", "double"), ("",)))]
    network = network_of(*texts, types=types)
    assert rollup_of(network, *network.aggregates) == KEYS


def test_queries_that_see_the_same_rows_are_found_among_several():
    fine = [FINE, FINE.replace("GROUP", "WHERE v > 3 GROUP")]
    coarse = COARSE.replace("GROUP", "WHERE v > 3 GROUP")
    network = network_of(*fine, coarse, COARSE)
    found = rollup_of(network, network.aggregates[1], network.aggregates[0])
    assert isinstance(found, Rollup)
    selections = {q.query: q.selection for a in network.aggregates for q in a.plan.queries}
    assert found.selections == {selections[3]: selections[2], selections[4]: selections[1]}
    # One of the two has panes that are too wide, or each has panes of its own: no partial says of a row that both want
    # it.
    one, two = network.aggregates[0].plan.sets[0].queries
    for sets in (
        [PaneSet((one,), 20), PaneSet((two,), 60)],
        [PaneSet((one,), 20), PaneSet((two,), 20)],
    ):
        fine = replace(network.aggregates[0], plan=network.aggregates[0].plan.arranged(sets))
        assert rollup_of(network, network.aggregates[1], fine) == PANES
        three, four = network.aggregates[1].plan.sets[0].queries
        apart = network.aggregates[1].plan.arranged([PaneSet((four,), 40), PaneSet((three,), 40)])
        coarse = replace(network.aggregates[1], plan=apart)
        assert (rollup_of(network, coarse, fine) == PANES) == (sets[1].width == 60)


def test_cuts_must_be_edges_of_the_panes_of_the_other():
    network = network_of(COARSE, FINE)
    coarse, fine = network.aggregates
    found = rollup_of(network, coarse, fine)
    for cuts, alike in (({}, True), ({1: 60}, True), ({1: 50}, False), ({1: 50, 2: 50}, True), ({2: 50}, True)):
        assert is_cut_alike(found, coarse, fine, cuts) == alike, cuts


def stored_of(network, reductions, folded=True, rolled=""):
    """What is known of aggregates: rows that make a partial of each."""
    return {
        a.name: FoldingStatistics(1e5, 1e5, 1e5 / reduction, folded=folded, rolled=rolled if n == 0 else "")
        for n, (a, reduction) in enumerate(zip(network.aggregates, reductions, strict=True))
    }


def test_partials_are_rolled_up_from_three_rows_a_partial_on_and_not_any_more_below_two():
    network = network_of(COARSE, FINE)
    coarse, fine = network.aggregates
    stored, changes = check_rollups(network, stored_of(network, (100, 2.5)))
    assert not changes
    assert rolled_in(network, stored) == {}
    assert "rolled up" not in explain_network(network, folding=stored)
    stored, (change,) = check_rollups(network, stored_of(network, (100, 3)))
    assert rolled_in(network, stored) == {0: 1}
    assert (change.query, change.before) == (coarse.name, "partials of rows")
    assert change.after == f"partials of those of {fine.name!r}"
    assert change.reason == f"a partial of {fine.name!r} stands for 3.0 rows of a mapper"
    assert change.new_cost < change.old_cost
    assert Decided(3, change).shown()["mode"] == "folding"
    assert f"rolled up from {fine.name} in mappers (3.0 rows a partial)" in explain_network(network, folding=stored)
    assert check_rollups(network, stored_of(network, (100, 2), rolled=fine.name))[1] == []
    stored, changes = check_rollups(network, stored_of(network, (100, 1.7), rolled=fine.name))
    assert [c.after for c in changes] == ["partials of rows"]
    assert rolled_in(network, stored) == {}


@given(st.floats(1, 100), st.floats(1, 100), st.booleans())
def test_a_decision_stands_while_counts_do(one, other, rolled):
    finer = FINE.replace("k, g", "k, g, a")
    network = network_of(COARSE, FINE, finer)
    known = stored_of(network, (100, one, other), rolled=network.aggregates[1].name if rolled else "")
    stored, _ = check_rollups(network, known)
    assert check_rollups(network, stored) == (stored, [])
    found = rolled_in(network, stored)
    if max(one, other) > 10 and not rolled:
        assert found[0] == (1 if one >= other else 2)


def test_nothing_is_rolled_up_unless_partials_of_both_are_sent_and_the_rule_still_holds():
    network = network_of(COARSE, FINE)
    fine = network.aggregates[1]
    stored = stored_of(network, (100, 10), rolled=fine.name)
    assert rolled_in(network, stored) == {0: 1}
    stored[fine.name] = structs.replace(stored[fine.name], folded=False)
    assert rolled_in(network, stored) == {}
    stored, changes = check_rollups(network, stored)
    assert not changes
    assert not stored[network.aggregates[0].name].rolled
    stored = stored_of(network, (100, 10), folded=False, rolled=fine.name)
    stored, changes = check_rollups(network, stored)
    assert not changes
    assert not stored[network.aggregates[0].name].rolled
    # The other one is gone, or has queries that want other rows.
    for others in ((COARSE,), (COARSE, FINE.replace("GROUP", "WHERE v > 3 GROUP"))):
        changed = network_of(*others)
        known = {a.name: FoldingStatistics(1e5, 1e5, 1e4, folded=True, rolled=fine.name) for a in changed.aggregates}
        assert rolled_in(changed, known) == {}
        assert rolled_in(changed, check_rollups(changed, known)[0]) == {}
