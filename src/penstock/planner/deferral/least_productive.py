"""The least productive buckets first: those with the fewest results for the bytes that come (Liu 2005, 6.1.3)."""

from __future__ import annotations

from penstock.planner.deferral.loads import Loads, ratio


def least_productive(loads: Loads, seed: int) -> list[int]:
    """The order in which buckets are put off; of equal ones the first."""
    del seed
    return sorted(range(len(loads)), key=lambda bucket: ratio(loads[bucket].output, loads[bucket].size))
