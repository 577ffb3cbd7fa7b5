"""What a step teaches the optimizer: decisions about probe orders, pane sets and partials, committed with the step.

The planner makes the choices; they take effect with the next step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.model.time import NEVER
from penstock.planner import folding as fold
from penstock.planner import pane_sharing as arranging
from penstock.planner.network import Network
from penstock.planner.rollup import check_rollups
from penstock.planner.scans import Scans
from penstock.planner.segments import segments_in
from penstock.planner.share import recuts
from penstock.planner.steering import Steering, rerouted
from penstock.state.manifest import Entry, Manifest
from penstock.step.balancing import Balancer
from penstock.step.task import Reports, Task

REMEMBERED = 16  # joins whose statistics are stored with every step, at a few kB each; of more, every few steps


def steered(steering: Steering, manifest: Manifest, entry: Entry) -> tuple[dict[str, Any], float]:
    """The choice of orders after the step: decisions and new statistics, as changes; and the seconds it took."""
    fresh = [run for run in entry.runs_added if run.level == 0]
    started = time.perf_counter()
    before = steering.routes
    decisions = steering.observe(entry.counters, manifest.counters, list(manifest.runs.values()), fresh)
    seconds = time.perf_counter() - started
    moved = rerouted(steering.network, before, steering.routes, manifest.counters, steering.tasks) if decisions else []
    found = [*(d.to_json() for d in decisions), *(d.to_json() for d in moved)]
    plain = tuple({"step": entry.step, **decision} for decision in found)
    # Counts since the last check are stored too, or a job that is often restarted would never reach one.
    often = 1 + len(steering.modes) // REMEMBERED
    orders = steering.states if plain or entry.step % often == 0 else {}
    return {"orders": {} if orders == manifest.orders else orders, "decisions": plain}, seconds


def arranged(network: Network, manifest: Manifest, entry: Entry) -> Entry:
    """The entry with the choice of pane sets after the step."""
    newest = {name: p.newest for name, p in manifest.progress.items() if p.newest > NEVER}
    advanced = {name: p.newest - newest[name] for name, p in entry.progress.items() if name in newest}
    if not network.aggregates or not advanced:
        return entry
    known, decisions = arranging.check(network, arranging.observe(network, manifest.panes, entry.counters, advanced))
    plain = tuple({"step": entry.step, **decision.to_json()} for decision in decisions)
    return replace(entry, panes=known, decisions=(*entry.decisions, *plain))


def folded(network: Network, manifest: Manifest, entry: Entry, tasks: int) -> Entry:
    """The entry with the choice between rows and partials of mappers after the step."""
    if not network.aggregates:
        return entry
    known, changes = fold.check(network, fold.observe(network, manifest.folding, entry.counters, tasks))
    known, rolled = check_rollups(network, known)
    plain = tuple({"step": entry.step, **change.to_json()} for change in (*changes, *rolled))
    return replace(entry, folding=known, decisions=(*entry.decisions, *plain))


def rearranged(entry: Entry) -> bool:
    """Whether the step has decided on other pane sets, which the network has from the next step on."""
    return any(decision["mode"] == "panes" and decision["action"] == "changed" for decision in entry.decisions)


@dataclass
class Optimizer:
    """What the last steps have shown of costs: the orders of joins, and tables without a key. It affects no answer.

    It is not state: records contain what a restart needs, and it is rebuilt with the network. `steer` chooses the
    orders of a network.
    """

    steer: Callable[[Network, Manifest], Steering]
    balancer: Balancer = field(default_factory=Balancer)
    scans: Scans = field(default_factory=Scans)
    recut: list[dict[str, Any]] = field(default_factory=list)  # chains that have changed since the last batch
    planning: float = 0.0  # seconds for the check of orders in the last batch
    seconds: dict[str, float] = field(default_factory=lambda: {"planning": 0.0, "probing": 0.0})  # the slowest task's

    def adopt(self, network: Network, manifest: Manifest) -> None:
        """Steer this network from the next step on."""
        self.steering = self.steer(network, manifest)

    def learn(self, network: Network, manifest: Manifest, entry: Entry, task: Task, reports: Reports) -> Entry:
        """The record of a batch with its lessons, and with the decisions from them."""
        orders, self.planning = steered(self.steering, manifest, entry)
        if any(table.timed for table in network.tables):
            self.scans.observe(network, task.routes.replicated, [(r.counters, r.phases) for r in reports])
            counts = {
                t.name: segments_in(task.segments[t.index], task.runs.get(t.index, ()))
                for t in network.tables
                if t.timed and task.runs.get(t.index)
            }
            cut = tuple({"step": entry.step, **change.to_json()} for change in self.scans.cut(counts))
            entry = replace(entry, decisions=(*cut, *entry.decisions))
        self.seconds["planning"] += self.planning
        self.seconds["probing"] += max((report.phases.get("probe", 0.0) for report in reports), default=0.0)
        before, self.recut = (*self.recut, *orders.pop("decisions")), []
        entry = replace(entry, **orders, decisions=(*before, *entry.decisions))
        return self.balancer.learn(manifest, entry, task.buckets, reports)

    def cut(self, before: Network, after: Network, manifest: Manifest) -> None:
        """Note changed chains for the record of the next batch."""
        found = recuts(before, after, manifest.counters, list(manifest.runs.values()))
        self.recut += [{"step": manifest.step, **decision.to_json()} for decision in found]
