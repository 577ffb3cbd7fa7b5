"""The meaning of window aggregates, against DuckDB and against itself under changes that must not matter."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Landmark, PerRow, Session, Sliding, SlidingRows, Stream
from penstock.model.time import FOREVER
from penstock.reference import Unspecified, aggregate_results, answers, combinations, output_progress, results
from penstock.sql import parse_query
from penstock.sql.named import query_stream, results_of
from penstock.sql.position import Text
from tests.aggregates import COLUMNS, ROWS, STREAM, STREAMS, WINDOWS, Case, cases, duckdb_answer, same_bag
from tests.effort import examples
from tests.oracle import connection

PROGRESS = st.none() | st.integers(-12, 45)


def row(t, k="a", v=1, **more):
    return {"t": t, "k": k, "g": 0, "v": v, "x": 0.0, **more}


def answer(case, rows, progress=None):
    at = None if progress is None else {"s": progress}
    return aggregate_results(case.query, STREAMS, {"s": rows}, at)


def select(text, rows, progress=None, streams=STREAMS):
    """The sorted answer of a query over rows of s, or of several streams."""
    given = rows if isinstance(rows, dict) else {"s": rows}
    at = None if progress is None else dict.fromkeys(given, progress)
    return sorted(aggregate_results(parse_query(text, streams), streams, given, at), key=repr)


# ------------------------------------------------------------------------------------------------- a second opinion


@pytest.mark.parametrize("kind", sorted(WINDOWS))
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data(), rows=ROWS, progress=PROGRESS)
def test_duckdb_agrees(kind, data, rows, progress):
    case = data.draw(cases(kind))
    assert same_bag(answer(case, rows, progress), duckdb_answer(case, rows, progress))


@settings(deadline=None, max_examples=examples(40))
@given(ROWS, st.integers(1, 12), st.sampled_from(["count(*)", "sum(v)", "max(v)"]), st.booleans())
def test_a_window_for_each_row_is_a_frame_of_sql(rows, length, call, partitioned):
    case = Case(PerRow(length, 1, ("k",) if partitioned else ()), (), (call,))
    duckdb_answer(case, rows)  # puts the rows into DuckDB
    by = "PARTITION BY k" if partitioned else ""
    frame = f"OVER ({by} ORDER BY t RANGE BETWEEN {length - 1} PRECEDING AND CURRENT ROW)"
    found = connection().execute(f"SELECT t - {length}, t, {call} {frame} FROM s").fetchall()
    assert same_bag(answer(case, rows), found)


@settings(deadline=None, max_examples=examples(40))
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1), st.integers(0, 3)), max_size=6),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1), st.integers(0, 3)), max_size=6),
    st.integers(1, 8), st.integers(1, 8), st.integers(1, 6), st.none() | st.integers(0, 20),
)  # fmt: skip
def test_a_join_under_an_aggregate_takes_what_the_windows_hold_at_each_tick(left, right, one, other, slide, progress):
    streams = {name: Stream(name, (COLUMNS[0], COLUMNS[2], COLUMNS[3]), "t", 0) for name in ("l", "r")}
    rows = {
        name: [dict(zip("tgv", values, strict=True)) for values in some] for name, some in (("l", left), ("r", right))
    }
    text = (
        f"SELECT window_start, window_end, l.g, count(*), sum(l.v) "
        f"FROM l [RANGE {one} SLIDE {slide}], r [RANGE {other} SLIDE {slide}]"
        " WHERE l.g = r.g AND l.v <= r.v GROUP BY l.g"
    )
    reached = 10**6 if progress is None else progress
    tables = {
        name: f"(SELECT unnest({[list(v) for v in some] or '[]::INT[][]'}) AS c)"
        for name, some in (("l", left), ("r", right))
    }
    end = f"(n + 1) * {slide}"
    found = connection().execute(
        f"SELECT {end} - {max(one, other)}, {end}, l.c[2], count(*), sum(l.c[3]) FROM {tables['l']} l, {tables['r']} r,"
        f" range(-5, 60) i(n) WHERE l.c[2] = r.c[2] AND l.c[3] <= r.c[3] AND {end} <= {reached}"
        f" AND l.c[1] >= {end} - {one} AND l.c[1] < {end} AND r.c[1] >= {end} - {other} AND r.c[1] < {end}"
        " GROUP BY n, l.c[2]"
    )  # fmt: skip
    at = None if progress is None else dict.fromkeys(streams, progress)
    assert same_bag(aggregate_results(parse_query(text, streams), streams, rows, at), found.fetchall())


# ------------------------------------------------------------------------------------------ what must change nothing


@settings(deadline=None, max_examples=examples(60))
@given(cases(), ROWS, st.randoms(use_true_random=False))
def test_arrival_does_not_matter(case, rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert same_bag(answer(case, rows), answer(case, shuffled))


@settings(deadline=None, max_examples=examples(60))
@given(cases(), ROWS, st.integers(-12, 45), st.integers(0, 20))
def test_answers_come_once_and_stay(case, rows, progress, more):
    """What progress has closed is not changed by more of it, and the end of input brings the rest."""
    query = case.query
    first = answers(query, STREAMS, {"s": rows}, {"s": progress})
    second = answers(query, STREAMS, {"s": rows}, {"s": progress + more})
    keys = [(a.window, repr(a.group)) for a in second]
    assert len(keys) == len(set(keys))
    assert all(a in second for a in first)
    if not isinstance(case.window, Landmark):  # it goes on for as long as progress does
        ended = answers(query, STREAMS, {"s": rows})
        assert all(a in ended for a in second)


@settings(deadline=None, max_examples=examples(60))
@given(cases(), ROWS, st.integers(-12, 45))
def test_rows_that_are_not_late_do_not_change_what_is_closed(case, rows, progress):
    """Progress v says that no row below v is still to come; one at v is not late."""
    early = [r for r in rows if r["t"] < progress]
    at = {"s": progress}
    assert same_bag(
        aggregate_results(case.query, STREAMS, {"s": early}, at),
        aggregate_results(case.query, STREAMS, {"s": rows}, at),
    )


@settings(deadline=None, max_examples=examples(60))
@given(cases("sliding", "landmark", "per_row", "session"), ROWS, st.integers(-12, 45))
def test_no_later_answer_is_older_than_output_progress_says(case, rows, progress):
    query = case.query
    reached = output_progress(query, STREAMS, {"s": progress})
    closed = answers(query, STREAMS, {"s": rows}, {"s": progress})
    assert all(a.end < reached for a in closed)
    assert all(a.end >= reached for a in answers(query, STREAMS, {"s": rows}) if a not in closed)


@settings(deadline=None, max_examples=examples(60))
@given(cases("sliding", "landmark", "per_row", "session"), ROWS, st.integers(-9, 9), st.integers(1, 4))
def test_answers_shift_and_scale_with_time(case, rows, shift, factor):
    lengths = {"range", "slide", "gap"}
    scaled = {name: value * factor for name, value in vars(case.window).items() if name in lengths}
    if isinstance(case.window, Sliding | Landmark):
        case = replace(
            case,
            window=replace(case.window, origin=case.window.start if case.window.origin is None else case.window.origin),
        )
        scaled["origin"] = (case.window.origin + shift) * factor
    moved = replace(case, window=replace(case.window, **scaled))
    one = answer(case, rows)
    other = answer(moved, [{**r, "t": (r["t"] + shift) * factor} for r in rows])
    assert same_bag(
        [((a + shift) * factor if a is not None else None, (b + shift) * factor, *rest) for a, b, *rest in one], other
    )


@settings(deadline=None, max_examples=examples(40))
@given(ROWS, WINDOWS["sliding"] | WINDOWS["landmark"])
def test_fine_groups_roll_up_to_coarse_ones(rows, window):
    calls = ("count(*)", "sum(v)", "min(v)", "max(v)")
    fine = answer(Case(window, ("k", "g"), calls), rows)
    rolled = {}
    for a, b, k, _, *values in fine:
        rolled.setdefault((a, b, k), []).append(values)

    def merged(values, function):
        present = [v for v in values if v is not None]
        return function(present) if present else None

    wanted = [
        (*key, sum(v[0] for v in same), *(merged([v[i] for v in same], f) for i, f in ((1, sum), (2, min), (3, max))))
        for key, same in rolled.items()
    ]
    assert same_bag(answer(Case(window, ("k",), calls), rows), wanted)


@settings(deadline=None, max_examples=examples(30))
@given(ROWS, st.integers(1, 12), st.integers(1, 6))
def test_tumbling_is_sliding_by_the_range(rows, length, parts):
    sliding = answer(Case(Sliding(length, length), ("k",), ("count(*)",)), rows)
    tumbling = select(f"SELECT window_start, window_end, k, count(*) FROM s [TUMBLING {length}] GROUP BY k", rows)
    assert same_bag(sliding, tumbling)
    windows = answer(Case(Sliding(length * parts, length), (), ("count(*)",)), rows)
    assert sum(count for *_, count in windows) == parts * len(rows)


@settings(deadline=None, max_examples=examples(40))
@given(cases("sliding", "landmark", "session"), ROWS, st.data())
def test_a_stream_in_parts_is_the_stream(case, rows, data):
    streams = {**STREAMS, "other": replace(STREAM, name="other")}
    owners = [data.draw(st.sampled_from(("s", "other"))) for _ in rows]
    parts = {name: [r for r, owner in zip(rows, owners, strict=True) if owner == name] for name in streams}
    query = parse_query(case.sql.replace("FROM s ", "FROM (s UNION ALL other) "), streams)
    assert same_bag(answer(case, rows), aggregate_results(query, streams, parts))


# ------------------------------------------------------------------------------------------------------------- edges


def test_an_empty_window_gives_no_row_with_or_without_groups():
    rows = [row(0), row(9)]
    assert select("SELECT window_end, count(*) FROM s [RANGE 2 SLIDE 2]", rows) == [(10, 1), (2, 1)]
    assert select("SELECT window_end, count(*) FROM s [RANGE 2 SLIDE 2] WHERE v > 5", rows) == []
    assert select("SELECT count(*) FROM s [RANGE 2 SLIDE 2]", []) == []


def test_the_slide_need_not_divide_the_range():
    assert select("SELECT window_start, window_end, count(*) FROM s [RANGE 5 SLIDE 3]", [row(4)]) == [
        (1, 6, 1),
        (4, 9, 1),
    ]


def test_a_row_in_a_gap_is_in_no_window():
    text = "SELECT window_start, window_end, count(*) FROM s [RANGE 2 SLIDE 5]"
    assert select(text, [row(t) for t in range(10)]) == [(3, 5, 2), (8, 10, 2)]


def test_the_first_windows_after_an_origin_are_partial_and_rows_before_it_are_nowhere():
    text = "SELECT window_start, window_end, count(*) FROM s [RANGE 3 SLIDE 1 ORIGIN 10]"
    assert select(text, [row(9), row(10)]) == [(10, 11, 1), (10, 12, 1), (10, 13, 1)]


def test_without_an_origin_windows_before_1970_are_like_any_other():
    assert select("SELECT window_start, window_end, count(*) FROM s [RANGE 3 SLIDE 2]", [row(-1)]) == [
        (-1, 2, 1),
        (-3, 0, 1),
    ]


def test_progress_that_jumps_closes_every_window_it_passes_and_one_that_it_meets():
    text = "SELECT window_end, count(*) FROM s [RANGE 4 SLIDE 2]"
    rows = [row(0), row(7)]
    assert select(text, rows, progress=1) == []
    assert select(text, rows, progress=2) == [(2, 1)]
    assert select(text, rows, progress=9) == [(2, 1), (4, 1), (8, 1)]
    assert select(text, rows) == [(10, 1), (2, 1), (4, 1), (8, 1)]


def test_a_landmark_ends_with_the_first_window_that_has_the_last_row():
    text = "SELECT window_start, window_end, k, count(*) FROM s [RANGE ALL SLIDE 5] GROUP BY k"
    rows = [row(1), row(12, "b")]
    assert select(text, rows) == [(None, 10, "a", 1), (None, 15, "a", 1), (None, 15, "b", 1), (None, 5, "a", 1)]
    assert select(text, rows, progress=21)[-3:] == [(None, 20, "a", 1), (None, 20, "b", 1), (None, 5, "a", 1)]


def test_a_session_goes_on_below_the_gap_and_ends_at_it():
    text = "SELECT window_start, window_end, k, count(*) FROM s [SESSION 5] GROUP BY k"
    rows = [row(0), row(4), row(9), row(2, "b")]
    assert select(text, rows) == [(0, 9, "a", 2), (2, 7, "b", 1), (9, 14, "a", 1)]
    assert select(text, rows, progress=9) == [(0, 9, "a", 2), (2, 7, "b", 1)]
    assert select(text, rows, progress=8) == [(2, 7, "b", 1)]


@pytest.mark.parametrize(
    ("window", "progress", "wanted"),
    [
        (Session(5), 7, 8), (PerRow(5), 7, 7), (Sliding(5, 3), 8, 9), (Sliding(5, 3), 9, 12), (Landmark(3, 1), 3, 4),
        (Landmark(3, 1), 4, 7), (Sliding(5, 3), FOREVER, FOREVER),
    ],
)  # fmt: skip
def test_output_progress_is_the_end_of_the_first_window_that_may_be_open(window, progress, wanted):
    query = Case(window, (), ("count(*)",)).query
    assert output_progress(query, STREAMS, {"s": progress}) == wanted


def test_an_open_session_ends_no_earlier_than_output_progress_says():
    query = Case(Session(5), (), ("count(*)",)).query
    assert answers(query, STREAMS, {"s": [row(3)]}, {"s": 7}) == []
    assert [a.end for a in answers(query, STREAMS, {"s": [row(3)]})] == [output_progress(query, STREAMS, {"s": 7})]


def test_rows_of_a_partition_are_not_rows_of_a_group():
    rows = [row(1, "a", 5), row(2, "b", 1), row(3, "b", 2), row(4, "a", 3)]
    by_group = "SELECT k, max(v), count(*) FROM s [RANGE 2 ROWS SLIDE 2 ROWS] GROUP BY k"
    by_partition = "SELECT k, max(v), count(*) FROM s [RANGE 2 ROWS SLIDE 2 ROWS PARTITION BY k]"
    assert select(by_group, rows) == [("a", 3, 1), ("a", 5, 1), ("b", 1, 1), ("b", 2, 1)]
    assert select(by_partition, rows) == [("a", 5, 2), ("b", 2, 2)]


def test_a_window_of_rows_closes_when_its_last_rank_is_final():
    text = "SELECT window_start, window_end, count(*) FROM s [RANGE 3 ROWS SLIDE 2 ROWS]"
    rows = [row(1), row(2), row(5), row(5), row(9)]
    assert select(text, rows, progress=2) == []
    assert select(text, rows, progress=5) == [(1, 2, 2)]
    assert select(text, rows, progress=6) == [(1, 2, 2), (2, 5, 3)]
    assert select(text, rows) == [(1, 2, 2), (2, 5, 3), (5, 9, 2)]


def test_at_the_end_windows_of_rows_go_on_to_the_first_that_ends_at_or_after_the_last_row():
    rows = [row(time) for time in range(5)]
    each = "SELECT window_start, window_end, count(*) FROM s [RANGE 4 ROWS SLIDE 1 ROW]"
    assert select(each, rows) == [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 4), (1, 4, 4)]
    some = "SELECT window_start, window_end, count(*) FROM s [RANGE 8 ROWS SLIDE 2 ROWS]"
    assert select(some, rows[:4]) == [(0, 1, 2), (0, 3, 4)]  # the last one ends with the last row
    assert select(some, rows) == [(0, 1, 2), (0, 3, 4), (0, 4, 5)]  # .. or is the first that would end after it
    gaps = "SELECT window_start, window_end, count(*) FROM s [RANGE 1 ROW SLIDE 4 ROWS]"
    assert select(gaps, rows) == [(3, 3, 1)]  # .. if it holds a row
    apart = "SELECT k, count(*) FROM s [RANGE 3 ROWS SLIDE 1 ROW PARTITION BY k]"
    assert select(apart, [*rows, row(1, "b")]) == [("a", 1), ("a", 2), ("a", 3), ("a", 3), ("a", 3), ("b", 1)]


def test_windows_count_rows_whatever_the_predicate_says_of_them():
    rows = [row(1, v=1), row(2, v=9), row(3, v=9)]
    assert select("SELECT window_end, count(*) FROM s [RANGE 2 ROWS SLIDE 1 ROW] WHERE v = 1", rows) == [(1, 1), (2, 1)]
    assert select("SELECT window_end, count(*) FROM s [RANGE 2 SLIDE 1 ROW] WHERE v = 1", rows) == [(1, 1), (2, 1)]


def test_a_window_for_each_row_holds_rows_of_its_own_time_and_none_a_range_before():
    rows = [row(1), row(5), row(6), row(6)]
    text = "SELECT window_start, window_end, count(*) FROM s [RANGE 5 SLIDE 1 ROW]"
    assert select(text, rows) == [(-4, 1, 1), (0, 5, 2), (1, 6, 3), (1, 6, 3)]
    assert select(text, rows, progress=6) == [(-4, 1, 1), (0, 5, 2)]
    every_third = "SELECT window_end, count(*) FROM s [RANGE 5 SLIDE 3 ROWS]"
    assert select(every_third, rows) == [(6, 3)]


def test_groups_never_change_windows():
    rows = [row(1, "a"), row(2, "b")]
    text = "SELECT window_end, k, count(*) FROM s [RANGE 5 SLIDE 1 ROW] GROUP BY k"
    assert select(text, rows) == [(1, "a", 1), (2, "a", 1), (2, "b", 1)]


def test_nulls_and_zeros_and_nans_are_groups():
    rows = [row(0, x=value) for value in (0.0, -0.0, float("nan"), -float("nan"), None, None)]
    found = select("SELECT x, count(*) FROM s [RANGE 5 SLIDE 5] GROUP BY x", rows)
    assert Counter(repr(r) for r in found) == Counter(["(0.0, 2)", "(nan, 2)", "(None, 2)"])


def test_having_that_is_not_true_lets_nothing_pass():
    rows = [row(0, "a", None), row(0, "b", 3)]
    assert select("SELECT k FROM s [RANGE 5 SLIDE 5] GROUP BY k HAVING max(v) > 1", rows) == [("b",)]


def test_groups_of_event_times_close_by_themselves():
    text = "SELECT k, t, count(*) FROM s GROUP BY k, t"
    rows = [row(1), row(1), row(2), row(2, "b")]
    assert select(text, rows) == [("a", 1, 2), ("a", 2, 1), ("b", 2, 1)]
    assert select(text, rows, progress=2) == [("a", 1, 2)]
    assert select("SELECT DISTINCT k, t FROM s", rows, progress=3) == [("a", 1), ("a", 2), ("b", 2)]


def test_the_result_time_of_a_group_of_one_event_time_is_that_time():
    rows = [row(1), row(1), row(2, "b", 3), row(2, "b", 3)]
    assert select("SELECT t, count(*), result_time FROM s GROUP BY t", rows) == [(1, 2, 1), (2, 2, 2)]
    assert select("SELECT DISTINCT v, t, result_time FROM s WHERE v = 3", rows) == [(3, 2, 2)]
    text = "SELECT t, k, result_time FROM s GROUP BY t, k ORDER BY count(*) DESC LIMIT 1"
    assert select(text, [*rows, row(1, "b")]) == [(1, "a", 1), (2, "b", 2)]


def test_pairs_of_event_times_close_when_both_have_passed():
    streams = {name: replace(STREAM, name=name) for name in ("p", "q")}
    text = "SELECT p.t, q.t, count(*) FROM p [RANGE 3], q [RANGE 3] WHERE p.k = q.k GROUP BY p.t, q.t"
    rows = {"p": [row(1), row(1)], "q": [row(2), row(4)]}
    assert select(text, rows, streams=streams) == [(1, 2, 2)]
    assert select(text, rows, progress=2, streams=streams) == []
    assert select(text, rows, progress=3, streams=streams) == [(1, 2, 2)]


@settings(deadline=None, max_examples=examples(30))
@given(ROWS, ROWS, st.integers(1, 6), st.integers(1, 8), st.integers(1, 8))
def test_an_aggregate_over_a_query_has_windows_over_its_results(left, right, join, length, slide):
    streams = {name: replace(STREAM, name=name) for name in ("p", "q")}
    below = parse_query(
        f"SELECT p.t AS p_t, q.v, result_time FROM p [RANGE {join}], q [RANGE {join}] WHERE p.k = q.k", streams
    )
    found = [
        dict(zip(("p_t", "v", "result_time"), r, strict=True)) for r in results(below, streams, {"p": left, "q": right})
    ]
    for column in ("p_t", "result_time"):
        text = f"SELECT window_end, count(*), sum(v) FROM pairs [RANGE {length} SLIDE {slide} ON {column}]"
        query = parse_query(text, streams, queries={"pairs": below})
        derived = query_stream(Text(text), 0, "pairs", results_of(below, streams), column)
        ends = {}
        for r in found:
            for end in range(-100, 200):
                if end % slide == 0 and end - length <= r[column] < end:
                    ends.setdefault(end, []).append(r["v"])
        wanted = [
            (end, len(values), sum(v for v in values if v is not None) if any(v is not None for v in values) else None)
            for end, values in ends.items()
        ]
        assert same_bag(aggregate_results(query, {"pairs": derived}, {"pairs": found}), wanted)


def test_a_union_in_a_join_is_one_stream():
    streams = {name: replace(STREAM, name=name) for name in ("p", "q", "r")}
    query = parse_query("SELECT u.t, r.t FROM (p UNION ALL q) u [RANGE 3], r [RANGE 3] WHERE u.k = r.k", streams)
    rows = {"p": [row(1)], "q": [row(2), row(9)], "r": [row(3)]}
    assert sorted(results(query, streams, rows)) == [(1, 3), (2, 3)]
    assert output_progress(query, streams, {"p": 7, "q": 5, "r": 6}) == 5
    with pytest.raises(Unspecified):
        combinations(query, streams, rows)


def test_a_query_without_aggregates_has_another_answer():
    with pytest.raises(Unspecified):
        answers(parse_query("SELECT v FROM s", STREAMS), STREAMS, {"s": []})


def test_the_end_of_input_is_progress_without_end():
    case = Case(SlidingRows(3, 2), (), ("count(*)",))
    rows = [row(t) for t in range(5)]
    assert same_bag(answer(case, rows), answer(case, rows, FOREVER))
    assert answer(Case(Session(2), (), ("count(*)",)), rows, FOREVER) == [(0, 6, 5)]
