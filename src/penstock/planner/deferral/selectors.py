"""The ways of choosing which buckets are put off first, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.planner.deferral.at_random import at_random
from penstock.planner.deferral.global_penalty import global_penalty
from penstock.planner.deferral.least_active import least_active
from penstock.planner.deferral.least_productive import least_productive
from penstock.planner.deferral.loads import Loads
from penstock.planner.deferral.local_output import local_output
from penstock.planner.deferral.most_productive import most_productive

Selector = Callable[[Loads, int], list[int]]  # of loads and a seed: all buckets, first those to put off first

SELECTORS: Mapping[str, Selector] = {
    "least_productive": least_productive,
    "most_productive": most_productive,
    "random": at_random,
    "activity": least_active,
    "local": local_output,
    "global_penalty": global_penalty,
}


def chosen(order: Sequence[int], loads: Loads, share: float, already: frozenset[int]) -> frozenset[int]:
    """The first buckets of an order, beside those `already` put off, that have this share of the work of the others.

    The least number of them: less than one bucket too much. Buckets without work are left out.
    """
    left = [bucket for bucket in order if bucket not in already and loads[bucket].work > 0]
    total, taken = sum(loads[bucket].work for bucket in left), 0.0
    found: list[int] = []
    for bucket in left:
        if taken >= share * total:
            break
        found.append(bucket)
        taken += loads[bucket].work
    return frozenset(found)
