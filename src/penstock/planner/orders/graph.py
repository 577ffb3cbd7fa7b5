"""Which positions of a join have a predicate between them, and so which probe orders are legal.

A position is the place of a stream in the join, from 0. The graph does not contain values, rows or costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from penstock.planner.components import components

Positions = frozenset[int]
Order = tuple[int, ...]  # the positions that rows of one start probe, in order, without the start itself
Orders = dict[int, Order]  # the order of each start


@dataclass(frozen=True)
class JoinGraph:
    """`count` positions, the `classes` of positions whose columns are all equal, and pairs with any other predicate.

    All pairs of a class are joined, even if no query states it: equality is transitive. A position may be in several
    classes, by different columns.
    """

    count: int
    classes: frozenset[Positions] = frozenset()
    edges: frozenset[Positions] = frozenset()

    def __init__(
        self, count: int, classes: Iterable[Iterable[int]] = (), edges: Iterable[tuple[int, int] | Positions] = ()
    ) -> None:
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "classes", frozenset(map(frozenset, classes)))
        object.__setattr__(self, "edges", frozenset(map(frozenset, edges)))
        if count < 1:
            raise ValueError(f"a join has at least one position, not {count}")
        if any(len(edge) != 2 for edge in self.edges):
            raise ValueError(f"a predicate edge joins two different positions: {sorted(map(sorted, self.edges))}")
        unknown = frozenset().union(*self.classes, *self.edges) - self.all
        if unknown:
            raise ValueError(f"no such positions in a join of {count}: {sorted(unknown)}")

    @cached_property
    def all(self) -> Positions:
        return frozenset(range(self.count))

    @cached_property
    def equalities(self) -> frozenset[Positions]:
        """The pairs joined by equality, stated or derived."""
        return frozenset(frozenset(pair) for members in self.classes for pair in combinations(members, 2))

    @cached_property
    def _near(self) -> tuple[Positions, ...]:
        pairs = self.equalities | self.edges
        return tuple(frozenset(q for pair in pairs if p in pair for q in pair if q != p) for p in range(self.count))

    @cached_property
    def _following(self) -> dict[Positions, tuple[int, ...]]:
        return {}

    def joined(self, a: int, b: int) -> bool:
        """Whether there is a predicate between the two."""
        return b in self._near[a]

    def neighbours(self, positions: Positions) -> Positions:
        """The other positions that have a predicate with one of these."""
        return frozenset().union(*(self._near[p] for p in positions)) - positions

    def components(self, positions: Iterable[int]) -> tuple[Positions, ...]:
        """The connected components of the positions, in order of their lowest position."""
        return components(self._near, positions)

    def connected(self, positions: Iterable[int] | None = None) -> bool:
        """Whether predicates connect all of these positions, directly or indirectly; by default the whole join."""
        return len(self.components(self.all if positions is None else positions)) <= 1

    def predicates(self, positions: Positions) -> list[Positions]:
        """The predicates among these positions: their part of each class, and the other edges, none inside another."""
        parts = {members & positions for members in self.classes} | {edge & positions for edge in self.edges}
        parts = {part for part in parts if len(part) > 1}
        return sorted((part for part in parts if not any(part < other for other in parts)), key=sorted)

    def following(self, bound: Positions) -> tuple[int, ...]:
        """The positions that may be probed next, ascending: joined ones, or any if no joined one is left."""
        found = self._following.get(bound)
        if found is None:
            found = tuple(sorted(self.neighbours(bound) or self.all - bound))
            self._following[bound] = found
        return found

    def legal(self, start: int, order: Order) -> bool:
        """Whether the order probes every other position once, and makes a product only where it must."""
        if sorted((start, *order)) != list(range(self.count)):
            return False
        return all(p in self.following(frozenset((start, *order[:k]))) for k, p in enumerate(order))
