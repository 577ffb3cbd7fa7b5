"""The cost formulas of Liu 2005 as printed (10.4, 11.3.1), with corrected indices.

`Statistics` has sizes and selectivities; `tau(v, j)` is the time of a request to j by keys of v, for C rows with A
attributes. The formulas add requests; `price` takes concurrent requests into account.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.planner.orders.graph import JoinGraph
from penstock.planner.views.statistics import Statistics

TauOf = Callable[[int, int], Callable[[float, float], float]]


def grown(graph: JoinGraph, statistics: Statistics, held: frozenset[int], start: int) -> float:
    """Rows made from one row of `start`: other cardinalities times the selectivities of all edges inside."""
    rows = 1.0
    for v in held:
        if v != start:
            rows *= statistics.rows[v]
        for w in held:
            if w < v and graph.joined(w, v):
                rows *= statistics.selectivity(w, v)
    return rows


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
    cost = 0.0
    rows, attributes = deltas[path[0]], float(a[path[0]])
    for i in range(n - 1):
        cost += tau(path[i], path[i + 1])(rows, attributes)
        # All members so far are joined with the next node, and its own delta starts.
        rows, attributes = rows * r[path[i + 1]] * sigma[i] + deltas[path[i + 1]], attributes + a[path[i + 1]]
    rows, attributes, whole = deltas[path[-1]], float(a[path[-1]]), r[path[-1]]
    for i in range(n - 1, 0, -1):
        node = path[i - 1]
        cost += tau(path[i], node)(rows, attributes)
        # The next delta has been up already, with everything that the nodes above made of it.
        rows = (rows * r[node] + deltas[node] * whole) * sigma[i - 1]
        whole, attributes = whole * r[node] * sigma[i - 1], attributes + a[node]
    return cost + leftover(rows, attributes)


def stepper(
    graph: JoinGraph, statistics: Statistics, tau: TauOf, deltas: Sequence[float], start: int
) -> Callable[[frozenset[int], int], float]:
    """The cost of a request to a node for a bound set: edges count with their mean time, and all selectivities.

    Searches bind one node at a time, so the rows of a set are computed from those of the set it grew from.
    """
    near = selectivities(graph, statistics)
    known = {frozenset((start,)): (deltas[start], float(statistics.widths[start]))}

    def step(bound: frozenset[int], node: int) -> float:
        if bound not in known:
            rows = deltas[start] * grown(graph, statistics, bound, start)
            known[bound] = rows, sum(statistics.widths[v] for v in bound)
        rows, attributes = known[bound]
        cost, edges, larger = 0.0, 0, rows * statistics.rows[node]
        for v, share in near[node]:
            if v in bound:
                cost += tau(v, node)(rows, attributes)
                edges += 1
                larger *= share
        known.setdefault(bound | {node}, (larger, attributes + statistics.widths[node]))
        return cost / max(edges, 1)

    return step


def selectivities(graph: JoinGraph, statistics: Statistics) -> list[list[tuple[int, float]]]:
    """For each node its neighbours, with the share of pairs that match."""
    near = (sorted(graph.neighbours(frozenset((node,)))) for node in range(graph.count))
    return [[(v, statistics.selectivity(v, node)) for v in found] for node, found in enumerate(near)]
