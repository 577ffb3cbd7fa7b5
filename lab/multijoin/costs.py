"""Costs of joins as nested loops over windows, by closed formula, and the ordering rules for them.

After Golab & Ozsu 2003: uniform values, where the window with fewer distinct values contains a part of the other's;
comparisons per unit of time, without storing and expiring. An order here is a global one, outermost first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from math import inf

from penstock.planner.orders.graph import Order
from penstock.planner.orders.search import fast_positions, moved_up


@dataclass(frozen=True)
class Window:
    """A stream and its window: rows per unit of time, units of time, distinct values; `buckets` if hashed."""

    rate: float
    length: float
    values: float
    buckets: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.rate < inf and 0 < self.length < inf and 0 < self.values < inf and 1 <= self.buckets < inf):
            raise ValueError(
                f"a window has a length, distinct values and buckets, and its stream a finite rate: {self}"
            )

    def rows(self, tau: float = 0.0) -> float:
        """The rows of the window and of the `tau` since the last evaluation."""
        return self.rate * (self.length + tau)


def phi(windows: Sequence[Window], members: Sequence[int], tau: float = 0.0) -> float:
    """The size of the join of some windows (appendix A), independent of their sequence."""
    size, values = 1.0, 0.0
    for p in members:
        size *= windows[p].rows(tau) / (max(values, windows[p].values) if values else 1.0)
        values = min(values or inf, windows[p].values)
    return size


def eager(windows: Sequence[Window], order: Order) -> float:
    """Each row as it arrives, its own stream outermost (C_1 + .. + C_n)."""
    return sum(eager_of(windows, order, origin) for origin in order)


def eager_of(windows: Sequence[Window], order: Order, origin: int, tau: float = 0.0) -> float:
    """The part of one origin in the cost of `eager`; with `tau`, of `lazy` (C_i, L_i)."""
    inner = tuple(p for p in order if p != origin)
    return windows[origin].rate * _compared(windows, (origin, *inner), origin, 1.0, tau)


def lazy(windows: Sequence[Window], order: Order, tau: float) -> float:
    """The rows of the last `tau` together, their own stream outermost (L_1 + .. + L_n)."""
    return sum(eager_of(windows, order, origin, tau) for origin in order)


def naive(windows: Sequence[Window], order: Order, tau: float = 0.0) -> float:
    """One order for all, whichever stream is new (G_i); with `tau`, for the rows of the last `tau` (H_i)."""
    return sum(naive_of(windows, order, origin, tau) for origin in order)


def naive_of(windows: Sequence[Window], order: Order, origin: int, tau: float = 0.0) -> float:
    """The part of one origin in the cost of `naive` and of `general` (G_i, H_i)."""
    if tau:
        return _compared(windows, order, origin, windows[origin].rate * tau, tau) / tau
    return windows[origin].rate * _compared(windows, order, origin, 1.0, 0.0)


def general(windows: Sequence[Window], orders: Sequence[Order], tau: float) -> float:
    """The rows of the last `tau` together, each origin in its own order, not necessarily outermost."""
    return sum(naive_of(windows, order, origin, tau) for origin, order in enumerate(orders))


def best_naive(windows: Sequence[Window], tau: float = 0.0) -> float:
    """The cost of `naive` in its best order."""
    return _best(windows, lambda order: naive(windows, order, tau))


def best_lazy(windows: Sequence[Window], tau: float) -> float:
    """The cost of `lazy` in its best order."""
    return _best(windows, lambda order: lazy(windows, order, tau))


def best_general(windows: Sequence[Window], tau: float) -> float:
    """The cost of `general` with the best order for each origin."""
    return sum(_best(windows, partial(naive_of, windows, origin=p, tau=tau)) for p in range(len(windows)))


def greedy_orders(windows: Sequence[Window]) -> list[Order]:
    """The orders of both greedy rules, from both sequences of the pair with the smallest join (5.1).

    One rule appends the window that makes the smallest next join, the other the one with the lowest selectivity, which
    is that with the most distinct values on either side.
    """

    def smallest(order: Order, p: int) -> float:
        return phi(windows, (*order, p))

    def most_selective(order: Order, p: int) -> float:
        return -max(min(windows[q].values for q in order), windows[p].values)

    pairs = [(phi(windows, (p, q)), (p, q)) for p in range(len(windows)) for q in range(p)]
    _, (p, q) = min(pairs)
    return [_grow(windows, pair, rank) for pair in ((q, p), (p, q)) for rank in (smallest, most_selective)]


def candidates(windows: Sequence[Window], fast: float = 1.0) -> list[Order]:
    """The greedy orders, and those with the fast streams moved up, but not to the very top: about n^f orders (5.1)."""
    found = greedy_orders(windows)
    quick = fast_positions(tuple(window.rate for window in windows), fast)
    for order in tuple(found):
        found += [moved for moved in moved_up(order, quick) if moved[0] == order[0] or moved[0] not in quick]
    return sorted(set(found))


def heuristic_order(windows: Sequence[Window], fast: float = 1.0) -> Order:
    """The cheapest candidate for `eager`; among windows with equally many values, smaller ones come first."""
    return min(candidates(windows, fast), key=lambda order: (eager(windows, order), order))


def _compared(windows: Sequence[Window], order: Order, origin: int, fresh: float, tau: float) -> float:
    """Rows accessed by the loops over `fresh` new rows of the origin and the windows of the others.

    The scan of the outermost loop is the same for all relevant orders, and not counted.
    """
    bound, values, total = 1.0, 0.0, 0.0
    for k, p in enumerate(order):
        rows = fresh if p == origin else windows[p].rows(tau)
        total += bound * rows / (1.0 if p == origin else windows[p].buckets) if k else 0.0
        bound *= rows / (max(values, windows[p].values) if values else 1.0)
        values = min(values or inf, windows[p].values)
    return total


def _grow(windows: Sequence[Window], order: Order, rank: Callable[[Order, int], float]) -> Order:
    while len(order) < len(windows):
        left = [p for p in range(len(windows)) if p not in order]
        order = (*order, min((rank(order, p), p) for p in left)[1])
    return order


def _best(windows: Sequence[Window], cost: Callable[[Order], float]) -> float:
    return min(cost(order) for order in permutations(range(len(windows))))
