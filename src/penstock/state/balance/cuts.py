"""Consecutive ranges of about equal cost, with hot buckets in one piece or in several."""

from __future__ import annotations

import numpy as np

from penstock.state.balance.costs import Costs, Floats
from penstock.state.buckets import BucketMap, Split

HOT = 0.5  # of the mean of a task: a bucket with more may be split
# Parts of a task's work, so finely are hot buckets divided; and of all tasks together, which bounds the search.
PARTS, MOST_PARTS = 16, 1024


def cuts(costs: Floats, tasks: int) -> tuple[int, ...]:
    """The starts of consecutive ranges with the least sum of squares; every task has one. Ties go to the left."""
    places = len(costs)
    if tasks > places:
        return BucketMap.even(tasks, places).starts
    # In front of a place without costs a cut has many equal places: a little of everything spreads them evenly.
    spread = costs + (costs.sum() or 1.0) * 1e-6 / places
    below = np.concatenate([[0.0], np.cumsum(spread)])
    squares = (below[None, :] - below[:, None]) ** 2
    squares[np.tril_indices(places + 1)] = np.inf
    best = squares[0].copy()
    chosen = []
    for _ in range(1, tasks):
        sums = best[:, None] + squares
        chosen.append(sums.argmin(axis=0))
        best = sums.min(axis=0)
    starts = [places]
    for last in reversed(chosen):
        starts.append(int(last[starts[-1]]))
    return (0, *reversed(starts[1:]))


def split_cuts(costs: Costs, tasks: int) -> BucketMap:
    """The same where a cut may lie within a hot bucket: tasks on both sides of it take turns in proportion.

    Only probes can be divided. The last task with a part of the bucket stores its rows.
    """
    buckets = len(costs.own)
    share = costs.whole * tasks / (costs.whole.sum() or 1.0)
    fine = max(2, min(PARTS, MOST_PARTS // tasks))
    parts = np.where((share > HOT) & (costs.shared > 0), np.ceil(fine * share), 1).astype(np.int64)
    bucket_of = np.repeat(np.arange(buckets), parts)
    last = np.cumsum(parts) - 1
    pieces = (costs.shared / parts)[bucket_of]
    pieces[last] += costs.own
    owner = np.searchsorted(np.array(cuts(pieces, tasks)[1:]), np.arange(len(pieces)), side="right")
    # A task starts with the first bucket whose last part it has, or that a later task has.
    starts = np.searchsorted(owner[last], np.arange(tasks))
    splits = []
    for bucket in np.flatnonzero(parts > 1).tolist():
        turns = owner[last[bucket] - parts[bucket] + 1 : last[bucket] + 1].tolist()
        if len(set(turns)) > 1:
            splits.append(Split(bucket, tuple(turns)))
    return BucketMap(tuple(np.minimum(starts, buckets - 1).tolist()), buckets, tuple(splits))
