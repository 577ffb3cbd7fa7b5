"""Lists of the queries and streams of a state directory for users: declarations, and from when on answers are complete.

`status` shows the state of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.model import Landmark, Query, Sliding, Stream
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregate_tables import reach as aggregate_reach
from penstock.planner.bounds import time_bounds
from penstock.planner.counters import QueryCounters
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord


def listed_queries(records: Iterable[QueryRecord]) -> list[dict[str, Any]]:
    """Queries by name: SQL, sink, error handling, how they began."""
    return [
        {
            "name": q.name,
            "sql": q.text,
            "into": str(q.into) if q.into else None,
            "on_error": q.on_error,
            "retain": q.retain,
            "ordered": q.ordered,
            "start": q.start,
            "since": q.since if q.since >= 0 else None,
        }
        for q in records
    ]


def listed_streams(streams: Iterable[Stream]) -> list[dict[str, Any]]:
    """Streams by name: columns and order."""
    return [
        {
            "name": s.name, "event_time": s.event_time, "delay": s.delay, "delay_rows": s.delay_rows,
            "heartbeat": s.heartbeat, "late": s.late, "bad": s.bad,
            "side_retain": s.side_retain,
            "punctuation": s.punctuation or s.punctuated_by or ("<dataframe>" if s.patterns else None),
            "columns": {c.name: c.type for c in s.columns},
        }
        for s in streams
    ]  # fmt: skip


def coverage(
    record: QueryRecord, query: Query, complete: dict[str, int], progress: Mapping[str, int]
) -> dict[str, Any]:
    """From when on a query's answer equals that of a query that was always registered; see `Engine.coverage`."""
    lives, origin = _lives(query), _origin(query)
    # Rows before an origin count for no query, so it does not matter whether they take part.
    missed = [(complete[s], life) for s, life in lives if s in complete and (origin is None or origin < complete[s])]
    exact = max((min(start + life - 1, FOREVER) for start, life in missed), default=NEVER)
    reached = min(progress.get(s, NEVER) for s, _ in lives)
    return {
        "complete_from": complete,
        "exact_from": exact if exact > NEVER else None,
        "covered": record.since >= 0 and exact < FOREVER and reached >= exact,
    }


def counts_of(records: Iterable[QueryRecord], manifest: Manifest) -> dict[str, int | None]:
    """Counts of a query and of those that it continues, since their registration."""
    counts = [manifest.counters.query(r.id) for r in records]
    return {
        "results": results_of(counts), "errors": sum(c.errors for c in counts),
        "outside": sum(c.outside for c in counts)
    }  # fmt: skip


def results_of(counts: Iterable[QueryCounters]) -> int | None:
    """The number of results by the counts of queries; None if Spark decides HAVING or LIMIT on read."""
    known = list(counts)
    return None if any(c.undecided for c in known) else sum(c.results for c in known)


def _origin(query: Query) -> int | None:
    """The time before which no row is part of an answer."""
    window = None if query.aggregation is None else query.aggregation.window
    return window.origin if isinstance(window, Sliding | Landmark) else None


def _lives(query: Query) -> list[tuple[str, int]]:
    """(stream, how long past its time a row of it can be part of a result) of each role."""
    if query.aggregation is not None:
        return [(stream, aggregate_reach(query.aggregation)) for stream in query.roles[0].streams]
    reach = [FOREVER if max(row) >= FOREVER else max(row) + 1 for row in time_bounds(query)]
    return [(stream, life) for role, life in zip(query.roles, reach, strict=True) for stream in role.streams]
