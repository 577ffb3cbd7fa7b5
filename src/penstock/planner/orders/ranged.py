"""The modes of Wang 2013, for comparison: an order is planned again when a range or a peer suggests it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from msgspec import structs

from penstock.planner.orders.cost import CostModel, order_cost
from penstock.planner.orders.decision import Decision, Outcome, Parameters, Violation
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.orders.mode import Mode, ModeState
from penstock.planner.orders.ranges import RANGED, Range, StoredRange, literal_ranges, sound_ranges
from penstock.planner.orders.search import best_order
from penstock.planner.orders.signals import distance, draw, literal_stuck, probability, sound_stuck
from penstock.planner.orders.sizes import Sizes, literal_sizes, sound_estimates, sound_sizes
from penstock.planner.orders.statistics import Statistics


class Pop(Mode):
    """Plans an order again when one of its numbers leaves its range (the POP' of Wang 2013)."""

    name = "pop"

    def __init__(
        self, graph: JoinGraph, query: str, parameters: Parameters, model: CostModel, limits: tuple[float, ...]
    ) -> None:
        super().__init__(graph, query, parameters, model, limits)
        self.ranges: dict[int, tuple[Range, ...]] = {}

    def begin(self, statistics: Statistics) -> None:
        super().begin(statistics)
        if statistics.rows:
            for start in self.orders:
                self._plan(start, self._sizes(statistics, start))

    def pool(self, statistics: Statistics) -> None:
        """As in the thesis, a literal mode knows only the counts of its own query."""
        if not self.parameters.literal:
            super().pool(statistics)

    @property
    def state(self) -> ModeState:
        return structs.replace(super().state, ranges=stored_ranges(self.ranges))

    def restore(self, state: ModeState) -> None:
        super().restore(state)
        self.ranges = ranges_of(state.ranges)

    def _decide(self, number: int) -> Decision:
        return self._decision(number, self._checked())

    def _checked(self) -> list[Outcome]:
        sizes = {start: self._sizes(self.interval, start) for start in sorted(self.orders)}
        violated = {start: violations(self.ranges.get(start, ()), sizes[start]) for start in sizes}
        reasons = {start: self._suspicion(start, violated[start]) for start in sizes}
        if not all(reasons.values()):
            reasons = {start: reason or self._stuck(start) for start, reason in reasons.items()}
        return [self._outcome(start, sizes[start], reasons[start], violated[start]) for start in sizes]

    def _outcome(self, start: int, sizes: Sizes, reason: str | None, violated: tuple[Violation, ...]) -> Outcome:
        previous = self.orders[start]
        if reason is None:
            self._shift(start, sizes)
            return Outcome(start, "kept", previous, previous, "every number is inside its range")
        self._plan(start, sizes)
        rows = 1.0 if self.parameters.literal else self.interval.arrivals[start]
        old, new = (rows * order_cost(self.model, sizes, order) for order in (previous, self.orders[start]))
        return Outcome(start, "regenerated", previous, self.orders[start], reason, old, new, violated)

    def _suspicion(self, start: int, violated: tuple[Violation, ...]) -> str | None:
        if start not in self.ranges:
            return "it has no ranges yet"
        if violated:
            return f"{outside(violated[0])}"
        guard = 0 if self.parameters.literal else self.parameters.guard  # the thesis moves ranges without a limit
        if guard and max(r.shifts for r in self.ranges[start]) >= guard:
            return f"its ranges were moved {guard} times"
        return None

    def _stuck(self, start: int) -> str | None:  # noqa: ARG002
        return None

    def _shift(self, start: int, sizes: Sizes) -> None:
        moved = []
        for r in self.ranges.get(start, ()):
            limit = self.limits[min(r.positions)] if len(r.positions) == 1 else inf
            moved.append(r.shifted(sizes.of(r.positions), limit))
        if moved:
            self.ranges[start] = tuple(moved)

    def _plan(self, start: int, sizes: Sizes) -> None:
        order = best_order(self.graph, sizes, self.model, self._hints(self.interval))
        self.orders = {**self.orders, start: order}
        if self.graph.count > RANGED:
            return  # planning at every check is less work than computing ranges
        if self.parameters.literal:
            found = literal_ranges(self.graph, sizes, self.model, order, self.limits, self.parameters.factor)
        else:
            found = sound_ranges(self.graph, sizes, self.model, order, self.limits)
        self.ranges[start] = found

    def _sizes(self, statistics: Statistics, start: int) -> Sizes:
        if self.parameters.literal:
            return literal_sizes(self.graph, statistics, start)
        return sound_sizes(statistics, sound_estimates(self.graph, statistics), start)


class Card(Pop):
    """Three phases (the CARD of Wang 2013): arrival rates may bypass the check; then ranges; then peers' probes."""

    name = "card"

    def __init__(
        self, graph: JoinGraph, query: str, parameters: Parameters, model: CostModel, limits: tuple[float, ...]
    ) -> None:
        super().__init__(graph, query, parameters, model, limits)
        self.last: tuple[float, ...] | None = None  # the arrivals of the last interval

    @property
    def state(self) -> ModeState:
        return structs.replace(super().state, last=self.last)

    def restore(self, state: ModeState) -> None:
        super().restore(state)
        self.last = state.last

    def _decide(self, number: int) -> Decision:
        moved = 1.0 if self.last is None else distance(self.last, self.interval.arrivals)
        self.last = self.interval.arrivals
        chance = probability(self.parameters.alpha, moved)
        drawn = draw(self.parameters.seed, self.query, number)
        if drawn < chance:
            decision = self._decision(number, self._checked())
        else:
            reason = f"arrival rates moved by {moved:.3g}: checked with probability {chance:.3g}, drew {drawn:.3g}"
            for start in self.orders:
                self._shift(start, self._sizes(self.interval, start))
            outcomes = [structs.replace(outcome, action="bypassed") for outcome in self._kept("not checked")]
            decision = self._decision(number, outcomes, reason)
        return structs.replace(decision, distance=moved, probability=chance, draw=drawn)

    def _stuck(self, start: int) -> str | None:
        stuck = literal_stuck if self.parameters.literal else sound_stuck
        pair = stuck(self.interval, start, self.orders[start])
        return None if pair is None else f"probing {min(pair - {start})} first makes fewer composites"


def violations(ranges: Sequence[Range], sizes: Sizes) -> tuple[Violation, ...]:
    """The ranges that do not contain the present number of their set."""
    return tuple(Violation.of(r, sizes.of(r.positions)) for r in ranges if not r.holds(sizes.of(r.positions)))


def outside(violation: Violation) -> str:
    """The violation in words."""
    names, high = ", ".join(map(str, violation.positions)), inf if violation.high is None else violation.high
    return f"{violation.value:g} rows of {names} are outside {violation.low:g} to {high:g}"


def stored_ranges(ranges: Mapping[int, Sequence[Range]]) -> dict[int, tuple[StoredRange, ...]]:
    return {start: tuple(r.stored for r in found) for start, found in sorted(ranges.items())}


def ranges_of(stored: Mapping[int, Sequence[StoredRange]]) -> dict[int, tuple[Range, ...]]:
    return {start: tuple(map(Range.of, found)) for start, found in stored.items()}
