"""The status of a run for users and programs: streams with their rates and lag, queries, state.

Any thread may ask. Everything is read from the manifest and from what the run shows of itself after each event.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.catalog.catalog import Catalog
from penstock.catalog.listing import results_of
from penstock.model import Stream
from penstock.model.time import FOREVER, NEVER
from penstock.results.released import released
from penstock.spark.schedule import Delays, Schedule
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord, Registry
from penstock.step.accounts import phases_of
from penstock.step.loop import Loop, Restarts
from penstock.step.relief import owed_status
from penstock.step.task import Reports


@dataclass(frozen=True)
class SinkSeen:
    """A sink: how far it has come, what is wrong with it, and the names of its queries, by number."""

    name: str
    delivered: int
    error: str | None
    queries: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Seen:
    """A run as it was after an event, for other threads: nothing of it ever changes.

    The manifest is such a value by itself. It may be newer, since a step is committed before its event is over.
    """

    active: bool
    registry: Registry
    streams: Mapping[str, Stream]  # those that are read, in order
    held: Collection[str]
    admitted: Mapping[str, str | None]
    sinks: Sequence[SinkSeen]
    delays: Delays
    interval: float | None
    restarts: Restarts
    checks: Mapping[str, Mapping[str, int]]
    order_seconds: Mapping[str, float]
    balance: Mapping[str, Any]
    explained: Sequence[str]  # of the buckets, and of what is put off
    timings: Mapping[str, float]
    reports: Reports
    put_off: int  # buckets
    warnings: Sequence[str]
    error: BaseException | None

    @staticmethod
    def of(loop: Loop, schedule: Schedule, *, active: bool) -> Seen:
        """The run at this moment; called by its own thread."""
        stepper, streams = loop.core.stepper, loop.core.stepper.network.streams
        return Seen(
            active,
            stepper.registry,
            {name: streams[name] for name in stepper.layout.order if name in streams},
            loop.batches.held,
            dict(loop.batches.admitted),
            [SinkSeen(s.name, s.delivered, s.error, s.queries) for s in loop.core.delivery.sinks],
            schedule.delays,
            None if schedule.pace is None else schedule.pace.interval,
            loop.restarts,
            stepper.steering.checks,
            dict(stepper.optimizer.seconds),
            stepper.optimizer.balancer.status(stepper.buckets),
            [*stepper.optimizer.balancer.explained(stepper.buckets), *stepper.relief.explained()],
            stepper.timings,
            stepper.last_reports,
            len(stepper.relief.overload.put_off),
            tuple(stepper.warnings),
            loop.error,
        )


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


def stream_status(
    stream: Stream, manifest: Manifest, rates: Rates, held: Collection[str], admitted: Mapping[str, str | None]
) -> dict[str, Any]:
    """The status of a stream; `held` are the delayed ones, `admitted` what limits a batch of each.

    `sides`: late and invalid rows, kept and expired.
    """
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
        "admitted": admitted.get(stream.name, "unknown"),
        "progress": progress.value if progress and progress.value > NEVER else None,
        "progress_kind": progress.kind if progress else None,
        "newest": progress.newest if progress and known else None,
        "lag_seconds": round(time.time() - progress.newest / 1e6, 3)
        if progress and known and not stream.integer_time and progress.value < FOREVER
        else None,
    }


def query_status(
    registry: Registry, catalog: Catalog, manifest: Manifest, sinks: Iterable[SinkSeen]
) -> dict[str, dict[str, Any]]:
    """The status of each query of a registry, by name."""
    found = {}
    names = {query: sink.name for sink in sinks for query, _ in sink.queries}
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
            "sink": names.get(query.id),
        }
    return found


def state_status(manifest: Manifest) -> dict[str, Any]:
    """The amounts of state and of results, and what was done for lack of memory since the state began."""
    counters, cold = manifest.counters, [run for run in manifest.runs.values() if run.cold]
    return {
        "state": {
            "rows": sum(r.rows for r in manifest.runs.values()),
            "bytes": sum(r.bytes for r in manifest.runs.values()),
            "runs": len(manifest.runs),
            "cold": {"runs": len(cold), "bytes": sum(r.bytes for r in cold)},
        },
        "memory": {
            "pieces": counters.engine.pieces,
            "aside_bytes": counters.engine.aside_bytes,
            "blocks_read": sum(t.blocks for t in counters.tables.values()),
            "blocks_skipped": sum(t.skipped for t in counters.tables.values()),
        },
        "results": {
            "files": len(manifest.results),
            "bytes": sum(f.bytes for f in manifest.results.values()),
        },
    }


def status_of(seen: Seen, manifest: Manifest, catalog: Catalog, rates: Rates) -> dict[str, Any]:
    """Everything about a run; see `Run.status`."""
    restarts = seen.restarts
    last = {"step": restarts.step, "columns": restarts.columns, "seconds": round(restarts.last_seconds, 4)}
    return {
        "active": seen.active,
        "step": manifest.step,
        "batch": manifest.last_batch,
        "streams": {
            name: stream_status(stream, manifest, rates, seen.held, seen.admitted)
            for name, stream in seen.streams.items()
        },
        "queries": query_status(seen.registry, catalog, manifest, seen.sinks),
        **state_status(manifest),
        "owed": owed_status(manifest, seen.put_off),
        "sinks": [{"sink": s.name, "delivered": s.delivered, "error": s.error} for s in seen.sinks],
        "delay": seen.delays.longest(),
        "restarts": {
            "count": restarts.count, "seconds": round(restarts.seconds, 4), "last": last if restarts.count else None
        },
        "interval": seen.interval,
        "orders": {"checks": seen.checks, "seconds": seen.order_seconds},
        "balance": dict(seen.balance),
        "timings": {k: round(v, 4) for k, v in seen.timings.items()},
        "phases": phases_of(seen.reports),
        "warnings": list(seen.warnings),
        "error": None if seen.error is None else str(seen.error),
    }  # fmt: skip
