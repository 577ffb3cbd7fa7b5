"""Choosing how to refresh a view: every strategy's best plan is priced, and prices are corrected by what refreshes took.

Plans that are close in price are each tried before one is settled on: a model of requests alone is not good enough to
tell them apart.
"""

from __future__ import annotations

from collections import deque
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
_TRIED = 3  # refreshes after which a strategy's correction is believed
_CLOSE = 1.5  # times the best price, within which a strategy is worth a try
_WEIGHT = 0.3  # of the newest refresh in a correction
_MOST = 3.0  # no strategy is corrected by more than this
_PATIENCE = 8  # refreshes after which models are fitted anew, once they have settled
_FORGOTTEN = 64  # refreshes after which a strategy that was not used may be tried again
_BLIND = 3  # recomputes in a row that are foreseen without looking at the changes


@dataclass(frozen=True)
class Choice:
    """The plan to use, the seconds it should take, and what the others were priced at."""

    plan: MaintenancePlan
    seconds: float
    prices: tuple[tuple[str, float], ...]

    def explain(self, names: Sequence[str] | None = None) -> str:
        """The plan as text, and what it was preferred to."""
        others = ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in self.prices)
        return f"{self.plan.explain(names)}\n  priced: {others}"


@dataclass
class _Record:
    """How a strategy did at one size of changes: refreshes, what they took and should have taken, when last used."""

    tries: int = 0
    seconds: float = 1.0
    foretold: float = 1.0
    used: int = 0

    def ratio(self, overhead: float) -> float:
        """What took longer (or less) than foretold, all in all."""
        return min(_MOST, max(1 / _MOST, self.seconds / (self.foretold + overhead)))


@dataclass
class Chooser:
    """Decides refresh by refresh for one view, and learns from each.

    What every refresh takes besides its requests (fetching changes, installing) is the overhead, the least of what
    was lately left over; what remains between prediction and measurement corrects the strategy's price, for each order
    of magnitude of changes.
    """

    graph: JoinGraph
    statistics: Statistics
    allowed: Collection[str] = STRATEGIES
    _beside: deque[float] = field(default_factory=lambda: deque(maxlen=_PATIENCE))
    _records: dict[tuple[str, int], _Record] = field(default_factory=dict)
    _made: dict[tuple[int, ...], dict[str, tuple[float, MaintenancePlan]]] = field(default_factory=dict)
    _refreshes: int = 0
    _taus: dict[tuple[int, int], Tau] | None = None
    _blind: int | None = None  # foreseen recomputes since the changes were last looked at

    def choose(self, deltas: Sequence[int]) -> Choice:
        """The plan for a refresh with so many changed rows at each node."""
        offers, size = dict(self._offers(deltas)), _size(deltas)
        if "recompute" in offers:
            offers["recompute"] = (self.statistics.recompute or inf, offers["recompute"][1])
        corrected = {name: self._corrected(name, cost, size) for name, (cost, _) in offers.items()}
        ranked = sorted(corrected.items(), key=lambda item: item[1])
        if not ranked:
            raise ValueError(f"no strategy among {sorted(self.allowed)} can refresh this view")
        least = ranked[0][1]
        untried = [n for n, s in ranked if self._record(n, size).tries < _TRIED and s <= _CLOSE * least and s < inf]
        best = untried[0] if untried else ranked[0][0]
        self._blind = 0 if best == "recompute" and len(ranked) > 1 and least * _CLOSE < ranked[1][1] else None
        return Choice(offers[best][1], corrected[best], tuple(ranked))

    def foreseen(self) -> MaintenancePlan | None:
        """A recompute, if the last choice was clearly one: then changes need not be fetched to choose it again.

        Every few refreshes it is None all the same, for the changes may have become fewer.
        """
        if self._blind is None or self._blind >= _BLIND:
            return None
        self._blind += 1
        return recompute(self.graph)

    def learn(self, choice: Choice, deltas: Sequence[int], samples: Sequence[Sample], seconds: float) -> None:
        """Take in what a refresh took: its requests, and the whole of it. Of a foreseen one the deltas are not known."""
        self.statistics = learned(self.statistics, samples)
        self._refreshes += 1
        if self._taus is None or self._refreshes % _PATIENCE == 0 or self._refreshes in (1, 2, 4):
            self._taus = _fitted(self.graph, self.statistics)
            self._made.clear()
        self._remember(choice, deltas, seconds)
        if deltas:
            self._offers(deltas)  # while nobody waits for it

    def _remember(self, choice: Choice, deltas: Sequence[int], seconds: float) -> None:
        key = choice.plan.strategy, _size(deltas)
        record = self._record(*key)
        if choice.plan.strategy == "recompute":
            before = self.statistics.recompute or seconds
            known = min(before, seconds) if record.tries < _TRIED else _moved(before, seconds)
            self.statistics = replace(self.statistics, recompute=known)
            self._records[key] = _Record(record.tries + 1, 1.0, 1.0, self._refreshes)
            return
        # Against what is known by now: the first predictions knew nothing of these sources.
        foretold = price(self.graph, self.statistics, choice.plan, [float(d) for d in deltas], self._taus)
        self._beside.append(max(0.0, seconds - foretold))
        new = _Record(record.tries + 1, seconds, foretold, self._refreshes)
        if record.tries >= _TRIED:
            new.seconds, new.foretold = _moved(record.seconds, seconds), _moved(record.foretold, foretold)
        elif record.tries and record.seconds * foretold < seconds * record.foretold:
            # The first tries meet cold caches: the better of them counts.
            new.seconds, new.foretold = record.seconds, record.foretold
        self._records[key] = new

    def _offers(self, deltas: Sequence[int]) -> dict[str, tuple[float, MaintenancePlan]]:
        """The priced plans for changes of about this size, made once for each fit of the models."""
        about = tuple((int(changed).bit_length() + 1) // 2 for changed in deltas)
        if about not in self._made:
            taus = self._taus if self._taus is not None else _fitted(self.graph, self.statistics)
            self._made[about] = priced(self.graph, self.statistics, [float(d) for d in deltas], self.allowed, taus)
        return self._made[about]

    @property
    def overhead(self) -> float:
        """Seconds of a refresh that no choice of plan can save."""
        return min(self._beside, default=0.0)

    def _corrected(self, strategy: str, cost: float, size: int) -> float:
        if strategy == "recompute":
            return cost
        record, overhead = self._record(strategy, size), self.overhead
        near = [
            r.ratio(overhead)
            for (n, at), r in self._records.items()
            if at == size and r.tries >= _TRIED and n != "recompute"
        ]
        ratio = exp(sum(map(log, near)) / len(near)) if near else 1.0
        if record.tries:
            ratio = record.ratio(overhead) if record.tries >= _TRIED else min(ratio, record.ratio(overhead))
        return (cost + overhead) * ratio

    def _record(self, strategy: str, size: int) -> _Record:
        found = self._records.get((strategy, size), _Record())
        return _Record() if found.tries and self._refreshes - found.used > _FORGOTTEN else found


def _moved(old: float, new: float) -> float:
    return exp((1 - _WEIGHT) * log(max(old, 1e-9)) + _WEIGHT * log(max(new, 1e-9)))


def priced(
    graph: JoinGraph,
    statistics: Statistics,
    deltas: Sequence[float],
    allowed: Collection[str] = STRATEGIES,
    taus: dict[tuple[int, int], Tau] | None = None,
) -> dict[str, tuple[float, MaintenancePlan]]:
    """The best plan of each strategy that is allowed, with its price."""
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
    by_cost = {
        k: best_order(graph, k, stepper(graph, statistics, lambda v, j: taus[v, j], deltas, k))[1]
        if deltas[k]
        else near[k]
        for k in range(graph.count)
    }
    for orders in (by_cost, near):
        plans += [batch(graph, orders), batch(graph, orders, parallel=True)]
        plans += [sweep(graph, orders)] if "batch" not in allowed else []  # it asks the same, more often
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


def _fitted(graph: JoinGraph, statistics: Statistics) -> dict[tuple[int, int], Tau]:
    pairs = [(a, b) for a in range(graph.count) for b in range(graph.count) if a != b and graph.joined(a, b)]
    return {(v, node): statistics.tau(v, node) for v, node in pairs}


def _size(deltas: Sequence[int]) -> int:
    """The class of sizes in which corrections are kept."""
    return len(str(sum(deltas)))
