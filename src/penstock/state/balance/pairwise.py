"""Pair-wise averaging: the task with most work gives half of the gap to the one with least (Liu 2005, 6.2).

Tasks serve consecutive buckets, so what moves between two of them moves through those in between, which keep their
loads up to the size of a bucket. One such step lowers the sum of squared deviations by half of the squared gap if
buckets are small; if none is small enough, it is refused.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.state.balance.costs import Costs, Floats, deviation, excess, loads_of
from penstock.state.balance.decision import Decision, Parameters, kept, refused, waits
from penstock.state.buckets import BucketMap


def pairwise(of: BucketMap, costs: Costs, idle: float, known: Parameters) -> tuple[BucketMap, Decision]:
    """The map after one step of averaging; of equal loads the first ones are chosen."""
    loads = loads_of(of, costs)
    if (why := waits(loads, idle, known)) is not None:
        return of, kept(loads, why)
    sender, receiver = int(loads.argmax()), int(loads.argmin())
    gap = float(loads[sender] - loads[receiver])
    found = replace(of, starts=shifted(of, costs.whole, sender, receiver, gap / 2))
    after = loads_of(found, costs)
    if deviation(after) >= deviation(loads):
        why = f"no bucket at the ends of task {sender} costs less than the gap of {gap:.3f} s to task {receiver}"
        return of, refused(loads, why)
    reason = f"task {sender} has {loads[sender]:.3f} s of a step, and task {receiver} {loads[receiver]:.3f} s"
    moved = float(loads[sender] - after[sender])
    return found, Decision("moved", reason, (1 + excess(loads), 1 + excess(after)), moved)


def shifted(of: BucketMap, costs: Floats, sender: int, receiver: int, amount: float) -> tuple[int, ...]:
    """The starts after this amount has moved from one task to another; every task keeps a bucket."""
    below = np.concatenate([[0.0], np.cumsum(costs)])
    starts = [*of.starts, of.buckets]
    if sender < receiver:
        for task in range(sender + 1, receiver + 1):
            choices = np.arange(starts[task], starts[task - 1], -1)
            starts[task] = _nearest(choices, below, below[starts[task]] - amount)
    else:
        for task in range(sender, receiver, -1):
            choices = np.arange(starts[task], starts[task + 1])
            starts[task] = _nearest(choices, below, below[starts[task]] + amount)
    return tuple(starts[:-1])


def _nearest(choices: np.ndarray[tuple[int], np.dtype[np.int64]], below: Floats, wanted: float) -> int:
    """The cut with the wanted cost below it; of equally near ones the first, which moves least."""
    return int(choices[np.abs(below[choices] - wanted).argmin()])
