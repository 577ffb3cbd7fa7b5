"""Counts made while orders ran: rows that arrived, stored rows, and composites by start and set.

Two starts make the same composites at different rates, so counts alone are not comparable. With each goes the number of
combinations among which it was found; their ratio, the selectivity of the set, may be pooled over the starts of a join,
over intervals, and over queries with the same predicates (Wang 2013, ch. 4, with flows separated from stocks).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum, prod

import msgspec

from penstock.planner.orders.graph import Positions

Flow = tuple[int, Positions]  # the composites of a set that rows of the start made
_COUNTED = 2**63
MOST = 1e100  # larger numbers of rows are cut to this one: products stay finite


class StoredStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`flows` as (start, positions, composites, chances); `outputs` with their chances."""

    arrivals: tuple[float, ...]
    held: tuple[float, ...]
    flows: tuple[tuple[int, tuple[int, ...], float, float], ...]
    outputs: tuple[float, float]


@dataclass(frozen=True)
class Statistics:
    """Counts of one interval or of several.

    `arrivals` are the rows that came to each position, `held` the rows of its window that a probe can see, `flows` the
    composites, `chances` the combinations among which they were found, `outputs` the results of all starts together and
    `output_chances` theirs. Only sets that some order passed through have a flow.
    """

    arrivals: tuple[float, ...]
    held: tuple[float, ...]
    flows: Mapping[Flow, float]
    chances: Mapping[Flow, float]
    outputs: float = 0.0
    output_chances: float = 0.0

    @classmethod
    def counted(
        cls,
        arrivals: Sequence[float],
        held: Sequence[float],
        flows: Mapping[Flow, float] | None = None,
        outputs: float | None = None,
        seen: Sequence[Sequence[float]] | None = None,
    ) -> Statistics:
        """The counts of one interval; raises `ValueError` for impossible numbers.

        `outputs` may be left out if every start counts the set of all positions itself. `seen` are the rows of every
        position that rows of each start could join, if that differs between starts: of two rows of one step, only one
        joins the other.
        """
        flows = dict(flows or {})
        if len(arrivals) != len(held):
            raise ValueError(f"one number of arrivals and one of held rows for each position: {arrivals} and {held}")
        if not all(0 <= number < _COUNTED for number in (*arrivals, *held, *flows.values(), outputs or 0.0)):
            raise ValueError("counts must not be negative, nor more than anything can count")
        positions = range(len(arrivals))
        if any(start not in members or not members <= set(positions) for start, members in flows):
            raise ValueError(f"a flow is of a set of positions with its start among them: {sorted(flows, key=str)}")
        met = [held] * len(held) if seen is None else seen
        among = {(start, members): chances(arrivals, met[start], start, members) for start, members in flows}
        whole = 0.0 if outputs is None else sum(chances(arrivals, met[start], start, positions) for start in positions)
        return cls(tuple(arrivals), tuple(held), flows, among, outputs or 0.0, whole)

    @classmethod
    def none(cls, count: int) -> Statistics:
        """No counts."""
        return cls((0.0,) * count, (0.0,) * count, {}, {})

    @property
    def rows(self) -> float:
        """The rows that arrived, at all positions."""
        return sum(self.arrivals)

    def __add__(self, later: Statistics) -> Statistics:
        """The counts of this and a later interval; the stored rows are those of the later one."""
        self._check(later)
        arrived = tuple(a + b for a, b in zip(self.arrivals, later.arrivals, strict=True))
        return replace(later.pooled(self), arrivals=arrived)

    def pooled(self, other: Statistics) -> Statistics:
        """These counts with those of another query among the same positions, for selectivities only, not for rows."""
        self._check(other)
        return replace(
            self,
            flows=_sum(self.flows, other.flows),
            chances=_sum(self.chances, other.chances),
            outputs=self.outputs + other.outputs,
            output_chances=self.output_chances + other.output_chances,
        )

    def faded(self, weight: float) -> Statistics:
        """The same with all counts but the stored rows times `weight`, so that later counts weigh more."""
        return replace(
            self,
            arrivals=tuple(rows * weight for rows in self.arrivals),
            flows={flow: rows * weight for flow, rows in self.flows.items()},
            chances={flow: rows * weight for flow, rows in self.chances.items()},
            outputs=self.outputs * weight,
            output_chances=self.output_chances * weight,
        )

    def without(self, sets: Iterable[Positions]) -> Statistics:
        """The same without the flows of these sets; results are dropped only with the set of all positions."""
        gone = frozenset(sets)
        whole = frozenset(range(len(self.held))) in gone
        return replace(
            self,
            flows={flow: rows for flow, rows in self.flows.items() if flow[1] not in gone},
            chances={flow: rows for flow, rows in self.chances.items() if flow[1] not in gone},
            outputs=0.0 if whole else self.outputs,
            output_chances=0.0 if whole else self.output_chances,
        )

    def renamed(self, positions: Mapping[int, int], count: int) -> Statistics:
        """The flows whose positions all have a name in a join of `count` positions, under those names; without rows.

        The results of a join with other or fewer positions are not results of that join.
        """

        def found(flows: Mapping[Flow, float]) -> dict[Flow, float]:
            kept = {flow: rows for flow, rows in flows.items() if flow[1] <= positions.keys()}
            return {(positions[start], frozenset(positions[p] for p in s)): rows for (start, s), rows in kept.items()}

        same = len(self.held) == count == len({positions[p] for p in range(len(self.held)) if p in positions})
        return replace(
            Statistics.none(count),
            flows=found(self.flows),
            chances=found(self.chances),
            outputs=self.outputs if same else 0.0,
            output_chances=self.output_chances if same else 0.0,
        )

    @cached_property
    def evidence(self) -> dict[Positions, tuple[float, float]]:
        """For each set that some start looked up: the composites found, by any start, and the combinations seen.

        For the set of all positions the count of results is used too, where no start counted its own.
        """
        flows: dict[Positions, list[Flow]] = {}
        for flow, among in self.chances.items():
            if among > 0 and len(flow[1]) > 1:
                flows.setdefault(flow[1], []).append(flow)
        found = {
            members: (fsum(self.flows[flow] for flow in some), fsum(self.chances[flow] for flow in some))
            for members, some in flows.items()
        }
        if self.output_chances > 0:
            found.setdefault(frozenset(range(len(self.held))), (self.outputs, self.output_chances))
        return found

    @cached_property
    def selectivities(self) -> dict[Positions, float]:
        """For each set that some start looked up, the share of its combinations that are composites."""
        return {members: min(found / among, 1.0) for members, (found, among) in self.evidence.items()}

    @property
    def stored(self) -> StoredStatistics:
        """The form of a record, the same for equal statistics."""
        flows = sorted((start, tuple(sorted(members))) for start, members in self.flows)
        keys = [(start, frozenset(members)) for start, members in flows]
        counted = tuple((*flow, self.flows[key], self.chances[key]) for flow, key in zip(flows, keys, strict=True))
        return StoredStatistics(self.arrivals, self.held, counted, (self.outputs, self.output_chances))

    @classmethod
    def of(cls, stored: StoredStatistics) -> Statistics:
        flows = [((start, frozenset(members)), rows, among) for start, members, rows, among in stored.flows]
        return cls(
            stored.arrivals,
            stored.held,
            {flow: rows for flow, rows, _ in flows},
            {flow: among for flow, _, among in flows},
            *stored.outputs,
        )

    def _check(self, other: Statistics) -> None:
        if len(self.held) != len(other.held):
            raise ValueError(f"statistics of {len(self.held)} and of {len(other.held)} positions do not add up")


def product(numbers: Iterable[float]) -> float:
    """The product, at most `MOST`; the numbers must not be negative."""
    factors = tuple(numbers)
    return 0.0 if 0 in factors else min(prod(factors), MOST)


def chances(arrivals: Sequence[float], held: Sequence[float], start: int, positions: Iterable[int]) -> float:
    """The number of combinations of arriving rows of the start and stored rows of the other positions."""
    return product((arrivals[start], *(held[p] for p in positions if p != start)))


def _sum(some: Mapping[Flow, float], others: Mapping[Flow, float]) -> dict[Flow, float]:
    return {flow: some.get(flow, 0.0) + others.get(flow, 0.0) for flow in some.keys() | others.keys()}
