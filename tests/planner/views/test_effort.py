"""How much a choice of plan may look at: counted, for all kinds of graphs up to the largest that a view may have."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.maintenance import hamiltonian_paths
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.views import choice, paths
from penstock.planner.views.formulas import grouping_cost, grown, stepper
from penstock.planner.views.paths import EXPANSIONS, contraction, nodes_of, spread_paths
from penstock.planner.views.regression import Tau
from penstock.planner.views.search import EXACT, STEPS, best_order, by_subsets
from tests.effort import examples

from .test_costs import random_step, statistics
from .test_strategies import chain, graphs, star


def clique(n, pendants=0):
    """All joined with all, and some nodes that hang on one of them each."""
    inner = [(a, b) for a in range(n) for b in range(a)]
    return JoinGraph(n + pendants, (), [*inner, *((k, n + k) for k in range(pendants))])


LARGE = [chain(12), star(12), clique(12), clique(9, 3), chain(32), star(32), clique(32), clique(28, 4)]


@pytest.fixture
def looked(monkeypatch):
    """How many beginnings of paths have been looked at."""
    counted = []

    def ways(*given, inner=paths._ways):
        counted.append(given)
        return inner(*given)

    monkeypatch.setattr(paths, "_ways", ways)
    return counted


@pytest.mark.parametrize("graph", LARGE)
def test_orders_are_searched_in_a_bounded_number_of_visits(graph):
    for start in (0, 1, graph.count - 1):
        visits, inner = [], random_step(graph, start)

        def step(bound, node, inner=inner, visits=visits):
            visits.append(node)
            return inner(bound, node)

        cost, order = best_order(graph, start, step)
        assert graph.legal(start, order)
        assert cost > 0
        assert len(visits) <= max(STEPS, graph.count * (graph.count - 1) // 2)


@pytest.mark.parametrize("graph", LARGE)
def test_paths_are_searched_in_a_bounded_number_of_beginnings(graph, looked):
    found = spread_paths(graph, 200)
    assert len(looked) <= EXPANSIONS
    assert len(found) == len(set(found)) <= 200
    assert all(sorted(p) == list(range(graph.count)) for p in found)
    assert all(graph.joined(a, b) for p in found for a, b in pairwise(p))
    looked.clear()
    assert sorted(nodes_of(contraction(graph))) == list(range(graph.count))
    rounds = graph.count // 2  # every contraction puts three or more elements together
    assert len(looked) <= rounds * (EXPANSIONS + graph.count)


@pytest.mark.parametrize("graph", LARGE)
def test_all_plans_are_priced_for_a_bounded_number_of_predictions(graph, monkeypatch):
    asked = []

    def predict(self, rows, attributes, inner=Tau.__call__):
        asked.append(rows)
        return inner(self, rows, attributes)

    monkeypatch.setattr(Tau, "__call__", predict)
    n = graph.count
    offers = choice.priced(graph, statistics(graph), [10.0 * (k + 1) for k in range(n)])
    assert set(offers) >= {"batch", "parallel_batch", "conditional", "parallel_conditional", "adjacent"}
    degree = max(len(graph.neighbours(frozenset((k,)))) for k in range(n))
    visits = n * max(STEPS, n * (n - 1) // 2) * degree
    assert len(asked) <= visits + 200 * 2 * (n - 1) + 11 * 2 * n * (n - 1)


@given(graphs(6))
def test_few_paths_are_all_found(graph):
    everything = set(hamiltonian_paths(graph))
    found = spread_paths(graph, 10_000, 10**6)
    assert len(found) == len(everything)
    assert set(found) == everything


def test_many_paths_are_spread_over_all_beginnings():
    found = spread_paths(clique(7), 200)
    assert len(set(found)) == 200
    assert {p[:2] for p in found} == {(a, b) for a in range(7) for b in range(7) if a != b}
    starts = [sum(p[0] == k for p in found) for k in range(7)]
    assert max(starts) - min(starts) <= 1


def test_a_path_is_found_though_most_starts_have_none():
    """A clique with one node that hangs on it by a chain: only paths from that end, or to it, visit everything."""
    inner = [(a, b) for a in range(10) for b in range(a)]
    graph = JoinGraph(13, (), [*inner, (9, 10), (10, 11), (11, 12)])
    assert any(p[0] == 12 for p in spread_paths(graph, 20))


@settings(max_examples=examples(50))
@given(graphs(7), st.integers(0, 2**32), st.integers(1, 5))
def test_a_beam_of_sets_is_never_better_than_all_sets(graph, seed, keep):
    step = random_step(graph, seed)
    for start in range(graph.count):
        cost, order = by_subsets(graph, start, step, keep)
        assert graph.legal(start, order)
        assert cost >= by_subsets(graph, start, step)[0]
        assert cost == sum(step(frozenset((start, *order[:k])), node) for k, node in enumerate(order))


@given(st.integers(EXACT + 1, 11), st.integers(0, 2**32))
def test_a_chain_has_so_few_sets_that_its_orders_are_the_best_ones(n, seed):
    step = random_step(chain(n), seed)
    for start in (0, n // 2, n - 1):
        assert best_order(chain(n), start, step) == by_subsets(chain(n), start, step)


@given(graphs(6), st.integers(0, 2**32))
def test_rows_that_grow_set_by_set_are_the_product_of_all(graph, seed):
    rng = np.random.default_rng(seed)
    stats = statistics(graph, {tuple(sorted(e)): float(rng.uniform(0.1, 30)) for e in graph.edges}, rows=1000.0)
    step = stepper(graph, stats, lambda v, j: lambda rows, attributes: rows + 1e-3 * attributes, [3.0] * 6, 0)
    bound = frozenset((0,))
    while node := next(iter(graph.neighbours(bound)), None):
        expected = 3.0 * grown(graph, stats, bound, 0) + 1e-3 * 4 * len(bound)
        assert step(bound, node) == pytest.approx(expected)
        bound |= {node}


@given(st.integers(2, 8), st.integers(0, 2**32))
def test_a_path_costs_what_its_members_bring_one_by_one(n, seed):
    rng = np.random.default_rng(seed)
    graph, deltas = chain(n), rng.uniform(0, 100, n)
    stats = statistics(graph, {(k, k + 1): float(rng.uniform(0.1, 5)) for k in range(n - 1)}, rows=500.0)
    sigma = [stats.selectivity(k, k + 1) for k in range(n - 1)]

    def member(j, low, high):
        return deltas[j] * prod(500.0 for s in range(low, high + 1) if s != j) * prod(sigma[low:high])

    up = sum(sum(member(j, j, i) for j in range(i + 1)) for i in range(n - 1))
    down = sum(sum(member(j, i, n - 1) for j in range(i, n)) for i in range(n - 1, 0, -1))
    left = sum(member(j, 0, n - 1) for j in range(n))
    cost = grouping_cost(stats, lambda v, j: lambda rows, _: rows, deltas, range(n), lambda rows, _: 7 * rows)
    assert cost == pytest.approx(up + down + 7 * left)
