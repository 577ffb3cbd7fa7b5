"""Steps that only put the state in order, or resume a query: no rows, no work for tasks."""

from __future__ import annotations

import time
from dataclasses import replace

from penstock.errors import RegistrationError
from penstock.planner.counters import TICK
from penstock.results.retention import Horizon, renew_results
from penstock.results.sides import merge_sides
from penstock.state.forgetting import forgotten, handed_on
from penstock.state.manifest import Entry, Forgotten, Manifest
from penstock.state.registry import QueryRecord, Registry
from penstock.state.side_files import expired_sides
from penstock.state.suspension import Suspension
from penstock.step import derived
from penstock.step.accounts import with_dropped
from penstock.step.compose import expired_runs
from penstock.step.phases import begun
from penstock.step.plan import State
from penstock.step.ports import Sinks
from penstock.step.windows_due import early_queries


def forget_streams(state: State, clock: float) -> Entry | None:
    """Drop the progress of streams that no longer exist: one that is added again starts anew."""
    manifest = state.manifest
    known = {name: p for name, p in manifest.progress.items() if name in state.network.streams}
    return replace(begun(state, clock), progress=known) if len(known) < len(manifest.progress) else None


def put_in_order(state: State, sinks: Sinks, horizon: Horizon, clock: float) -> Entry | None:
    """Drop expired results, late and invalid rows, merge small files of both, and forget ended queries.

    Merged files are written here; they exist with the record.
    """
    store, network, registry, manifest = state.store, state.network, state.registry, state.manifest
    taken = derived.unread_since(network, manifest)
    merged, removed = renew_results(store, registry, manifest, sinks.owes, horizon, taken)
    lost = forgotten(registry, manifest, state.cursors, early_queries(network))
    old = {side.name for side in expired_sides(manifest.sides, state.retained, clock)}
    young = [side for side in manifest.sides if side.name not in old]
    joined = merge_sides(store, young, state.retained, manifest.step)
    old |= {name for _, names in joined for name in names}
    if not (removed or lost or old):
        return None
    record = replace(
        begun(state, clock), results=merged, results_removed=removed, forgotten=lost,
        runs_removed=tuple(expired_runs(network, manifest, manifest.reached())),
        sides=tuple(side for side, _ in joined), sides_removed=tuple(sorted(old)),
    )  # fmt: skip
    return replace(record, counters=with_dropped(record, manifest).plus(handed_on(registry, manifest)))


def suspended_parts(registry: Registry, manifest: Manifest, record: QueryRecord) -> dict[int, Suspension]:
    """Why a query is suspended, for each suspended one of the queries that answer it together."""
    own = [q.id for q in registry.live() if q.id == record.id or q.owner == record.name]
    return {number: manifest.suspended[number] for number in own if number in manifest.suspended}


def resumed(registry: Registry, manifest: Manifest, record: QueryRecord) -> Entry | None:
    """A step without a batch after which a query is no longer suspended; None if it is not. Raises if impossible."""
    found = suspended_parts(registry, manifest, record)
    for why in found.values():
        if manifest.final or not why.resumable:
            msg = (
                f"query {record.name!r} cannot go on ({'the streams have ended' if manifest.final else why.reason}); "
                "drop it and create it again"
            )
            raise RegistrationError(msg)
    if not found:
        return None
    return Entry(
        step=manifest.step + 1, batch=None, last_batch=manifest.last_batch, identity=manifest.identity,
        version=manifest.version,
        clock=time.time(), progress=manifest.progress, counters=TICK, derived=manifest.derived,
        forgotten=Forgotten(suspended=tuple(found)),
    )  # fmt: skip
