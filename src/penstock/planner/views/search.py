"""The order in which a step visits the nodes: all orders, a beam of the cheapest, or exactly over subsets.

The cost of visiting a node depends on the bound set, not on its order, so the search over subsets is exact (2^n sets),
and a beam of sets spends no place on several orders of one set. The beam of orders is the level-wise search of Liu
2005, 11.3.2, whose enumeration is `every_order`.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from math import inf

from penstock.planner.orders.graph import JoinGraph, Order, Positions
from penstock.planner.orders.search import every_order

StepCost = Callable[[Positions, int], float]
Priced = tuple[float, Order]

EXACT = 8  # nodes up to which all connected subsets are enumerated
STEPS = 400  # visits that are priced for one start, beyond; or those of a greedy search, if it needs more


def enumerated(graph: JoinGraph, start: int, step: StepCost) -> list[Priced]:
    """Every order of a step with its cost (Algorithm 8)."""
    return [(_cost(start, order, step), order) for order in every_order(graph, start)]


def beam(graph: JoinGraph, start: int, step: StepCost, keep: float = inf) -> Priced:
    """The cheapest order, extending only the `keep` cheapest prefixes of each length (Algorithm 9); 1 is greedy."""
    if keep < 1:
        raise ValueError(f"a beam keeps at least one order, not {keep}")
    level: list[Priced] = [(0.0, ())]
    for _ in range(graph.count - 1):
        grown = []
        for cost, order in level:
            bound = frozenset((start, *order))
            grown += [(cost + step(bound, node), (*order, node)) for node in graph.following(bound)]
        grown.sort()
        level = grown if keep == inf else grown[: int(keep)]
    return level[0]


def by_subsets(graph: JoinGraph, start: int, step: StepCost, keep: float = inf) -> Priced:
    """The cheapest order, extending only the best prefix of each set, and the `keep` cheapest sets of each size."""
    level: dict[Positions, Priced] = {frozenset((start,)): (0.0, ())}
    for _ in range(graph.count - 1):
        if len(level) > keep:
            level = dict(nsmallest(int(keep), level.items(), key=lambda item: item[1]))
        grown: dict[Positions, Priced] = {}
        for bound, (cost, order) in level.items():
            for node in graph.following(bound):
                offer, larger = (cost + step(bound, node), (*order, node)), bound | {node}
                grown[larger] = min(offer, grown.get(larger, offer))
        level = grown
    return level[graph.all]


def best_order(graph: JoinGraph, start: int, step: StepCost) -> Priced:
    """The cheapest order; with many nodes, the best that a bounded number of visits finds."""
    if graph.count <= EXACT:
        return by_subsets(graph, start, step)
    greedy = graph.count * (graph.count - 1) // 2  # the most visits with one set of each size
    return by_subsets(graph, start, step, max(1, STEPS // greedy))


def _cost(start: int, order: Order, step: StepCost) -> float:
    return sum(step(frozenset((start, *order[:k])), node) for k, node in enumerate(order))
