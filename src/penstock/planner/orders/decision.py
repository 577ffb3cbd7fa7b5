"""The decision of a check, and its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import msgspec

from penstock.planner.orders.graph import Order, Orders
from penstock.planner.orders.ranges import Range

Action = Literal["bypassed", "kept", "regenerated"]


@dataclass(frozen=True)
class Parameters:
    """How often and how eagerly orders are checked.

    All modes: a check is due every `period` rows; `alpha` is the least probability of a full check (1: always); `seed`
    is that of all random draws; where there are too many positions to enumerate orders, a position is fast with `fast`
    times the mean arrivals; ranges are recomputed after `guard` checks that only kept or moved them, or never if 0.
    `pop` and `card`: `literal` selects the statistics, costs and ranges of the thesis, whose search advances by
    `factor`, and without a guard.
    `adaptive`: a change must save more than checks have cost recently, which is at least `overhead`, in units of the
    cost model, and more than the share `margin` of the cost. Unmeasured orders are tried for the share `trial` of a
    period, and only while such trials have lost less than the share `budget` of all work; statistics of one check count
    `decay` as much at the next.
    """

    alpha: float = 1 / 3
    period: float = 100_000
    factor: float = 2.0
    seed: int = 0
    guard: int = 8
    literal: bool = True
    overhead: float = 0.0
    margin: float = 0.05
    budget: float = 0.02
    trial: float = 0.125
    decay: float = 0.5
    fast: float = 1.0

    def __post_init__(self) -> None:
        shares = {"alpha": self.alpha, "margin": self.margin, "budget": self.budget, "decay": self.decay}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be from 0 to 1, not {share}")
        if not 1 <= self.period < inf:
            raise ValueError(f"the period must be at least one row, not {self.period}")
        if not 1 < self.factor < inf:
            raise ValueError(f"the factor must be more than 1, not {self.factor}")
        if not 0 <= self.fast < inf:
            raise ValueError(f"fast must not be negative, and be finite: {self.fast}")
        if not 0 < self.trial <= 1:
            raise ValueError(f"trial must be more than 0 and at most 1, not {self.trial}")
        if self.guard < 0 or not 0 <= self.overhead < inf:
            raise ValueError(f"guard and overhead must not be negative: {self.guard} and {self.overhead}")


class Violation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number outside its range; None is an open end."""

    positions: tuple[int, ...]
    value: float
    low: float
    high: float | None

    @classmethod
    def of(cls, broken: Range, value: float) -> Violation:
        return cls(tuple(sorted(broken.positions)), value, broken.low, None if broken.high == inf else broken.high)


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a check did with the order of one start; costs are those expected for an interval like the last."""

    start: int
    action: Action
    previous: Order
    order: Order
    reason: str
    old_cost: float | None = None
    new_cost: float | None = None
    violated: tuple[Violation, ...] = ()

    @property
    def changed(self) -> bool:
        return self.order != self.previous


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="orders"):
    """The result of one check: `distance`, `probability` and `draw` are of the arrival rates, if these were considered.

    `overhead` is the cost of a check, if it was considered.
    """

    query: str
    mode: str
    check: int
    outcomes: tuple[Outcome, ...]
    reason: str
    distance: float | None = None
    probability: float | None = None
    draw: float | None = None
    overhead: float | None = None

    @property
    def orders(self) -> Orders:
        return {outcome.start: outcome.order for outcome in self.outcomes}

    @property
    def bypassed(self) -> bool:
        return any(outcome.action == "bypassed" for outcome in self.outcomes)

    @property
    def changed(self) -> bool:
        return any(outcome.changed for outcome in self.outcomes)


class Counters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The numbers of checks, of bypassed ones, of searches for a new order, and of those that changed the order."""

    checks: int = 0
    bypasses: int = 0
    regenerations: int = 0
    useful: int = 0

    def after(self, decision: Decision) -> Counters:
        searched = [outcome for outcome in decision.outcomes if outcome.action == "regenerated"]
        return Counters(
            self.checks + 1,
            self.bypasses + decision.bypassed,
            self.regenerations + len(searched),
            self.useful + sum(outcome.changed for outcome in searched),
        )


def summary(outcomes: Sequence[Outcome]) -> str:
    """One line about a check that was not bypassed: which orders changed and why, or why none did."""
    changed = [o for o in outcomes if o.changed]
    if changed:
        return "; ".join(f"{o.start}: {_arrow(o.previous)} becomes {_arrow(o.order)}, {o.reason}" for o in changed)
    searched = [o for o in outcomes if o.action == "regenerated"]
    if searched:
        return "no order changed; " + "; ".join(f"{o.start}: {o.reason}" for o in searched)
    return "all orders kept: " + (outcomes[0].reason if outcomes else "there are none")


def _arrow(order: Order) -> str:
    return " > ".join(map(str, order))
