"""Cheap signs that an order may no longer be the best: changed arrival rates, and a better first probe seen elsewhere.

After Wang 2013, 5.3 and 5.4. Random draws are hashes of the seed, the query and the number of the check, so that a
replayed check decides the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from statistics import fmean, pvariance

from penstock.planner.orders.graph import Order, Positions
from penstock.planner.orders.statistics import Statistics

WIDE = 0.5
_LEAST = 4  # checks needed to estimate a scatter


def distance(some: Sequence[float], others: Sequence[float]) -> float:
    """The distance of the shares in two vectors of arrivals: 0 if proportional, 1 if disjoint (5.3).

    Nothing is at distance 1 from something, and at distance 0 from nothing.
    """
    first, second = sum(some), sum(others)
    if first == 0 or second == 0:
        return float(first != second)
    return min(sum(abs(a / first - b / second) for a, b in zip(some, others, strict=True)) / 2, 1.0)


def magnitude(some: float, other: float) -> float:
    """The difference of two amounts as a share of the larger one: a common surge shows here, not in `distance`."""
    return 1 - min(some, other) / max(some, other) if some != other else 0.0


def probability(alpha: float, moved: float) -> float:
    """The probability of a full check after the signs have moved that far; `alpha` if they have not (5.3)."""
    return alpha + (1 - alpha) * moved


def fluctuating(arrivals: Sequence[Sequence[float]]) -> Positions:
    """The positions whose share of the arrivals scatters widely over the last checks, given the arrivals at each.

    Widely: with a standard deviation of more than `WIDE` times the mean, beyond the random scatter of counts.
    """
    seen = [rows for rows in arrivals if sum(rows) > 0]
    if len(seen) < _LEAST:
        return frozenset()
    fewest = min(map(sum, seen))
    shares = [[count / sum(rows) for count in rows] for rows in seen]
    found = ((p, fmean(of_one), pvariance(of_one)) for p, of_one in enumerate(zip(*shares, strict=True)))
    return frozenset(p for p, mean, variance in found if variance > (WIDE * mean) ** 2 + mean / fewest)


def draw(seed: int, *parts: object) -> float:
    """A pseudo-random number in [0, 1), always the same for the same seed and parts."""
    text = "\0".join(str(part) for part in (seed, *parts))
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 11) / 2**53


def comparable(some: Positions, others: Positions, shared: int) -> bool:
    """Whether two composites may be compared: as many positions, not the same ones, `shared` in both (5.4.1)."""
    return len(some) == len(others) and some != others and shared in some & others


def literal_stuck(statistics: Statistics, start: int, order: Order) -> Positions | None:
    """A pair with the start that any start made fewer of than the start makes of its own first pair (Algorithm 4)."""
    own = frozenset((start, order[0]))
    flows = {members: rows for (_, members), rows in sorted(statistics.flows.items(), key=_by_start)}
    made = statistics.flows.get((start, own), flows.get(own, 0.0))
    fewer = [(rows, sorted(pair)) for pair, rows in flows.items() if comparable(pair, own, start) and rows < made]
    return frozenset(min(fewer)[1]) if fewer else None


def sound_stuck(statistics: Statistics, start: int, order: Order) -> Positions | None:
    """The same per row of the start, by pooled selectivity, regardless of which start made the composites."""

    def made(pair: Positions) -> float:
        return statistics.selectivities[pair] * statistics.held[min(pair - {start})]

    own = frozenset((start, order[0]))
    if own not in statistics.selectivities:
        return None
    others = [pair for pair in statistics.selectivities if comparable(pair, own, start)]
    fewer = [(made(pair), sorted(pair)) for pair in others if made(pair) < made(own)]
    return frozenset(min(fewer)[1]) if fewer else None


def _by_start(flow: tuple[tuple[int, Positions], float]) -> tuple[int, list[int]]:
    return flow[0][0], sorted(flow[0][1])
