import pytest

from penstock.model import Aggregate, Aggregation, Expression, Landmark, PerRow, Ref, Session, Sliding, SlidingRows
from penstock.planner.aggregates import plan_aggregates
from penstock.planner.panes import Rates

X = Expression((Ref(0, "x"),), Ref(0, "x"), total=True)
D = Expression((Ref(0, "d"),), Ref(0, "d"), total=True)
TYPES = {X: "bigint", D: "double"}
COUNT, SUM, MAX = Aggregate("count", None), Aggregate("sum", X), Aggregate("max", X)


def plans(windows, aggregates=(COUNT,), **options):
    queries = {n: Aggregation(w, (), tuple(aggregates), None) for n, w in enumerate(windows)}
    return plan_aggregates(queries, TYPES, **options)


def test_panes_are_declined_where_a_window_is_one_pane_or_groups_are_as_many_as_rows():
    (plan,) = plans([Sliding(10, 10)], rates=Rates(100, 5))
    assert plan.choices[0].plan == "wid"
    (plan,) = plans([Sliding(60, 1)], [COUNT, MAX], rates=Rates(100, 5))
    assert (plan.choices[0].plan, plan.width) == ("paned", 1)
    (plan,) = plans([Sliding(60, 1)], rates=Rates(100, 5))
    assert (plan.choices[0].plan, plan.width) == ("differential", 1)
    (plan,) = plans([Sliding(2, 1)], [COUNT, MAX], rates=Rates(2, 1000))
    assert (plan.choices[0].plan, plan.sets[0].kept) == ("buffered", "rows")
    assert "rows are fewer" in plan.choices[0].reason


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


def test_a_plan_can_be_asked_for_by_name():
    (plan,) = plans([Sliding(60, 12), Sliding(90, 30)], wanted="wid")
    assert [own.width for own in plan.sets] == [12, 30]
    (plan,) = plans([Sliding(60, 12)], wanted="buffered")
    assert [own.kept for own in plan.sets] == ["rows"]
    (plan,) = plans([Sliding(60, 12)], wanted="adapt")
    assert [own.kept for own in plan.sets] == ["either"]
    assert [plans([Sliding(60, 12)], wanted=w)[0].queries[0].stacks for w in ("paned", "differential")] == [True, False]
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


def test_queries_whose_common_panes_are_too_narrow_have_panes_of_their_own():
    found = plans([Sliding(60_000, 1_000), Sliding(60_000, 2_000), Sliding(7_001, 7_001)], rates=Rates(5, 100))
    assert [own.width for plan in found for own in plan.sets] == [1_000, 7_001]
