"""By what each look-up finds, whether or not it becomes a result (Liu 2005, 7.1.1, local output)."""

from __future__ import annotations

from penstock.planner.deferral.loads import Loads, ratio


def local_output(loads: Loads, seed: int) -> list[int]:
    """The order in which buckets are put off: those with the fewest pairs for their bytes first."""
    del seed
    return sorted(range(len(loads)), key=lambda bucket: ratio(loads[bucket].made, loads[bucket].size))
