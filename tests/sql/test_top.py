import pytest

from penstock.errors import RegistrationError, SqlError
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.sql import parse_query
from tests.sql.dump import dump
from tests.sql.streams import STREAMS

BASE = "SELECT k, count(*) AS c FROM a [RANGE 10 MINUTES SLIDE 1 MINUTE] GROUP BY k"


def first(text):
    return [line for line in dump(parse_query(text, STREAMS)).splitlines() if line.startswith(("first", "aggregate"))]


@pytest.mark.parametrize(
    ("order", "keys"),
    [
        ("ORDER BY c DESC LIMIT 3", "first 3 by a0 desc nulls last"),
        ("ORDER BY 2, k LIMIT 1", "first 1 by a0 asc nulls first, g0 asc nulls first"),
        ("HAVING c > 1 order by count(*) + 1 desc nulls first limit 7", "first 7 by a0 + 1 desc nulls first"),
    ],
)
def test_the_first_rows_of_each_window_are_taken_by_any_order_over_groups_and_aggregates(order, keys):
    assert first(f"{BASE} {order}") == ["aggregate a0 = count(*)", keys]


def test_an_order_may_have_aggregates_of_its_own():
    assert first(f"{BASE} ORDER BY max(n) DESC LIMIT 3;")[1:] == [
        "aggregate a1 = max(a.n)",
        "first 3 by a1 desc nulls last",
    ]


@pytest.mark.parametrize(
    ("text", "place", "fragment", "hint"),
    [
        (f"{BASE} ORDER BY c", 77, "for result_time only", "with LIMIT behind it"),
        (f"{BASE} LIMIT 3", 77, "LIMIT", "the first rows of each window"),
        (f"{BASE} ORDER BY c LIMIT 0", 94, "at least one", "LIMIT 10"),
        (f"{BASE} ORDER BY c LIMIT 1 OFFSET 2", 96, "OFFSET", "no end"),
        (f"{BASE} ORDER BY window_end LIMIT 3", 86, "the same for all rows", "count(*) DESC"),
        (f"{BASE} ORDER BY result_time LIMIT 3", 86, "the same for all rows", "count(*) DESC"),
        (f"{BASE} ORDER BY n LIMIT 3", 86, "neither grouped by", "max(n)"),
        (f"{BASE} ORDER BY 3 LIMIT 3", 86, "no item 3", ""),
        (f"{BASE} ORDER BY rand() LIMIT 3", 86, "not deterministic", "rows themselves"),
        ("SELECT k FROM a ORDER BY k LIMIT 3", 28, "LIMIT", "no end"),
        ("SELECT count(*) AS c FROM a [SESSION 1 MINUTE] ORDER BY c LIMIT 1", 48, "every session is of one group",
         "window of time"),
    ],
)  # fmt: skip
def test_what_cannot_be_first_is_refused_at_its_place(text, place, fragment, hint):
    with pytest.raises(SqlError) as caught:
        parse_query(text, STREAMS)
    assert caught.value.column == place
    assert fragment in caught.value.message
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "options", "fragment"),
    [
        (f"{BASE} ORDER BY c LIMIT 1 EMIT EARLY EVERY 1 SECOND", {}, "may not be among the first ones in the end"),
        (f"{BASE} ORDER BY c LIMIT 1", {"flush": (10, 2)}, "before all are known"),
        ("SELECT k, count(*) AS c FROM b [RANGE 9 ROWS SLIDE 3 ROWS] GROUP BY k ORDER BY c * 2 LIMIT 1", {},
         "as they stand"),
    ],
)  # fmt: skip
def test_what_the_planner_cannot_cut_is_refused_with_the_remedy(text, options, fragment):
    with pytest.raises(RegistrationError, match=fragment):
        build_network([StandingQuery(1, "q", parse_query(text, STREAMS), **options)], STREAMS)


def test_a_window_of_time_takes_any_order_and_its_rows_are_no_panes():
    for key in ("c", "c * 2"):
        query = parse_query(f"{BASE} ORDER BY {key} LIMIT 1", STREAMS)
        network = build_network([StandingQuery(1, "q", query)], STREAMS)
        (aggregate,) = network.aggregates
        assert not aggregate.members[0].paned
        assert aggregate.plan.queries[0].cut == (key == "c")
