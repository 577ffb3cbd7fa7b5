"""Maintenance strategies as functions from a join graph to a plan (Liu 2005, ch. 9-11, and parallel forms of two).

Sequential batch, adjacent and conditional grouping differ only in which members share a request. The parallel forms
make independent requests at once: with slow links the number of rounds matters more than that of requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.planner.orders.graph import JoinGraph, Order
from penstock.planner.views.paths import Element, Group, contraction, nodes_of
from penstock.planner.views.plan import MaintenancePlan, Request

STRATEGIES = ("sweep", "batch", "parallel_batch", "adjacent", "conditional", "parallel_conditional", "recompute")
ORACLE = "greedy"  # fewest requests, but with Cartesian steps: to verify the others


class _Steps:
    """Collects requests, and the nodes that every member has visited."""

    def __init__(self, graph: JoinGraph) -> None:
        self.graph = graph
        self.visited = {m: {m} for m in range(graph.count)}
        self.requests: list[Request] = []

    def ask(self, node: int, members: Sequence[int], via: Sequence[int] | None = None) -> None:
        """Request a node for these members, by all edges from nodes that every one of them has joined."""
        if not members:
            return
        if via is None:
            common = set.intersection(*(self.visited[m] for m in members))
            via = sorted(v for v in common if self.graph.joined(v, node))
        self.requests.append(Request(node, tuple(sorted(members)), tuple(via)))
        for m in members:
            self.visited[m].add(node)

    def walk(self, wanted: Sequence[int], members: Sequence[int]) -> None:
        """Request all wanted nodes for the members, each joined to a visited node."""
        left = list(wanted)
        while left:
            held = frozenset(set.intersection(*(self.visited[m] for m in members)))
            near = self.graph.neighbours(held)
            node = next((w for w in left if w in near), left[0])
            self.ask(node, members)
            left.remove(node)


def default_orders(graph: JoinGraph) -> dict[int, Order]:
    """For each start an order in which every node is joined to an earlier one, near ones first."""
    orders: dict[int, Order] = {}
    for start in range(graph.count):
        order: list[int] = [start]
        for node in order:  # grows during the loop: breadth first
            order += sorted(graph.neighbours(frozenset((node,))) - set(order))
        orders[start] = tuple(order[1:])
    return orders


def batch(graph: JoinGraph, orders: Mapping[int, Order] | None = None, *, parallel: bool = False) -> MaintenancePlan:
    """A step for each delta, which requests every other node in turn: n(n-1) requests (Liu 2005, 9.2 and 11.2.2).

    On visiting a node all edges to visited ones are used at once. Neither steps nor branches of one step depend on each
    other: in parallel there are at most n-1 rounds.
    """
    _connected(graph)
    orders = orders if orders is not None else default_orders(graph)
    steps = _Steps(graph)
    for member in range(graph.count):
        if not graph.legal(member, orders[member]):
            raise ValueError(f"{orders[member]} is no order for the changes of node {member}")
        for node in orders[member]:
            steps.ask(node, (member,))
    name = "parallel_batch" if parallel else "batch"
    return MaintenancePlan(name, tuple(range(graph.count)), tuple(steps.requests), parallel)


def sweep(graph: JoinGraph, orders: Mapping[int, Order] | None = None) -> MaintenancePlan:
    """One changed row at a time: n-1 requests each (Liu 2005, 9.1)."""
    plan = batch(graph, orders)
    return MaintenancePlan("sweep", plan.sequence, plan.requests, each_row=True)


def adjacent(graph: JoinGraph, size: int, path: Sequence[int] | None = None) -> MaintenancePlan:
    """Steps of `size` neighbours along a path share the requests to all other nodes (Liu 2005, 10.1).

    Neighbours that are not joined with each other, and those left over at the end, take their steps alone.
    """
    if size < 2:
        raise ValueError(f"adjacent grouping puts at least two steps together, not {size}")
    path = tuple(path) if path is not None else nodes_of(contraction(graph))
    steps = _Steps(graph)
    for start in range(0, len(path), size):
        members = path[start : start + size]
        if len(members) < size or not graph.connected(members):
            for member in members:
                steps.walk([p for p in path if p != member], (member,))
            continue
        for member in members:
            steps.walk([p for p in members if p != member], (member,))
        steps.walk([p for p in path if p not in members], members)
    return MaintenancePlan("adjacent", path, tuple(steps.requests))


def greedy(graph: JoinGraph) -> MaintenancePlan:
    """Every node is requested once, for all members but its own: n requests, some products (Liu 2005, 10.2.2)."""
    _connected(graph)
    steps = _Steps(graph)
    for node in range(graph.count):
        steps.ask(node, [m for m in range(graph.count) if m != node])
    return MaintenancePlan(ORACLE, tuple(range(graph.count)), tuple(steps.requests))


def products(graph: JoinGraph, plan: MaintenancePlan) -> tuple[Request, ...]:
    """The requests in which some member has no condition with the node: Cartesian products."""
    held = {m: {m} for m in range(graph.count)}
    found = []
    for request in plan.requests:
        if any(request.node not in graph.neighbours(frozenset(held[m])) for m in request.members):
            found.append(request)
        for m in request.members:
            held[m].add(request.node)
    return tuple(found)


def conditional(
    graph: JoinGraph, path: Group | Sequence[int] | None = None, *, parallel: bool = False
) -> MaintenancePlan:
    """Scroll up and down a path through all nodes: 2(n-1) requests (Liu 2005, 10.2.3 and 11.2.2).

    Edges beside the path are applied once both ends are joined. Groups on the path are maintained first, and treated as
    one node. In parallel, up and down proceed at once: n-1 rounds.
    """
    _connected(graph)
    whole = path if isinstance(path, Group) else Group(tuple(path)) if path is not None else contraction(graph)
    if sorted(nodes_of(whole)) != list(range(graph.count)):
        raise ValueError(f"{whole} does not visit every node once")
    steps = _Steps(graph)
    _scroll(steps, whole, parallel)
    name = "parallel_conditional" if parallel else "conditional"
    return MaintenancePlan(name, nodes_of(whole), tuple(steps.requests), parallel)


def recompute(graph: JoinGraph) -> MaintenancePlan:
    """Read every source as a whole."""
    return MaintenancePlan("recompute", tuple(range(graph.count)), (), parallel=True)


def _scroll(steps: _Steps, element: Element, parallel: bool) -> None:
    if isinstance(element, int):
        return
    for inner in element.path:
        _scroll(steps, inner, parallel)
    _one_way(steps, element.path, parallel)
    _one_way(steps, element.path[::-1], parallel)


def _one_way(steps: _Steps, path: tuple[Element, ...], parallel: bool) -> None:
    for k in range(1, len(path)):
        members = [m for e in path[:k] for m in nodes_of(e)]
        target = path[k]
        if parallel and isinstance(target, int):
            # Keys from the last element alone: no need to wait for the results of the way back.
            steps.ask(target, members, sorted(v for v in nodes_of(path[k - 1]) if steps.graph.joined(v, target)))
        else:
            steps.walk(nodes_of(target), members)


def _connected(graph: JoinGraph) -> None:
    if not graph.connected():
        parts = [sorted(part) for part in graph.components(graph.all)]
        raise ValueError(f"a view's join graph must be connected; nodes {parts} have no condition between them")
