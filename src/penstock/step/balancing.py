"""Costs of buckets from the reports of steps, and the map of buckets that the next step gets (decision 0042).

The map is part of the record of a step; the costs are in memory, and a new engine learns them again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from penstock.planner.decisions import Balanced, Decided
from penstock.state.balance.costs import Costs, costs_of, loads_of, smoothed
from penstock.state.balance.decision import Decision, Parameters
from penstock.state.balance.policies import OFF, POLICIES
from penstock.state.bucket_counters import BucketCounters, together
from penstock.state.buckets import BucketMap
from penstock.state.manifest import Balance, Entry, Manifest
from penstock.step.report import Report
from penstock.step.task import Reports

WEIGHT = 0.25  # of the last step in the mean of costs
FEW = 3  # steps that are measured before the first change
HOTTEST = 5  # buckets that are shown


@dataclass
class Balancer:
    """Chooses the map between two steps by a policy. What it remembers affects no answer."""

    policy: str = "weighted"
    known: Parameters = field(default_factory=Parameters)
    counted: BucketCounters = BucketCounters()  # noqa: RUF009  (frozen)
    costs: Costs | None = None  # the mean of the last steps
    steps: int = 0
    seconds: tuple[float, ...] = ()  # of each task in the last step
    last: Decision | None = None
    tried: float = -inf  # the clock of the last refusal

    def learn(self, manifest: Manifest, entry: Entry, of: BucketMap, reports: Reports) -> Entry:
        """The record of a batch with the map from now on, and the decision if it has changed."""
        counted = [stage for report in reports for stage in report.buckets]
        self.seconds = tuple(spent(report) for report in reports)
        if not counted or of.tasks < 2:
            return entry
        self.counted = together(counted)
        self.costs = smoothed(self.costs, costs_of(self.counted, of.buckets), WEIGHT)
        self.steps += 1
        if self.policy == OFF or self.steps < FEW:
            return entry
        at = manifest.balance.at if manifest.balance is not None else -inf
        found, decision = POLICIES[self.policy](of, self.costs, entry.clock - max(at, self.tried), self.known)
        self.last = decision
        if decision.action == "kept":
            return entry
        if decision.action == "refused":
            self.tried, told_before = entry.clock, self.tried > at  # to look for a better map takes time too
            if told_before:
                return entry
        told = Balanced(
            self.policy, "changed" if decision.action == "moved" else "refused", of.starts, found.starts,
            *decision.skew, decision.moved, decision.split, decision.spilled, decision.reason,
        )  # fmt: skip
        entry = replace(entry, decisions=(*entry.decisions, Decided(entry.step, told)))
        if decision.action == "refused":
            return entry
        return replace(entry, balance=Balance(found.starts, found.splits, entry.clock))

    def status(self, of: BucketMap) -> dict[str, Any]:
        """How even the last step was, and what its buckets cost.

        `skew` is the time of the slowest task by the mean; `hottest` are the buckets with the largest share of the
        costs, with their seconds of the last step: those of all tasks, divided by the costs.
        """
        spent = sum(self.seconds)
        found: dict[str, Any] = {
            "policy": self.policy,
            "tasks": of.tasks,
            "skew": round(max(self.seconds) * len(self.seconds) / spent, 3) if spent else None,
            "split": {split.bucket: sorted(set(split.turns)) for split in of.splits},
            "hottest": [],
            "reason": None if self.last is None else self.last.reason,
        }
        if self.costs is not None and self.costs.whole.any():
            whole = self.costs.whole
            loads = loads_of(of, self.costs)
            found["skew_by_costs"] = round(float(loads.max() / loads.mean()), 3)
            shares = whole / whole.sum()
            hottest = np.argsort(-shares, kind="stable")[:HOTTEST].tolist()
            found["hottest"] = [
                {"bucket": b, "share": round(float(shares[b]), 4), "seconds": round(float(shares[b] * spent), 4)}
                for b in hottest
                if shares[b]
            ]
        return found

    def explained(self, of: BucketMap) -> list[str]:
        """The same for EXPLAIN."""
        if of.tasks < 2 or self.policy == OFF:
            return []
        found = self.status(of)
        if "skew_by_costs" not in found:
            return [f"buckets: {self.policy}, nothing measured yet"]
        hot = ", ".join(f"{h['bucket']} ({h['share']:.1%})" for h in found["hottest"][:3])
        most = f"the task with most work has {found['skew_by_costs']:.2f} of the mean over {of.tasks} tasks"
        lines = [f"buckets: {self.policy}, {most}; hottest {hot}"]
        lines += [f"  bucket {b} is split over tasks {', '.join(map(str, t))}" for b, t in found["split"].items()]
        return lines


def spent(report: Report) -> float:
    """The seconds of a task."""
    return sum(report.phases.values())


def map_of(manifest: Manifest, tasks: int, buckets: int, *, balanced: bool) -> BucketMap:
    """The map of the step after the manifest's: the last one chosen, if it is for that many tasks."""
    known = manifest.balance
    if not balanced or known is None or len(known.starts) != tasks or known.starts[-1] >= buckets:
        return BucketMap.even(tasks, buckets)
    return BucketMap(known.starts, buckets, known.splits)
