"""Definitions of Wang 2013 as printed, beside which `planner/orders` is checked."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.planner.orders.cost import CostModel, order_cost
from penstock.planner.orders.graph import JoinGraph, Order, Positions
from penstock.planner.orders.search import Offer
from penstock.planner.orders.sizes import Sizes, literal_estimates
from penstock.planner.orders.statistics import Statistics


def every_order(graph: JoinGraph, start: int) -> Iterator[Order]:
    """All legal orders of a start, lower positions first."""
    growing: list[Order] = [()]
    while growing:
        order = growing.pop()
        if len(order) == graph.count - 1:
            yield order
        else:
            growing += [(*order, p) for p in reversed(graph.following(frozenset((start, *order))))]


def brute_force(graph: JoinGraph, sizes: Sizes, model: CostModel) -> Offer:
    """The cheapest of all legal orders with its cost, by enumeration: for few positions, and to verify the others."""
    return min((order_cost(model, sizes, order), order) for order in every_order(graph, sizes.start))


def literal_selectivity(graph: JoinGraph, statistics: Statistics, start: int, prefix: Order, following: int) -> float:
    """The selectivity of a step as defined in the thesis: of cardinalities if all are collected (4.1), else the least
    of the pairs (4.2). A pair without a predicate, and a step that meets no row, has selectivity 1.
    """
    estimates = literal_estimates(graph, statistics, start)
    bound = frozenset((start, *prefix))

    def ratio(members: Positions) -> float:
        among = estimates(members) * statistics.held[following]
        return estimates(members | {following}) / among if among > 0 else 1.0

    if bound | {following} in estimates.collected and (not prefix or bound in estimates.collected):
        return ratio(bound)
    return min((ratio(frozenset((p,))) for p in bound if graph.joined(p, following)), default=1.0)


def step_selectivity(statistics: Statistics, start: int, bound: Positions, following: int) -> float | None:
    """The share of pairs that one step of one start's order kept (4.1, of flows); `None` if it met no pair."""
    flow = 1.0 if len(bound) == 1 else _ratio(statistics, start, bound)
    grown = _ratio(statistics, start, bound | {following})
    return min(grown / flow, 1.0) if grown is not None and flow else None


def _ratio(statistics: Statistics, start: int, positions: Positions) -> float | None:
    among = statistics.chances.get((start, positions), 0.0)
    return statistics.flows[start, positions] / among if among > 0 else None


def inner_join_set(graph: JoinGraph, positions: Positions) -> bool:
    """Whether the positions join without a Cartesian product (Wang 2013, 4.2.2, asked of the whole and not of
    each position alone: the parts of {A-B, C-D} are not joined with each other).
    """
    return len(positions) >= 2 and graph.connected(positions)
