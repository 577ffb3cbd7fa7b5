from itertools import permutations

import pytest
from hypothesis import given

from lab.orders import inner_join_set
from penstock.planner.orders.graph import JoinGraph

from .cases import A, B, C, D, graphs, named

STAR = JoinGraph(4, classes=[{A, B}, {A, C}, {A, D}])  # on different columns
ON_ID = JoinGraph(4, classes=[{A, B, C, D}])


def test_equality_is_transitive_within_a_class_and_not_between_classes():
    assert ON_ID.joined(B, D)
    assert not STAR.joined(B, D)


def test_inner_join_sets_of_a_star():
    assert inner_join_set(STAR, named("ACD"))
    assert not inner_join_set(STAR, named("BCD"))
    assert inner_join_set(ON_ID, named("BCD"))
    assert not inner_join_set(ON_ID, named("B"))


def test_two_joined_pairs_are_no_inner_join_set():
    pairs = JoinGraph(4, edges=[(A, B), (C, D)])
    assert not inner_join_set(pairs, named("ABCD"))
    assert pairs.components(named("ABCD")) == (named("AB"), named("CD"))
    assert not pairs.connected()
    assert pairs.connected(named("CD"))


def test_a_position_without_predicate_is_probed_when_no_joined_one_is_left():
    graph = JoinGraph(4, edges=[(A, B), (C, D)])
    assert graph.following(named("A")) == (B,)
    assert graph.following(named("AB")) == (C, D)
    assert graph.following(named("ABC")) == (D,)
    assert graph.legal(A, (B, D, C))
    assert not graph.legal(A, (C, B, D))


def test_an_order_probes_every_other_position_once():
    assert not ON_ID.legal(A, (B, C))
    assert not ON_ID.legal(A, (B, C, C))
    assert not ON_ID.legal(A, (A, B, C))


def test_predicates_among_some_positions_are_not_named_twice():
    graph = JoinGraph(4, classes=[{A, B, C}, {A, B}], edges=[(A, B), (C, D)])
    assert graph.predicates(named("ABD")) == [named("AB")]
    assert graph.predicates(named("ABCD")) == [named("ABC"), named("CD")]


@given(graphs())
def test_parts_are_connected_and_not_joined_with_each_other(graph):
    parts = graph.components(graph.all)
    assert sorted(p for part in parts for p in part) == list(range(graph.count))
    for part in parts:
        assert graph.connected(part)
        assert not graph.neighbours(part)


@given(graphs(most=5))
def test_legal_orders_make_no_product_that_they_could_avoid(graph):
    for start in range(graph.count):
        for order in permutations(sorted(graph.all - {start})):
            avoidable = False
            for k, p in enumerate(order):
                bound = {start, *order[:k]}
                crossing = not any(graph.joined(p, q) for q in bound)
                avoidable |= crossing and any(graph.joined(q, r) for q in bound for r in order[k:])
            assert graph.legal(start, order) != avoidable


@pytest.mark.parametrize(
    ("count", "classes", "edges"), [(0, [], []), (2, [{0, 2}], []), (2, [], [(0, 0)]), (3, [], [(0, 1, 2)])]
)
def test_impossible_joins_are_refused(count, classes, edges):
    with pytest.raises(ValueError):
        JoinGraph(count, classes, edges)
