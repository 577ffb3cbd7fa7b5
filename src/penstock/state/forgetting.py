"""What a state directory need not remember any longer of queries that came and went: else what every start and every snapshot reads would only grow.

A query is forgotten once it is dropped or replaced, all its results have been given up, and nothing else refers to it. Pure functions of the registry
and the manifest: a change of the queries forgets records, the upkeep of a run counters and cursors. Files are collected in `orphans`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord, Registry

QUERY = "query:"  # before the number of a query in the names of counters


def ended_queries(registry: Registry, manifest: Manifest) -> frozenset[int]:
    """The queries that are dropped, have no results left, and are not referred to; of those that continue each other the oldest first.

    One that is dropped and keeps its results for ever stays readable, also while it has none.
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
    owed = {int(name.removeprefix(QUERY)) for name in _heirs(registry, manifest)}
    gone = ended_queries(registry, manifest) - owed
    return replace(registry, queries=tuple(q for q in registry.queries if q.id not in gone)) if gone else registry


def handed_on(registry: Registry, manifest: Manifest) -> dict[str, dict[str, int]]:
    """The counts of ended queries, as counts of those that continue them."""
    found: dict[str, dict[str, int]] = {}
    for name, heir in _heirs(registry, manifest).items():
        own = found.setdefault(heir, {})
        for key, count in manifest.counters[name].items():
            own[key] = own.get(key, 0) + count
    return found


def forgotten(registry: Registry, manifest: Manifest, cursors: Collection[str]) -> tuple[str, ...]:
    """Names of counters, cursors and suspensions that belong to nobody any longer; `cursors` are those in use."""
    known = {q.id for q in registry.queries}
    counters = [n for n in manifest.counters if n.startswith(QUERY) and int(n.removeprefix(QUERY)) not in known]
    suspended = [n for n in manifest.suspended if int(n) not in known]
    unused = [n for n in manifest.cursors if n not in cursors]
    return (*counters, *_heirs(registry, manifest), *suspended, *unused)


def _heirs(registry: Registry, manifest: Manifest) -> dict[str, str]:
    """The counters of ended queries with those that they go to: of the query that they are a part of, or that continues them."""
    ended, by_id = ended_queries(registry, manifest), {q.id: q for q in registry.queries}
    after = {q.replaces: q.id for q in registry.queries if q.replaces is not None}
    found = {}
    for number in ended:
        heir: int | None = number
        while heir in ended:
            united = by_id[heir].united
            heir = after.get(heir) if united is None else united
        if heir is not None and f"{QUERY}{number}" in manifest.counters:
            found[f"{QUERY}{number}"] = f"{QUERY}{heir}"
    return found
