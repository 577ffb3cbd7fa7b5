from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.orders import every_order
from penstock.planner.orders.cost import EngineCost, IndexCost, Price, order_cost, step_costs
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.orders.sizes import Sizes

from .cases import CLIQUE, A, B, C, D, example, graphs, named, tables


def test_the_worked_example_costs_what_it_should():
    costs = {order: order_cost(IndexCost(), example(), order) for order in every_order(CLIQUE, A)}
    assert costs == {
        (B, C, D): 16000,
        (B, D, C): 19000,
        (D, B, C): 23000,
        (C, B, D): 24500,
        (D, C, B): 24500,
        (C, D, B): 40500,
    }


def test_fewer_composites_of_one_set_can_make_another_order_the_best():
    fewer = example(AB=31)
    assert order_cost(IndexCost(), fewer, (B, D, C)) == 15400
    assert order_cost(IndexCost(), fewer, (B, C, D)) == 15550


def test_buckets_divide_and_a_tree_takes_the_logarithm():
    order = (B, C, D)
    assert order_cost(IndexCost(buckets=10, each=3), example(), order) == pytest.approx(16000 * 3 / 10)
    assert order_cost(IndexCost("scan", buckets=10), example(), order) == 16000
    expected = log2(201) * 10 + log2(51) * 40 + log2(401) * 30
    assert order_cost(IndexCost("tree"), example(), order) == pytest.approx(expected)


def test_all_streams_faster_can_change_the_best_order_of_time_windows():
    def cost(order, c):
        composites = {named("A"): 10 * c, named("AB"): 10 * 20 * 0.02 * c * c, named("AC"): 10 * 50 * 0.005 * c * c}
        return order_cost(IndexCost(), Sizes(A, (0, 20 * c, 50 * c), composites.__getitem__), order)

    assert (cost((B, C), 1), cost((C, B), 1)) == (400, 550)
    assert (cost((B, C), 5), cost((C, B), 5)) == (30000, 18750)


def test_the_engine_looks_up_keys_searches_sorted_rows_and_scans_for_the_rest():
    graph = JoinGraph(4, classes=[{A, B}], edges=[(B, C), (C, D)])
    model = EngineCost(graph, costly=frozenset([named("CD")]))
    costs = step_costs(model, example(), (B, C, D))
    assert costs == [10 * 1 + 40, pytest.approx(40 * log2(51) + 30), 30 * 400 + 1]


def test_an_equality_serves_a_probe_better_than_the_other_predicates_beside_it():
    graph = JoinGraph(2, classes=[{A, B}], edges=[(A, B)])
    assert step_costs(EngineCost(graph, costly=frozenset([named("AB")])), example(), (B,)) == [10 + 40]


def test_an_exchange_costs_once_an_interval_and_for_each_composite():
    asked = []

    def price(start, prefix, following):
        asked.append((start, prefix, following))
        return Price(interval=7, each=2) if following == C else Price(0, 0)

    model = EngineCost(CLIQUE, price)
    free = order_cost(EngineCost(CLIQUE), example(), (B, C, D))
    assert order_cost(model, example(), (B, C, D)) == free + 7 + 2 * 40
    assert asked == [(A, (), B), (A, (B,), C), (A, (B, C), D)]
    one_row_of_ten = Sizes(A, example().held, example().composites, interval=0.1)
    assert order_cost(model, one_row_of_ten, (B, C, D)) == pytest.approx(free + 0.7 + 2 * 40)


@given(graphs(most=5), st.data())
def test_no_cost_falls_when_a_number_of_rows_rises(graph, data):
    sizes = data.draw(tables(graph))
    order = data.draw(st.sampled_from(list(every_order(graph, sizes.start))))
    parts = [frozenset((sizes.start, *order[:k])) for k in range(len(order) + 1)]
    key = data.draw(st.sampled_from([*parts[1:], *(frozenset((p,)) for p in order)]))
    more = sizes.changed(key, sizes.of(key) + data.draw(st.integers(0, 99)))
    for model in (IndexCost("hash"), IndexCost("tree"), IndexCost("scan"), EngineCost(graph)):
        assert order_cost(model, more, order) >= order_cost(model, sizes, order)


@pytest.mark.parametrize("wrong", [{"each": -1.0}, {"buckets": 0.0}, {"each": float("nan")}])
def test_impossible_costs_are_refused(wrong):
    with pytest.raises(ValueError):
        IndexCost(**wrong)
