"""The order in which a step visits the nodes: exactly over subsets, or a beam of the cheapest of them.

The cost of visiting a node depends on the bound set, not on its order, so the search over subsets is exact (2^n sets),
and a beam of sets spends no place on several orders of one set, as the level-wise search of Liu 2005, 11.3.2, does.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from math import inf

from penstock.planner.orders.graph import JoinGraph, Order, Positions

StepCost = Callable[[Positions, int], float]
Priced = tuple[float, Order]

EXACT = 8  # nodes up to which all connected subsets are enumerated
STEPS = 400  # visits that are priced for one start, beyond; or those of a greedy search, if it needs more


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
