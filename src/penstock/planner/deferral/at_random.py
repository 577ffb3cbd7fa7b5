"""Buckets in any order, the same for the same seed (Liu 2005, 6.1.4)."""

from __future__ import annotations

import random

from penstock.planner.deferral.loads import Loads


def at_random(loads: Loads, seed: int) -> list[int]:
    """The order in which buckets are put off."""
    return random.Random(seed).sample(range(len(loads)), len(loads))  # noqa: S311  (a draw that can be repeated)
