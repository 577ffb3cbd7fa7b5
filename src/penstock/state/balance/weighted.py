"""Weighted cuts: all tasks at once get consecutive buckets of about equal cost.

State is on a store that every task reads, so a bucket moves at no cost, and there is no reason to move them pair by
pair: of all cuts those with the least sum of squared loads are chosen, within hot buckets too if that pays.
"""

from __future__ import annotations

import numpy as np

from penstock.state.balance.costs import Costs, Floats, excess, loads_of
from penstock.state.balance.cuts import cuts, split_cuts
from penstock.state.balance.decision import Decision, Parameters, kept, refused, waits
from penstock.state.buckets import BucketMap

GAIN = 0.05  # of the largest load: less is not worth a change, nor a split


def weighted(of: BucketMap, costs: Costs, idle: float, known: Parameters) -> tuple[BucketMap, Decision]:
    """The map with the most even loads, with hot buckets split."""
    loads = loads_of(of, costs)
    if (why := waits(loads, idle, known)) is not None:
        return _unsplit(of, costs, loads, idle, known) or (of, kept(loads, why))
    found = BucketMap(cuts(costs.whole, of.tasks), of.buckets)
    after = loads_of(found, costs)
    if known.split and of.tasks <= of.buckets:
        split = split_cuts(costs, of.tasks)
        if loads_of(split, costs).max() <= (1 - GAIN) * after.max():
            found, after = split, loads_of(split, costs)
    if after.max() > (1 - GAIN) * loads.max():
        hottest = int(costs.whole.argmax())
        why = f"bucket {hottest} alone has {costs.whole[hottest] / loads.mean():.2f} of the mean of a task"
        return of, refused(loads, why)
    slowest, ratio = int(loads.argmax()), loads.min() / loads.max()
    reason = f"task {slowest} has {loads[slowest]:.3f} s of a step, and the least load is {ratio:.2f} of that"
    moved = float(np.abs(after - loads).sum() / 2)
    return found, Decision(
        "moved", reason, (1 + excess(loads), 1 + excess(after)), moved, tuple(s.bucket for s in found.splits)
    )


def _unsplit(
    of: BucketMap, costs: Costs, loads: Floats, idle: float, known: Parameters
) -> tuple[BucketMap, Decision] | None:
    """Without its split buckets, if loads stay even enough: what tasks read twice is saved."""
    after = loads_of(of.unsplit, costs)
    if not of.splits or idle < known.tau_m or after.min() < known.theta_r * after.max():
        return None
    reason = f"buckets {', '.join(str(s.bucket) for s in of.splits)} are no longer hot"
    return of.unsplit, Decision("moved", reason, (1 + excess(loads), 1 + excess(after)))
