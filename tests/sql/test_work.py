"""Reading and planning a query of twice the length takes twice the calls: counted, not timed."""

import sys

import pytest

from penstock.planner.bounds import time_bounds
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.sql import parse_query
from tests.sql.streams import STREAMS

JOIN = "SELECT a.k FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k AND "
HOUR = " FROM a [TUMBLING 1 HOUR] "
TERMS = {  # name -> (text before, one of many, what joins them, text behind)
    "or": ("SELECT k FROM a WHERE ", "n = {}", " OR ", ""),
    "and": ("SELECT k FROM a WHERE ", "n <> {}", " AND ", ""),
    "or of and": ("SELECT k FROM a WHERE ", "(n > {0} AND n < 1{0})", " OR ", ""),
    "between": ("SELECT k FROM a WHERE ", "n NOT BETWEEN {0} AND 1{0}", " AND ", ""),
    "in": ("SELECT k FROM a WHERE n IN (", "{}", ", ", ")"),
    "items": ("SELECT ", "n + {0} AS c{0}", ", ", " FROM a"),
    "columns": ("SELECT concat(", "s", ", ", ") FROM a"),
    "case": ("SELECT CASE ", "WHEN n = {0} THEN {0}", " ", " END FROM a"),
    "conditions of a join": (JOIN, "a.n <> b.n + {}", " AND ", ""),
    "alternatives of a join": (JOIN + "(", "a.n = b.n + {}", " OR ", ")"),
    "bands": (JOIN, "a.ts <= b.ts + INTERVAL {} SECONDS", " AND ", ""),
    "keys": (JOIN, "a.n + {} = b.n", " AND ", ""),
    "aggregates": ("SELECT ", "sum(n + {0}) AS c{0}", ", ", HOUR),
    "groups": ("SELECT count(*)" + HOUR + "GROUP BY ", "n + {}", ", ", ""),
    "having": ("SELECT k, count(*)" + HOUR + "GROUP BY k HAVING ", "count(*) <> {}", " AND ", ""),
    "order": ("SELECT k, count(*)" + HOUR + "GROUP BY k ORDER BY ", "count(*) + {}", ", ", " LIMIT 5"),
}


def text(kind, number):
    before, one, between, behind = TERMS[kind]
    return before + between.join(one.format(n) for n in range(10, number + 10)) + behind


def planned(sql):
    query = parse_query(sql, STREAMS)
    time_bounds(query)
    build_network([StandingQuery(1, "q", query, key_types=(("int", "int"),) * len(query.keys))], STREAMS)


def calls(work):
    """How many calls, of Python's functions and of built-in ones, some work takes."""
    found = 0

    def count(frame, event, argument):
        nonlocal found
        found += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("kind", TERMS)
def test_work_grows_with_the_length_of_a_query(kind):
    planned(text(kind, 20))  # what is done once for all
    once, twice = (calls(lambda n=n: planned(text(kind, n))) for n in (100, 200))
    assert twice <= 2.1 * once


@pytest.mark.parametrize("kind", ["or", "conditions of a join", "having"])
def test_a_query_of_a_thousand_terms_in_a_row_is_no_deep_one(kind):
    assert parse_query(text(kind, 1100), STREAMS)
