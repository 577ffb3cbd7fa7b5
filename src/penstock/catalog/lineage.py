"""Which records answer a query: its own, those of its parts, and those whose results it continues."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.registry import QueryRecord, Registry


def lineage(registry: Registry, record: QueryRecord) -> list[QueryRecord]:
    """The record and those whose results it continues, oldest first, each followed by its parts."""
    return lineages(registry)(record)


def lineages(registry: Registry) -> Callable[[QueryRecord], list[QueryRecord]]:
    """The same for many records: all queries are looked at once."""
    by_id = {q.id: q for q in registry.queries}
    parts: dict[int | None, list[QueryRecord]] = {}
    for query in registry.queries:
        parts.setdefault(query.united, []).append(query)

    def of(record: QueryRecord) -> list[QueryRecord]:
        found = [record]
        while found[0].replaces in by_id:
            found.insert(0, by_id[found[0].replaces])
        return [one for lead in found for one in (lead, *parts.get(lead.id, ()))]

    return of


def united(registry: Registry, record: QueryRecord) -> list[QueryRecord]:
    """A record and its parts: the other combinations of the streams of its unions."""
    return [record, *(q for q in registry.queries if q.united == record.id)]


def complete_from(registry: Registry, record: QueryRecord) -> dict[str, int]:
    """Stream -> the time from which all its rows take part, in all combinations."""
    found: dict[str, int] = {}
    for name, time in (pair for one in united(registry, record) for pair in one.complete_from):
        found[name] = max(time, found.get(name, time))
    return found
