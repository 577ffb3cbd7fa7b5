from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Aggregate, Aggregation, Expression, Landmark, PerRow, Ref, Session, Sliding, SlidingRows
from penstock.planner.panes import (
    Costs,
    Rates,
    pane_sets,
    pane_width,
    plan_aggregates,
    window_class,
    window_costs,
)  # fmt: skip
from penstock.planner.taxonomy import nature

X = Expression((Ref(0, "x"),), Ref(0, "x"), total=True)
D = Expression((Ref(0, "d"),), Ref(0, "d"), total=True)
TYPES = {X: "bigint", D: "double"}
COUNT, SUM, MAX = Aggregate("count", None), Aggregate("sum", X), Aggregate("max", X)

LENGTHS = st.integers(1, 60)
WINDOWS = st.one_of(
    st.builds(Sliding, LENGTHS, LENGTHS, st.one_of(st.none(), st.integers(-50, 50))),
    st.builds(Landmark, LENGTHS, st.one_of(st.none(), st.integers(-50, 50))),
    st.builds(Session, LENGTHS),
)


def plans(windows, aggregates=(COUNT,), **options):
    queries = {n: Aggregation(w, (), tuple(aggregates), None) for n, w in enumerate(windows)}
    return plan_aggregates(queries, TYPES, **options)


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


@pytest.mark.parametrize(
    ("aggregate", "kind", "expected"),
    [
        (COUNT, "bigint", ("distributive", "full", True)),
        (SUM, "bigint", ("distributive", "full", True)),
        (SUM, "decimal(10,2)", ("distributive", "full", True)),
        (SUM, "double", ("distributive", "full", False)),
        (Aggregate("avg", X), "bigint", ("algebraic", "full", True)),
        (Aggregate("var_pop", X), "bigint", ("algebraic", "full", False)),
        (MAX, "bigint", ("distributive", "none", False)),
        (Aggregate("count", X, distinct=True), "bigint", ("holistic", "pseudo", False)),
        (Aggregate("max", X, distinct=True), "bigint", ("distributive", "none", False)),
        (Aggregate("heavy_hitters", X, parameters=(0.1,)), "bigint", ("holistic", "pseudo", False)),
        (Aggregate("collect_list", X), "bigint", ("holistic", "none", False)),
        (Aggregate("approx_percentile", X, parameters=(100, 0.5)), "bigint", ("algebraic", "none", False)),
    ],
)
def test_functions_have_their_place_in_the_taxonomy(aggregate, kind, expected):
    found = nature(aggregate, kind)
    assert (found.size, found.differential, found.by_differences) == expected


def test_a_user_function_is_differential_only_if_it_can_subtract():
    mine = Aggregate("mine", X)
    assert not nature(mine, "bigint").by_differences
    assert nature(mine, "bigint", {"mine"}).by_differences


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


def test_panes_are_declined_where_a_window_is_one_pane_or_groups_are_as_many_as_rows():
    (plan,) = plans([Sliding(10, 10)], rates=Rates(100, 5))
    assert plan.choices[0].plan == "wid"
    (plan,) = plans([Sliding(60, 1)], [COUNT, MAX], rates=Rates(100, 5))
    assert (plan.choices[0].plan, plan.width) == ("paned", 1)
    (plan,) = plans([Sliding(60, 1)], rates=Rates(100, 5))
    assert (plan.choices[0].plan, plan.width) == ("differential", 1)
    (plan,) = plans([Sliding(2, 1)], [COUNT, MAX], rates=Rates(2, 1000))
    assert (plan.choices[0].plan, plan.width) == ("buffered", None)
    assert "as many groups as rows" in plan.choices[0].reason


def test_queries_with_equal_groups_share_panes_and_pieces():
    (plan,) = plans([Sliding(60, 12), Sliding(90, 30), Landmark(18)], [COUNT, SUM, Aggregate("avg", X)])
    assert plan.width == 6
    assert [(p.kind, p.argument) for p in plan.pieces] == [("count", -1), ("count", 0), ("sum", 0)]
    assert plan.queries[0].measures == ((0,), (1, 2), (1, 2))


def test_what_needs_single_rows_has_a_plan_of_its_own():
    found = plans([Sliding(60, 12), PerRow(5), SlidingRows(10, 2)])
    assert [(p.buffered, [q.query for q in p.queries]) for p in found] == [(False, [0]), (True, [1, 2])]
    assert found[1].ranked
    (lists,) = plans([Sliding(60, 12)], [Aggregate("collect_list", X)])
    assert lists.buffered
    assert lists.ordered


def test_panes_that_fit_all_are_not_shared_where_they_are_too_narrow():
    windows = {0: Sliding(60_000, 1_000), 1: Sliding(60_000, 2_000), 2: Sliding(7_001, 7_001)}
    assert pane_sets(windows, Rates(5, 100)) == [(2,), (0, 1)]
    assert pane_sets(windows) == [(0, 1, 2)]
    found = plan_aggregates(
        {n: Aggregation(w, (), (COUNT,), None) for n, w in windows.items()}, TYPES, rates=Rates(5, 100)
    )
    assert [p.width for p in found] == [7_001, 1_000]


def test_a_plan_can_be_asked_for_by_name():
    assert [p.width for p in plans([Sliding(60, 12), Sliding(90, 30)], wanted="wid")] == [12, 30]
    assert plans([Sliding(60, 12)], wanted="buffered")[0].buffered
    with pytest.raises(ValueError, match="not differential"):
        plans([Sliding(60, 12)], [MAX], wanted="differential")
    with pytest.raises(ValueError, match="not differential"):
        plans([Sliding(60, 12)], [Aggregate("sum", D)], wanted="differential")
    with pytest.raises(ValueError, match="need single rows"):
        plans([PerRow(5)], wanted="paned")


def test_a_plan_says_how_and_why():
    (plan,) = plans([Sliding(60_000_000, 12_000_000), Session(5_000_000)], [COUNT, MAX])
    assert plan.explain() == [
        "panes of 4 seconds: count of rows, count of argument 0, greatest of argument 0, span of rows",
        "query 0: paned (CF; panes merged with two stacks)",
        "query 1: paned (FCA; panes merged with two stacks)",
    ]
