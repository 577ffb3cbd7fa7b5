from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import (
    Band,
    Column,
    Compare,
    Expression,
    Item,
    Literal,
    Query,
    Ref,
    Role,
    Rows,
    Stream,
    Tumbling,
    Window,
)
from penstock.model.time import FOREVER
from penstock.reference import Unspecified, admit, bounds, combinations, project, result_time, results
from tests.effort import examples
from tests.oracle import bag, duckdb_results
from tests.workloads import workload


def stream(name):
    return Stream(name, (Column("ts", "bigint"), Column("attr", "bigint")), "ts", delay=0)


def column(role, name):
    return Expression((Ref(role, name),), Ref(role, name), total=True)


def equijoin(windows, *, bands=(), residuals=()):
    """`SELECT ts.., result_time` of streams joined on attr; `windows` is a list of (stream, window or its length)."""
    roles = tuple(
        Role(f"r{i}", name, window if isinstance(window, Rows | Tumbling) else Window(window))
        for i, (name, window) in enumerate(windows)
    )
    items = [*(column(i, "ts") for i in range(len(roles))), column(-1, "result_time")]
    return Query(
        sql="",
        roles=roles,
        keys=(tuple(column(i, "attr") for i in range(len(roles))),) if len(roles) > 1 else (),
        bands=tuple(bands),
        predicates=(),
        residuals=tuple(residuals),
        items=tuple(Item(None, item) for item in items),
    )


def times(query, **stamps):
    """The event times of a query's results over rows that all have the same attr."""
    streams = {name: stream(name) for name in stamps}
    rows = {name: [{"ts": t, "attr": 1} for t in ts] for name, ts in stamps.items()}
    return [tuple(row["ts"] for row in c) for c in combinations(query, streams, rows)]


def test_a_row_joins_what_is_live_at_the_newest_rows_time():
    query = equijoin([("s1", 100), ("s2", 100), ("s3", 100)])
    found = times(query, s1=[90, 100], s2=[150, 180], s3=[195, 205])
    assert sorted(found) == [(100, 150, 195), (100, 180, 195)]


def test_slices_of_a_one_way_join_partition_its_result():
    stamps = {"a": [1, 2, 3, 8], "b": [4, 5]}
    narrow = times(equijoin([("a", 2), ("b", 1)]), **stamps)
    wide = times(equijoin([("a", 4), ("b", 1)]), **stamps)
    assert narrow == [(3, 4)]
    assert sorted(set(wide) - set(narrow)) == [(1, 4), (2, 4), (2, 5), (3, 5)]


def test_each_stream_has_its_own_window():
    stamps = {"a": [1, 2, 3, 8], "b": [4, 5]}
    assert sorted(times(equijoin([("a", 2), ("b", 4)]), **stamps)) == [(3, 4), (8, 5)]


@pytest.mark.parametrize("length", [1, 2, 100])
def test_a_row_as_old_as_its_window_is_out_and_one_unit_younger_is_in(length):
    query = equijoin([("a", length), ("b", length)])
    assert times(query, a=[0], b=[length]) == []
    assert times(query, a=[0], b=[length - 1]) == [(0, length - 1)]
    assert times(query, a=[length], b=[0]) == []
    assert times(query, a=[length - 1], b=[0]) == [(length - 1, 0)]


def test_rows_of_equal_time_match_in_the_shortest_window():
    assert times(equijoin([("a", 1), ("b", 1)]), a=[5, 5], b=[5]) == [(5, 5), (5, 5)]


def test_in_a_self_join_a_row_meets_itself():
    found = times(equijoin([("a", 3), ("a", 3)]), a=[1, 2])
    assert sorted(found) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_range_all_sets_no_bound():
    assert times(equijoin([("a", None), ("b", 1)]), a=[0], b=[10**12]) == [(0, 10**12)]


def test_a_band_is_closed_and_binds_its_pair_only():
    query = equijoin([("a", 50), ("b", 50), ("c", 50)], bands=[Band(earlier=0, later=1, upper=5)])
    assert times(query, a=[0], b=[5, 6], c=[40]) == [(0, 5, 40)]


def test_bounds_follow_from_the_shortest_path():
    query = equijoin(
        [("a", None), ("b", None), ("c", 9)],
        bands=[Band(earlier=0, later=1, upper=3), Band(earlier=1, later=2, upper=4)],
    )
    found = bounds(query)
    assert (found[0, 1], found[1, 2], found[0, 2]) == (3, 4, 7)
    assert (found[2, 0], found[2, 1], found[1, 0]) == (8, 8, 12)


def test_a_key_binds_only_the_roles_that_it_reaches():
    windows = tuple(Role(name, name, Window(9)) for name in "abc")
    keys = ((column(0, "ts"), column(1, "attr"), None), (None, column(1, "ts"), column(2, "attr")))
    query = Query("", windows, keys, (), (), (), ())
    streams = {name: stream(name) for name in "abc"}
    rows = {
        "a": [{"ts": 1, "attr": None}, {"ts": 2, "attr": 7}],
        "b": [{"ts": 3, "attr": 1}, {"ts": 3, "attr": None}],
        "c": [{"ts": 4, "attr": 3}, {"ts": 4, "attr": 1}],
    }
    assert combinations(query, streams, rows) == [(rows["a"][0], rows["b"][0], rows["c"][0])]


def test_without_a_key_windows_alone_decide():
    roles = (Role("a", "a", Window(3)), Role("b", "b", Window(1)))
    assert times(Query("", roles, (), (), (), (), ()), a=[1, 5], b=[2, 4]) == [(1, 2)]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Tumbling(10), [(-1, -10), (0, 9), (10, 10)]),
        (Tumbling(10, origin=5), [(-1, -5), (0, -5), (10, 10), (10, 9)]),
        (Tumbling(10, origin=-15), [(-1, -5), (0, -5), (10, 10), (10, 9)]),
        (Tumbling(1), [(10, 10)]),
    ],
)
def test_a_tumbling_join_pairs_rows_of_one_piece_of_time(window, expected):
    pieces = [-10, -5, 9, 10] if window.origin else [-10, 9, 10]
    assert sorted(times(equijoin([("a", window), ("b", window)]), a=[-1, 0, 10], b=pieces)) == sorted(expected)


def test_rows_at_both_ends_of_a_tumbling_window_meet_whichever_is_older():
    tumbling = equijoin([("a", Tumbling(10)), ("b", Tumbling(10))])
    assert times(tumbling, a=[0, 9], b=[0, 9]) == [(0, 0), (0, 9), (9, 0), (9, 9)]


def test_a_window_of_rows_holds_the_last_ones_at_the_time_of_the_result():
    query = equijoin([("a", Rows(2)), ("b", 1)])
    assert times(query, a=[1, 2, 3, 8], b=[3]) == [(2, 3), (3, 3)]
    assert times(query, a=[1, 2, 3, 8], b=[2, 9]) == [(1, 2), (2, 2), (3, 9), (8, 9)]


def test_rows_of_one_time_count_one_by_one():
    # At time 5 three rows of a are there; their columns decide which two are the last.
    streams = {name: stream(name) for name in "ab"}
    rows = {"a": [{"ts": 5, "attr": v} for v in (3, 1, 2)], "b": [{"ts": 5, "attr": v} for v in (1, 2, 3)]}
    found = combinations(equijoin([("a", Rows(2)), ("b", 9)]), streams, rows)
    assert sorted(pair[0]["attr"] for pair in found) == [2, 3]


def test_a_sequence_orders_rows_of_one_time_before_their_columns_do():
    columns = (Column("attr", "bigint"), Column("n", "bigint"), Column("ts", "bigint"))
    streams = {"a": Stream("a", columns, "ts", 0, sequence="n"), "b": stream("b")}
    rows = {
        "a": [{"ts": 5, "attr": a, "n": n} for a, n in ((1, 2), (2, None), (3, 1))],
        "b": [{"ts": 5, "attr": v} for v in (1, 2, 3)],
    }
    found = combinations(equijoin([("a", Rows(2)), ("b", 9)]), streams, rows)
    assert sorted(pair[0]["attr"] for pair in found) == [1, 3]


def test_rows_count_also_if_their_predicate_or_key_fails():
    streams = {name: stream(name) for name in "ab"}
    positive = Expression((Ref(0, "attr"), " = 1"), Compare("=", Ref(0, "attr"), Literal(1, "bigint")), total=True)
    query = replace(equijoin([("a", Rows(2)), ("b", 9)]), predicates=(positive,))
    rows = {"a": [{"ts": t, "attr": v} for t, v in ((1, 1), (2, 1), (3, 7), (4, None))], "b": [{"ts": 3, "attr": 1}]}
    assert [pair[0]["ts"] for pair in combinations(query, streams, rows)] == [2]
    rows["b"] = [{"ts": 4, "attr": 1}]
    assert combinations(query, streams, rows) == []


def test_a_partitioned_window_counts_each_partition_alone_and_null_is_one_of_them():
    streams = {name: stream(name) for name in "ab"}
    roles = (Role("a", "a", Rows(1, ("attr",))), Role("b", "b", Window(9)))
    rows = {"a": [{"ts": t, "attr": v} for t, v in ((1, 1), (2, None), (3, None), (4, 2))], "b": [{"ts": 4, "attr": 0}]}
    found = combinations(Query("", roles, (), (), (), (), ()), streams, rows)
    assert [pair[0]["ts"] for pair in found] == [1, 3, 4]


def test_a_window_of_rows_beside_one_of_time():
    # The newest row sets the time, whichever stream it is from: a's rows after it do not count yet.
    query = equijoin([("a", Rows(1)), ("b", 3)])
    assert times(query, a=[1, 4, 9], b=[3, 7]) == [(1, 3), (4, 3), (4, 7), (9, 7)]


def test_a_window_of_rows_bounds_no_time():
    found = bounds(equijoin([("a", Rows(3)), ("b", 5), ("c", 7)]))
    assert found[0, 1] == found[0, 2] == FOREVER
    assert (found[1, 0], found[2, 0]) == (4, 6)


def test_a_tumbling_window_bounds_each_pair():
    assert set(bounds(equijoin([(name, Tumbling(10, 3)) for name in "abc"])).values()) == {9}


def by_arrival(arrivals, window):
    """Event times that join where a row, when it arrives, purges what is too old for it and meets what is left."""
    state = {name: [] for name, _ in arrivals}
    found = []
    for name, time in arrivals:
        state = {n: [t for t in ts if t > time - window] for n, ts in state.items()}
        others = [[time] if n == name else state[n] for n in sorted(state)]
        found += product(*others)
        state[name].append(time)
    return sorted(found)


@pytest.mark.parametrize("skew", [1, 5])
def test_a_stream_that_runs_windows_behind_loses_nothing(skew):
    # Each stream has one row in every 4 units of time; c arrives `skew` windows of 10 units after a and b.
    window, steps = 10, range(0, 40, 4)
    arrivals = [(t + lag, name, t) for t in steps for name, lag in (("a", 0), ("b", 0), ("c", skew * window))]
    order = [(name, t) for _, name, t in sorted(arrivals)]
    batches = {name: [[{"ts": t, "attr": 1}] if n == name else [] for n, t in order] for name in "abc"}
    streams = {name: stream(name) for name in "abc"}
    rows = {name: [r for step in admit(streams[name], batches[name]) for r in step.accepted] for name in "abc"}
    assert {name: len(accepted) for name, accepted in rows.items()} == dict.fromkeys("abc", 10)
    query = equijoin([(name, window) for name in "abc"])
    found = sorted(tuple(row["ts"] for row in c) for c in combinations(query, streams, rows))
    close = sorted(c for c in product(steps, repeat=3) if max(c) - min(c) < window)
    assert found == close
    assert len(found) == 1 + 7 + 8 * 19  # by the newest time: 1, then 2^3 - 1, then 3^3 - 2^3 each
    assert bag(results(query, streams, rows)) == bag(duckdb_results(query, streams, rows))
    assert by_arrival([(name, t) for t in steps for name in "abc"], window) == close
    assert len(by_arrival(order, window)) < len(close)


def test_null_keys_never_match():
    streams = {name: stream(name) for name in "ab"}
    rows = {"a": [{"ts": 1, "attr": None}], "b": [{"ts": 1, "attr": None}]}
    assert combinations(equijoin([("a", 9), ("b", 9)]), streams, rows) == []
    assert combinations(equijoin([("a", 9), ("a", 9)]), streams, rows) == []


def test_a_residual_must_be_true():
    later = Expression((Ref(0, "ts"), " < ", Ref(1, "ts")), Compare("<", Ref(0, "ts"), Ref(1, "ts")), total=True)
    assert times(equijoin([("a", 9), ("b", 9)], residuals=[later]), a=[4], b=[3, 4, 5]) == [(4, 5)]


def test_the_select_list_sees_every_role_and_the_result_time():
    query = equijoin([("a", 9), ("b", 9)])
    pair = ({"ts": 3, "attr": 1}, {"ts": 2, "attr": 1})
    streams = {name: stream(name) for name in "ab"}
    assert result_time(query, streams, pair) == 3
    assert project(query, streams, pair) == (3, 2, 3)


def test_a_select_item_for_spark_alone_is_refused():
    query = equijoin([("a", 9)])
    unknown = Item(None, Expression(("rint(", Ref(0, "ts"), ")"), None, total=True))
    with pytest.raises(Unspecified):
        project(Query("", query.roles, (), (), (), (), (unknown,)), {"a": stream("a")}, ({"ts": 3, "attr": 1},))


@settings(max_examples=examples(300), deadline=None)
@given(workload())
def test_the_answer_is_the_one_of_duckdb(work):
    for query in work.parsed:
        ours = results(query, work.streams, work.accepted)
        assert bag(ours) == bag(duckdb_results(query, work.streams, work.accepted)), query.sql


@settings(max_examples=examples(50), deadline=None)
@given(workload(late=True))
def test_the_answer_over_accepted_rows_is_the_one_of_duckdb_when_rows_come_late(work):
    for query in work.parsed:
        ours = results(query, work.streams, work.accepted)
        assert bag(ours) == bag(duckdb_results(query, work.streams, work.accepted)), query.sql


@settings(max_examples=examples(50), deadline=None)
@given(workload(), st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_of_rows(work, random):
    shuffled = {name: random.sample(rows, len(rows)) for name, rows in work.accepted.items()}
    for query in work.parsed:
        assert bag(results(query, work.streams, shuffled)) == bag(results(query, work.streams, work.accepted))


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.integers(1, 8), min_size=2, max_size=4),
    st.lists(st.lists(st.integers(0, 12), max_size=4), min_size=4, max_size=4),
)
def test_pairwise_windows_say_that_every_row_counts_at_the_newest_time(lengths, stamps):
    names = "abcd"[: len(lengths)]
    by_stream = dict(zip(names, stamps, strict=False))
    at_newest = [
        combination
        for combination in product(*by_stream.values())
        if all(0 <= max(combination) - t < length for t, length in zip(combination, lengths, strict=True))
    ]
    query = equijoin(list(zip(names, lengths, strict=True)))
    assert sorted(times(query, **by_stream)) == sorted(at_newest)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.integers(1, 8), min_size=2, max_size=3),
    st.lists(st.lists(st.integers(0, 12), max_size=4), min_size=3, max_size=3),
)
def test_rows_join_if_the_contents_of_the_windows_hold_them_all_at_some_moment(lengths, stamps):
    """The join as a union over windows that slide by one unit, each combination once (Li 2008, 5.2.2)."""
    names = "abc"[: len(lengths)]
    numbered = [list(enumerate(own)) for own, _ in zip(stamps, names, strict=False)]
    together = set()
    for moment in range(12 + max(lengths)):
        held = [
            [(number, t) for number, t in own if moment - length < t <= moment]
            for own, length in zip(numbered, lengths, strict=True)
        ]
        together.update(product(*held))
    query = equijoin(list(zip(names, lengths, strict=True)))
    found = times(query, **dict(zip(names, stamps, strict=False)))
    assert sorted(found) == sorted(tuple(t for _, t in combination) for combination in together)
