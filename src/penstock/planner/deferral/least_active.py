"""The buckets first that have had no new rows for the longest time (Liu 2005, 6.1.3, on activity)."""

from __future__ import annotations

from penstock.planner.deferral.loads import Loads


def least_active(loads: Loads, seed: int) -> list[int]:
    """The order in which buckets are put off; of equal ones the first."""
    del seed
    return sorted(range(len(loads)), key=lambda bucket: loads[bucket].active)
