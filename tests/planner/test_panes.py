from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Landmark, PerRow, Session, Sliding, SlidingRows
from penstock.planner.panes import Costs, Rates, pane_sets, pane_width, window_class, window_costs

LENGTHS = st.integers(1, 60)
WINDOWS = st.one_of(
    st.builds(Sliding, LENGTHS, LENGTHS, st.one_of(st.none(), st.integers(-50, 50))),
    st.builds(Landmark, LENGTHS, st.one_of(st.none(), st.integers(-50, 50))),
    st.builds(Session, LENGTHS),
)


@given(st.lists(WINDOWS, min_size=1, max_size=5), st.integers(-3, 3))
def test_every_window_is_made_of_whole_panes(windows, n):
    width, base = pane_width(windows)
    for window in windows:
        match window:
            case Sliding(length, slide):
                end = window.start + (n + 1) * slide
                assert (end - base) % width == 0
                assert (end - length - base) % width == 0
            case Landmark(slide):
                assert (window.start + (n + 1) * slide - base) % width == 0
            case Session(gap):
                assert width <= gap


@given(st.lists(st.builds(Sliding, LENGTHS, LENGTHS), min_size=1, max_size=5))
def test_panes_are_no_narrower_than_they_must_be(windows):
    assert pane_width(windows) == (gcd(*(v for w in windows for v in (w.range, w.slide))), 0)


def test_panes_of_the_example_of_ranges_that_slides_do_not_divide():
    assert pane_width([Sliding(9, 6)]) == (3, 0)


def test_a_gap_narrows_panes_to_a_part_of_them():
    assert pane_width([Sliding(60, 60), Session(45)]) == (30, 0)
    assert pane_width([Session(45), Session(20)]) == (20, 0)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Sliding(4, 2), "CF"), (Landmark(3), "CF"), (None, "CF"), (SlidingRows(10, 2), "FCF"), (PerRow(5), "FCA"),
        (Session(3), "FCA"),
    ],
)  # fmt: skip
def test_windows_are_classified_by_what_a_row_must_know(window, expected):
    assert window_class(window) == expected


def test_costs_are_those_of_the_equations_with_several_panes_in_a_slide():
    # 60 long, slide 12, panes of 12: 5 panes; 10 rows a unit and 7 groups.
    found = window_costs(Sliding(60, 12), 12, Rates(10, 7), Costs(2, 3, 5, 11))
    assert found == {
        "paned": 2 * 120 + 3 * 7 + 5 * 5 * 7,
        "differential": 2 * 120 + 3 * 7 + 2 * 5 * 7 * 1,
        "wid": 11 * 600,
        "buffered": 2 * 11 * 120,
    }
    # 60 long, slide 24, panes of 12: two panes in a slide.
    found = window_costs(Sliding(60, 24), 12, Rates(10, 7), Costs(2, 3, 5, 11))
    assert found["paned"] == 2 * (2 * 120 + 3 * 7) + 5 * 5 * 7
    assert found["differential"] == 2 * (2 * 120 + 3 * 7) + 2 * 5 * 7 * 2


def test_panes_that_fit_all_are_not_shared_where_they_are_too_narrow():
    windows = {0: Sliding(60_000, 1_000), 1: Sliding(60_000, 2_000), 2: Sliding(7_001, 7_001)}
    assert pane_sets(windows, Rates(5, 100)) == [(0, 1), (2,)]
    assert pane_sets(windows) == [(0, 1, 2)]


def test_hundreds_of_queries_are_put_into_sets():
    windows = {n: Sliding(60_000 * (n % 7 + 1), 1_000 * (n % 50 + 1)) for n in range(300)}
    found = pane_sets(windows, Rates(5, 100))
    assert sorted(n for members in found for n in members) == sorted(windows)
