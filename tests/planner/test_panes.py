from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Landmark, PerRow, Session, Sliding, SlidingRows
from penstock.planner.panes import Costs, Rates, _divisor, cost_of, pane_sets, pane_width, window_class, window_costs

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


@given(st.integers(1, 500), st.integers(1, 500))
def test_panes_within_a_gap_are_as_wide_as_they_can_be(length, gap):
    width, _ = pane_width([Sliding(length, length), Session(gap)])
    assert width == max(d for d in range(1, min(length, gap) + 1) if length % d == 0)


@pytest.mark.parametrize(
    ("length", "gap", "width"),
    [
        (1_000_000_007, 100, 1),  # a prime has no divisor to be found by counting up
        (2 * 1_000_000_007, 1_000_000_000, 2),
        (1_000_003 * 1_000_033, 500_000, 1),
        (3_600_000_000, 420_000_000, 400_000_000),
    ],
)
def test_panes_of_lengths_with_few_divisors_are_found_at_once(length, gap, width):
    tried = []

    class Counted(int):
        def __mod__(self, other):
            tried.append(other)
            return int.__mod__(self, other)

    assert pane_width([Sliding(length, length), Session(gap)])[0] == width
    assert _divisor(Counted(length), gap) == width
    assert len(tried) <= 20_000


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
    assert [own.queries for own in pane_sets(windows, Rates(5, 100))] == [(0, 1), (2,)]
    assert [own.queries for own in pane_sets(windows)] == [(0, 1, 2)]


def test_hundreds_of_queries_are_put_into_sets():
    windows = {n: Sliding(60_000 * (n % 7 + 1), 1_000 * (n % 50 + 1)) for n in range(300)}
    found = pane_sets(windows, Rates(5, 100))
    assert sorted(n for own in found for n in own.queries) == sorted(windows)


@given(
    st.lists(st.builds(Sliding, st.integers(1, 200), st.integers(1, 50)), min_size=1, max_size=5),
    st.floats(0.01, 100),
    st.floats(1, 1000),
    st.floats(0, 100),
)
def test_the_sets_chosen_cost_no_more_than_any_plan_by_hand(windows, rows, groups, step):
    asked, rates = dict(enumerate(windows)), Rates(rows, groups, step=step)
    chosen = cost_of(pane_sets(asked, rates), asked, rates)
    for plan in ("paned", "buffered"):
        assert chosen <= cost_of(pane_sets(asked, rates, wanted=plan), asked, rates) * (1 + 1e-9)


def test_rows_are_kept_where_each_is_a_group_of_its_own_and_panes_where_few_groups_have_many():
    (own,) = pane_sets({0: Sliding(60, 20)}, Rates(5, 100, 20, 100, 500))
    assert own.kept == "rows"
    (own,) = pane_sets({0: Sliding(60, 20)}, Rates(5, 3, 20, 100, 3))
    assert own.kept == "partials"
    # What a landmark needs is one total, however long ago it began.
    (own,) = pane_sets({0: Landmark(20)}, Rates(5, 100, 20, 100, 500))
    assert own.kept == "partials"


@given(st.floats(0.1, 1000), st.integers(1, 1000), st.integers(1, 100), st.integers(1, 100))
def test_partials_of_a_pane_are_as_counted_and_grow_with_its_width(rows, groups, width, longer):
    counted = min(float(groups), rows * width)
    rates = Rates(rows, counted, width, width * longer, min(rows * width * longer, counted * longer))
    assert rates.held(width) == pytest.approx(counted, rel=1e-3)
    found = [rates.held(w) for w in (width / 2, width, width * 2, width * longer, 2 * width * longer)]
    assert all(
        f <= rows * w * (1 + 1e-9)
        for f, w in zip(found, (width / 2, width, width * 2, width * longer, 2 * width * longer), strict=True)
    )
    assert found[0] <= found[1] * (1 + 1e-9)
    assert found[3] <= found[4] * (1 + 1e-9)
