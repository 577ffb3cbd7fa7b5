"""The probe orders of all joins of a network, and the routes that follow from them, changed while the network runs.

No state depends on an order, so orders change between two steps and nothing has to be moved. What was counted in a step goes to
the mode of each join, which decides now and then; whether new rows of a table go to every task follows from how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from penstock.planner.network import Join, Network
from penstock.planner.orders.cost import EngineCost, Price
from penstock.planner.orders.decision import Decision, Parameters
from penstock.planner.orders.graph import JoinGraph, Order
from penstock.planner.orders.mode import Mode
from penstock.planner.orders.modes import make_mode
from penstock.planner.orders.statistics import Statistics
from penstock.planner.routes import HERE, MOVED, Routes, build_routes, route_of

Counters = Mapping[str, Mapping[str, int]]

# In units of the cost model (one row looked up, or one composite made: about 50 ns). An exchange costs about 0.15 s, whatever goes through
# it, and a row that is sent through one about 1.5 us.
EXCHANGE = 3_000_000.0
SENT = 30.0
PACKED = 4.0  # a composite in a parcel


class Steering:
    """Chooses the orders of every join by a mode, and the routes of the next step."""

    def __init__(
        self,
        network: Network,
        mode: str = "adaptive",
        parameters: Parameters | None = None,
        tasks: int = 1,
        stored: Mapping[str, Any] | None = None,
        counters: Counters | None = None,
    ) -> None:
        """`stored` is what `states` gave before a restart, `counters` are the totals so far."""
        self.network, self.tasks = network, tasks
        self.counters: Counters = counters or {}
        self.modes: dict[int, Mode] = {}
        for join in network.joins:
            if len(join.tables) > 2:  # of two positions each has only one way to go
                self.modes[join.index] = self._mode(
                    join, mode, parameters or Parameters(), (stored or {}).get(join.name)
                )
        self.refresh()

    @property
    def states(self) -> dict[str, Any]:
        """What a restart needs, by join."""
        return {self.network.joins[index].name: mode.to_json() for index, mode in self.modes.items()}

    def observe(self, step: Counters, totals: Counters, held: Mapping[str, int]) -> list[Decision]:
        """Take in what one step counted, with the totals and the rows held by table; the decisions that were due."""
        self.counters = totals
        decisions = []
        for index, mode in self.modes.items():
            mode.observe(statistics(self.network, self.network.joins[index], step, held))
            if mode.due:
                decisions.append(mode.check())
        if decisions:
            self.refresh()
        return decisions

    def replicate(self, table: int) -> bool:
        """Whether it is cheaper to send a step's new rows of a table to every task than composites through one more exchange."""
        counts = self.counters.get(f"table:{self.network.tables[table].name}", {})
        steps = self.counters.get("engine:", {}).get("steps", 0)
        rows = counts.get("shipped", 0) / steps if steps else 0.0
        return rows * (self.tasks - 1) * SENT < EXCHANGE

    def refresh(self) -> None:
        """Make the routes of the next step from the orders in force."""
        orders: dict[int, Mapping[int, Order]] = {index: mode.orders for index, mode in self.modes.items()}
        self.routes: Routes = build_routes(self.network, orders, self.replicate)

    def _mode(self, join: Join, name: str, parameters: Parameters, state: Mapping[str, Any] | None) -> Mode:
        graph = graph_of(join)

        def price(start: int, prefix: Order, following: int) -> Price:
            last = route_of(join, start, (*prefix, following), self.replicate).hops[-1]
            if last.access == HERE:
                return Price(0.0, 0.0)
            return Price(EXCHANGE, PACKED) if last.access == MOVED else Price(0.0, 1.0)

        one_key = len(join.classes) == 1 and len(join.classes[0].positions) == graph.count
        model = EngineCost(graph, None if one_key else price)
        if state is not None and state["mode"] == name:
            try:
                return make_mode(name, graph, join.name, parameters, model=model, state=state)
            except ValueError:
                pass  # of another shape: the join has lost or won a condition
        return make_mode(name, graph, join.name, parameters, model=model)


def graph_of(join: Join) -> JoinGraph:
    """Which positions have an equality or a condition between them."""
    pairs = {
        pair
        for member in join.leads
        for residual in member.residuals
        for pair in combinations([r for r in residual.roles if r >= 0], 2)
    }
    return JoinGraph(len(join.tables), [c.positions for c in join.classes], pairs)


def statistics(network: Network, join: Join, step: Counters, held: Mapping[str, int]) -> Statistics:
    """What one step counted of a join: new rows that serve it, rows held, and composites by start and set."""
    arrivals = [0.0] * len(join.tables)
    flows = {}
    for name, count in step.get(f"join:{join.name}", {}).items():
        start, positions = name.split(":")
        members = frozenset(map(int, positions.split(",")))
        if len(members) == 1:
            arrivals[int(start)] = count
        else:
            flows[int(start), members] = float(count)
    rows = [held.get(network.tables[table].name, 0) for table in join.tables]
    return Statistics.counted(arrivals, rows, flows)
