"""The most productive buckets first: the worst choice for early results, to compare others with (Liu 2005, 6.1.3)."""

from __future__ import annotations

from penstock.planner.deferral.loads import Loads, ratio


def most_productive(loads: Loads, seed: int) -> list[int]:
    """The order in which buckets are put off; idle ones last."""
    del seed

    def place(bucket: int) -> tuple[bool, float]:
        own = loads[bucket]
        return own.size == 0, -ratio(own.output, own.size)

    return sorted(range(len(loads)), key=place)
