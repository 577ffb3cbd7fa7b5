"""The time of a maintenance plan in seconds: waiting, volume and work, including concurrency.

The formulas in `formulas` add requests; here a plan is simulated, request by request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from penstock.planner.orders.graph import JoinGraph
from penstock.planner.views.formulas import selectivities
from penstock.planner.views.plan import MaintenancePlan, Request
from penstock.planner.views.regression import Tau
from penstock.planner.views.statistics import Statistics

TauOf = Callable[[int, int], Tau]

_JOIN = 0.0004  # seconds to process one answer here, however small
_JOINED_ROW = 0.4e-6  # and per row that goes into the join or comes out of it


def price(
    graph: JoinGraph,
    statistics: Statistics,
    plan: MaintenancePlan,
    deltas: Sequence[float],
    taus: Mapping[tuple[int, int], Tau] | None = None,
) -> float:
    """The expected seconds of the plan, with that many changed rows of each node."""
    empty = [k for k, changed in enumerate(deltas) if not changed]
    plan = plan.without(empty)
    if plan.each_row:
        once = [min(1.0, changed) for changed in deltas]
        steps = {m: [r for r in plan.requests if r.members == (m,)] for m in plan.sequence}
        return sum(
            deltas[m] * _serial(_costs(graph, statistics, requests, once, taus)) for m, requests in steps.items()
        )
    costs = _costs(graph, statistics, plan.requests, deltas, taus)
    return _played(statistics, plan, costs) if plan.parallel else _serial(costs)


def _costs(
    graph: JoinGraph,
    statistics: Statistics,
    requests: Sequence[Request],
    deltas: Sequence[float],
    taus: Mapping[tuple[int, int], Tau] | None,
) -> list[tuple[float, float, float]]:
    """For each request: seconds of waiting, of work at the source, and of joining here."""
    near = selectivities(graph, statistics)
    held = {m: {m} for m in range(graph.count)}
    size = dict(enumerate(map(float, deltas)))
    costs = []
    for request in requests:
        before = sum(size[m] for m in request.members)
        for m in request.members:
            shares = (share for v, share in near[request.node] if v in held[m])
            size[m] *= prod(shares, start=statistics.rows[request.node])
            held[m].add(request.node)
        after = sum(size[m] for m in request.members)
        here = _JOIN + _JOINED_ROW * (before + after)
        if not request.via:
            costs.append((0.0, 1e-6 * statistics.rows[request.node], here))
            continue
        v = request.via[-1]
        tau = taus[v, request.node] if taus is not None else statistics.tau(v, request.node)
        keys = min(before, statistics.rows[v])
        seconds = tau(keys, statistics.widths[request.node])
        waiting = min(seconds, tau(0.0, statistics.widths[request.node]))
        costs.append((waiting, seconds - waiting, here))
    return costs


def _serial(costs: Sequence[tuple[float, float, float]]) -> float:
    return sum(map(sum, costs))


def _played(statistics: Statistics, plan: MaintenancePlan, costs: Sequence[tuple[float, float, float]]) -> float:
    """When the last answer is joined, with as many concurrent requests as connections and cores allow."""
    done = {(m, m): 0.0 for m in plan.sequence}
    connections = statistics.connections or (len(plan.sequence),) * len(plan.sequence)
    lines = [[0.0] * max(1, connections[node]) for node in range(len(plan.sequence))]
    cores = [0.0] * max(1, statistics.cores)
    here_free = 0.0
    order = sorted(range(len(plan.requests)), key=lambda k: (plan.levels[k], k))
    for k in order:
        request, (waiting, work, here) = plan.requests[k], costs[k]
        ready = max((done[m, v] for m in request.members for v in request.via), default=0.0)
        line = lines[request.node]
        one = line.index(min(line))
        core = cores.index(min(cores))
        answered = max(max(ready, line[one]) + waiting, cores[core]) + work
        line[one] = cores[core] = answered
        here_free = max(here_free, answered) + here
        for m in request.members:
            done[m, request.node] = here_free
    return max(done.values())
