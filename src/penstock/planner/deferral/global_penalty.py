"""By results, with intermediate rows as a cost beside bytes (Liu 2005, 7.1.1, global output with penalty).

Of two buckets with equally many results for their bytes the one with more composites on the way is put off first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from penstock.planner.deferral.loads import Load, Loads, ratio

COMPOSITE = 64.0  # bytes that a composite counts as


def global_penalty(loads: Loads, seed: int) -> list[int]:
    """The order in which buckets are put off."""
    del seed

    def productivity(own: Load) -> float:
        return ratio(own.output, own.size + COMPOSITE * own.inter)

    return sorted(range(len(loads)), key=lambda bucket: productivity(loads[bucket]))


def penalties(composites: Sequence[int]) -> tuple[int, ...]:
    """The intermediate rows behind each look-up of a route, given those before each: the last ones are results."""
    return (*reversed(list(accumulate(reversed(composites[1:])))), 0)
