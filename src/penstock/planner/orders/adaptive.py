"""The engine's own mode: orders change only if the expected gain exceeds the cost, and wrong guesses are reverted soon.

It checks as Wang 2013 does, by arrival rates, ranges and peers, but with sound ranges and pooled selectivities, and
also weighs cost and benefit. An order through sets that were never counted is an optimistic guess: it runs on trial,
for part of a period, and all trials together may lose only a small share of the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from penstock.planner.orders.cost import CostModel, order_cost
from penstock.planner.orders.decision import Decision, Outcome, Parameters, Violation
from penstock.planner.orders.graph import JoinGraph, Order, Positions
from penstock.planner.orders.history import changed, learn, supposed
from penstock.planner.orders.mode import Learned, Mode, ModeState
from penstock.planner.orders.ranged import outside, ranges_of, stored_ranges, violations
from penstock.planner.orders.ranges import RANGED, Range, keys, sound_ranges
from penstock.planner.orders.search import Hints, best_order
from penstock.planner.orders.signals import distance, draw, magnitude, probability, sound_stuck
from penstock.planner.orders.sizes import Sizes, independent_estimates, measured_sizes, sound_sizes
from penstock.planner.orders.statistics import Statistics

_PROMISE = 0.25  # share of the cost that a guess must promise to save if not even the pairs of its sets are measured


class Adaptive(Mode):
    """State beside that of all modes: all statistics so far (`known`), the ranges and how many checks old they are
    (`ages`), the order before each running trial (`trials`), all `work` so far and the part of it that trials `lost`,
    whether the last check left all orders unchanged (`settled`), and the last `signs`.
    """

    name = "adaptive"

    def __init__(
        self, graph: JoinGraph, query: str, parameters: Parameters, model: CostModel, limits: tuple[float, ...]
    ) -> None:
        super().__init__(graph, query, parameters, model, limits)
        self.known = Statistics.none(graph.count)
        self.ranges: dict[int, tuple[Range, ...]] = {}
        self.ages: dict[int, int] = {}
        self.trials: dict[int, Order] = {}
        self.work = 0.0
        self.lost = 0.0
        self.settled = False
        self.signs: tuple[tuple[float, ...], float, float] | None = None  # arrivals, stored rows, work per row

    @property
    def due(self) -> bool:
        """Whether a check is due: after a period, or part of one if orders are new or selectivities changed."""
        rows, parameters = self.interval.rows, self.parameters
        if rows >= parameters.period:
            return True
        return rows >= parameters.trial * parameters.period and (not self.settled or self._changed)

    @property
    def _changed(self) -> bool:
        return bool(changed(self.known, self.interval))

    def begin(self, statistics: Statistics) -> None:
        super().begin(statistics)
        self.known = statistics

    def observe(self, statistics: Statistics) -> None:
        """Add the counts of a step; if they show changed selectivities, older counts of these are discarded."""
        new = changed(self.known, statistics)
        if self.interval.rows and new and not self._changed:
            self.known = learn(self.known, self.interval, self.parameters.decay)
            self.interval = statistics
        else:
            super().observe(statistics)

    @property
    def state(self) -> ModeState:
        ages, trials = dict(sorted(self.ages.items())), dict(sorted(self.trials.items()))
        learned = Learned(self.known.stored, ages, trials, self.work, self.lost, self.settled, self.signs)
        return structs.replace(super().state, ranges=stored_ranges(self.ranges), learned=learned)

    def restore(self, state: ModeState) -> None:
        super().restore(state)
        learned = state.learned
        if learned is None:
            raise ValueError(f"the state of {self.query} lacks what {self.name} has learned")
        self.known, self.ranges = Statistics.of(learned.known), ranges_of(state.ranges)
        self.ages, self.trials = dict(learned.ages), dict(learned.trials)
        self.work, self.lost, self.settled, self.signs = learned.work, learned.lost, learned.settled, learned.signs

    def _decide(self, number: int) -> Decision:
        if not self.interval.rows:
            return self._decision(number, self._kept("no row arrived"))
        before, new = self.known.evidence.keys(), self._changed
        restless = not self.settled or new
        maybe = supposed(self.known, self.interval)
        self.known = learn(self.known, self.interval, self.parameters.decay)
        if new or before != self.known.evidence.keys():
            self.ranges.clear()  # they are valid only as long as the statistics of rival orders are
        view = _View(self.graph, self.known, self.model, maybe, self._hints(self.known))
        work = sum(view.cost(start, order) for start, order in self.orders.items())
        self.work += work
        moved, why = self._moved(work, restless)
        chance = probability(self.parameters.alpha, moved)
        drawn = draw(self.parameters.seed, self.query, number)
        if drawn < chance:
            decision = self._decision(number, self._checked(view, self._share(), new))
        else:
            reason = f"{why} moved by {moved:.3g}: checked with probability {chance:.3g}, drew {drawn:.3g}"
            outcomes = [structs.replace(outcome, action="bypassed") for outcome in self._kept("not checked")]
            decision = self._decision(number, outcomes, reason)
        return structs.replace(decision, distance=moved, probability=chance, draw=drawn, overhead=self.overhead)

    def _share(self) -> float:
        """What one start must save in an interval like this for the check to pay: its share of the overhead.

        An order keeps saving until it is planned again, at the latest after `guard` checks.
        """
        part = min(self.interval.rows / self.parameters.period, 1.0)  # an interval may be shorter than a period
        return self.overhead * part / (self.graph.count * max(self.parameters.guard, 1))

    def _moved(self, work: float, restless: bool) -> tuple[float, str]:
        """How far the signs moved since the last check, and which one the most; new or changed orders are checked.

        Shares of arrivals do not show a surge of all streams, which changes the best order where windows are of time;
        the stored rows do. Neither shows a change of values; the work per row does.
        """
        signs = (self.interval.arrivals, sum(self.interval.held), work / self.interval.rows)
        before, self.signs = self.signs, signs
        if before is None or restless:
            return 1.0, "selectivities or orders"
        return max(
            (distance(before[0], signs[0]), "arrival rates"),
            (magnitude(before[1], signs[1]), "rows held"),
            (magnitude(before[2], signs[2]), "work"),
        )

    def _checked(self, view: _View, overhead: float, changed: bool) -> list[Outcome]:
        """Judge trials, plan where a sign says that an order may be worse, and start new trials.

        One trial at a time, so that a wrong guess costs little; after a change of selectivities all promising ones, as
        the orders in force are then no better founded than guesses.
        """
        ran, violated, suspicions = self.orders, {}, {}
        for start, order in sorted(ran.items()):
            violated[start] = violations(self.ranges.get(start, ()), view.sizes(start))
            suspicions[start] = self._judged(start, order, view) or self._suspicion(start, violated[start])
        planned = {start: self._gated(start, view, overhead) for start in ran if suspicions[start]}
        self.orders = {**self.orders, **{start: order for start, (order, _) in planned.items()}}
        untried = set(planned)
        while (guess := self._guess(untried, view, overhead)) is not None:
            start, order, reason = guess
            self.trials[start] = self.orders[start]
            self.orders = {**self.orders, start: order}
            planned[start] = (order, reason)
            untried.remove(start)
            if not changed:
                break
        outcomes = []
        for start, order in self.orders.items():
            old, new = (view.cost(start, o) for o in (ran[start], order))
            if start in planned:
                self._remember(start, order, view)
                reason = f"{suspicions[start]}; {planned[start][1]}"
                outcomes.append(Outcome(start, "regenerated", ran[start], order, reason, old, new, violated[start]))
            else:
                self.ages[start] += 1
                outcomes.append(Outcome(start, "kept", order, order, "every number is inside its range", old, new))
        self.settled = not any(outcome.changed for outcome in outcomes)
        return outcomes

    def _judged(self, start: int, ran: Order, view: _View) -> str | None:
        """Revert a trial if the order before was better; returns the verdict, if there was a trial."""
        if start not in self.trials:
            return None
        before = self.trials.pop(start)
        if not view.measured(start, ran):
            self.orders = {**self.orders, start: before}
            return "its trial met no rows"
        if not view.measured(start, before):
            return "its trial outlived what was known"
        now, then = (view.cost(start, order) for order in (ran, before))
        self.lost = max(0.0, self.lost + now - then)
        if now < then:
            return "its trial was good"
        self.orders = {**self.orders, start: before}
        return f"its trial cost {now:g} instead of {then:g}"

    def _suspicion(self, start: int, violated: tuple[Violation, ...]) -> str | None:
        if start not in self.ranges:
            return "it has no ranges yet"
        if violated:
            return outside(violated[0])
        guard = self.parameters.guard
        if guard and self.ages[start] >= guard:
            return f"its ranges are {guard} checks old"
        pair = sound_stuck(self.known, start, self.orders[start])
        return None if pair is None else f"probing {min(pair - {start})} first makes fewer composites"

    def _gated(self, start: int, view: _View, overhead: float) -> tuple[Order, str]:
        """The order to continue with: another one only if its parts are measured and it saves enough."""
        current = self.orders[start]
        cost = view.cost(start, current)
        order = view.best(start, careful=True)
        saving = max(0.0, cost - view.cost(start, order, careful=True))
        least = overhead + self.parameters.margin * cost
        if saving > least:
            return order, f"another order saves {saving:g} of {cost:g}"
        return current, f"no other order saves enough, {saving:g} of {cost:g} at most and not {least:g}"

    def _guess(self, starts: Iterable[int], view: _View, overhead: float) -> tuple[int, Order, str] | None:
        """The most promising unmeasured order, unless trials have lost too much already."""
        if self.lost > self.parameters.budget * self.work:
            return None
        found = []
        for start in starts:
            order = view.best(start)
            cost = view.doubted(start, self.orders[start])
            saving = cost - view.cost(start, order)
            blind = not view.founded(start, order)
            least = overhead + max(self.parameters.margin, _PROMISE if blind else 0.0) * cost
            if saving > least and order != self.orders[start] and not view.measured(start, order):
                found.append((saving, start, order, f"on trial, as it may save {saving:g} of {cost:g}"))
        return max(found)[1:] if found else None

    def _remember(self, start: int, order: Order, view: _View) -> None:
        """Compute ranges for an order that is the best by all statistics and not on trial."""
        self.ages[start] = 0
        self.ranges.pop(start, None)
        if self.graph.count > RANGED or start in self.trials:
            return
        if view.cost(start, order) <= view.cost(start, view.best(start)):
            self.ranges[start] = sound_ranges(self.graph, view.sizes(start), self.model, order, self.limits)


class _View:
    """What one check knows: sizes and costs from all estimates or, if `careful`, from measurements alone."""

    def __init__(
        self, graph: JoinGraph, known: Statistics, model: CostModel, supposed: Mapping[Positions, float], hints: Hints
    ) -> None:
        self.graph = graph
        self.hints = hints
        self.known = known
        self.model = model
        self.estimates = independent_estimates(graph, known)
        doubtful = independent_estimates(graph, known, supposed) if supposed else self.estimates
        starts = range(graph.count)
        self._hopeful = [sound_sizes(known, self.estimates, start) for start in starts]
        self._doubtful = [sound_sizes(known, doubtful, start) for start in starts]
        self._careful = [measured_sizes(known, self.estimates, start) for start in starts]

    def sizes(self, start: int, careful: bool = False) -> Sizes:
        return (self._careful if careful else self._hopeful)[start]

    def cost(self, start: int, order: Order, careful: bool = False) -> float:
        """The cost of an order over an interval like the last."""
        return self.known.arrivals[start] * order_cost(self.model, self.sizes(start, careful), order)

    def doubted(self, start: int, order: Order) -> float:
        """The cost of the order in force; parts whose statistics a change discarded count as supposed."""
        return max(
            self.cost(start, order), self.known.arrivals[start] * order_cost(self.model, self._doubtful[start], order)
        )

    def best(self, start: int, careful: bool = False) -> Order:
        return best_order(self.graph, self.sizes(start, careful), self.model, self.hints)

    def measured(self, start: int, order: Order) -> bool:
        """Whether all that the cost of an order depends on was counted."""
        return all(map(self.estimates.measured, keys(start, order)))

    def founded(self, start: int, order: Order) -> bool:
        """Whether the pairs of every set that it depends on were counted."""
        return all(map(self.estimates.founded, keys(start, order)))
