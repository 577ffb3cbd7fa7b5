"""For how long an order stays the best: a range for each number that it depends on (Wang 2013, 5.2).

The numbers are the stored rows of each probed position and the composites of each prefix of the order; those of the
start and of the whole join have no range, as they count the same in every order. Sound ranges are correct: while one
number moves inside its range and no other moves, the order stays optimal. Literal ranges follow the thesis, where that
can fail, and serve for comparison.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, inf

import msgspec

from penstock.planner.orders.cost import CostModel, order_cost, step_costs
from penstock.planner.orders.graph import JoinGraph, Order, Positions
from penstock.planner.orders.search import Offer, best_order, offers
from penstock.planner.orders.sizes import Sizes

RANGED = 8  # positions up to which computing ranges is less work than planning a few times
_FAR = 1e15  # upper limit of the search
_ROUNDING = 1e-9  # relative difference of equal costs
_ROUNDS = 100  # of the search for a crossing; each rival is met once, so that usually a few suffice


class StoredRange(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A range in a record; None is an open end."""

    positions: tuple[int, ...]
    low: float
    high: float | None
    value: float
    shifts: int


@dataclass(frozen=True)
class Range:
    """The closed range of the rows of `positions`, and the value for which it was computed or last moved."""

    positions: Positions
    low: float
    high: float
    value: float
    shifts: int = 0

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def shifted(self, value: float, limit: float = inf) -> Range:
        """The range moved along with its value, to delay another search (5.2.4.2).

        A window of rows has an upper `limit`; once it is full, the upper end of the range stays there (Table 5.1).
        """
        by = value - self.value
        high = limit if value >= limit else min(self.high + by, limit)
        return replace(self, low=max(self.low + by, 0.0), high=high, value=value, shifts=self.shifts + 1)

    @property
    def stored(self) -> StoredRange:
        high = None if self.high == inf else self.high
        return StoredRange(tuple(sorted(self.positions)), self.low, high, self.value, self.shifts)

    @classmethod
    def of(cls, stored: StoredRange) -> Range:
        high = inf if stored.high is None else stored.high
        return cls(frozenset(stored.positions), stored.low, high, stored.value, stored.shifts)


def keys(start: int, order: Order) -> list[Positions]:
    """The sets whose rows an order depends on: each probed position, and each proper prefix."""
    parts = [frozenset((start, *order[:k])) for k in range(1, len(order))]
    return [frozenset((p,)) for p in order] + parts


def sound_ranges(
    graph: JoinGraph, sizes: Sizes, model: CostModel, order: Order, limits: Sequence[float]
) -> tuple[Range, ...]:
    """The widest ranges that keep the order optimal, with all rivals costed for the changed number.

    In one number every order's cost is linear, or linear in an index function of it, so that the minimum over orders is
    concave and the order stays optimal on one interval. Its ends are found by computing the best rival far out, then
    where its cost crosses the order's, and again from there, until no rival is left.
    """
    found = []
    for positions in keys(sizes.start, order):
        value = sizes.of(positions)
        low = _end(graph, sizes, model, order, positions, 0.0)
        high = _end(graph, sizes, model, order, positions, min(max(_limit(limits, positions), value), _FAR))
        found.append(Range(positions, low, inf if high >= _FAR else high, value))
    return tuple(found)


def literal_ranges(
    graph: JoinGraph, sizes: Sizes, model: CostModel, order: Order, limits: Sequence[float], factor: float = 2.0
) -> tuple[Range, ...]:
    """The ranges of the thesis, in integers: against the second-best order of each prefix, with its cost held fixed.

    Composites have no lower bound, and the position probed first has no upper one.
    """
    table = offers(graph, sizes, model)
    value = {positions: sizes.of(positions) for positions in keys(sizes.start, order)}
    low, high = dict.fromkeys(value, 0.0), dict.fromkeys(value, inf)
    for k in range(2, len(order) + 1):
        part, bound = order[:k], frozenset((sizes.start, *order[: k - 1]))
        other = _second(table[bound | {part[-1]}], part)
        if other is not None:
            for positions in (bound, frozenset((part[-1],))):
                limit = _limit(limits, positions)
                cost = _cost_at(model, sizes, part, positions)
                first = upper(cost, value[positions], other[0], factor, limit)
                high[positions] = max(first - 1, value[positions])
    other = _second(table[graph.all], order)
    if other is not None:
        low |= lower_bounds(model, sizes, other[1], order_cost(model, sizes, order))
    return tuple(
        Range(p, min(low[p], value[p]), min(high[p], max(_limit(limits, p), value[p])), value[p]) for p in value
    )


def upper(cost: Callable[[float], float], value: float, rival: float, factor: float = 2.0, limit: float = inf) -> float:
    """The first integer from `value` on at which a rising cost exceeds the rival's (Algorithm 3); inf if none.

    A number cannot exceed its `limit`: if there is none up to the limit, the first integer beyond it is returned.
    """
    if factor <= 1:
        raise ValueError(f"the factor by which the search advances must be more than 1: {factor}")
    low, high = value, max(value * factor, value + 1)
    gap, ahead = rival - cost(low), rival - cost(high)
    while ahead >= 0:
        slope = (gap - ahead) / (high - low)
        if limit <= high or slope <= 0 or high > _FAR:
            return limit + 1
        low, gap = high, ahead
        high = high + ahead / slope + 1
        ahead = rival - cost(high)
    if low > _FAR:
        return limit + 1
    whole = range(floor(low), ceil(min(high, limit, _FAR)) + 1)
    return min(whole.start + bisect_right(whole, rival, key=cost), limit + 1)


def lower_bounds(model: CostModel, sizes: Sizes, other: Order, optimal: float) -> dict[Positions, float]:
    """For each position of a rival order, the lowest number at which it does not undercut the optimal cost (5.2.3).

    The optimal cost is a budget passed down the rival's steps: what the last ones cost, the earlier ones cannot spend.
    Once the budget is spent, no number is low enough, and the bound is 0.
    """
    found: dict[Positions, float] = {}
    base = optimal
    costs = step_costs(model, sizes, other)
    for k in range(len(other), 0, -1):
        positions = frozenset((other[k - 1],))
        cost = _cost_at(model, sizes, other[:k], positions)
        found[positions] = 0.0
        if base > 0:
            found[positions] = bisect_left(range(ceil(min(sizes.of(positions), _FAR)) + 1), base, key=cost)
        base -= costs[k - 1]
    return found


def _end(graph: JoinGraph, sizes: Sizes, model: CostModel, order: Order, positions: Positions, outside: float) -> float:
    """The farthest number towards `outside` up to which no rival is cheaper."""
    end, own = outside, _cost_at(model, sizes, order, positions)
    for _ in range(_ROUNDS):
        rival = _cost_at(model, sizes, best_order(graph, sizes.changed(positions, end), model), positions)
        if not _exceeds(own(end), rival(end)):
            return end
        end = _crossing(own, rival, sizes.of(positions), end)
    return sizes.of(positions)


def _crossing(own: Callable[[float], float], rival: Callable[[float], float], inside: float, outside: float) -> float:
    """A number between the two where the costs are equal; at `outside` the rival is cheaper, at `inside` it is not.

    The secant finds it at once if both are linear; bisection bounds the search otherwise.
    """
    behind, beyond = own(inside) - rival(inside), own(outside) - rival(outside)
    for k in range(2 * _ROUNDS):
        if behind >= 0 or abs(outside - inside) <= _ROUNDING * max(inside, outside):
            break
        share = -behind / (beyond - behind) if k % 2 == 0 else 0.5
        at = inside + share * (outside - inside)
        gap = own(at) - rival(at)
        if not _exceeds(abs(gap), 0.0, own(at)):
            return at
        inside, behind, outside, beyond = (at, gap, outside, beyond) if gap < 0 else (inside, behind, at, gap)
    return inside


def _exceeds(cost: float, other: float, scale: float | None = None) -> bool:
    return cost - other > _ROUNDING * (cost if scale is None else scale)


def _cost_at(model: CostModel, sizes: Sizes, part: Order, positions: Positions) -> Callable[[float], float]:
    return lambda at: order_cost(model, sizes.changed(positions, at), part)


def _second(found: list[Offer], order: Order) -> Offer | None:
    return next((offer for offer in found if offer[1] != order), None)


def _limit(limits: Sequence[float], positions: Positions) -> float:
    return limits[min(positions)] if len(positions) == 1 else inf
