"""The status of a run for users and programs: streams with their rates and lag, queries, state.

Everything is read from the manifest and from the run; nothing here decides anything.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Any

from penstock.catalog.catalog import Catalog
from penstock.catalog.listing import results_of
from penstock.model import Stream
from penstock.model.time import FOREVER, NEVER
from penstock.results.delivery import SinkState
from penstock.results.released import released
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord


class Rates:
    """Rows of streams per second, measured between two looks that are at least a second apart."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int, float]] = {}

    def rate(self, name: str, rows: int) -> float:
        now = time.monotonic()
        then, before, rate = self._known.get(name, (now, rows, 0.0))
        if now - then >= 1.0:
            rate = (rows - before) / (now - then)
            self._known[name] = (now, rows, rate)
        elif name not in self._known:
            self._known[name] = (now, rows, 0.0)
        return rate


def stream_status(stream: Stream, manifest: Manifest, rates: Rates, held: Collection[str]) -> dict[str, Any]:
    """The status of a stream; `held` are the delayed ones. `sides`: late and invalid rows, kept and expired."""
    counts = manifest.counters.stream(stream.name)
    progress = manifest.progress.get(stream.name)
    rows = counts.rows
    rate = rates.rate(stream.name, rows)
    aside = [s for s in manifest.sides if s.stream == stream.name]
    known = progress is not None and progress.newest > NEVER
    return {
        "rows": rows,
        "accepted": counts.accepted,
        "late": counts.late,
        "bad": counts.bad,
        "sides": {
            "kept": sum(s.rows for s in aside),
            "expired": counts.expired,
            "oldest": min((s.at for s in aside), default=None),
        },
        "punctuations": counts.punctuations,
        "groups_ahead": len(progress.closed) if progress else 0,
        "rows_per_second": round(rate, 1),
        "throttled": stream.name in held,
        "progress": progress.value if progress and progress.value > NEVER else None,
        "progress_kind": progress.kind if progress else None,
        "newest": progress.newest if progress and known else None,
        "lag_seconds": round(time.time() - progress.newest / 1e6, 3)
        if progress and known and not stream.integer_time and progress.value < FOREVER
        else None,
    }


def query_status(catalog: Catalog, manifest: Manifest, states: Iterable[SinkState]) -> dict[str, dict[str, Any]]:
    """The status of each query, by name."""
    found = {}
    sinks = {query: sink.name for sink in states for query, _ in sink.queries}
    registry = catalog.registry
    hidden: dict[str | None, list[QueryRecord]] = {}
    for record in registry.live():
        hidden.setdefault(record.owner, []).append(record)
    for query in registry.shown():
        others = hidden.get(query.name, [])  # the join below it, and its parts
        own = [query.id, *(q.id for q in others)]
        parts = [query.id, *(q.id for q in others if q.united == query.id)]
        counts = [manifest.counters.query(number) for number in own]
        suspended = [manifest.suspended[number].reason for number in own if number in manifest.suspended]
        found[query.name] = {
            "results": results_of([manifest.counters.query(part) for part in parts]),
            "errors": sum(c.errors for c in counts),
            "progress": progress if (progress := released(catalog, query, manifest)) > NEVER else None,
            "suspended": suspended[0] if suspended else None,
            "sink": sinks.get(query.id),
        }
    return found


def state_status(manifest: Manifest) -> dict[str, Any]:
    """The amounts of state and of results."""
    return {
        "state": {
            "rows": sum(r.rows for r in manifest.runs.values()),
            "bytes": sum(r.bytes for r in manifest.runs.values()),
            "runs": len(manifest.runs),
        },
        "results": {
            "files": len(manifest.results),
            "bytes": sum(f.bytes for f in manifest.results.values()),
        },
    }
