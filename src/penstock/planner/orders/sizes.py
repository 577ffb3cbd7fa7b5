"""How many composites each set of positions makes, even sets that no order has passed through.

One number per set, whatever the order that reaches it: only then is dynamic programming exact. Sets without a count are
estimated from neighbouring sets (Wang 2013, Algorithm 2, on connected components). Two kinds: `sound`, from
selectivities, and `literal`, which takes flows for sizes as the thesis does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations

from penstock.planner.orders.graph import JoinGraph, Positions
from penstock.planner.orders.statistics import MOST, Statistics, product

EXACT = 12  # positions up to which all sets are enumerated; beyond, each one would double the work


@dataclass
class Estimates:
    """A number for every set: the `collected` one, else the least of the sets one position larger.

    Among known numbers those with the fewest further positions are the best evidence. `alone` is the number of a single
    position; `growth` converts the number of a set with that position into one of the set without it, and `most` bounds
    an estimate. Components multiply. Collected numbers are never changed. Where `likely` has a better guess, it is
    taken.
    """

    graph: JoinGraph
    collected: Mapping[Positions, float]
    alone: Sequence[float]
    growth: Sequence[float]
    most: float = MOST
    likely: Callable[[Positions], float | None] = lambda _: None
    _filled: dict[Positions, float] = field(default_factory=dict, repr=False)

    def __call__(self, positions: Positions) -> float:
        known = self.collected.get(positions)
        if known is not None:
            return known
        if positions not in self._filled:
            parts = self.graph.components(positions)
            alone = len(parts) == 1
            self._filled[positions] = self._estimate(positions) if alone else product(self(part) for part in parts)
        return self._filled[positions]

    def measured(self, positions: Positions) -> bool:
        """Whether the number of a set follows from collected ones alone, without an estimate."""
        parts = () if positions in self.collected else self.graph.components(positions)
        return all(len(part) == 1 or part in self.collected for part in parts)

    def founded(self, positions: Positions) -> bool:
        """Whether the number of a set is measured, or could at least be composed from measured pairs."""
        pairs = [frozenset(pair) for pair in combinations(positions, 2) if self.graph.joined(*pair)]
        return positions in self.collected or all(pair in self.collected for pair in pairs)

    def _estimate(self, part: Positions) -> float:
        if len(part) == 1:
            return self.alone[min(part)]
        likely = self.likely(part)
        if likely is not None:
            return likely
        near = [p for p in self.graph.neighbours(part) if self.growth[p] > 0]
        if near and self.graph.count <= EXACT:
            return min(self.most, *(self(part | {p}) * self.growth[p] for p in near))
        enclosing = [members for members in self.collected if members > part]
        beyond = [product((self.collected[s], *(self.growth[p] for p in s - part))) for s in enclosing]
        return min(self.most, *beyond) if beyond else product(self.alone[p] for p in part)


@dataclass(frozen=True)
class Sizes:
    """The input for one start's orders: the stored rows at each position (`held`), and the composites of each set.

    `interval` is the part of an interval that the numbers stand for: 1, or one row of the start out of all arrivals.
    """

    start: int
    held: tuple[float, ...]
    composites: Callable[[Positions], float]
    interval: float = 1.0
    fixed: Mapping[Positions, float] = field(default_factory=dict)

    def of(self, positions: Positions) -> float:
        """The rows of a set; a single position other than the start counts its stored rows."""
        if positions in self.fixed:
            return self.fixed[positions]
        if len(positions) == 1 and self.start not in positions:
            return self.held[min(positions)]
        return min(self.composites(positions), MOST)

    def rows(self, position: int) -> float:
        """The stored rows at a position."""
        return self.held[position]

    def changed(self, positions: Positions, value: float) -> Sizes:
        """The same with one number changed: the stored rows at a position, or the composites of a set."""
        if len(positions) > 1:
            return replace(self, fixed={**self.fixed, positions: value})
        place = min(positions)
        return replace(self, held=(*self.held[:place], value, *self.held[place + 1 :]))


def sound_estimates(graph: JoinGraph, statistics: Statistics) -> Estimates:
    """The selectivity of every set, from the counts of all starts and all queries."""
    ones = (1.0,) * graph.count
    return Estimates(graph, statistics.selectivities, ones, statistics.held, most=1.0)


def independent_estimates(
    graph: JoinGraph, statistics: Statistics, supposed: Mapping[Positions, float] | None = None
) -> Estimates:
    """As `sound_estimates`, with unmeasured sets composed from their pairs as if predicates were independent.

    Members of one class are not independent: each next one is only as selective as its most selective pair (4.2).
    `supposed` selectivities replace measured ones that a change has discarded.
    """
    supposed = supposed or {}
    all_known = {**supposed, **statistics.selectivities}
    known = {**_pairs(graph, all_known), **all_known}

    def likely(positions: Positions) -> float | None:
        if positions in supposed:
            return supposed[positions]
        found = [_composed(known, part) for part in graph.predicates(positions)]
        return None if None in found else product(value for value in found if value is not None)

    return replace(sound_estimates(graph, statistics), likely=likely)


def sound_sizes(statistics: Statistics, estimates: Callable[[Positions], float], start: int) -> Sizes:
    """Composites per row of the start, so that a change of rates alone changes no size."""

    @cache
    def composites(positions: Positions) -> float:
        return estimates(positions) * product(statistics.held[p] for p in positions if p != start)

    return Sizes(start, statistics.held, composites, 1.0 / max(statistics.arrivals[start], 1.0))


def measured_sizes(statistics: Statistics, estimates: Estimates, start: int) -> Sizes:
    """The same, but an unmeasured set counts as enormous: only what is known looks cheap."""

    @cache
    def careful(positions: Positions) -> float:
        return estimates(positions) if estimates.measured(positions) else MOST

    return sound_sizes(statistics, careful, start)


def literal_estimates(graph: JoinGraph, statistics: Statistics, start: int) -> Estimates:
    """The cardinality of every set as defined in the thesis: a flow of any start, preferably the start's own."""
    collected = {graph.all: statistics.outputs} if statistics.output_chances > 0 else {}
    flows = sorted(statistics.flows, key=lambda flow: (flow[0] == start, -flow[0]))
    collected |= {members: statistics.flows[s, members] for s, members in flows if len(members) > 1}
    return Estimates(graph, collected, statistics.held, (1.0,) * graph.count)


def literal_sizes(graph: JoinGraph, statistics: Statistics, start: int) -> Sizes:
    """Composites of an interval as defined in the thesis (4.4), with one number for each set."""
    estimates = literal_estimates(graph, statistics, start)
    arrived = {frozenset((start,)): statistics.arrivals[start]}
    return Sizes(start, statistics.held, estimates, fixed=arrived)


def _pairs(graph: JoinGraph, known: Mapping[Positions, float]) -> dict[Positions, float]:
    """The possible selectivity of each joined pair, by the measured steps that contained it.

    The selectivity of a step is a guess for each of its pairs with a bound position. Of several guesses the lowest is
    taken: it is right for columns of one class, and optimistic for independent predicates.
    """
    found: dict[Positions, float] = {}
    for members, share in known.items():
        for p in members:
            before = known.get(members - {p}, 0.0)
            for q in members - {p}:
                if before > 0 and graph.joined(p, q):
                    pair = frozenset((p, q))
                    found[pair] = min(found.get(pair, 1.0), share / before)
    return found


def _composed(known: Mapping[Positions, float], members: Positions) -> float | None:
    """The selectivity of a class of equal columns, from its pairs; `None` if one is missing.

    The least selective pair comes first, then always the least selective member: that is the sequence of ascending
    numbers of distinct values, in which no member filters what another has filtered already.
    """
    if members in known:
        return known[members]
    pairs = sorted(tuple(sorted(pair)) for pair in combinations(members, 2))
    if any(frozenset(pair) not in known for pair in pairs):
        return None
    first = max(pairs, key=lambda pair: known[frozenset(pair)])
    share, bound = known[frozenset(first)], set(first)
    while bound < members:
        passing = {p: min(known[frozenset((p, q))] for q in bound) for p in sorted(members - bound)}
        best = max(passing, key=passing.__getitem__)
        share *= passing[best]
        bound.add(best)
    return share
