"""The probe orders of all joins of a network, and the resulting routes, changed while the network runs.

No state depends on an order, so orders change between two steps (decision 0019). A step's counts of a join go to its
own mode, and to those of joins with the same conditions on the same streams; a mode decides from time to time. Whether
new rows of a table are sent to every task depends on how many there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import inf

import numpy as np
import numpy.typing as npt
from msgspec import structs

from penstock.planner.counters import Counters, positions_of
from penstock.planner.decisions import Rerouted
from penstock.planner.join import Join, decided_early
from penstock.planner.network import Network
from penstock.planner.orders.cost import CostModel, EngineCost, IndexCost, Price
from penstock.planner.orders.decision import Decision, Parameters
from penstock.planner.orders.graph import JoinGraph, Order, Positions
from penstock.planner.orders.mode import Mode, ModeState
from penstock.planner.orders.modes import MODES, make_mode
from penstock.planner.orders.ranged import Pop
from penstock.planner.orders.statistics import Statistics
from penstock.planner.routes import HERE, MOVED, WHOLE, Route, Routes, build_routes, route_of
from penstock.planner.share import Held
from penstock.planner.shared_counts import Lending
from penstock.planner.state_table import StateTable

Floats = npt.NDArray[np.float64]

UNIT = 50e-9  # seconds: one row looked up, or one composite made, is the unit of the cost model
# In this unit: an exchange costs about 0.15 s, whatever goes through it, and a row sent through one about 1.5 us.
EXCHANGE = 3_000_000.0
SENT = 30.0
PACKED = 4.0  # a composite in a parcel
_MOMENTS = 16  # sample times at which the rows in reach of a step's new rows are counted


class Steering:
    """Chooses the orders of every join by a mode, and the routes of the next step."""

    def __init__(
        self,
        network: Network,
        mode: str = "adaptive",
        parameters: Parameters | None = None,
        tasks: int = 1,
        stored: Mapping[str, ModeState] | None = None,
        counters: Counters | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`stored` is the result of `states` before a restart, `counters` are totals; `clock` times checks."""
        self.network, self.tasks, self.clock = network, tasks, clock
        self.counters = counters or Counters()
        self.modes: dict[int, Mode] = {}
        for join in network.joins:
            if len(join.tables) > 2:  # with two positions there is only one order for each
                self.modes[join.index] = self._mode(
                    join, mode, parameters or Parameters(), (stored or {}).get(join.name)
                )
        self._lending = Lending(network)
        self._counted = sorted({*self.modes, *(j for index in self.modes for j in self._lending.lenders(index))})
        self.refresh()

    @property
    def states(self) -> dict[str, ModeState]:
        """What a restart needs, by join."""
        return {self.network.joins[index].name: mode.state for index, mode in self.modes.items()}

    @property
    def checks(self) -> dict[str, dict[str, int]]:
        """By join: checks of its orders, bypassed ones, searches for a new order, and those that changed it."""
        return {self.network.joins[index].name: structs.asdict(mode.counters) for index, mode in self.modes.items()}

    def observe(self, step: Counters, totals: Counters, old: Sequence[Held], new: Sequence[Held]) -> list[Decision]:
        """Add one step's counts, with the totals, the runs it saw and those it wrote; returns the due decisions."""
        self.counters = totals
        decisions = []
        joins = self.network.joins
        counted = {index: statistics(self.network, joins[index], step, old, new) for index in self._counted}
        for index, mode in self.modes.items():
            mode.observe(counted[index])
            mode.pool(self._lending.lent(counted, index))
            if mode.due:
                began = self.clock()
                decisions.append(mode.check())
                if not decisions[-1].bypassed:
                    mode.spend((self.clock() - began) / UNIT)
        if decisions:
            self.refresh()
        return decisions

    def replicate(self, table: int) -> bool:
        """Whether sending a table's new rows to every task is cheaper than one more exchange of composites."""
        rows = new_rows(self.network.tables[table], self.counters)
        return price_of_whole(rows, self.tasks) < EXCHANGE

    def refresh(self) -> None:
        """Make the routes of the next step from the orders in force."""
        orders: dict[int, Mapping[int, Order]] = {index: mode.orders for index, mode in self.modes.items()}
        self.routes: Routes = build_routes(self.network, orders, self.replicate)

    def _mode(self, join: Join, name: str, parameters: Parameters, state: ModeState | None) -> Mode:
        graph = graph_of(join)

        def price(start: int, prefix: Order, following: int) -> Price:
            last = route_of(join, start, (*prefix, following), self.replicate).hops[-1]
            if last.access == HERE:
                return Price(0.0, 0.0)
            return Price(EXCHANGE, PACKED) if last.access == MOVED else Price(0.0, 1.0)

        limits = limits_of(self.network, join)
        one_key = len(join.classes) == 1 and len(join.classes[0].positions) == graph.count
        model: CostModel = EngineCost(graph, None if one_key else price, costly_pairs(join))
        if parameters.literal and issubclass(MODES.get(name, Mode), Pop):
            # All hash indexes are assumed to have as many buckets: the thesis gives none, and equal ones change no
            # order.
            model = IndexCost("hash" if join.classes else "tree")
        if state is not None and state.mode == name:
            try:
                return make_mode(name, graph, join.name, parameters, model=model, limits=limits, state=state)
            except ValueError:
                pass  # of another shape: the join has lost or won a condition
        return make_mode(name, graph, join.name, parameters, model=model, limits=limits)


def new_rows(table: StateTable, counters: Counters) -> float:
    """The new rows that a table has got in a step, on the average of all steps."""
    steps = counters.engine.steps
    return counters.table(table.name).shipped / steps if steps else 0.0


def price_of_whole(rows: float, tasks: int) -> float:
    """The cost of sending that many new rows to every task; the alternative costs an `EXCHANGE`."""
    return rows * (tasks - 1) * SENT


def rerouted(network: Network, before: Routes, after: Routes, counters: Counters, tasks: int) -> list[Rerouted]:
    """The tables that all routes looked up in one way, and now in the other."""
    found = []
    for join, old, new in zip(network.joins, before.joins, after.joins, strict=True):
        were, are = accesses(old), accesses(new)
        for table in sorted(were.keys() & are.keys()):
            if were[table].isdisjoint(are[table]):
                rows = new_rows(network.tables[table], counters)
                whole = price_of_whole(rows, tasks)
                moved = WHOLE in were[table]
                reason = f"{rows:,.0f} new rows in a step"
                names = (WHOLE, MOVED) if moved else (MOVED, WHOLE)
                costs = (whole, EXCHANGE) if moved else (EXCHANGE, whole)
                found.append(Rerouted(join.name, network.tables[table].name, *names, *costs, reason))
    return found


def accesses(routes: Sequence[Route]) -> dict[int, set[str]]:
    """By table, how composites reach its rows of another key: they move, or the rows are everywhere."""
    found: dict[int, set[str]] = {}
    for hop in (hop for route in routes for hop in route.hops):
        if hop.access != HERE and hop.source is not None:
            found.setdefault(hop.table, set()).add(hop.access)
    return found


def graph_of(join: Join) -> JoinGraph:
    """Which positions have an equality, a condition or a band between them."""
    return JoinGraph(len(join.tables), [c.positions for c in join.classes], join.ties)


def costly_pairs(join: Join) -> frozenset[Positions]:
    """Pairs connected only by conditions on whole results, which Spark evaluates: no probe is shorter for them."""
    cheap: set[Positions] = {frozenset(band) for member in join.leads for band in member.bands}
    for member in join.leads:
        for residual in member.residuals:
            if decided_early(residual):
                cheap |= {frozenset(pair) for pair in combinations(residual.roles, 2)}
    return join.ties - cheap


def limits_of(network: Network, join: Join) -> tuple[float, ...]:
    """The most rows that the windows of each position hold: those of the largest, if all count rows, else unbounded."""
    found = []
    for position, table in enumerate(join.tables):
        entries = [e for e in network.tables[table].entries if (e.join, e.position) == (join.index, position)]
        # With a partition, each of its values has that many rows.
        counts = [inf if e.counts is None or e.counts.partition else float(e.counts.count) for e in entries]
        found.append(max(counts, default=inf))
    return tuple(found)


def statistics(network: Network, join: Join, step: Counters, old: Sequence[Held], new: Sequence[Held]) -> Statistics:
    """One step's counts of a join: new rows that serve it, composites by start and set, and the combinations searched.

    `old` are the runs that the step could see, `new` those it wrote. A row meets old rows in reach, and of the same
    step only those at earlier positions (see `Hop.fresh`): a set that no row could find is not a rare one. Windows that
    count rows hold at most their number, however many rows are in reach.
    """
    arrivals = [0.0] * len(join.tables)
    flows = {}
    for of, found in step.join(join.name).flows.items():
        for bits, count in found.items():
            members = positions_of(bits)
            if len(members) == 1:
                arrivals[of] = count
            else:
                flows[of, members] = float(count)
    names = [network.tables[table].name for table in join.tables]
    before = {name: _extents(r for r in old if r.table == name) for name in names}
    came = {name: _extents(r for r in new if r.table == name) for name in names}
    places = range(len(names))
    seen, held, limits = [[0.0] * len(names) for _ in places], [0.0] * len(names), limits_of(network, join)
    everything = np.concatenate(list(came.values()))
    for start in places:
        own = came[names[start]]
        moments = _moments(own if len(own) else everything)
        for p in places:
            if p == start:
                continue
            back = max(m.bounds[p][start] for m in join.leads)
            ahead = max(m.bounds[start][p] for m in join.leads)
            older = _in_reach(before[names[p]], moments, back, ahead)
            fresh = _in_reach(came[names[p]], moments, back, ahead)
            seen[start][p] = min(older + (fresh if p < start else 0.0), limits[p])
            # The same for all starts: of two positions, one meets the rows that the other got in this step.
            held[p] = min(max(held[p], older + fresh / 2), limits[p])
    return Statistics.counted(arrivals, held, flows, seen=seen)


def _extents(runs: Iterable[Held]) -> Floats:
    """Of each run the first time, the one after the last, and the rows."""
    return np.array([(r.min_time, r.max_time + 1.0, r.rows) for r in runs], dtype=np.float64).reshape(-1, 3)


def _moments(came: Floats) -> Floats:
    """Times that represent those of a step's new rows, which are assumed to be spread evenly."""
    if not len(came):
        return np.empty(0)
    first, end = came[:, 0].min(), came[:, 1].max()
    return np.asarray(np.floor(first + (end - first) * (np.arange(_MOMENTS) + 0.5) / _MOMENTS))


def _in_reach(runs: Floats, moments: Floats, back: int, ahead: int) -> float:
    """The mean number of rows of these runs that a row at one of the moments can join; without moments, all rows."""
    if not len(runs) or not len(moments):
        return float(runs[:, 2].sum())
    low = np.maximum(runs[:, :1], moments - float(back))
    high = np.minimum(runs[:, 1:2], moments + float(ahead) + 1.0)
    shares = np.clip(high - low, 0.0, None) / (runs[:, 1:2] - runs[:, :1])
    return float((shares.mean(axis=1) * runs[:, 2]).sum())
