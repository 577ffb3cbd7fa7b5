"""The manifest entry of a step: what its job adds to the state, and what every entry says.

An entry is only made here; `step` commits it. What the reports of tasks add up to is said in `accounts`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.planner.counters import TICK
from penstock.planner.network import Network
from penstock.state.manifest import Entry, Manifest
from penstock.step import derived
from penstock.step.accounts import counters_of, flushed_by, results_of, runs_of, sides_of, suspended_by
from penstock.step.task import Reports, Task
from penstock.step.windows_due import closed_by, shown_by


def tick_entry(network: Network, manifest: Manifest, cursors: Mapping[str, int], /, **changes: Any) -> Entry:
    """The entry of a step without a batch, which changes nothing but what is given; `cursors` are those of the sinks."""
    entry = Entry(
        step=manifest.step + 1, batch=None, last_batch=manifest.last_batch, identity=manifest.identity,
        version=network.version, clock=time.time(), progress=manifest.progress, counters=TICK,
        cursors=cursors, derived=derived.cursors(network, manifest),
    )  # fmt: skip
    return replace(entry, **changes)


def job_changes(
    network: Network, manifest: Manifest, cursors: Mapping[str, int], task: Task, reports: Reports
) -> dict[str, Any]:
    """What the job of a step changes in its entry: files, counts, what it has closed and shown."""
    return {
        "counters": counters_of(reports),
        "runs_added": runs_of(reports),
        "results": results_of(reports),
        "sides": sides_of(reports),
        "suspended": suspended_by(network, reports, manifest.suspended),
        "closed": closed_by(network, task.progress, reports),
        "flushed": flushed_by(reports),
        "cursors": {**cursors, **shown_by(task)},
    }


def all_taken(network: Network, manifest: Manifest) -> dict[str, int]:
    """The cursors of derived streams after a step that takes in all results so far."""
    return {d.name: manifest.step for d in network.derived_streams}
