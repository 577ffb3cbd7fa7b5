"""Regression, searches and formulas of maintenance plans."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.maintenance import batch_cost, beam, cheapest, enumerated, order_cost, uniform_costs
from lab.orders import every_order
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.views.formulas import grouping_cost, stepper
from penstock.planner.views.regression import TERMS, Tau, fit
from penstock.planner.views.search import best_order, by_subsets
from penstock.planner.views.statistics import REMEMBERED, Sample, Statistics, learned, recalled, remembered
from tests.recorded import recorded

from .test_strategies import TOURS, V2, V3, chain, graphs

PRINTED = Tau(8840.55, (("C*A", 0.0242), ("C", 0.0208), ("A", 16.26)))
# Liu's example has nine nodes and twelve edges that are not given; these are ours.
NINE = JoinGraph(
    9,
    (),
    [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (0, 4), (2, 6), (4, 8), (1, 7)],
)


def statistics(graph, ratio=None, rows=1e6, width=4):
    sizes = (rows,) * graph.count
    fanout = {tuple(sorted(edge)): 1.0 for edge in graph.edges} | (ratio or {})
    return Statistics(sizes, (width,) * graph.count, fanout)


@given(
    st.sets(st.sampled_from(TERMS), min_size=1, max_size=3),
    st.lists(st.floats(0.5, 3.0), min_size=7, max_size=7),
    st.integers(0, 2**32),
)
def test_a_planted_model_is_recovered(chosen, weights, seed):
    rng = np.random.default_rng(seed)
    scale = {"C*A": 1e-3, "C": 1e-2, "A": 1.0, "sqrt(C)": 0.3, "sqrt(A)": 5.0, "sqrt(C*A)": 0.1}
    planted = Tau(
        weights[6] * 10, tuple((t, w * scale[t]) for t, w in zip(TERMS, weights, strict=False) if t in chosen)
    )
    grid = [(c, a) for c in (1, 10, 100, 300, 1000, 3000) for a in (1, 2, 4, 6, 10)]
    samples = [(c, a, planted(c, a) * (1 + 1e-6 * rng.standard_normal())) for c, a in grid]
    found = fit(samples)
    assert {name for name, _ in found.coefficients} >= chosen
    for c, a in [(50, 3), (2000, 8), (700, 1)]:
        assert found(c, a) == pytest.approx(planted(c, a), rel=1e-3)


def test_terms_that_samples_do_not_speak_for_are_left_out():
    grid = [(c, a) for c in (1, 50, 200, 500, 1000) for a in (2, 4, 6)] * 3
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found.append(
            [name for name, _ in fit([(c, a, 5 + 0.01 * c + rng.normal(0, 0.05)) for c, a in grid]).coefficients]
        )
    assert found.count(["C"]) >= 12  # noise may speak for a term now and then
    assert max(map(len, found)) <= 3


def test_few_or_equal_samples_give_their_mean_and_predictions_are_clamped():
    assert fit([(10, 2, 3.0)])(1000, 9) == 3.0
    assert fit([(10, 2, 3.0), (10, 2, 5.0)] * 4)(1, 1) == 4.0
    falling = fit([(c, 1, 10.0 - c / 100) for c in range(0, 900, 50)])
    assert falling(100_000, 1) == pytest.approx(0.75, rel=0.05)
    with pytest.raises(ValueError, match="at least one"):
        fit([])


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(0.001, 5)), min_size=1, max_size=30))
def test_what_is_asked_to_rise_never_falls(samples):
    model = fit([(c, 4, t) for c, t in samples], rising=True)
    times = [model(c, 4) for c in (0, 1, 10, 100, 1000, 10_000, 100_000)]
    assert times == sorted(times)
    assert times[0] >= min(t for _, t in samples) / 2


def test_the_printed_example_predicts_what_its_formula_says():
    assert PRINTED(1000, 6) == pytest.approx(8840.55 + 0.0242 * 6000 + 0.0208 * 1000 + 16.26 * 6)


def random_step(graph, seed):
    rng = np.random.default_rng(seed)
    costs = {}

    def step(bound, node):
        key = (bound, node)
        if key not in costs:
            costs[key] = float(rng.integers(1, 100))
        return costs[key]

    return step


@settings(deadline=None)
@given(graphs(6), st.integers(0, 2**32))
def test_an_endless_beam_the_subsets_and_enumeration_find_one_minimum(graph, seed):
    step = random_step(graph, seed)
    for start in range(graph.count):
        best = min(enumerated(graph, start, step))
        assert beam(graph, start, step, inf)[0] == best[0]
        assert by_subsets(graph, start, step)[0] == best[0]
        assert best_order(graph, start, step)[0] == best[0]
        for keep in (1, 3):
            cost, order = beam(graph, start, step, keep)
            assert cost >= best[0]
            assert graph.legal(start, order)


@given(graphs(6), st.integers(0, 2**32))
def test_a_beam_of_one_is_greedy(graph, seed):
    step = random_step(graph, seed)
    order = ()
    while len(order) < graph.count - 1:
        bound = frozenset((0, *order))
        order = (*order, min((step(bound, p), p) for p in graph.following(bound))[1])
    assert beam(graph, 0, step, 1)[1] == order


def test_a_beam_on_nine_nodes_is_near_the_optimum_for_little_work():
    stats = statistics(NINE, {edge: 1 + k for k, edge in enumerate(sorted(map(tuple, map(sorted, NINE.edges))))})
    deltas = [100.0 * (1 + k) for k in range(9)]
    looked: dict[float, int] = {}
    costs: dict[float, float] = {}
    for keep in (1, 5, 20, inf):
        cost, count = 0.0, 0
        for start in range(9):
            inner = stepper(NINE, stats, lambda v, j: PRINTED, deltas, start)

            def step(bound, node, inner=inner):
                nonlocal count
                count += 1
                return inner(bound, node)

            cost += beam(NINE, start, step, keep)[0]
        costs[keep], looked[keep] = cost, count
    assert costs[1] >= costs[5] >= costs[20] >= costs[inf]
    assert costs[20] <= 1.01 * costs[inf]
    assert looked[20] * 20 < looked[inf]


@given(st.integers(2, 9), st.floats(1, 100), st.floats(0, 50), st.floats(0, 9), st.floats(0, 50), st.floats(0, 9))
def test_grouping_saves_exactly_the_fixed_cost_of_the_requests_it_spares(n, size, a, b, g, d):
    batch, _, conditional = uniform_costs([size] * n, 2, lambda x: a + b * x, lambda x: g + d * x)
    assert batch - conditional == pytest.approx((n - 1) * (n - 2) * (2 * a + g), abs=1e-6 * (1 + batch))


def test_adjacent_grouping_of_all_costs_what_batch_does():
    batch, adjacent, _ = uniform_costs([3, 4, 5, 6], 4, lambda x: 1 + x, lambda x: 2 + x)
    assert adjacent == batch


def test_a_step_and_a_path_cost_what_one_computes_by_hand():
    graph = chain(3)
    stats = Statistics((100.0, 200.0, 50.0), (2, 3, 4), {(0, 1): 2.0, (1, 2): 0.5})

    def tau(v, j):
        return lambda rows, attributes: 1000 * (v + 1) + 10 * rows + attributes

    # From the first node: 5 rows of 2 columns to R2; 5 * 2 rows of 5 columns to R3.
    assert order_cost(graph, stats, tau, [5, 6, 7], 0, (1, 2)) == (1000 + 50 + 2) + (2000 + 100 + 5)
    # Selectivities: 2/200 = 0.01 between R1 and R2, 0.5/50 = 0.01 between R2 and R3.
    up = (1000 + 10 * 5 + 2) + (2000 + 10 * (6 + 5 * 200 * 0.01) + 5)
    down = (3000 + 10 * 7 + 4) + (2000 + 10 * (6 * 50 * 0.01 + 7 * 200 * 0.01) + 7)
    assert grouping_cost(stats, tau, [5, 6, 7], (0, 1, 2)) == pytest.approx(up + down)


@pytest.mark.parametrize("graph", [chain(4), V2, V3, TOURS])
def test_with_a_join_ratio_of_one_grouping_is_cheapest(graph):
    assert cheapest(graph, statistics(graph), lambda v, j: PRINTED, [2000.0] * 4)[0] == "conditional"


def test_with_a_join_ratio_of_fifty_on_both_ways_to_the_third_source_batch_is_cheapest_by_the_printed_formulas():
    ratio = {(0, 2): 50.0, (1, 2): 50.0}
    deltas = [2000.0, 2000.0, 10.0, 10.0]
    strategy, cost, orders = cheapest(V2, statistics(V2, ratio), lambda v, j: PRINTED, deltas)
    assert strategy == "batch"
    assert orders[0] == (1, 2, 3)
    assert orders[1] == (0, 2, 3)
    paths = [
        grouping_cost(statistics(V2, ratio), lambda v, j: PRINTED, deltas, p) for p in ((3, 2, 0, 1), (0, 1, 2, 3))
    ]
    assert cost < min(paths)


@given(graphs(5), st.lists(st.integers(0, 500), min_size=5, max_size=5), st.integers(0, 2**32))
def test_the_cheapest_plan_is_never_dearer_than_any_batch_plan_or_path(graph, deltas, seed):
    rng = np.random.default_rng(seed)
    stats = statistics(graph, {tuple(sorted(e)): float(rng.uniform(0.1, 30)) for e in graph.edges}, rows=1000.0)
    deltas = [float(d) for d in deltas[: graph.count]]
    _, cost, _ = cheapest(graph, stats, lambda v, j: PRINTED, deltas)
    changed = [k for k in range(graph.count) if deltas[k]]
    some = {k: next(every_order(graph, k)) for k in changed}
    assert cost <= batch_cost(graph, stats, lambda v, j: PRINTED, deltas, some) * (1 + 1e-9)


def test_statistics_learn_fanouts_times_and_corrections():
    stats = statistics(chain(2), rows=1000.0)
    assert stats.tau(0, 1)(100, 1) == pytest.approx(0.0008)
    seen = [
        Sample(1, (0,), keys, 2, 3 * keys, keys, 3 * keys, 0.01 + 1e-4 * keys) for keys in (10, 50, 100, 200, 400, 800)
    ]
    later = learned(stats, seen * 4)
    assert later.fanout[0, 1] == pytest.approx(3.0, rel=0.01)
    assert later.tau(0, 1)(300, 2) == pytest.approx(0.04, rel=0.01)
    assert later.tau(0, 1)(10_800, 2) == pytest.approx(0.09 + 0.03, rel=0.01)  # beyond what was measured, by hope
    assert stats.fanout[0, 1] == 1.0


@given(
    graphs(5),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5000), st.floats(0.0001, 5)), min_size=1, max_size=40),
)
def test_what_is_remembered_is_what_will_be_predicted_again(graph, seen):
    edges = sorted(tuple(sorted(edge)) for edge in graph.edges)
    ends = [edges[at % len(edges)] for at, _, _ in seen]
    samples = [Sample(b, (a,), k, 4, 3 * k, k, 2 * k, t) for (a, b), (_, k, t) in zip(ends, seen, strict=True)]
    stats = replace(learned(statistics(graph), samples), recompute=1.5)
    again = recalled(statistics(graph, rows=7.0), recorded(remembered(stats)))
    assert (again.rows, again.fanout, again.recompute) == (stats.rows, stats.fanout, 1.5)
    assert {edge: found[-REMEMBERED:] for edge, found in stats.samples.items()} == again.samples
    if all(len(found) <= REMEMBERED for found in stats.samples.values()):
        assert all(again.tau(a, b) == stats.tau(a, b) for a, b in edges)


def test_what_is_remembered_of_another_view_is_not_believed():
    stats = statistics(chain(3))
    assert recalled(stats, remembered(statistics(chain(2), rows=5.0))) == stats


def test_a_scan_tells_how_many_rows_there_are_by_now():
    stats = statistics(chain(2), rows=1000.0)
    assert learned(stats, [Sample(1, (), 0, 0, 70_000, 0, 0, 1.0)]).rows == (1000.0, 70_000.0)


def test_requests_that_had_to_wait_for_others_do_not_count():
    seen = [
        Sample(1, (0,), keys, 2, keys, keys, keys, (0.001 + 1e-5 * keys) * slow)
        for keys in (100, 300, 700, 2000)
        for slow in (1, 1, 9, 5, 7, 8, 6, 9)
    ]
    tau = learned(statistics(chain(2), rows=1000.0), seen).tau(0, 1)
    assert tau(1000, 2) == pytest.approx(0.011, rel=0.02)


def test_rows_must_be_known():
    with pytest.raises(ValueError, match="must be known"):
        Statistics((1.0, float("nan")), (1, 1), {})
