"""Lazy-disk: relocation first, and each task that is short of memory moves buckets to disk by itself (Liu 2005, 6.3).

A task that takes part in a relocation does not spill at the same time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from penstock.state.balance.costs import Costs
from penstock.state.balance.decision import Decision, Parameters
from penstock.state.balance.pairwise import pairwise
from penstock.state.buckets import BucketMap


def lazy_disk(
    of: BucketMap, costs: Costs, idle: float, known: Parameters, spilled: Collection[int] = ()
) -> tuple[BucketMap, Decision]:
    """The map after one step, with the buckets to move to disk beside those that were `spilled` before."""
    found, decision = pairwise(of, costs, idle, known)
    busy = {task for task in range(of.tasks) if decision.action == "moved" and _differ(of, found, task)}
    return found, replace(decision, spilled=short_of_memory(of, costs, known, spilled, busy))


def short_of_memory(
    of: BucketMap, costs: Costs, known: Parameters, spilled: Collection[int], busy: Collection[int] = ()
) -> tuple[int, ...]:
    """The buckets that tasks beyond their memory move to disk."""
    resident = in_memory(costs, spilled)
    used = np.bincount(of.owner_of, resident, minlength=of.tasks)
    full = [task for task in np.flatnonzero(used > known.theta_s * known.memory).tolist() if task not in busy]
    return tuple(b for task in full for b in to_disk(of, costs, task, known.spill * used[task], spilled))


def to_disk(of: BucketMap, costs: Costs, task: int, amount: float, spilled: Collection[int]) -> list[int]:
    """The least productive buckets of a task with at least so many bytes together, and one bucket more at most."""
    resident, productivity = in_memory(costs, spilled), costs.productivity
    found: list[int] = []
    for bucket in sorted(np.flatnonzero(of.owner_of == task).tolist(), key=lambda b: (productivity[b], b)):
        if amount <= 0:
            break
        if resident[bucket] > 0:
            found.append(bucket)
            amount -= resident[bucket]
    return found


def in_memory(costs: Costs, spilled: Collection[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The bytes of each bucket that are in memory."""
    found = costs.stored.copy()
    found[list(spilled)] = 0.0
    return found


def _differ(one: BucketMap, other: BucketMap, task: int) -> bool:
    return bool(((one.owner_of == task) != (other.owner_of == task)).any())
