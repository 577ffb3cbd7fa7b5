"""Finding the probe order of one start: exactly, by dynamic programming, or by greedy rules for very many positions.

A product is made only if no joined position is left. Among orders of equal cost the one with lower positions first
wins, so that equal statistics give equal orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import log

from penstock.planner.orders.cost import CostModel, order_cost
from penstock.planner.orders.graph import JoinGraph, Order, Positions
from penstock.planner.orders.sizes import EXACT, Sizes

_TRIED = 1000  # orders that the greedy rules cost

Offer = tuple[float, Order]  # a cost, and the order with this cost


@dataclass(frozen=True)
class Hints:
    """Inputs of the greedy rules beside sizes (Golab & Ozsu 2003, ch. 5).

    A position is fast if its `rates` entry is more than `fast` times the mean. `early` positions fluctuate so much that
    they should be probed before others; a position that only `costly` predicates reach comes after all others.
    """

    rates: tuple[float, ...] = ()
    fast: float = 1.0
    early: Positions = frozenset()
    costly: frozenset[Positions] = frozenset()


NO_HINTS = Hints()


def best_order(graph: JoinGraph, sizes: Sizes, model: CostModel, hints: Hints = NO_HINTS) -> Order:
    """The cheapest legal order; with more than `EXACT` positions, the cheapest that the greedy rules find."""
    if graph.count > EXACT:
        return greedy_order(graph, sizes, model, hints)
    return offers(graph, sizes, model)[graph.all][0][1]


def worst_order(graph: JoinGraph, sizes: Sizes, model: CostModel) -> Order:
    """The most expensive legal order, as a bound of the loss; found greedily with very many positions."""
    if graph.count > EXACT:
        return _greedy(graph, sizes, NO_HINTS, lambda prefix, p: -model.step(sizes, prefix, p))
    return offers(graph, sizes, model, sign=-1.0)[graph.all][0][1]


def offers(graph: JoinGraph, sizes: Sizes, model: CostModel, sign: float = 1.0) -> dict[Positions, list[Offer]]:
    """For each set that contains the start, the orders compared for it, best first (Wang 2013, Algorithm 1).

    Only the best order of a set is extended; if the model depends on the last position, the best for each last one.
    """
    begin = frozenset((sizes.start,))
    table: dict[Positions, list[Offer]] = {begin: [(0.0, ())]}
    layer = [begin]
    for _ in range(graph.count - 1):
        grown: dict[Positions, list[Offer]] = {}
        for bound in layer:
            for cost, order in _survivors(table[bound], model.ordered):
                for p in graph.following(bound):
                    offer = (cost + sign * model.step(sizes, order, p), (*order, p))
                    grown.setdefault(bound | {p}, []).append(offer)
        table |= {members: sorted(found) for members, found in grown.items()}
        layer = list(grown)
    return table


def random_order(graph: JoinGraph, start: int, draw: Callable[[int], float]) -> Order:
    """A random legal order: `draw(k)` in [0, 1) selects among the positions that may come k-th."""
    order: Order = ()
    for k in range(graph.count - 1):
        following = graph.following(frozenset((start, *order)))
        order = (*order, following[int(draw(k) * len(following))])
    return order


def greedy_order(graph: JoinGraph, sizes: Sizes, model: CostModel, hints: Hints = NO_HINTS) -> Order:
    """The cheapest order of both greedy rules, with the fast positions moved up (Golab & Ozsu 2003).

    One rule probes next what makes the fewest composites, the other what has the lowest selectivity. With f fast
    positions, about n^f orders are costed instead of n!; if those are too many, only the fastest positions are moved.
    """

    def smallest(prefix: Order, p: int) -> float:
        return sizes.of(frozenset((sizes.start, *prefix, p)))

    def most_selective(prefix: Order, p: int) -> float:
        among = sizes.of(frozenset((sizes.start, *prefix))) * sizes.rows(p)
        return smallest(prefix, p) / among if among > 0 else 1.0

    readings = {_greedy(graph, sizes, hints, rank) for rank in (smallest, most_selective)}
    quick = sorted(fast_positions(hints.rates, hints.fast) - {sizes.start}, key=lambda p: -hints.rates[p])
    while len(quick) * log(graph.count) > log(_TRIED):
        quick.pop()
    moved = {order for reading in readings for order in moved_up(reading, frozenset(quick))}
    legal = readings | {
        order for order in moved if graph.legal(sizes.start, order) and _kept(graph, sizes, hints, order)
    }
    return min((order_cost(model, sizes, order), order) for order in legal)[1]


def fast_positions(rates: tuple[float, ...], fast: float = 1.0) -> Positions:
    """The positions whose rate is more than `fast` times the mean rate."""
    mean = sum(rates) / max(len(rates), 1)
    return frozenset(p for p, rate in enumerate(rates) if rate > fast * mean)


def moved_up(order: Order, chosen: Positions) -> Iterator[Order]:
    """The order with each of the chosen positions at its own place or any earlier one, in all combinations."""
    movable = [p for p in order if p in chosen]
    for places in product(*(range(order.index(p) + 1) for p in movable)):
        moved = list(order)
        for p, place in zip(movable, places, strict=True):
            moved.remove(p)
            moved.insert(place, p)
        yield tuple(moved)


def _survivors(found: list[Offer], ordered: bool) -> list[Offer]:
    if not ordered:
        return found[:1]
    best: dict[int, Offer] = {}
    for offer in found:
        best.setdefault(offer[1][-1] if offer[1] else -1, offer)
    return list(best.values())


def _greedy(graph: JoinGraph, sizes: Sizes, hints: Hints, rank: Callable[[Order, int], float]) -> Order:
    order: Order = ()
    while len(order) < graph.count - 1:
        bound = frozenset((sizes.start, *order))
        ranks = [(_class(graph, hints, bound, p), rank(order, p), p) for p in graph.following(bound)]
        order = (*order, min(ranks)[2])
    return order


def _class(graph: JoinGraph, hints: Hints, bound: Positions, p: int) -> int:
    """0 for a position to probe early, 2 for one that only costly predicates reach, 1 for all others."""
    pairs = [frozenset((p, q)) for q in bound if graph.joined(p, q)]
    if pairs and hints.costly.issuperset(pairs):
        return 2
    return 0 if p in hints.early else 1


def _kept(graph: JoinGraph, sizes: Sizes, hints: Hints, order: Order) -> bool:
    """Whether every position of the order is of the lowest class among those that could take its place."""
    for k, p in enumerate(order):
        bound = frozenset((sizes.start, *order[:k]))
        if _class(graph, hints, bound, p) > min(_class(graph, hints, bound, q) for q in graph.following(bound)):
            return False
    return True
