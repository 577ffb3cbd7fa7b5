"""Weighted cuts: all tasks at once get consecutive buckets of about equal cost.

State is on a store that every task reads, so a bucket moves at no cost, and there is no reason to move them pair by
pair: of all cuts those with the least sum of squared loads are chosen.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.state.balance.costs import Costs, Floats, excess, loads_of
from penstock.state.balance.decision import Decision, Parameters, kept, refused, waits
from penstock.state.balance.split import splits_of
from penstock.state.buckets import BucketMap

GAIN = 0.05  # of the largest load: less is not worth a change


def weighted(of: BucketMap, costs: Costs, idle: float, known: Parameters) -> tuple[BucketMap, Decision]:
    """The map with the most even loads, with hot buckets split."""
    loads = loads_of(of, costs)
    if (why := waits(loads, idle, known)) is not None:
        return _unsplit(of, costs, loads, idle, known) or (of, kept(loads, why))
    starts = cuts(costs.whole, of.tasks)
    found = BucketMap(starts, of.buckets)
    if known.split:
        found = replace(found, splits=splits_of(found, costs, known.slack))
    after = loads_of(found, costs)
    if after.max() > (1 - GAIN) * loads.max():
        hottest = int(costs.whole.argmax())
        why = f"bucket {hottest} alone has {costs.whole[hottest] / loads.mean():.2f} of the mean of a task"
        return of, refused(loads, why)
    slowest, ratio = int(loads.argmax()), loads.min() / loads.max()
    reason = f"task {slowest} has {loads[slowest]:.3f} s of a step, and the least load is {ratio:.2f} of that"
    split = tuple(s.bucket for s in found.splits)
    moved = float(np.abs(after - loads).sum() / 2)
    return found, Decision("moved", reason, (1 + excess(loads), 1 + excess(after)), moved, split)


def cuts(costs: Floats, tasks: int) -> tuple[int, ...]:
    """The starts of consecutive ranges with the least sum of squares; every task has a bucket. Ties go to the left."""
    buckets = len(costs)
    if tasks > buckets:
        return BucketMap.even(tasks, buckets).starts
    # In front of a bucket without costs a cut has many equal places: a little of everything spreads them evenly.
    spread = costs + (costs.sum() or 1.0) * 1e-6 / buckets
    below = np.concatenate([[0.0], np.cumsum(spread)])
    squares = (below[None, :] - below[:, None]) ** 2
    squares[np.tril_indices(buckets + 1)] = np.inf
    best = squares[0].copy()
    chosen = []
    for _ in range(1, tasks):
        sums = best[:, None] + squares
        chosen.append(sums.argmin(axis=0))
        best = sums.min(axis=0)
    starts = [buckets]
    for last in reversed(chosen):
        starts.append(int(last[starts[-1]]))
    return (0, *reversed(starts[1:]))


def _unsplit(
    of: BucketMap, costs: Costs, loads: Floats, idle: float, known: Parameters
) -> tuple[BucketMap, Decision] | None:
    """Without its split buckets, if loads stay even enough: what tasks read twice is saved."""
    after = loads_of(of.unsplit, costs)
    if not of.splits or idle < known.tau_m or after.min() < known.theta_r * after.max():
        return None
    reason = f"buckets {', '.join(str(s.bucket) for s in of.splits)} are no longer hot"
    return of.unsplit, Decision("moved", reason, (1 + excess(loads), 1 + excess(after)))
