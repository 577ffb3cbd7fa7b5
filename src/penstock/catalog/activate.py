"""How new queries begin at a step boundary: their first step, the times from which they see all rows, and shared bits.

Nothing is written here: the registry in memory is completed, and the catalog commits it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from penstock.catalog.declarations import Declarations
from penstock.catalog.dependencies import seen_from
from penstock.model import Query
from penstock.model.time import NEVER
from penstock.planner.build import build_network
from penstock.planner.coverage import held_from
from penstock.planner.network import Network
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord, Registry


def begin(declared: Declarations, saved: Registry, manifest: Manifest, network: Callable[[], Network]) -> None:
    """Assign new queries their first step, the times from which they see all rows, and bits they can share.

    `saved` is the running registry, and `network` builds the network of the present declarations.
    """
    newest = {name: p.newest + 1 for name, p in manifest.progress.items() if p.newest > NEVER}
    begins = {q.id for q in declared.registry.queries if q.since < 0}
    newest |= seen_from(declared, manifest, newest, begins)
    shares: dict[object, int] = {}
    changed = []
    for record in declared.registry.queries:
        if record.since < 0 and not record.dropped:
            query = declared.compiled(record).query
            read = dict.fromkeys(s for r in query.roles for s in r.streams)
            seen = tuple((s, newest[s]) for s in read if s in newest)
            record = replace(record, since=manifest.step + 1, complete_from=seen)  # noqa: PLW2901
            alike = shared_form(record, query)
            if alike is not None:
                lead = shares.setdefault(alike, record.id)
                record = replace(record, share=None if lead == record.id else lead)  # noqa: PLW2901
        changed.append(record)
    declared.registry = replace(declared.registry, queries=tuple(changed))
    begun = [q for q in changed if q.since == manifest.step + 1 and q.start == "state" and not q.dropped]
    if begun and manifest.runs:
        held = _held_from_state(declared, saved, {q.id for q in begun}, manifest, newest, network)
        changed = [replace(q, complete_from=held.get(q.id, q.complete_from)) for q in changed]
        declared.registry = replace(declared.registry, queries=tuple(changed))


def _held_from_state(
    declared: Declarations,
    saved: Registry,
    begun: Collection[int],
    manifest: Manifest,
    newest: Mapping[str, int],
    network: Callable[[], Network],
) -> dict[int, tuple[tuple[str, int], ...]]:
    """For queries that begin from state: the times from which other queries have stored all their rows."""
    running = {q.id: q for q in saved.live()}
    streams = {**declared.streams, **{s: d for q in running.values() for s, d in declared.compiled(q).derived.items()}}
    before = build_network([declared.standing(q) for q in running.values()], streams, strategy=saved.strategy)
    # Bits are those of the first query of a share, even if dropped since; all began alike.
    alike = {q.share or q.id: q for q in running.values()}
    since = {share: q.since for share, q in alike.items()}
    complete = {share: dict(q.complete_from) for share, q in alike.items()}
    found = {}
    for record in declared.registry.queries:
        if record.id in begun and record.id not in running:
            share = record.share or record.id
            found[record.id] = tuple(
                held_from(before, network(), share, since, complete, manifest.reached(), newest).items()
            )
    return found


def shared_form(record: QueryRecord, query: Query) -> object | None:
    """What queries must have in common to share bits; None if an expression of the query may raise by itself."""
    expressions = [*query.predicates, *query.residuals, *(e for part in query.keys for e in part if e is not None)]
    if query.aggregation is not None:
        # Aggregates of the same rows share state, whatever they compute and show.
        expressions += [item.expression for item in query.aggregation.groups]
        expressions += [a.argument for a in query.aggregation.aggregates if a.argument is not None]
        total = all(e.total for e in expressions)
        return (
            ("aggregate", query.roles[0].stream, query.roles[0].union, query.predicates, record.start)
            if total
            else None
        )
    if not all(e.total for e in expressions) or not all(item.expression.total for item in query.items):
        return None
    roles = tuple((role.stream, role.window) for role in query.roles)
    conditions = (query.keys, query.bands, query.predicates, query.residuals)
    return (roles, conditions, record.key_types, record.start)
