"""Statistics over all intervals: recent counts weigh most, and a change makes old ones suspect.

Orders show only the sets that they pass through. Counts of other sets are kept from the time when some order passed
through them, until a set that is still counted has clearly changed: then those of its neighbours are discarded.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, log, sqrt

from penstock.planner.orders.graph import Positions
from penstock.planner.orders.statistics import Statistics, chances

_CHANGE = 1.5  # ratio of two counts from which the difference may be more than chance
_SIGMAS = 4.0  # standard deviations of a count by which they must differ too
_FAINT = 1e-6  # share of what one interval would show, below which counts are discarded


def learn(known: Statistics, interval: Statistics, decay: float) -> Statistics:
    """The statistics after an interval: its rows, and the flows of both, the older ones times `decay`."""
    stale = changed(known, interval)
    fresh = interval.evidence.keys()
    suspects = {
        members for members in known.evidence if members not in fresh and any(members & s for s in _least(stale))
    }
    kept = known.without(stale | suspects).faded(decay)
    return replace(kept.without(_faint(kept, interval)) + interval, arrivals=interval.arrivals)


def changed(known: Statistics, interval: Statistics) -> set[Positions]:
    """The sets whose flow clearly deviates from what their selectivity so far predicts."""
    found = set()
    for members, (count, among) in interval.evidence.items():
        if members in known.selectivities:
            expected = known.selectivities[members] * among
            less, more = sorted((count, expected))
            if more > _CHANGE * less and more - less > _SIGMAS * sqrt(more):
                found.add(members)
    return found


def supposed(known: Statistics, interval: Statistics) -> dict[Positions, float]:
    """Assumed selectivities of sets that contain a changed one: that of the changed part, times their earlier share.

    Of several changed parts, the one that changed the most counts.
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
    """The minimal sets: where a change began."""
    return [members for members in sets if not any(other < members for other in sets)]


def _faint(known: Statistics, interval: Statistics) -> set[Positions]:
    """The sets whose counts have decayed far below what one interval would show."""

    def shown(members: Positions) -> float:
        return sum(chances(interval.arrivals, interval.held, start, members) for start in members)

    return {members for members, (_, among) in known.evidence.items() if among < _FAINT * shown(members)}
