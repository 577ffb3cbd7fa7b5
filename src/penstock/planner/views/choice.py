"""Choosing how to refresh a view: every strategy's best plan is priced, and prices are corrected by what refreshes took.

Plans that are close in price are each tried before one is settled on: a model of requests alone is not good enough to
tell them apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import exp, inf, isqrt, log

from penstock.planner.orders.graph import JoinGraph
from penstock.planner.views.formulas import grouping_cost, stepper
from penstock.planner.views.paths import Group, contraction, hamiltonian_paths
from penstock.planner.views.plan import MaintenancePlan
from penstock.planner.views.price import price
from penstock.planner.views.regression import Tau
from penstock.planner.views.search import best_order
from penstock.planner.views.statistics import Sample, Statistics, learned
from penstock.planner.views.strategies import STRATEGIES, adjacent, batch, conditional, default_orders, recompute, sweep

_PATHS = 200  # paths that are priced by formula, of which the best are played through
_TRIED = 2  # refreshes after which a strategy's correction is believed
_CLOSE = 1.5  # times the best price, within which a strategy is worth a try
_WEIGHT = 0.3  # of the newest refresh in a correction
_PATIENCE = 8  # refreshes after which models are fitted anew, once they have settled


@dataclass(frozen=True)
class Choice:
    """The plan to use, the seconds it should take, and what the others were priced at."""

    plan: MaintenancePlan
    seconds: float
    predicted: float  # before correction
    prices: tuple[tuple[str, float], ...]

    def explain(self, names: Sequence[str] | None = None) -> str:
        """The plan as text, and what it was preferred to."""
        others = ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in self.prices)
        return f"{self.plan.explain(names)}\n  priced: {others}"


@dataclass
class Chooser:
    """Decides refresh by refresh for one view, and learns from each."""

    graph: JoinGraph
    statistics: Statistics
    allowed: Collection[str] = STRATEGIES
    _seen: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)
    _made: dict[tuple[int, ...], dict[str, tuple[float, MaintenancePlan]]] = field(default_factory=dict)
    _refreshes: int = 0

    def choose(self, deltas: Sequence[int]) -> Choice:
        """The plan for a refresh with so many changed rows at each node."""
        magnitude = tuple(int(changed).bit_length() for changed in deltas)
        if magnitude not in self._made:
            self._made[magnitude] = priced(self.graph, self.statistics, [float(d) for d in deltas], self.allowed)
        offers = self._made[magnitude]
        size = _size(deltas)
        corrected = {name: cost * self._correction(name, size) for name, (cost, _) in offers.items()}
        ranked = sorted(corrected.items(), key=lambda item: item[1])
        if not ranked:
            raise ValueError(f"no strategy among {sorted(self.allowed)} can refresh this view")
        untried = [n for n, s in ranked if self._tries(n, size) < _TRIED and s <= _CLOSE * ranked[0][1] and s < inf]
        best = untried[0] if untried and len(ranked) > 1 else ranked[0][0]
        return Choice(offers[best][1], corrected[best], offers[best][0], tuple(ranked))

    def learn(self, choice: Choice, deltas: Sequence[int], samples: Sequence[Sample], seconds: float) -> None:
        """Take in what a refresh took: its requests, and the whole of it."""
        self.statistics = learned(self.statistics, samples)
        if choice.plan.strategy == "recompute":
            self.statistics = replace(self.statistics, recompute=seconds)
        key, ratio = (choice.plan.strategy, _size(deltas)), seconds / max(choice.predicted, 1e-9)
        tries, old = self._seen.get(key, (0, inf))
        # The first tries meet cold caches: the better of them counts.
        new = min(old, ratio) if tries < _TRIED else exp((1 - _WEIGHT) * log(old) + _WEIGHT * log(ratio))
        self._seen[key] = (tries + 1, 1.0 if key[0] == "recompute" else new)
        self._refreshes += 1
        if self._refreshes % _PATIENCE == 0 or self._refreshes in (1, 2, 4):
            self._made.clear()

    def _correction(self, strategy: str, size: int) -> float:
        if strategy == "recompute":
            return 1.0
        if (strategy, size) in self._seen:
            return self._seen[strategy, size][1]
        near = [r for (name, at), (_, r) in self._seen.items() if at == size and name != "recompute"]
        return exp(sum(map(log, near)) / len(near)) if near else 1.0

    def _tries(self, strategy: str, size: int) -> int:
        return self._seen.get((strategy, size), (0, 1.0))[0]


def priced(
    graph: JoinGraph, statistics: Statistics, deltas: Sequence[float], allowed: Collection[str] = STRATEGIES
) -> dict[str, tuple[float, MaintenancePlan]]:
    """The best plan of each strategy that is allowed, with its price."""
    taus = _taus(graph, statistics)
    offers: dict[str, tuple[float, MaintenancePlan]] = {}
    for plan in _candidates(graph, statistics, deltas, allowed, taus):
        cost = price(graph, statistics, plan, deltas, taus)
        if plan.strategy not in offers or cost < offers[plan.strategy][0]:
            offers[plan.strategy] = (cost, plan)
    if "recompute" in allowed and (statistics.recompute is not None or not offers):
        offers["recompute"] = (statistics.recompute or inf, recompute(graph))
    return offers


def _candidates(
    graph: JoinGraph,
    statistics: Statistics,
    deltas: Sequence[float],
    allowed: Collection[str],
    taus: dict[tuple[int, int], Tau],
) -> list[MaintenancePlan]:
    plans: list[MaintenancePlan] = []
    near = default_orders(graph)
    by_cost = {
        k: best_order(graph, k, stepper(graph, statistics, lambda v, j: taus[v, j], deltas, k))[1]
        if deltas[k]
        else near[k]
        for k in range(graph.count)
    }
    for orders in (by_cost, near):
        plans += [sweep(graph, orders), batch(graph, orders), batch(graph, orders, parallel=True)]
    paths = [
        (grouping_cost(statistics, lambda v, j: taus[v, j], deltas, path), path)
        for path in islice(hamiltonian_paths(graph), _PATHS)
    ]
    best = [path for _, path in sorted(paths)[:3]]
    for way in [Group(path) for path in best] or [contraction(graph)]:
        plans += [conditional(graph, way), conditional(graph, way, parallel=True)]
    if graph.count > 3:
        plans += [adjacent(graph, max(2, isqrt(graph.count)), best[0] if best else None)]
    return [plan for plan in plans if plan.strategy in allowed]


def _taus(graph: JoinGraph, statistics: Statistics) -> dict[tuple[int, int], Tau]:
    pairs = [(a, b) for a in range(graph.count) for b in range(graph.count) if a != b and graph.joined(a, b)]
    return {(v, node): statistics.tau(v, node) for v, node in pairs}


def _size(deltas: Sequence[int]) -> int:
    """The class of sizes in which corrections are kept."""
    return len(str(sum(deltas)))
