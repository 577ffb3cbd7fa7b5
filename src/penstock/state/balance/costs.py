"""What buckets cost: their counters times the price of each kind of work, as seconds of one task in one step.

The model has constants, so that equal counts are equal costs: seconds of single tasks are too noisy to move buckets by.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from penstock.state.bucket_counters import BucketCounters
from penstock.state.buckets import BUCKETS, BucketMap

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Prices:
    """Seconds for a unit of work, on one core (decision 0042): a new row is received, sorted and stored."""

    row: float = 0.12e-6
    probed: float = 50e-9
    candidate: float = 5e-9
    compared: float = 15e-9
    result: float = 50e-9


PRICES = Prices()
COPY = 0.6  # of the price of a row that another task stores: it is received and sorted


@dataclass(frozen=True)
class Costs:
    """By bucket: seconds of a step that only its `own` task can spend, and those of probes, which may be `shared`.

    `results` and `stored` bytes say how productive it is.
    """

    own: Floats
    shared: Floats
    results: Floats
    stored: Floats

    @property
    def whole(self) -> Floats:
        return self.own + self.shared

    @property
    def productivity(self) -> Floats:
        """Results per byte; a bucket without bytes has nothing that could be moved to disk."""
        found: Floats = np.full(len(self.stored), np.inf)
        np.divide(self.results, self.stored, out=found, where=self.stored > 0)
        return found


def costs_of(counted: BucketCounters, buckets: int = BUCKETS, prices: Prices = PRICES) -> Costs:
    """The costs of one step by its counters."""
    probes = (("probed", prices.probed), ("candidates", prices.candidate), ("compared", prices.compared))
    shared: Floats = np.zeros(buckets)
    for name, price in probes:
        shared += counted.of(name, buckets) * price
    results = counted.of("results", buckets).astype(np.float64)
    own = np.asarray(counted.of("rows", buckets) * prices.row, dtype=np.float64)
    return Costs(
        own,
        shared + results * prices.result,
        results,
        counted.of("stored", buckets).astype(np.float64),
    )


def smoothed(before: Costs | None, now: Costs, weight: float) -> Costs:
    """The mean of costs, in which a step counts less the older it is; stored bytes are the last that were counted."""
    if before is None:
        return now
    mixed = {f.name: (1 - weight) * getattr(before, f.name) + weight * getattr(now, f.name) for f in fields(Costs)}
    return Costs(**{**mixed, "stored": now.stored if now.stored.any() else before.stored})


def loads_of(of: BucketMap, costs: Costs) -> Floats:
    """The seconds of each task with a map; each task with turns reads and sorts the rows of the bucket again."""
    shared = costs.shared.copy()
    taken = np.zeros(of.tasks)
    for split in of.splits:
        np.add.at(taken, list(split.turns), shared[split.bucket] / len(split.turns))
        shared[split.bucket] = 0.0
        taken[[task for task in set(split.turns) if task != of.owner_of[split.bucket]]] += (
            COPY * costs.own[split.bucket]
        )
    return np.bincount(of.owner_of, costs.own + shared, minlength=of.tasks) + taken


def deviation(loads: Floats) -> float:
    """The sum of the squared deviations of loads from their mean."""
    return float(((loads - loads.mean()) ** 2).sum())


def excess(loads: Floats) -> float:
    """By how much the largest load exceeds the mean, as a share of it."""
    return float(loads.max() / loads.mean() - 1) if loads.any() else 0.0
