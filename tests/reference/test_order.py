import math

import pytest

from penstock.model import Column, Rows, Stream
from penstock.reference import aggregate_results
from penstock.reference.order import followers, ranks
from penstock.sql import parse_query


def behind(rows, *, kinds=("bigint",), partition=(), sequence=None):
    """For each row (a time and values) the times of the rows behind it."""
    names = [f"c{n}" for n in range(len(kinds))]
    columns = (*(Column(n, t) for n, t in zip(names, kinds, strict=True)), Column("ts", "bigint"))
    stream = Stream("s", columns, "ts", 0, sequence=sequence)
    table = [dict(zip(("ts", *names), row, strict=True)) for row in rows]
    return followers(stream, Rows(1, tuple(partition)), table)


def test_time_comes_first_whatever_the_arrival():
    assert behind([(3, 0), (1, 9), (2, 5)]) == [[], [2, 3], [3]]


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        ("bigint", [None, -(2**63), 0, 2**63 - 1]),
        ("double", [None, -math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan]),
        ("string", [None, "", "B", "a", "é", "\uffff", "\U0001f600"]),
        ("boolean", [None, False, True]),
    ],
)
def test_rows_of_one_time_go_by_their_values_in_sparks_order(kind, ascending):
    count = len(ascending)
    lengths = [len(later) for later in behind([(1, value) for value in reversed(ascending)], kinds=(kind,))]
    assert lengths == list(range(count))


def test_the_declared_order_of_columns_decides():
    assert behind([(1, 2, 1), (1, 1, 2)], kinds=("bigint", "bigint")) == [[], [1]]


def test_the_sign_of_a_zero_decides_last():
    assert behind([(1, 0.0, 1), (1, -0.0, 2)], kinds=("double", "bigint")) == [[1], []]


def test_the_sequence_comes_before_the_columns():
    assert behind([(1, 1, 2), (1, 2, 1)], kinds=("bigint", "bigint"), sequence="c1") == [[], [1]]


def test_only_rows_of_the_same_partition_are_behind():
    rows = [(1, None), (2, 7), (3, None), (4, 7), (5, 8)]
    assert behind(rows, partition=("c0",)) == [[3], [4], [], [], []]


def test_values_that_are_equal_are_one_partition():
    rows = [(1, 0.0), (2, -0.0), (3, math.nan), (4, math.nan)]
    assert behind(rows, kinds=("double",), partition=("c0",)) == [[2], [], [4], []]


def test_columns_without_an_order_are_left_out():
    stream = Stream("s", (Column("ts", "bigint"), Column("l", "array<int>"), Column("n", "int")), "ts", 0, sequence="n")
    assert stream.order == ("ts", "n")
    rows = [{"ts": 1, "l": [2], "n": 1}, {"ts": 1, "l": [1], "n": 2}]
    assert followers(stream, Rows(1), rows) == [[1], []]


def test_ranks_count_from_zero_and_rows_that_are_alike_share_theirs():
    rows = [{"at": 2, "v": None}, {"at": 1, "v": 5}, {"at": 2, "v": 0.0}, {"at": 1, "v": 5}, {"at": 2, "v": -0.0}]
    stream = Stream("s", (Column("at", "bigint"), Column("v", "double")), "at", 0)
    assert ranks(stream, rows) == [1, 0, 3, 0, 2]


def test_lists_of_a_join_do_not_depend_on_which_of_two_alike_rows_came_first():
    streams = {name: Stream(name, (Column("at", "bigint"), Column("v", "bigint")), "at", 0) for name in ("l", "r")}
    query = parse_query(
        "SELECT collect_list(r.v) FROM l [RANGE 5 SLIDE 5], r [RANGE 5 SLIDE 5] WHERE l.at <= r.at", streams
    )
    rows = {"l": [{"at": 0, "v": 1}] * 2, "r": [{"at": 1, "v": 7}, {"at": 2, "v": 8}]}
    assert aggregate_results(query, streams, rows) == [([7, 7, 8, 8],)]
