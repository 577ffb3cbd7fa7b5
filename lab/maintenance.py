"""Formulas and searches of Liu 2005 as printed, beside which `planner/views` is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

from lab.orders import every_order
from penstock.planner.orders.graph import JoinGraph, Order
from penstock.planner.views.bushy import Price
from penstock.planner.views.formulas import TauOf, grouping_cost, stepper
from penstock.planner.views.relations import Relations
from penstock.planner.views.search import Priced, StepCost, best_order
from penstock.planner.views.shape_cost import Costs, Rows, building_time, rows_of, segment_time
from penstock.planner.views.shapes import Segment, Shape, exchanges
from penstock.planner.views.statistics import Statistics


def uniform_costs(
    sizes: Sequence[float], group: int, ship: Callable[[float], float], evaluate: Callable[[float], float]
) -> tuple[float, float, float]:
    """Batch, adjacent (of `group`) and conditional for n equal sources (10.4); `sizes`: a delta after each join."""
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


def _cost(start: int, order: Order, step: StepCost) -> float:
    return sum(step(frozenset((start, *order[:k])), node) for k, node in enumerate(order))


def adjacent_requests(nodes: int, size: int) -> int:
    """The number of requests of adjacent grouping on a path (Liu 2005, 10.1); least near the square root of `nodes`."""
    groups = nodes // size
    return groups * (size * (size - 1) + nodes - size) + (nodes - groups * size) * (nodes - 1)


def joins_all(shape: Shape, relations: Relations) -> bool:
    """Whether no join of the shape is a product."""
    return all(
        shape.members[build] & relations.neighbours(bound)
        for segment in shape.segments
        for bound, build in zip(shape.reached(segment), segment.builds, strict=False)
    )


def building_work(rows: Rows, costs: Costs) -> float:
    """W_b: all tables of a segment."""
    return costs.building * (sum(rows.sources) + sum(rows.handed))


def cluster_price(relations: Relations, costs: Costs, cores: int) -> Price:
    """The price of a shape on the cluster of the thesis."""
    return lambda shape: bushy_time(relations, shape, costs, cores)


def hamiltonian_paths(graph: JoinGraph) -> Iterator[tuple[int, ...]]:
    """All paths that visit every node once, both directions of each, lower nodes first."""
    growing: list[tuple[int, ...]] = [(node,) for node in reversed(range(graph.count))]
    while growing:
        path = growing.pop()
        if len(path) == graph.count:
            yield path
            continue
        near = graph.neighbours(frozenset(path[-1:])) - frozenset(path)
        growing += [(*path, node) for node in sorted(near, reverse=True)]


def bushy_time(relations: Relations, shape: Shape, costs: Costs, cores: int) -> float:
    """T of segments that run in waves, each wave feeding the next; of a single segment its own time.

    Segments that pass on their result pay for filling the next wave's tables; there only the rows between two joins
    remain to be paid. Relations that a later segment builds itself are read while the wave before runs.
    """
    total, waves = 0.0, shape.waves
    for number, wave in enumerate(waves):
        times = []
        for segment in wave:
            rows, own = rows_of(relations, shape, segment), segment.cores or cores
            if all(i < shape.count for i in segment.inputs):
                redirected = exchanges(relations, shape, segment) > 0
                time = segment_time(rows, costs, own, redirected=redirected)
            else:
                source = costs.probing * rows.probe if rows.probes_source else 0.0
                time = (((own - 1) / own * costs.send + costs.probe) * sum(rows.inner) + source) / own
            if segment is not shape.segments[-1]:
                after = _consumer(shape, segment)
                handing = (costs.partition + costs.send + costs.build) * rows.result / own
                time += handing + building_time((rows.result,), costs, after.cores or cores)
            times.append(time)
        if number + 1 < len(waves):
            ahead = [s for s in waves[number + 1] if any(i >= shape.count for i in s.inputs)]
            times += [building_time(rows_of(relations, shape, s).sources, costs, s.cores or cores) for s in ahead]
        total += max(times)
    return total


def _consumer(shape: Shape, segment: Segment) -> Segment:
    number = shape.count + next(n for n, s in enumerate(shape.segments) if s is segment)
    return next(s for s in shape.segments if number in s.inputs)
