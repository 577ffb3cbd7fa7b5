"""The cost formulas of Liu 2005 as printed (10.4, 11.3.1), with their indices put right.

`Statistics` gives sizes and selectivities; `tau(v, j)` the time of a request to j by keys of v, for C rows with A
attributes. They add requests up; what runs at once is priced in `price`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from penstock.planner.orders.graph import JoinGraph, Order
from penstock.planner.views.paths import hamiltonian_paths
from penstock.planner.views.search import best_order
from penstock.planner.views.statistics import Statistics

TauOf = Callable[[int, int], Callable[[float, float], float]]


def uniform_costs(
    sizes: Sequence[float], group: int, ship: Callable[[float], float], evaluate: Callable[[float], float]
) -> tuple[float, float, float]:
    """Batch, adjacent (of `group`) and conditional for n like sources (10.4); `sizes` are of a delta after each join."""
    n = len(sizes)
    s = (0.0, *sizes)  # counted from 1, as printed

    def query(rows: float, back: float) -> float:
        return ship(rows) + evaluate(rows) + ship(back)

    batch = n * sum(query(s[i], s[i + 1]) for i in range(1, n))
    alone = group * sum(query(s[i], s[i + 1]) for i in range(1, group))
    shared = sum(query(group * s[i], group * s[i + 1]) for i in range(group, n))
    up = sum(query(sum(s[1 : i + 1]), sum(s[2 : i + 2])) for i in range(1, n))
    down = sum(query(i * s[i], i * s[i + 1]) for i in range(1, n))
    return batch, n / group * (alone + shared), up + down


def grown(graph: JoinGraph, statistics: Statistics, held: frozenset[int], start: int) -> float:
    """Rows made of one row of `start`: other cardinalities times the selectivities of all edges inside."""
    rows = 1.0
    for v in held:
        if v != start:
            rows *= statistics.rows[v]
        for w in held:
            if w < v and graph.joined(w, v):
                rows *= statistics.selectivity(w, v)
    return rows


def batch_cost(
    graph: JoinGraph, statistics: Statistics, tau: TauOf, deltas: Sequence[float], orders: Mapping[int, Order]
) -> float:
    """An extended batch plan: all steps, each with its order."""
    return sum(order_cost(graph, statistics, tau, deltas, k, order) for k, order in orders.items())


def order_cost(
    graph: JoinGraph, statistics: Statistics, tau: TauOf, deltas: Sequence[float], start: int, order: Order
) -> float:
    """One step of a batch plan."""
    step = stepper(graph, statistics, tau, deltas, start)
    return sum(step(frozenset((start, *order[:i])), node) for i, node in enumerate(order))


def grouping_cost(
    statistics: Statistics,
    tau: TauOf,
    deltas: Sequence[float],
    path: Sequence[int],
    leftover: Callable[[float, float], float] = lambda rows, attributes: 0.0,  # noqa: ARG005
) -> float:
    """A grouping plan: up and down the path by the path's edges alone, then the leftover filter (11.3.1)."""
    n = len(path)
    r, a = statistics.rows, statistics.widths
    sigma = [statistics.selectivity(path[s], path[s + 1]) for s in range(n - 1)]

    def member(j: int, low: int, high: int) -> float:
        """Rows of the delta at place j, joined with places low..high."""
        others = prod(r[path[s]] for s in range(low, high + 1) if s != j)
        return deltas[path[j]] * others * prod(sigma[low:high])

    cost = 0.0
    for i in range(n - 1):
        rows = sum(member(j, j, i) for j in range(i + 1))
        cost += tau(path[i], path[i + 1])(rows, sum(a[p] for p in path[: i + 1]))
    for i in range(n - 1, 0, -1):
        rows = sum(member(j, i, n - 1) for j in range(i, n))
        cost += tau(path[i], path[i - 1])(rows, sum(a[p] for p in path[i:]))
    return cost + leftover(sum(member(j, 0, n - 1) for j in range(n)), sum(a))


def cheapest(
    graph: JoinGraph, statistics: Statistics, tau: TauOf, deltas: Sequence[float]
) -> tuple[str, float, Mapping[int, Order] | tuple[int, ...]]:
    """The better of the best extended batch plan and the best path (11.3)."""
    orders = {
        k: best_order(graph, k, stepper(graph, statistics, tau, deltas, k))[1]
        for k in range(graph.count)
        if deltas[k] > 0
    }
    batch = batch_cost(graph, statistics, tau, deltas, orders)
    paths = [(grouping_cost(statistics, tau, deltas, p), p) for p in hamiltonian_paths(graph)]
    if paths and min(paths)[0] < batch:
        return ("conditional", *min(paths))
    return "batch", batch, orders


def stepper(
    graph: JoinGraph, statistics: Statistics, tau: TauOf, deltas: Sequence[float], start: int
) -> Callable[[frozenset[int], int], float]:
    """The cost of asking a node when others are bound: combined edges take their mean time, all selectivities count."""

    def step(bound: frozenset[int], node: int) -> float:
        rows = deltas[start] * grown(graph, statistics, bound, start)
        attributes = sum(statistics.widths[v] for v in bound)
        edges = [v for v in sorted(bound) if graph.joined(v, node)]
        return sum(tau(v, node)(rows, attributes) for v in edges) / max(len(edges), 1)

    return step
