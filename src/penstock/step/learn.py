"""What a step teaches the optimizer: decisions about probe orders, pane sets and partials, committed with the step.

The planner makes the choices; they take effect with the next step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.model.time import NEVER
from penstock.planner import folding as fold
from penstock.planner import pane_sharing as arranging
from penstock.planner.decisions import Arrangement, Decided, Decisions, Kind
from penstock.planner.network import Network
from penstock.planner.orders.mode import ModeState
from penstock.planner.rollup import check_rollups
from penstock.planner.scans import Scans
from penstock.planner.segments import segments_in
from penstock.planner.share import recuts
from penstock.planner.steering import Steering, rerouted
from penstock.state.manifest import Entry, Manifest
from penstock.step.balancing import Balancer
from penstock.step.task import Reports, Task

REMEMBERED = 16  # joins whose statistics are stored with every step, at a few kB each; of more, every few steps


def steered(steering: Steering, manifest: Manifest, entry: Entry) -> tuple[Mapping[str, ModeState], Decisions, float]:
    """The choice of orders after the step: new statistics if they are to be stored, decisions, the seconds it took."""
    fresh = [run for run in entry.runs_added if run.level == 0]
    started = time.perf_counter()
    before = steering.routes
    decisions = steering.observe(entry.counters, manifest.counters, list(manifest.runs.values()), fresh)
    seconds = time.perf_counter() - started
    moved = rerouted(steering.network, before, steering.routes, manifest.counters, steering.tasks) if decisions else []
    found = _decided(entry.step, [*decisions, *moved])
    # Counts since the last check are stored too, or a job that is often restarted would never reach one.
    often = 1 + len(steering.modes) // REMEMBERED
    orders = steering.states if found or entry.step % often == 0 else {}
    return {} if orders == manifest.orders else orders, found, seconds


def arranged(network: Network, manifest: Manifest, entry: Entry) -> Entry:
    """The entry with the choice of pane sets after the step."""
    newest = {name: p.newest for name, p in manifest.progress.items() if p.newest > NEVER}
    advanced = {name: p.newest - newest[name] for name, p in entry.progress.items() if name in newest}
    if not network.aggregates or not advanced:
        return entry
    known, decisions = arranging.check(network, arranging.observe(network, manifest.panes, entry.counters, advanced))
    return replace(entry, panes=known, decisions=(*entry.decisions, *_decided(entry.step, decisions)))


def folded(network: Network, manifest: Manifest, entry: Entry, tasks: int) -> Entry:
    """The entry with the choice between rows and partials of mappers after the step."""
    if not network.aggregates:
        return entry
    known, changes = fold.check(network, fold.observe(network, manifest.folding, entry.counters, tasks))
    known, rolled = check_rollups(network, known)
    return replace(entry, folding=known, decisions=(*entry.decisions, *_decided(entry.step, [*changes, *rolled])))


def rearranged(entry: Entry) -> bool:
    """Whether the step has decided on other pane sets, which the network has from the next step on."""
    return any(isinstance(d.decision, Arrangement) and d.decision.action == "changed" for d in entry.decisions)


def _decided(step: int, found: Sequence[Kind]) -> tuple[Decided, ...]:
    return tuple(Decided(step, decision) for decision in found)


@dataclass
class Optimizer:
    """What the last steps have shown of costs: the orders of joins, and tables without a key. It affects no answer.

    It is not state: records contain what a restart needs, and it is rebuilt with the network. `steer` chooses the
    orders of a network.
    """

    steer: Callable[[Network, Manifest], Steering]
    balancer: Balancer = field(default_factory=Balancer)
    scans: Scans = field(default_factory=Scans)
    recut: tuple[Decided, ...] = ()  # chains that have changed since the last batch
    planning: float = 0.0  # seconds for the check of orders in the last batch
    seconds: dict[str, float] = field(default_factory=lambda: {"planning": 0.0, "probing": 0.0})  # the slowest task's

    def adopt(self, network: Network, manifest: Manifest) -> None:
        """Steer this network from the next step on."""
        self.steering = self.steer(network, manifest)

    def learn(self, network: Network, manifest: Manifest, entry: Entry, task: Task, reports: Reports) -> Entry:
        """The record of a batch with its lessons, and with the decisions from them."""
        orders, decisions, self.planning = steered(self.steering, manifest, entry)
        if any(table.timed for table in network.tables):
            self.scans.observe(network, task.routes.replicated, [(r.counters, r.phases) for r in reports])
            counts = {
                t.name: segments_in(task.segments[t.index], task.runs.get(t.index, ()))
                for t in network.tables
                if t.timed and task.runs.get(t.index)
            }
            entry = replace(entry, decisions=(*_decided(entry.step, self.scans.cut(counts)), *entry.decisions))
        self.seconds["planning"] += self.planning
        self.seconds["probing"] += max((report.phases.get("probe", 0.0) for report in reports), default=0.0)
        before, self.recut = (*self.recut, *decisions), ()
        entry = replace(entry, orders=orders, decisions=(*before, *entry.decisions))
        return self.balancer.learn(manifest, entry, task.buckets, reports)

    def cut(self, before: Network, after: Network, manifest: Manifest) -> None:
        """Note changed chains for the record of the next batch."""
        found = recuts(before, after, manifest.counters, list(manifest.runs.values()))
        self.recut += _decided(manifest.step, found)
