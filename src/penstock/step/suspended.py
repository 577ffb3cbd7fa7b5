"""Suspended queries: which of them can be resumed, and the step that resumes them."""

from __future__ import annotations

import time

from penstock.errors import RegistrationError
from penstock.planner.counters import TICK
from penstock.state.manifest import Entry, Forgotten, Manifest
from penstock.state.registry import QueryRecord, Registry
from penstock.state.suspension import Suspension


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
