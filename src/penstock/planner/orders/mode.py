"""What all modes have in common: the orders in force, the counts since the last check, and the state to store.

Orders do not affect results, and no state of a join depends on them: they may change between any two steps. Every
decision of a mode follows from its input, which is part of its state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import ClassVar

import msgspec

from penstock.planner.orders.cost import CostModel
from penstock.planner.orders.decision import Counters, Decision, Outcome, Parameters, summary
from penstock.planner.orders.graph import JoinGraph, Orders
from penstock.planner.orders.ranges import StoredRange
from penstock.planner.orders.search import Hints, best_order
from penstock.planner.orders.signals import fluctuating
from penstock.planner.orders.sizes import sound_estimates, sound_sizes
from penstock.planner.orders.statistics import Statistics, StoredStatistics

_REMEMBERED = 8  # checks whose arrivals show whether those of a position fluctuate
_TIMED = 5  # checks whose cost is kept: a pause does not change the median of so many


class Learned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the mode `adaptive` adds to the state of all modes; it says what each part is."""

    known: StoredStatistics
    ages: dict[int, int]
    trials: Orders
    work: float
    lost: float
    settled: bool
    signs: tuple[tuple[float, ...], float, float] | None


class ModeState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a mode between two steps, as it is recorded; `ranges` and what follows are of some modes only."""

    mode: str
    query: str
    orders: Orders
    counters: Counters
    interval: StoredStatistics
    spent: tuple[float, ...]
    arrivals: tuple[tuple[float, ...], ...]
    ranges: dict[int, tuple[StoredRange, ...]] = {}
    last: tuple[float, ...] | None = None
    learned: Learned | None = None


class Mode(ABC):
    """The orders in force of one join, the counts since the last check, and what the last checks have `spent`.

    Call `observe` after every step, and `check` when `due`; `orders` are then those of the next step. Report the
    measured cost of the check to `spend`. `pool` adds what other queries counted among the same positions.
    """

    name: ClassVar[str]

    def __init__(
        self, graph: JoinGraph, query: str, parameters: Parameters, model: CostModel, limits: tuple[float, ...]
    ) -> None:
        self.graph = graph
        self.query = query
        self.parameters = parameters
        self.model = model
        self.limits = limits
        self.orders: Orders = {}
        self.counters = Counters()
        self.interval = Statistics.none(graph.count)
        self.spent: tuple[float, ...] = ()
        self.arrivals: tuple[tuple[float, ...], ...] = ()  # of the last checks

    @property
    def overhead(self) -> float:
        """The cost of a check in units of the cost model: as measured, but at least the parameter."""
        return max(self.parameters.overhead, median(self.spent) if self.spent else 0.0)

    @property
    def due(self) -> bool:
        """Whether enough rows were counted for a check."""
        return self.interval.rows >= self.parameters.period

    def begin(self, statistics: Statistics) -> None:
        """Choose the first orders from the statistics of the streams, which may be empty."""
        self.orders = self._planned(statistics)

    def observe(self, statistics: Statistics) -> None:
        """Add the counts of a step, made by the orders in force."""
        self.interval = self.interval + statistics

    def pool(self, statistics: Statistics) -> None:
        """Add what another query counted in the meantime, renamed to the positions of this join."""
        self.interval = self.interval.pooled(statistics)

    def check(self) -> Decision:
        """Decide on the orders of the next interval."""
        decision = self._decide(self.counters.checks + 1)
        self.orders = decision.orders
        self.counters = self.counters.after(decision)
        self.arrivals = (*self.arrivals, self.interval.arrivals)[-_REMEMBERED:]
        self.interval = replace(Statistics.none(self.graph.count), held=self.interval.held)
        return decision

    def spend(self, cost: float) -> None:
        """Record the cost of a check that was not bypassed, in units of the cost model."""
        self.spent = (*self.spent, cost)[-_TIMED:]

    @property
    def state(self) -> ModeState:
        """All that a restart needs."""
        orders = dict(sorted(self.orders.items()))
        return ModeState(self.name, self.query, orders, self.counters, self.interval.stored, self.spent, self.arrivals)

    def restore(self, state: ModeState) -> None:
        """Restore a stored state; raises `ValueError` if it is of another mode, query or join."""
        if (state.mode, state.query) != (self.name, self.query):
            raise ValueError(f"state of {state.mode} for {state.query} is none of {self.name} for {self.query}")
        if state.orders.keys() != self.graph.all or not all(self.graph.legal(*order) for order in state.orders.items()):
            raise ValueError(f"the stored orders of {self.query} are not legal in its join: {state.orders}")
        self.orders, self.counters, self.interval = dict(state.orders), state.counters, Statistics.of(state.interval)
        self.spent, self.arrivals = state.spent, state.arrivals

    @abstractmethod
    def _decide(self, number: int) -> Decision: ...

    def _planned(self, statistics: Statistics) -> Orders:
        estimates = sound_estimates(self.graph, statistics)
        hints = self._hints(statistics)
        return {
            start: best_order(self.graph, sound_sizes(statistics, estimates, start), self.model, hints)
            for start in range(self.graph.count)
        }

    def _hints(self, statistics: Statistics) -> Hints:
        """Hints for joins with so many positions that greedy rules find the orders."""
        return Hints(statistics.arrivals, self.parameters.fast, fluctuating(self.arrivals), self.model.costly)

    def _decision(self, number: int, outcomes: Sequence[Outcome], reason: str | None = None) -> Decision:
        return Decision(self.query, self.name, number, tuple(outcomes), reason or summary(outcomes))

    def _kept(self, reason: str) -> list[Outcome]:
        return [Outcome(start, "kept", order, order, reason) for start, order in sorted(self.orders.items())]
