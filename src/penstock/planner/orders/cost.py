"""The cost of a probe order: by the formulas of the literature, or in the units of the engine.

The cost of storing and expiring rows is left out: it is the same for every order. Costs refer to the interval that was
counted, and serve as a forecast for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf, log2
from typing import Literal, NamedTuple, Protocol

from penstock.planner.orders.graph import JoinGraph, Order, Positions
from penstock.planner.orders.sizes import Sizes


class CostModel(Protocol):
    """The cost of one step of an order: the composites of the start and `prefix` probe the position `following`.

    `ordered` says whether it depends on the last position of the prefix, not only on the set of its positions; `costly`
    are the pairs of positions with predicates that no index supports.
    """

    @property
    def ordered(self) -> bool: ...
    @property
    def costly(self) -> frozenset[Positions]: ...
    def step(self, sizes: Sizes, prefix: Order, following: int) -> float: ...


@dataclass(frozen=True)
class IndexCost:
    """Rows accessed through indexes (Wang 2013, 4.3 to 4.5): `each` per access, a hash index with `buckets` or a tree.

    A scan accesses every stored row, as a hash index with one bucket does. The logarithm is that of one row more, so
    that the cost of an empty or single-row tree is positive.
    """

    access: Literal["hash", "tree", "scan"] = "hash"
    each: float = 1.0
    buckets: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.each < inf and 1 <= self.buckets < inf):
            raise ValueError(f"an access costs a finite amount, and a hash index has buckets: {self}")

    @property
    def ordered(self) -> bool:
        return False

    @property
    def costly(self) -> frozenset[Positions]:
        return frozenset()

    def step(self, sizes: Sizes, prefix: Order, following: int) -> float:
        return self.each * self._accessed(sizes.rows(following)) * sizes.of(frozenset((sizes.start, *prefix)))

    def _accessed(self, held: float) -> float:
        if self.access == "tree":
            return log2(1 + held)
        return held / self.buckets if self.access == "hash" else held


class Price(NamedTuple):
    """The cost to move composites to where the next position is stored: per `interval` and per composite (`each`)."""

    interval: float
    each: float


@dataclass(frozen=True)
class EngineCost:
    """Rows probed and composites made, and the price of the exchanges between them.

    A probe of equal keys looks up one place, one of another predicate searches sorted rows, and a `costly` predicate
    (that no sort order supports, such as a user's function) or a product is evaluated on every stored row. `price` gets
    the start, the positions probed so far and the next one; of the former only the set and the last may matter.
    """

    graph: JoinGraph
    price: Callable[[int, Order, int], Price] | None = None
    costly: frozenset[Positions] = frozenset()
    _probes: dict[tuple[Positions, int], str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ordered(self) -> bool:
        return self.price is not None

    def step(self, sizes: Sizes, prefix: Order, following: int) -> float:
        bound = frozenset((sizes.start, *prefix))
        fed = sizes.of(bound)
        cost = fed * self._probed(bound, following, sizes.rows(following)) + sizes.of(bound | {following})
        if self.price is None:
            return cost
        once, each = self.price(sizes.start, prefix, following)
        return cost + fed * each + once * sizes.interval

    def _probed(self, bound: Positions, following: int, held: float) -> float:
        kind = self._probes.get((bound, following))
        if kind is None:
            kind = self._probes[bound, following] = self._kind(bound, following)
        return 1.0 if kind == "key" else log2(1 + held) if kind == "sorted" else held

    def _kind(self, bound: Positions, following: int) -> str:
        pairs = {frozenset((p, following)) for p in bound}
        if pairs & self.graph.equalities:
            return "key"
        return "sorted" if pairs & (self.graph.edges - self.costly) else "scan"


def step_costs(model: CostModel, sizes: Sizes, order: Order) -> list[float]:
    """The cost of each step of an order or of a prefix of one."""
    return [model.step(sizes, order[:k], position) for k, position in enumerate(order)]


def order_cost(model: CostModel, sizes: Sizes, order: Order) -> float:
    """The cost of an order or of a prefix of one (4.3)."""
    return [0.0, *accumulate(step_costs(model, sizes, order))][-1]
