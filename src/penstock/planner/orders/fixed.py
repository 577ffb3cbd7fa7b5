"""Modes that do not weigh whether to plan: never, always, or at random. The others are measured against them."""

from __future__ import annotations

from penstock.planner.orders.cost import order_cost
from penstock.planner.orders.decision import Decision, Outcome
from penstock.planner.orders.graph import Order, Orders
from penstock.planner.orders.mode import Mode
from penstock.planner.orders.search import random_order, worst_order
from penstock.planner.orders.signals import draw
from penstock.planner.orders.sizes import sound_estimates, sound_sizes
from penstock.planner.orders.statistics import Statistics


class Static(Mode):
    """Plans when the query is registered, and never again (the BASE of Wang 2013)."""

    name = "static"

    def _decide(self, number: int) -> Decision:
        return self._decision(number, self._kept("planned once"))


class Random(Static):
    """Random legal orders, as an engine without statistics would take."""

    name = "random"

    def begin(self, statistics: Statistics) -> None:  # noqa: ARG002
        seed = self.parameters.seed

        def order(start: int) -> Order:
            return random_order(self.graph, start, lambda k: draw(seed, self.query, "order", start, k))

        self.orders = {start: order(start) for start in range(self.graph.count)}


class Oracle(Mode):
    """Plans at every check for the least cost by the counts since the last one, regardless of the cost of changes.

    It is a true oracle if the statistics contain every set, which only a test can count. In the engine, where an order
    shows only the sets that it passes through, it knows no more than other modes and is no bound for them.
    """

    name = "oracle"

    def _decide(self, number: int) -> Decision:
        outcomes = []
        estimates = sound_estimates(self.graph, self.interval)
        for start, order in self._planned(self.interval).items():
            sizes, rows = sound_sizes(self.interval, estimates, start), self.interval.arrivals[start]
            old, new = (rows * order_cost(self.model, sizes, o) for o in (self.orders[start], order))
            reason = f"cost {old:g} becomes {new:g}"
            outcomes.append(Outcome(start, "regenerated", self.orders[start], order, reason, old, new))
        return self._decision(number, outcomes)


class Worst(Oracle):
    """Plans at every check for the greatest cost: an upper bound of the loss."""

    name = "worst"

    def _planned(self, statistics: Statistics) -> Orders:
        estimates = sound_estimates(self.graph, statistics)
        return {
            start: worst_order(self.graph, sound_sizes(statistics, estimates, start), self.model)
            for start in range(self.graph.count)
        }
