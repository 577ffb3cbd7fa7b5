"""Unions in FROM: which parts they have, what their columns are, and where they are refused."""

import pytest

from penstock.errors import SqlError
from penstock.model import Ref, Rows, Window
from penstock.model.time import SECOND
from penstock.sql import parse_query, results_of
from tests.sql.streams import STREAMS

OVER = "SELECT x.k FROM ({}) [RANGE 5 SECONDS] AS x, a [RANGE 5 SECONDS] WHERE x.k = a.k"


def columns(branch):
    return [(item.name, item.expression.sql(lambda ref: ref.column)) for item in branch.columns]


def test_parts_of_nested_unions_are_parts_of_the_union():
    query = parse_query(OVER.format("SELECT * FROM b UNION ALL (b UNION ALL (SELECT * FROM B))"), STREAMS)
    role = query.roles[0]
    assert (role.streams, role.branches, role.window) == (("b", "b", "b"), (), Window(5 * SECOND))


def test_columns_of_selects_go_together_by_their_place_and_have_the_names_of_the_first():
    query = parse_query(
        OVER.format("SELECT ts AS at, k, n + 1 AS m FROM b WHERE n > 3 UNION ALL SELECT s.ts, s.m, 7 FROM b s"), STREAMS
    )
    first, second = query.roles[0].branches
    assert columns(first) == [("at", "ts"), ("k", "k"), ("m", "n + 1")]
    assert columns(second) == [("at", "ts"), ("k", "m"), ("m", "7")]
    assert [p.sql(lambda ref: ref.column) for p in first.predicates] == ["n > 3"]
    assert second.predicates == ()
    assert query.keys[0][0].parts == (Ref(0, "k"),)


def test_the_event_time_of_a_union_of_selects_has_the_name_it_is_given():
    text = "SELECT x.at, x.k FROM (SELECT ts AS at, k FROM b UNION ALL SELECT ts, k FROM c) AS x"
    found = results_of(parse_query(text, STREAMS), STREAMS)
    assert (found.times, found.usual) == (("at",), "at")
    assert [c.type for c in found.columns] == ["timestamp", "string"]
    band = parse_query(
        "SELECT x.k FROM (SELECT ts AS at, k FROM b UNION ALL SELECT ts, k FROM c) AS x, a "
        "WHERE x.k = a.k AND x.at BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts",
        STREAMS,
    )
    assert len(band.bands) == 2


def test_a_count_window_beside_a_union_is_no_matter():
    query = parse_query("SELECT x.k FROM (b UNION ALL b) [RANGE 5 SECONDS] x, c [ROWS 3] WHERE x.k = c.k", STREAMS)
    assert isinstance(query.roles[1].window, Rows)


@pytest.mark.parametrize(
    ("union", "column", "fragment"),
    [
        ("b UNION ALL c", 30, "has no such column"),
        ("b UNION SELECT * FROM b", 20, "removes duplicates"),
        ("b UNION ALL nope", 30, "Unknown stream nope"),
        ("b UNION ALL 7", 30, "made of streams"),
        ("b UNION ALL", 20, "made of streams"),
        ("b UNION ALL SELECT k FROM (SELECT * FROM c)", 30, "made of streams"),
        ("SELECT k FROM b UNION ALL SELECT k FROM c", 18, "leaves out ts"),
        ("SELECT k, ts FROM b UNION ALL SELECT ts, k FROM c", 48, "is column 1 here"),
        ("SELECT k, ts FROM b UNION ALL SELECT k, ts, n FROM c", 48, "has 2 columns, and this one 3"),
        (
            "SELECT n, ts FROM b UNION ALL SELECT k, ts FROM c",
            48,
            "Column n is int in the SELECTs before, and string here",
        ),
        ("SELECT k, n, big, ts FROM c UNION ALL SELECT n, k, big, ts FROM c", 56, "Column k is string"),
        ("SELECT n, k, big, ts FROM c UNION ALL c", 56, "Column 1 of this union is n, and \\* gives k"),
        ("SELECT n + 1, ts FROM b UNION ALL SELECT n, ts FROM c", 18, "Column 1 of this SELECT has no name"),
        ("SELECT k, n AS K, ts FROM b UNION ALL c", 18, "two columns named K"),
        ("SELECT count(*), ts FROM b UNION ALL c", 25, "no aggregates"),
        ("SELECT k, ts FROM b GROUP BY k, ts UNION ALL c", 18, "has a list, one stream and WHERE only"),
        ("SELECT k, ts FROM b, c UNION ALL c", 18, "has a list, one stream and WHERE only"),
        ("SELECT k, ts FROM b [RANGE 5 SECONDS] UNION ALL c", 38, "window inside a union"),
        ("SELECT k, result_time, ts FROM b UNION ALL c", 18, "result_time"),
        ("SELECT k, ts FROM b WHERE nope > 1 UNION ALL c", 44, "Unknown column nope"),
        ("SELECT k, ts FROM b WHERE k IN (SELECT k FROM c) UNION ALL c", 46, r"IN \(SELECT"),
    ],
)
def test_unions_that_are_refused(union, column, fragment):
    with pytest.raises(SqlError, match=fragment) as caught:
        parse_query(OVER.format(union), STREAMS)
    assert caught.value.column == column
    assert caught.value.hint or "Unknown" in caught.value.message


@pytest.mark.parametrize(
    ("text", "column", "fragment", "hint"),
    [
        ("SELECT x.k FROM (b UNION ALL b) [ROWS 3] x, a [RANGE 5 SECONDS] WHERE x.k = a.k", 34,
         "counts the rows of one", "RANGE"),
        ("SELECT x.k FROM (b UNION ALL b) [ROWS 3] x", 34, "counts the rows of one", "RANGE"),
        (
            (f"SELECT x.k FROM ({' UNION ALL '.join(['b'] * 9)}) [RANGE ALL] x, "
            f"({' UNION ALL '.join(['c'] * 8)}) [RANGE ALL] y WHERE x.k = y.k"),
            133, "72 combinations", "declare one stream",
        ),
        (
            ("SELECT x.k FROM (SELECT k, ts FROM b UNION ALL c) [RANGE 5 SECONDS ON ts] x, a [RANGE 5 SECONDS] "
            "WHERE x.k = a.k"),
            52, "ON is not supported", "leave ON out",
        ),
        (
            "SELECT k, count(*) FROM (b UNION ALL SELECT * FROM b WHERE n > 1) [TUMBLING 5 SECONDS] GROUP BY k",
            38, "whole streams and queries", "register this SELECT as a query",
        ),
    ],
)  # fmt: skip
def test_what_does_not_distribute_is_refused_at_its_place(text, column, fragment, hint):
    with pytest.raises(SqlError, match=fragment) as caught:
        parse_query(text, STREAMS)
    assert caught.value.column == column
    assert hint in caught.value.hint
