"""What a state directory need not store any longer of dropped queries: otherwise starts and snapshots would only grow.

A query is forgotten once it is dropped or replaced, all its results have expired, and nothing else refers to it. Pure
functions of the registry and the manifest: a change of the queries removes records, the upkeep of a run counters and
cursors. `orphans` collects files.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from penstock.planner.counters import Counters
from penstock.state.manifest import Forgotten, Manifest
from penstock.state.registry import QueryRecord, Registry


def ended_queries(registry: Registry, manifest: Manifest) -> frozenset[int]:
    """The queries that are dropped, have no results left, and are not referred to; of continued ones the oldest first.

    A dropped query that keeps its results for ever stays readable, even while it has none.
    """
    replaced = {q.replaces for q in registry.queries}
    holds = {query for file in manifest.results.values() for query, _ in file.counts}

    def over(record: QueryRecord) -> bool:
        kept = record.retain is None and record.owner is None and record.id not in replaced
        return record.dropped and not kept and record.id not in holds

    left = {q.id: q for q in registry.queries}
    while True:
        used = {q.share for q in left.values()} | {r.id for q in left.values() for r in q.reads}
        used |= {q.united for q in left.values() if not over(q)}
        gone = [q.id for q in left.values() if over(q) and q.id not in used and q.replaces not in left]
        if not gone:
            return frozenset(q.id for q in registry.queries if q.id not in left)
        for number in gone:
            del left[number]


def without_ended(registry: Registry, manifest: Manifest) -> Registry:
    """The registry without ended queries; one whose counts others continue stays until they have them."""
    gone = ended_queries(registry, manifest) - _heirs(registry, manifest).keys()
    return replace(registry, queries=tuple(q for q in registry.queries if q.id not in gone)) if gone else registry


def handed_on(registry: Registry, manifest: Manifest) -> Counters:
    """The counts of ended queries, as counts of those that continue them."""
    found = Counters()
    for query, heir in _heirs(registry, manifest).items():
        found.add(Counters(queries={heir: manifest.counters.query(query)}))
    return found


def forgotten(registry: Registry, manifest: Manifest, sinks: Collection[str], early: Collection[int]) -> Forgotten:
    """What is not needed any longer; `sinks` are those in use, `early` the queries that are shown early."""
    known = {q.id for q in registry.queries}
    counted = [n for n in manifest.counters.queries if n not in known]
    suspended = tuple(n for n in manifest.suspended if n not in known)
    unused = tuple(n for n in manifest.cursors if n not in sinks)
    unshown = tuple(n for n in manifest.shown if n not in early)
    return Forgotten((*counted, *_heirs(registry, manifest)), suspended, unused, unshown)


def _heirs(registry: Registry, manifest: Manifest) -> dict[int, int]:
    """The ended queries whose counts go to another one: their whole query, or the one that continues them."""
    ended, by_id = ended_queries(registry, manifest), {q.id: q for q in registry.queries}
    after = {q.replaces: q.id for q in registry.queries if q.replaces is not None}
    found = {}
    for number in ended:
        heir: int | None = number
        while heir in ended:
            united = by_id[heir].united
            heir = after.get(heir) if united is None else united
        if heir is not None and number in manifest.counters.queries:
            found[number] = heir
    return found
