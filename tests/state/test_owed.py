"""What is owed: entries as sets of single probes, and what they keep from expiring."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.time import NEVER
from penstock.planner.reached import Closing
from penstock.state.owed import Owed, before, numbers_in, of_joins, oldest_step, ranges_of, with_more, without_paid

BUCKETS, STEPS = 6, 8
STARTS = (("j", 0), ("j", 1))


def singles(owed):
    """Each probe as (table, starts, queries left out, bucket, step)."""
    return [
        (own.table, own.starts, own.without, bucket, step)
        for own in owed
        for bucket in numbers_in(own.buckets)
        for step in range(own.first, own.last + 1)
    ]


@st.composite
def some(draw):
    first = draw(st.integers(0, STEPS))
    buckets = draw(st.frozensets(st.integers(0, BUCKETS - 1), min_size=1))
    return Owed(
        draw(st.sampled_from("ab")), STARTS[: draw(st.integers(1, 2))], ranges_of(buckets), first,
        draw(st.integers(first, STEPS)), without=draw(st.sampled_from(((), (1,)))),
    )  # fmt: skip


@given(st.frozensets(st.integers(0, 20)))
def test_ranges_have_exactly_their_numbers_and_never_touch(numbers):
    ranges = ranges_of(numbers)
    assert numbers_in(ranges) == numbers
    assert all(one[1] < other[0] for one, other in pairwise(ranges))


@given(st.lists(some()), st.lists(some()))
def test_paid_probes_are_no_longer_owed_and_no_others(owed, paid):
    assert sorted(singles(without_paid(owed, paid))) == sorted(
        probe for probe in singles(owed) if probe not in singles(paid)
    )


@given(st.lists(some(), max_size=3))
def test_parts_of_one_entry_are_paid_by_parts_of_it_with_all_its_starts(parts):
    whole = Owed("a", STARTS, ((0, BUCKETS),), 0, STEPS)
    paid = [Owed(whole.table, whole.starts, p.buckets, p.first, p.last) for p in parts]
    left = without_paid([whole], paid)
    assert sorted(singles(left)) == sorted(set(singles([whole])) - set(singles(paid)))  # each once
    assert without_paid(left, left) == ()


def test_what_the_next_step_puts_off_alike_continues_an_entry():
    one = Owed("a", STARTS, ((0, 3),), 4, 4, since=1.0, held=(("a", 7),))
    next_one = Owed("a", STARTS, ((0, 3),), 5, 5, since=2.0, held=(("a", 9),))
    (both,) = with_more([one], [next_one])
    assert (both.first, both.last, both.since, both.held) == (4, 5, 1.0, (("a", 7),))
    for other in (
        Owed("a", STARTS, ((0, 2),), 5, 5),
        Owed("b", STARTS, ((0, 3),), 5, 5),
        Owed("a", STARTS, ((0, 3),), 6, 6),
        Owed("a", STARTS, ((0, 3),), 5, 5, without=(1,)),
    ):
        assert with_more([one], [other]) == (one, other)


def test_progress_is_as_before_the_oldest_step_and_that_of_windows_that_count_rows_is_not_held():
    owed = [Owed("a", STARTS, ((0, 1),), 4, 6, held=(("a", 7),)), Owed("a", STARTS, ((1, 2),), 2, 2, held=(("a", 5),))]
    reached = {"a": 9, "b": 3, Closing("a"): 8}
    assert before(reached, ()) == reached
    assert before(reached, owed) == {"a": 5, "b": NEVER, Closing("a"): 8}
    assert before({"a": 4}, owed) == {"a": 4}
    assert oldest_step(owed) == 2
    assert oldest_step(()) is None
    assert of_joins(owed, {"j"}) == owed
    assert of_joins(owed, {"k"}) == []
