"""Which streams are held back: only those ahead of one that they wait for and that still brings rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Column, Stream
from penstock.model.time import NEVER
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.planner.stream_skew import LIVES, leaders, waits
from penstock.sql import parse_query

COLUMNS = (Column("ts", "bigint"), Column("k", "bigint"))
STREAMS = {name: Stream(name, COLUMNS, "ts", 0) for name in "abcd"}
JOIN = "SELECT a.k FROM a [RANGE 5], b [RANGE 7] WHERE a.k = b.k"
THREE = "SELECT a.k FROM a [RANGE 50], b [RANGE 7], c [RANGE 9] WHERE a.k = b.k AND b.k = c.k"
EVER = "SELECT a.k FROM a [RANGE ALL], d [RANGE 7] WHERE a.k = d.k"
UNION = "SELECT k, count(*) AS n FROM (c UNION ALL d) [RANGE 20 SLIDE 5] GROUP BY k"
ALONE = "SELECT k, count(*) AS n FROM a [RANGE 20 SLIDE 5] GROUP BY k"


def network_of(*texts):
    queries = [StandingQuery(n + 1, f"q{n}", parse_query(text, STREAMS)) for n, text in enumerate(texts)]
    return build_network(queries, STREAMS)


def test_a_row_is_kept_for_another_stream_as_long_as_its_longest_window():
    found = waits(network_of(JOIN, THREE, ALONE))
    assert (found["a", "b"], found["b", "a"], found["c", "b"]) == (50, 7, 9)
    assert ("a", "d") not in found


def test_what_is_kept_for_ever_holds_nobody_back():
    assert waits(network_of(EVER)).keys() == {("d", "a")}


def test_streams_of_a_union_wait_for_each_other():
    assert waits(network_of(UNION)) == {("c", "d"): 20, ("d", "c"): 20}


@pytest.mark.parametrize(
    ("newest", "active", "held"),
    [
        ({"a": LIVES * 5, "b": 0}, "ab", ""),
        ({"a": LIVES * 5 + 1, "b": 0}, "ab", "a"),
        ({"a": LIVES * 5 + 1, "b": 0}, "a", ""),
        ({"a": 0, "b": LIVES * 7 + 1}, "a", "b"),
        ({"a": 99, "b": NEVER}, "ab", ""),
        ({"a": 99}, "ab", ""),
    ],
)
def test_a_stream_is_held_back_if_it_is_far_ahead_of_one_that_brings_rows(newest, active, held):
    assert leaders(network_of(JOIN), newest, newest, active) == frozenset(held)


def test_a_row_of_a_distant_future_holds_nobody_back():
    newest = {"a": 10**9, "b": 0}
    assert leaders(network_of(JOIN), {"a": 3, "b": 0}, newest, "ab") == frozenset()
    assert leaders(network_of(JOIN), {"b": 0}, newest, "ab") == frozenset()


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 500), min_size=1), st.sets(st.sampled_from("abcd")))
def test_the_last_of_the_streams_is_always_read(newest, active):
    held = leaders(network_of(JOIN, THREE, UNION), newest, newest, active)
    assert min(newest, key=newest.get) not in held
    assert active or not held
