"""Split buckets: a task that still has too much gives turns with its hottest buckets to tasks with little.

Only probes are shared. The owner stores the rows, and each task with turns reads and sorts new rows again, so that a
bucket with many rows and few probes is not worth it.
"""

from __future__ import annotations

import numpy as np

from penstock.state.balance.costs import Costs, loads_of
from penstock.state.buckets import BucketMap, Split

TURNS = 32  # of a split bucket: so finely is its work divided
COPY = 0.6  # of the price of a row: it is received and sorted, and not stored


def splits_of(of: BucketMap, costs: Costs, slack: float) -> tuple[Split, ...]:
    """The splits that bring the loads of an unsplit map below (1 + slack) of the mean, if probes can do it."""
    loads = loads_of(of, costs)
    mean = float(loads.mean())
    taken: dict[int, dict[int, float]] = {}  # bucket -> task -> share of its probes
    for _ in range(4 * of.tasks):
        high, low = int(loads.argmax()), int(loads.argmin())
        if loads[high] <= (1 + slack) * mean:
            break
        own = np.flatnonzero(of.owner_of == high)
        left = np.array([costs.shared[b] * (1 - sum(taken.get(b, {}).values())) for b in own.tolist()])
        if not len(own):
            break
        bucket = int(own[left.argmax()])
        copied = 0.0 if low in taken.get(bucket, {}) else COPY * float(costs.own[bucket])
        amount = min(float(left.max()), loads[high] - mean, mean - loads[low] - copied)
        share = round(TURNS * amount / costs.shared[bucket]) / TURNS if costs.shared[bucket] else 0.0
        if share <= 0 or amount <= copied:
            break
        known = taken.setdefault(bucket, {})
        known[low] = known.get(low, 0.0) + share
        loads[high] -= share * costs.shared[bucket]
        loads[low] += share * costs.shared[bucket] + copied
    return tuple(Split(bucket, _turns(int(of.owner_of[bucket]), taken[bucket])) for bucket in sorted(taken))


def _turns(owner: int, shares: dict[int, float]) -> tuple[int, ...]:
    """A turn for each part of the work, those of the owner first."""
    given = [task for task in sorted(shares) for _ in range(round(TURNS * shares[task]))]
    return (*[owner] * max(0, TURNS - len(given)), *given)
