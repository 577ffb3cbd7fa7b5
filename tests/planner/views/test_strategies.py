"""Plans of all strategies: how many requests, how many rounds, and that every member meets every node once."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.maintenance import adjacent_requests, hamiltonian_paths
from lab.orders import every_order
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.views.paths import Group, contraction
from penstock.planner.views.strategies import adjacent, batch, conditional, greedy, products, sweep


def chain(n):
    return JoinGraph(n, (), [(k, k + 1) for k in range(n - 1)])


def star(n):
    return JoinGraph(n, (), [(1, k) for k in range(n) if k != 1])


V1 = chain(4)
V2 = JoinGraph(4, (), [(0, 1), (1, 2), (0, 2), (2, 3)])
V3 = JoinGraph(4, (), [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])
TOURS = JoinGraph(4, (), [(0, 1), (1, 3), (2, 3), (1, 2)])  # customers, flights, participants, tours


@st.composite
def graphs(draw, largest=7):
    n = draw(st.integers(2, largest))
    tree = [(draw(st.integers(0, k - 1)), k) for k in range(1, n)]
    extra = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=6))
    return JoinGraph(n, (), [*tree, *((a, b) for a, b in extra if a != b)])


def every_plan(graph):
    yield sweep(graph)
    for parallel in (False, True):
        yield batch(graph, parallel=parallel)
        yield conditional(graph, parallel=parallel)
    for size in range(2, graph.count + 1):
        yield adjacent(graph, size)
    yield greedy(graph)


@given(graphs())
def test_every_member_visits_every_other_node_once_by_nodes_it_holds(graph):
    for plan in every_plan(graph):
        held = {m: {m} for m in range(graph.count)}
        for request in plan.requests:
            for m in request.members:
                assert request.node not in held[m]
                assert set(request.via) <= held[m]
                assert all(graph.joined(v, request.node) for v in request.via)
            for m in request.members:
                held[m].add(request.node)
        assert all(nodes == set(range(graph.count)) for nodes in held.values())
        assert sorted(plan.sequence) == list(range(graph.count))
        assert plan.strategy == "greedy" or not products(graph, plan)
        assert plan.strategy == "greedy" or all(r.via for r in plan.requests)


@given(graphs())
def test_a_request_never_comes_before_what_it_needs(graph):
    for plan in every_plan(graph):
        at = {(m, m): 0 for m in range(graph.count)}
        for request, level in zip(plan.requests, plan.levels, strict=True):
            assert all(at[m, v] < level for m in request.members for v in request.via)
            at |= {(m, request.node): level for m in request.members}
        assert plan.rounds <= len(plan.requests)


@given(graphs())
def test_batch_asks_n_times_n_minus_1_and_its_parallel_form_in_n_minus_1_rounds(graph):
    n = graph.count
    assert len(batch(graph).requests) == batch(graph).rounds == n * (n - 1)
    assert len(batch(graph, parallel=True).requests) == n * (n - 1)
    assert batch(graph, parallel=True).rounds <= n - 1


@given(graphs())
def test_a_path_is_scrolled_in_twice_n_minus_1_requests_and_half_as_many_rounds_at_once(graph):
    n = graph.count
    for path in list(hamiltonian_paths(graph))[:5]:
        assert len(conditional(graph, path).requests) == conditional(graph, path).rounds == 2 * (n - 1)
        assert len(conditional(graph, path, parallel=True).requests) == 2 * (n - 1)
        assert conditional(graph, path, parallel=True).rounds == n - 1


@given(st.integers(2, 9), st.data())
def test_requests_with_empty_deltas_follow_the_formulas(n, data):
    changed = sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1)))
    empty = set(range(n)) - set(changed)
    graph = chain(n)
    assert len(conditional(graph, range(n)).without(empty).requests) == n - 1 + changed[-1] - changed[0]
    assert len(batch(graph).without(empty).requests) == len(changed) * (n - 1)


@pytest.mark.parametrize(("n", "size", "requests"), [(6, 2, 18), (6, 3, 18), (9, 3, 36), (16, 4, 96)])
def test_adjacent_grouping_has_the_counts_of_its_table(n, size, requests):
    assert adjacent_requests(n, size) == requests
    assert len(adjacent(chain(n), size).requests) == requests


@given(st.integers(2, 12), st.integers(2, 12))
def test_adjacent_grouping_follows_its_formula_on_every_chain(n, size):
    assert len(adjacent(chain(n), size).requests) == adjacent_requests(n, size)


def test_adjacent_grouping_is_least_near_the_square_root():
    assert min(range(2, 17), key=lambda m: adjacent_requests(16, m)) == 4
    assert adjacent_requests(6, 6) == 30


def test_adjacent_grouping_of_one_step_is_refused():
    with pytest.raises(ValueError, match="at least two"):
        adjacent(chain(4), 1)


def test_greedy_asks_every_node_once_and_knows_its_products():
    plan = greedy(chain(4))
    assert len(plan.requests) == 4
    assert [(r.node, r.members) for r in products(chain(4), plan)] == [(0, (1, 2, 3))]
    clique = JoinGraph(3, (), [(0, 1), (1, 2), (0, 2)])
    assert products(clique, greedy(clique)) == ()


def test_the_star_of_five_takes_12_requests_against_20():
    graph = star(5)
    assert not list(hamiltonian_paths(graph))
    assert contraction(graph) == Group((3, Group((0, 1, 2)), 4))
    assert len(conditional(graph).requests) == 12
    assert len(batch(graph).requests) == 20


@pytest.mark.parametrize(("graph", "batches", "paths"), [(V1, 9, 2), (V2, 108, 4), (V3, 576, 12)])
def test_the_three_views_have_as_many_plans_as_measured(graph, batches, paths):
    assert prod(len(list(every_order(graph, start))) for start in range(4)) == batches
    assert len(list(hamiltonian_paths(graph))) == paths


def test_the_step_of_tours_has_three_instances():
    assert set(every_order(TOURS, 3)) == {(2, 1, 0), (1, 2, 0), (1, 0, 2)}


@given(graphs(5), st.data())
def test_each_edge_is_used_once_in_a_step(graph, data):
    start = data.draw(st.integers(0, graph.count - 1))
    order = data.draw(st.sampled_from(list(every_order(graph, start))))
    plan = batch(graph, {m: order if m == start else next(every_order(graph, m)) for m in range(graph.count)})
    used = [frozenset((v, r.node)) for r in plan.requests if r.members == (start,) for v in r.via]
    assert len(used) == len(set(used))
    assert set(used) == graph.edges


@given(graphs())
def test_hamiltonian_paths_are_all_permutations_along_edges(graph):
    if graph.count > 5:
        return
    brute = {
        p
        for p in product(range(graph.count), repeat=graph.count)
        if len(set(p)) == graph.count and all(graph.joined(a, b) for a, b in pairwise(p))
    }
    assert set(hamiltonian_paths(graph)) == brute


def test_one_node_has_nobody_to_ask():
    for plan in every_plan(JoinGraph(1)):
        assert plan.requests == ()
        assert plan.sequence == (0,)


def test_a_graph_in_two_parts_is_refused():
    with pytest.raises(ValueError, match="connected"):
        batch(JoinGraph(4, (), [(0, 1), (2, 3)]))


def test_a_plan_reads_as_text():
    assert conditional(chain(3)).explain(["a", "b", "c"]) == (
        "conditional: 4 requests in 4 rounds\n"
        "  1. b for changes of a\n"
        "  2. c for changes of a+b\n"
        "  3. b for changes of c\n"
        "  4. a for changes of b+c"
    )
