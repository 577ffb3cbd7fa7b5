"""Choosing how to refresh a view: every strategy's best plan is priced, and prices are corrected by measurements.

Strategies of similar price are each tried once or twice before one is chosen for good: a model of requests alone cannot
tell them apart. Clearly more expensive ones are never tried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf, isqrt, log

from penstock.planner.orders.graph import JoinGraph
from penstock.planner.views.formulas import grouping_cost, stepper
from penstock.planner.views.paths import Group, contraction, spread_paths
from penstock.planner.views.plan import MaintenancePlan
from penstock.planner.views.price import price
from penstock.planner.views.regression import Tau
from penstock.planner.views.search import best_order
from penstock.planner.views.statistics import Sample, Statistics, learned
from penstock.planner.views.strategies import STRATEGIES, adjacent, batch, conditional, default_orders, recompute, sweep

_PATHS = 200  # paths priced by formula, the best of which are simulated
_TRIED = 2  # refreshes after which a strategy's measured time is trusted
_CLOSE = 1.5  # times the best, within which a strategy is worth a try
_NEARBY = 1.1  # the same for one that was measured with half or twice as many changes
_AGAIN = 1.3  # times the best, within which it is worth a second try
_CLEAR = 1.1  # times a recompute, above which changes need not be counted
_MOST = 10.0  # maximal correction of a price
_KEPT = 5  # refreshes of a strategy whose times are kept
_PATIENCE = 32  # refreshes after which stable models are fitted again
_FORGOTTEN = 64  # refreshes after which a strategy that was not used may be tried again
_BLIND = 3  # consecutive recomputes without counting the changes


@dataclass(frozen=True)
class Choice:
    """The plan to use, its expected seconds, and the prices of the others."""

    plan: MaintenancePlan
    seconds: float
    prices: tuple[tuple[str, float], ...]

    def explain(self, names: Sequence[str] | None = None) -> str:
        """The plan as text, and the alternatives it was preferred to."""
        others = ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in self.prices)
        return f"{self.plan.explain(names)}\n  priced: {others}"


@dataclass
class _Record:
    """Measurements of a strategy with changes of one size: the last refreshes, the last price, when last used."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    foretold: float = 0.0
    used: int = 0

    @property
    def seconds(self) -> float:
        """The better of the first two, which may have met cold caches; then the median, robust to one slow refresh."""
        return min(self.times) if len(self.times) <= _TRIED else sorted(self.times)[(len(self.times) - 1) // 2]


@dataclass
class Chooser:
    """Chooses the strategy of each refresh of one view, and learns from each refresh.

    Measurements outweigh prices: prices say which strategies are worth a try, and with which plan. The time of a
    refresh beside its requests (fetching changes, installing) is the overhead, the least of the last remainders.
    """

    graph: JoinGraph
    statistics: Statistics
    allowed: Collection[str] = STRATEGIES
    _beside: deque[float] = field(default_factory=lambda: deque(maxlen=_PATIENCE))
    _records: dict[tuple[str, _Kind], _Record] = field(default_factory=dict)
    _made: dict[tuple[int, ...], dict[str, tuple[float, MaintenancePlan]]] = field(default_factory=dict)
    _refreshes: int = 0
    _taus: dict[tuple[int, int], Tau] | None = None
    _blind: int | None = None  # recomputes since the changes were last counted

    def choose(self, deltas: Sequence[int]) -> Choice:
        """The plan for a refresh with so many changed rows at each node."""
        offers, kind = dict(self._offers(deltas)), _kind(deltas)
        if "recompute" in offers:
            offers["recompute"] = (self.statistics.recompute or inf, offers["recompute"][1])
        expected = {name: self._expected(name, offers, kind) for name in offers}
        ranked = sorted(expected.items(), key=lambda item: item[1])
        if not ranked:
            raise ValueError(f"no strategy among {sorted(self.allowed)} can refresh this view")
        least = max(ranked[0][1], 1e-9)
        worth = [name for name, seconds in ranked if seconds < inf and self._worth_a_try(name, kind, seconds / least)]
        best = worth[0] if worth else ranked[0][0]
        self._blind = 0 if best == "recompute" and len(ranked) > 1 and least * _CLEAR < ranked[1][1] else None
        return Choice(offers[best][1], expected[best], tuple(ranked))

    def foreseen(self) -> MaintenancePlan | None:
        """A recompute, if the last choice was clearly one: then the changes need not be fetched to choose it again.

        Every few refreshes it is None nevertheless, since there may be fewer changes now.
        """
        if self._blind is None or self._blind >= _BLIND:
            return None
        self._blind += 1
        return recompute(self.graph)

    def learn(self, choice: Choice, deltas: Sequence[int], samples: Sequence[Sample], seconds: float) -> None:
        """Add the times of a refresh: its requests, and the whole. After `foreseen` the deltas are unknown."""
        self.statistics = learned(self.statistics, samples)
        self._refreshes += 1
        seldom = self._refreshes & (self._refreshes - 1) == 0 or self._refreshes % _PATIENCE == 0
        if samples and (self._taus is None or seldom):
            self._taus = _fitted(self.graph, self.statistics)
            self._made.clear()
        self._remember(choice, deltas, seconds)
        if deltas:
            self._offers(deltas)  # computed now, while no refresh waits for it

    def _remember(self, choice: Choice, deltas: Sequence[int], seconds: float) -> None:
        strategy = choice.plan.strategy
        key = (strategy, _EVERY if strategy == "recompute" else _kind(deltas))
        record = self._records.setdefault(key, _Record())
        if record.times and self._refreshes - record.used > _FORGOTTEN:
            record.times.clear()
        record.times.append(seconds)
        record.used = self._refreshes
        if strategy == "recompute":
            self.statistics = replace(self.statistics, recompute=record.seconds)
            return
        # Compared with the present models: the first predictions had no data of these sources.
        record.foretold = price(self.graph, self.statistics, choice.plan, [float(d) for d in deltas], self._taus)
        self._beside.append(max(0.0, seconds - record.foretold))

    def _offers(self, deltas: Sequence[int]) -> dict[str, tuple[float, MaintenancePlan]]:
        """The priced plans for changes of about this size, computed once per fit of the models."""
        about = tuple((int(changed).bit_length() + 1) // 2 for changed in deltas)
        if about not in self._made:
            taus = self._taus if self._taus is not None else _fitted(self.graph, self.statistics)
            self._made[about] = priced(self.graph, self.statistics, [float(d) for d in deltas], self.allowed, taus)
        return self._made[about]

    @property
    def overhead(self) -> float:
        """Seconds of a refresh that are the same for every plan."""
        return min(self._beside, default=0.0)

    def _expected(self, strategy: str, offers: Mapping[str, tuple[float, MaintenancePlan]], kind: _Kind) -> float:
        """The time measured with such changes, else the price, corrected by the error for other strategies."""
        cost = offers[strategy][0]
        known = self._records.get((strategy, kind))
        if strategy == "recompute" or known is not None:
            return known.seconds if known is not None else cost
        overhead = self.overhead
        own = [r for (n, at), r in self._records.items() if n == strategy and at.near(kind)]
        others = [r for (n, at), r in self._records.items() if n != "recompute" and at == kind]
        found = own or others or [r for (n, _), r in self._records.items() if n != "recompute"]
        logs = [log(max(1e-9, r.seconds) / max(1e-9, r.foretold + overhead)) for r in found]
        ratio = exp(sum(logs) / len(logs)) if logs else 1.0
        return (cost + overhead) * min(_MOST, max(1 / _MOST, ratio))

    def _worth_a_try(self, strategy: str, kind: _Kind, times_the_least: float) -> bool:
        """Close to the best and insufficiently measured: never tried, tried once, or long ago."""
        record = self._records.get((strategy, _EVERY if strategy == "recompute" else kind))
        if record is None or self._refreshes - record.used > _FORGOTTEN:
            nearby = any(name == strategy and at != kind and at.near(kind) for name, at in self._records)
            return times_the_least <= (_NEARBY if nearby else _CLOSE)
        return len(record.times) < _TRIED and times_the_least <= _AGAIN


@dataclass(frozen=True)
class _Kind:
    """A class of similar changes: to the same nodes, and of about the same total size."""

    nodes: frozenset[int] = frozenset()
    size: int = 0

    def near(self, other: _Kind) -> bool:
        return self.nodes == other.nodes and abs(self.size - other.size) <= 2


_EVERY = _Kind()  # a recompute takes the same time for any changes


def _kind(deltas: Sequence[int]) -> _Kind:
    return _Kind(frozenset(k for k, changed in enumerate(deltas) if changed), int(sum(deltas)).bit_length())


def priced(
    graph: JoinGraph,
    statistics: Statistics,
    deltas: Sequence[float],
    allowed: Collection[str] = STRATEGIES,
    taus: dict[tuple[int, int], Tau] | None = None,
) -> dict[str, tuple[float, MaintenancePlan]]:
    """The best plan of each allowed strategy, with its price."""
    taus = taus if taus is not None else _fitted(graph, statistics)
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

    def tau(v: int, node: int) -> Tau:
        return taus[v, node]

    by_cost = {
        k: best_order(graph, k, stepper(graph, statistics, tau, deltas, k))[1] if deltas[k] else near[k]
        for k in range(graph.count)
    }
    for orders in (by_cost, near):
        plans += [batch(graph, orders), batch(graph, orders, parallel=True)]
        plans += [sweep(graph, orders)] if "batch" not in allowed else []  # it makes the same requests, more often
    paths = [(grouping_cost(statistics, tau, deltas, path), path) for path in spread_paths(graph, _PATHS)]
    best = [path for _, path in sorted(paths)[:3]]
    for way in [Group(path) for path in best] or [contraction(graph)]:
        plans += [conditional(graph, way), conditional(graph, way, parallel=True)]
    if graph.count > 3:
        plans += [adjacent(graph, max(2, isqrt(graph.count)), best[0] if best else None)]
    return [plan for plan in plans if plan.strategy in allowed]


def _fitted(graph: JoinGraph, statistics: Statistics) -> dict[tuple[int, int], Tau]:
    pairs = [(a, b) for a in range(graph.count) for b in range(graph.count) if a != b and graph.joined(a, b)]
    return {(v, node): statistics.tau(v, node) for v, node in pairs}
