"""What a step teaches the optimizer: decisions about probe orders, pane sets and partials, committed with the step.

The choices themselves are the planner's; they take effect with the next step.
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
from penstock.planner.share import recuts
from penstock.planner.steering import Steering, rerouted
from penstock.state.manifest import Entry, Manifest
from penstock.step.task import Reports, Task

REMEMBERED = (
    16  # joins whose choice of orders is stored with every step, at a few kB each; that of more, every few steps
)


def steered(steering: Steering, manifest: Manifest, entry: Entry) -> tuple[dict[str, Any], float]:
    """What the choice of orders made of the step: decisions and what to remember, as changes; the seconds it took."""
    fresh = [run for run in entry.runs_added if run.level == 0]
    started = time.perf_counter()
    before = steering.routes
    decisions = steering.observe(entry.counters, manifest.counters, list(manifest.runs.values()), fresh)
    seconds = time.perf_counter() - started
    moved = rerouted(steering.network, before, steering.routes, manifest.counters, steering.tasks) if decisions else []
    found = [*(d.to_json() for d in decisions), *(d.to_json() for d in moved)]
    plain = tuple({"step": entry.step, **decision} for decision in found)
    # Counts since the last check are remembered too, or a job that is often restarted would never come to one.
    often = 1 + len(steering.modes) // REMEMBERED
    orders = steering.states if plain or entry.step % often == 0 else {}
    return {"orders": {} if orders == manifest.orders else orders, "decisions": plain}, seconds


def arranged(network: Network, manifest: Manifest, entry: Entry) -> Entry:
    """The entry with what the choice of pane sets made of the step."""
    newest = {name: p.newest for name, p in manifest.progress.items() if p.newest > NEVER}
    advanced = {name: p.newest - newest[name] for name, p in entry.progress.items() if name in newest}
    if not network.aggregates or not advanced:
        return entry
    known, decisions = arranging.check(network, arranging.observe(network, manifest.panes, entry.counters, advanced))
    plain = tuple({"step": entry.step, **decision.to_json()} for decision in decisions)
    return replace(entry, panes=known, decisions=(*entry.decisions, *plain))


def folded(network: Network, manifest: Manifest, entry: Entry, tasks: int) -> Entry:
    """The entry with what the choice between rows and partials of mappers made of the step."""
    if not network.aggregates:
        return entry
    known, changes = fold.check(network, fold.observe(network, manifest.folding, entry.counters, tasks))
    known, rolled = check_rollups(network, known)
    plain = tuple({"step": entry.step, **change.to_json()} for change in (*changes, *rolled))
    return replace(entry, folding=known, decisions=(*entry.decisions, *plain))


def rearranged(entry: Entry) -> bool:
    """Whether the step has decided on other pane sets, which the network then has from the next step on."""
    return any(decision["mode"] == "panes" and decision["action"] == "changed" for decision in entry.decisions)


@dataclass
class Optimizer:
    """What the last steps have shown of costs: the orders of joins, and tables without a key. It changes no answer.

    Nothing of it is state: records keep what a restart needs, and it begins anew with the network. `steer` chooses the
    orders of a network.
    """

    steer: Callable[[Network, Manifest], Steering]
    scans: Scans = field(default_factory=Scans)
    recut: list[dict[str, Any]] = field(default_factory=list)  # chains that have changed since the last batch
    planning: float = 0.0  # seconds of the last batch in which orders were looked at
    seconds: dict[str, float] = field(default_factory=lambda: {"planning": 0.0, "probing": 0.0})  # the slowest task's

    def adopt(self, network: Network, manifest: Manifest) -> None:
        """Steer this network from the next step on."""
        self.steering = self.steer(network, manifest)

    def learn(self, network: Network, manifest: Manifest, entry: Entry, task: Task, reports: Reports) -> Entry:
        """The record of a batch with what it has shown, and with what is done about it."""
        orders, self.planning = steered(self.steering, manifest, entry)
        if any(table.timed for table in network.tables):
            self.scans.observe(network, task.routes.replicated, [(r.counters, r.phases) for r in reports])
        self.seconds["planning"] += self.planning
        self.seconds["probing"] += max((report.phases.get("probe", 0.0) for report in reports), default=0.0)
        before, self.recut = (*self.recut, *orders.pop("decisions")), []
        return replace(entry, **orders, decisions=(*before, *entry.decisions))

    def cut(self, before: Network, after: Network, manifest: Manifest) -> None:
        """Remember that chains have changed, for the record of the next batch."""
        found = recuts(before, after, manifest.counters, list(manifest.runs.values()))
        self.recut += [{"step": manifest.step, **decision.to_json()} for decision in found]
