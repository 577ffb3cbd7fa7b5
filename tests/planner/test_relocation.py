"""Relocation of state without a key (Wang 2008, 14.2, with the errata)."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.relocation import handed_on, inserted_after, relocated


@pytest.mark.parametrize(
    ("count", "more", "handed", "after"),
    [
        (3, 1, ["1/3", "2/3", "0"], (3,)),
        (4, 2, ["1/2", "0", "1/2", "0"], (2, 4)),
        (5, 3, ["3/5", "1/5", "4/5", "2/5", "0"], (2, 4, 5)),
    ],
)
def test_the_amounts_and_places_are_those_of_the_literature(count, more, handed, after):
    assert handed_on(count, more) == tuple(map(Fraction, handed))
    assert inserted_after(count, more) == after


@given(st.integers(1, 30), st.integers(0, 30))
def test_every_segment_hands_on_what_is_too_much_and_all_are_equal_then(count, more):
    """A walk from the first to the last: each keeps one new length of what it has and gets, the rest goes on."""
    old, new = Fraction(count + more, count), [0] * count  # old lengths in new ones; new segments after each old one
    for place in inserted_after(count, more):
        new[place - 1] += 1
    handed, carried = handed_on(count, more), Fraction(0)
    for number in range(count):
        left = carried + old
        kept = 1 + new[number]
        carried = left - kept
        assert carried == handed[number]
        assert 0 <= carried < 1
    assert carried == 0
    assert sum(new) == more


def test_fewer_segments_are_more_of_them_backwards():
    more, fewer = relocated("c()", 3, 4, "why"), relocated("c()", 4, 3, "why")
    assert (more.inserted, more.handed_on) == (fewer.inserted, fewer.handed_on)
    assert more.after == fewer.before == 4


@pytest.mark.parametrize(("count", "more"), [(0, 1), (-1, 1), (3, -1)])
def test_no_segment_and_fewer_than_none_are_refused(count, more):
    for rule in (handed_on, inserted_after):
        with pytest.raises(ValueError, match="at least one segment"):
            rule(count, more)
