from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Column, Punctuation, Range, Stream
from penstock.model.punctuation import part_of, punctuation_of
from penstock.model.time import FOREVER, LATEST, NEVER
from penstock.reference import admit, group_progress
from tests.punctuated import BY_COLUMN, BY_PATTERN, grammatical


def mark(value):
    return {"ts": None, "k": None, "v": None, "p": value}


def row(ts, k=1, v=0):
    return {"ts": ts, "k": k, "v": v, "p": None}


def judged(stream, *batches, elsewhere=()):
    steps = admit(stream, batches, elsewhere)
    return [([r["ts"] for r in s.accepted], [r["ts"] for r in s.late], s.progress) for s in steps]


def test_a_punctuation_moves_progress_after_its_step_and_a_row_equal_to_it_is_not_late():
    assert judged(BY_COLUMN, [mark(10), row(3)], [row(10), row(9)]) == [([3], [], 10), ([10], [9], 10)]


def test_rows_alone_do_not_move_a_stream_that_has_only_punctuations():
    assert judged(BY_COLUMN, [row(50)], [row(1)]) == [([50], [], NEVER), ([1], [], NEVER)]


def test_a_punctuation_that_falls_back_changes_nothing():
    assert [p for _, _, p in judged(BY_COLUMN, [mark(10)], [mark(4)], [mark(11), mark(2)])] == [10, 10, 11]


def test_a_malformed_punctuation_is_a_bad_row_and_moves_nothing():
    (step,) = admit(BY_COLUMN, [[mark(LATEST + 1), mark("soon"), mark(3)]])
    assert [r["p"] for r in step.bad] == [LATEST + 1, "soon"]
    assert (step.progress, [r["p"] for r in step.punctuations]) == (3, [3])


def test_progress_is_the_greatest_of_all_bounds():
    both = Stream("a", BY_COLUMN.columns, "ts", 5, punctuation="p")
    assert [p for _, _, p in judged(both, [row(20)], [mark(17)], [row(21)], [row(30)])] == [15, 17, 17, 25]


def test_a_punctuation_of_a_group_closes_that_group_only():
    said = [[Punctuation(10, (("k", 1),))], []]
    steps = admit(BY_PATTERN, [[], [row(9, 1), row(9, 2), row(10, 1)]], said)
    assert [(r["ts"], r["k"]) for r in steps[1].late] == [(9, 1)]
    assert steps[1].progress == NEVER
    assert group_progress(steps[0], {"k": 1}) == 10
    assert group_progress(steps[0], {"k": 2}) == NEVER
    assert group_progress(steps[0], {}) == NEVER


def test_a_group_without_a_bound_has_ended():
    step = admit(BY_PATTERN, [[]], [[Punctuation(None, (("k", 1),))]])[0]
    assert group_progress(step, {"k": 1, "v": 3}) == FOREVER


def test_a_null_matches_no_pattern():
    assert not Punctuation(10, (("k", 1),)).matches(5, {"k": None})
    assert not Punctuation(10, (("k", Range()),)).matches(5, {"k": None})
    assert Punctuation(10).matches(5, {"k": None})


def test_a_range_is_closed_below_and_open_above():
    found = [v for v in range(6) if Range(2, 4).holds(v)]
    assert found == [2, 3]
    assert [v for v in "abc" if Range("b").holds(v)] == ["b", "c"]
    assert [v for v in range(4) if Range(None, 2).holds(v)] == [0, 1]


def test_fields_become_constants_and_ranges_and_null_is_a_wildcard():
    found = punctuation_of(BY_PATTERN, 7, {"k": None, "v_from": 2, "v_to": None})
    assert found == Punctuation(7, (("v", Range(2, None)),))
    assert punctuation_of(BY_PATTERN, 7, {"K": 3}) == Punctuation(7, (("k", 3),))


def test_the_name_of_a_column_wins_over_an_ending():
    stream = Stream("a", (Column("ts", "bigint"), Column("v", "int"), Column("v_from", "int")), "ts", 0)
    assert part_of(stream, "v_from") == ("v_from", "is")
    assert part_of(stream, "v_to") == ("v", "to")
    assert part_of(stream, "w") is None


@given(grammatical())
def test_no_row_of_a_grammatical_stream_is_late(stream):
    for step in admit(BY_COLUMN, stream.inline()):
        assert not step.late
        assert not step.bad


@given(grammatical(groups=True))
def test_no_row_of_a_stream_with_grammatical_patterns_is_late(stream):
    assert not any(step.late for step in admit(BY_PATTERN, stream.batches, stream.said))


@given(grammatical(groups=True), st.integers(0, 3), st.integers(0, 5))
def test_progress_of_a_group_is_sound_and_never_falls(stream, k, v):
    steps = admit(BY_PATTERN, stream.batches, stream.said)
    values = {"k": k, "v": v}
    bounds = [group_progress(step, values) for step in steps]
    assert bounds == sorted(bounds)
    for number, bound in enumerate(bounds):
        assert bound >= steps[number].progress
        later = [r["ts"] for batch in stream.batches[number + 1 :] for r in batch if (r["k"], r["v"]) == (k, v)]
        assert all(ts >= bound for ts in later)


@given(st.lists(st.lists(st.integers(0, 20), max_size=4), max_size=5), st.integers(1, 4))
def test_a_delay_in_rows_is_the_newest_time_of_all_but_the_last_rows(batches, n):
    stream = Stream("a", (Column("ts", "bigint"), Column("n", "bigint")), "ts", None, sequence="n", delay_rows=n)
    number, rows, seen = 0, [], []
    for batch in batches:
        rows.append([])
        for ts in batch:
            rows[-1].append({"ts": ts, "n": number})
            number += 1
    for batch, step in zip(rows, admit(stream, [b[::-1] for b in rows]), strict=True):
        seen += [r["ts"] for r in batch]
        assert step.progress == max(seen[: max(0, len(seen) - n)], default=NEVER)


@given(st.permutations(range(8)), st.integers(1, 8), st.lists(st.integers(0, 8), max_size=4))
def test_rows_whose_inversions_are_near_enough_are_never_late(times, n, cuts):
    """Sound for the reading "n positions": an earlier row with a greater time is at most n positions away."""
    stream = Stream("a", (Column("ts", "bigint"), Column("n", "bigint")), "ts", None, sequence="n", delay_rows=n)
    reach = max((j - i for j in range(8) for i in range(j) if times[i] > times[j]), default=0)
    rows = [{"ts": ts, "n": number} for number, ts in enumerate(times)]
    edges = [0, *sorted(cuts), 8]
    steps = admit(stream, [rows[a:b] for a, b in pairwise(edges)])
    assert reach > n or not any(step.late for step in steps)


def test_a_row_without_a_place_in_the_sequence_is_bad_if_rows_are_counted():
    stream = Stream("a", (Column("ts", "bigint"), Column("n", "bigint")), "ts", None, sequence="n", delay_rows=1)
    (step,) = admit(stream, [[{"ts": 1, "n": None}, {"ts": 2, "n": 1}]])
    assert [r["ts"] for r in step.bad] == [1]
