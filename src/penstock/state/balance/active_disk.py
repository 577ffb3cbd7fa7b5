"""Active-disk: as lazy-disk, and where loads are even the least productive task is forced to spill (Liu 2005, 6.3).

So memory becomes free for more productive buckets, which later relocations bring. Forced spills end at a limit, since
each of them makes the clean-up longer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import inf

import numpy as np

from penstock.state.balance.costs import Costs
from penstock.state.balance.decision import Decision, Parameters
from penstock.state.balance.lazy_disk import in_memory, lazy_disk, to_disk
from penstock.state.buckets import BucketMap


def active_disk(
    of: BucketMap, costs: Costs, idle: float, known: Parameters, spilled: Collection[int] = (), forced: float = 0.0
) -> tuple[BucketMap, Decision]:
    """The map after one step, with the buckets to move to disk; `forced` are the bytes forced so far."""
    found, decision = lazy_disk(of, costs, idle, known, spilled)
    groups = np.bincount(of.owner_of, minlength=of.tasks)
    results = np.bincount(of.owner_of, costs.results, minlength=of.tasks)
    rates = np.divide(results, groups, out=np.zeros(of.tasks), where=groups > 0)
    most, least = float(rates.max()), float(rates.min())
    ratio = inf if least == 0 < most else most / least if least else 1.0
    if decision.action == "moved" or ratio <= known.lambda_r or forced >= known.forced:
        return found, decision
    task = int(rates.argmin())
    used = float(in_memory(costs, spilled)[of.owner_of == task].sum())
    amount = min(known.spill * used, known.forced - forced)
    more = [b for b in to_disk(of, costs, task, amount, spilled) if b not in decision.spilled]
    if not more:
        return found, decision
    reason = f"task {task} has {ratio:.1f} times fewer results per bucket than another, more than {known.lambda_r:g}"
    return found, replace(decision, reason=reason, spilled=(*decision.spilled, *more))
