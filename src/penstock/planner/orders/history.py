"""What is known from all intervals so far: recent counts tell the most, and a change makes old ones suspect.

Orders show only the sets they pass through. What other sets made is remembered from the time when some order did,
until a set that is still counted has clearly changed: then the memory of its neighbours is worth nothing.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, log, sqrt

from penstock.planner.orders.graph import Positions
from penstock.planner.orders.statistics import Statistics, chances

_CHANGE = 1.5  # ratio of two counts from which they may differ by more than chance
_SIGMAS = 4.0  # and by how many standard deviations of a count they must
_FAINT = 1e-6  # share of what one interval would show, below which a memory is let go


def learn(known: Statistics, interval: Statistics, decay: float) -> Statistics:
    """What is known after an interval: its own rows, and the flows of both, the older ones times `decay`."""
    stale = changed(known, interval)
    fresh = interval.evidence.keys()
    suspects = {
        members for members in known.evidence if members not in fresh and any(members & s for s in _least(stale))
    }
    kept = known.without(stale | suspects).faded(decay)
    return replace(kept.without(_faint(kept, interval)) + interval, arrivals=interval.arrivals)


def changed(known: Statistics, interval: Statistics) -> set[Positions]:
    """The sets whose flow is clearly not what their selectivity so far lets one expect."""
    found = set()
    for members, (count, among) in interval.evidence.items():
        if members in known.selectivities:
            expected = known.selectivities[members] * among
            less, more = sorted((count, expected))
            if more > _CHANGE * less and more - less > _SIGMAS * sqrt(more):
                found.add(members)
    return found


def supposed(known: Statistics, interval: Statistics) -> dict[Positions, float]:
    """What sets that contain a changed one may let through now: of that part, the share that they did before.

    Of several parts that have changed, the one that has changed the most counts.
    """
    found = {}
    least = [part for part in _least(changed(known, interval)) if known.selectivities[part] > 0]
    for members in known.evidence.keys() - interval.evidence.keys():
        ratios = [interval.selectivities[p] / known.selectivities[p] for p in least if p < members]
        if ratios:
            growth = max(ratios, key=lambda ratio: abs(log(ratio)) if ratio else inf)
            found[members] = min(known.selectivities[members] * growth, 1.0)
    return found


def _least(sets: set[Positions]) -> list[Positions]:
    """Those that contain no other: where a change began."""
    return [members for members in sets if not any(other < members for other in sets)]


def _faint(known: Statistics, interval: Statistics) -> set[Positions]:
    """The sets whose memory has faded next to what one interval would show of them."""

    def shown(members: Positions) -> float:
        return sum(chances(interval.arrivals, interval.held, start, members) for start in members)

    return {members for members, (_, among) in known.evidence.items() if among < _FAINT * shown(members)}
