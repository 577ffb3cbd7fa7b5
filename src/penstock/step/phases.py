"""What a step adds to the state: `fold`, a pure function of the state, the plan and the reports, in named phases.

A phase has its part of the request to tasks (fields of `Task`, filled by `compose`) and its changes of the step's
record. No field belongs to two phases, and a phase reads from the record only what earlier ones have put there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.planner.counters import TICK
from penstock.state.manifest import BEFORE, NOW, Entry, Progress
from penstock.step import derived, heard
from penstock.step.accounts import counters_of, flushed_by, results_of, runs_of, sides_of, suspended_by, with_dropped
from penstock.step.events import Batch, CleanUp, TakeOver, Tick
from penstock.step.learn import arranged, folded
from penstock.step.plan import State, StepPlan
from penstock.step.task import Reports
from penstock.step.windows_due import closed_by, ends_without_job, shown_by

Changes = dict[str, Any]  # of a record, by field


@dataclass(frozen=True)
class Done:
    """A step whose work is done: `progress` is that of the streams after it, `record` the result of phases so far."""

    state: State
    plan: StepPlan
    reports: Reports
    clock: float
    progress: dict[str, Progress]
    record: Entry


def _lateness(done: Done) -> Changes:
    """Rows are judged by the progress of the previous step; their own effect on it counts from the next step on."""
    return {"progress": done.progress}


def _writing(done: Done) -> Changes:
    reports = done.reports
    return {"runs_added": runs_of(reports), "results": results_of(reports), "sides": sides_of(reports)}


def _suspension(done: Done) -> Changes:
    """Queries with a row that raised, with more results than allowed, or with more input than a step can read."""
    network, manifest = done.state.network, done.state.manifest
    if done.plan.task is None:
        return {}
    found = suspended_by(network, done.reports, manifest.suspended)
    if not isinstance(done.plan.event, TakeOver | CleanUp):
        found |= derived.suspended_by(network, manifest, done.state.views)
    return {"suspended": found}


def _taking_in(done: Done) -> Changes:
    """Derived streams read all results of earlier steps, or none."""
    network, manifest = done.state.network, done.state.manifest
    return {
        "derived": derived.all_taken(network, manifest) if done.plan.takes_in else derived.cursors(network, manifest)
    }


def _closing(done: Done) -> Changes:
    """Windows end by the progress of the plan: that of the previous step, or that of a tick."""
    network, plan = done.state.network, done.plan
    match plan.event:
        case TakeOver() | CleanUp():
            return {}
        case Batch():
            return {"closed": closed_by(network, plan.reached, done.reports), "ended": BEFORE}
        case Tick(final=final):
            found: Changes = {"closed": closed_by(network, plan.reached, done.reports), "final": final, "ended": NOW}
            if plan.task is None:
                found["ended"] = NOW if ends_without_job(network, done.state.manifest, plan.progress) else ""
            else:  # the step has closed by these, whatever it reads
                own = [d.name for d in network.derived_streams]
                groups = {name: plan.progress[name].closed if name in plan.progress else () for name in own}
                found["closed_groups"] = groups
            return found


def _early_results(done: Done) -> Changes:
    """Early results, as shown; and the cursors of sinks."""
    task = done.plan.task
    return {"cursors": done.state.cursors, "shown": {} if task is None else shown_by(task, done.clock)}


def _slow_results(done: Done) -> Changes:
    return {"flushed": flushed_by(done.reports)}


def _owing(done: Done) -> Changes:
    """Probes that the step has put off, and those that it has run."""
    task = done.plan.task
    return {} if task is None else {"owed": task.deferred, "paid": task.owed}


def _expiry(done: Done) -> Changes:
    """Expired rows are dropped, and files whose rows were rewritten."""
    return {"runs_removed": done.plan.runs_removed, "sides_removed": done.plan.sides_removed}


def _counting(done: Done) -> Changes:
    record = done.record
    if done.plan.task is not None:
        record = replace(record, counters=counters_of(done.reports))
    return {"counters": with_dropped(record, done.state.manifest)}


def _learning(done: Done) -> Changes:
    """Pane sets by the counts of batches, partials in mappers by those of all steps with a job."""
    network, manifest, record = done.state.network, done.state.manifest, done.record
    if isinstance(done.plan.event, Batch):
        record = arranged(network, manifest, record)
    if done.plan.task is not None and not isinstance(done.plan.event, TakeOver | CleanUp):
        record = folded(network, manifest, record, done.state.tasks)
    return {"panes": record.panes, "folding": record.folding, "decisions": record.decisions}


@dataclass(frozen=True)
class Phase:
    """A part of a step: the fields of the task that it fills, those of the record that it changes and that it reads."""

    name: str
    fold: Callable[[Done], Changes]
    asks: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


PHASES = (
    Phase("lateness", _lateness, ("progress", "groups"), ("progress",)),
    Phase(
        "writing", _writing, ("routes", "segments", "pieces", "taking_over", "limits"),
        ("runs_added", "results", "sides"),
    ),
    Phase("suspension", _suspension, ("suspended", "bound"), ("suspended",)),
    Phase("taking in", _taking_in, (), ("derived",)),
    Phase("closing", _closing, ("closed", "ahead", "newest", "panes"), ("closed", "ended", "closed_groups", "final")),
    Phase("early results", _early_results, ("early",), ("cursors", "shown")),
    Phase("slow results", _slow_results, ("flushed",), ("flushed",)),
    Phase("owing", _owing, ("deferred", "owed"), ("owed", "paid")),
    Phase("expiry", _expiry, ("runs", "merges", "kept", "apart"), ("runs_removed", "sides_removed")),
    Phase(
        "counting", _counting, (), ("counters",), ("runs_added", "runs_removed", "sides", "sides_removed")
    ),
    Phase("learning", _learning, ("folded", "rolled"), ("panes", "folding", "decisions"), ("counters", "progress")),
)  # fmt: skip


def fold(state: State, plan: StepPlan, reports: Reports, began: float, clock: float) -> tuple[Entry, list[str]]:
    """The record of a step that began and ended at these clocks, and warnings about streams."""
    progress, warnings = _progress(state, plan, reports, began)
    record = begun(state, clock)
    if isinstance(plan.event, Batch):
        number, identity = plan.event.number, plan.event.identity
        record = replace(record, batch=number, last_batch=number, identity=identity)
    done = Done(state, plan, reports, clock, progress, record)
    changes: Changes = {}
    for phase in PHASES:
        if phase.reads:
            done, changes = replace(done, record=replace(done.record, **changes)), {}
        changes.update(phase.fold(done))
    return replace(done.record, **changes), warnings


def begun(state: State, clock: float) -> Entry:
    """The record of a step that changes nothing."""
    manifest, network = state.manifest, state.network
    return Entry(
        step=manifest.step + 1, batch=None, last_batch=manifest.last_batch, identity=manifest.identity,
        version=network.version, clock=clock, progress=manifest.progress, counters=TICK,
        cursors=state.cursors, derived=derived.cursors(network, manifest),
    )  # fmt: skip


def _progress(state: State, plan: StepPlan, reports: Reports, began: float) -> heard.Moved:
    if isinstance(plan.event, Batch):
        return heard.after_batch(state.network, state.manifest, state.heard, reports, began)
    if plan.takes_in:
        return heard.after_taking_in(state.network, state.manifest, reports, plan.progress), []
    return dict(plan.progress), []
