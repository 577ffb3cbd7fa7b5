"""How new queries begin at a step boundary: with which step, from which times on they see all rows, and whose bits they share.

Nothing is written here: the registry in memory is completed, and the catalog commits it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.catalog.dependencies import seen_from
from penstock.model import Query
from penstock.model.time import NEVER
from penstock.planner.build import build_network
from penstock.planner.coverage import held_from
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord

if TYPE_CHECKING:
    from penstock.catalog.catalog import Catalog


def begin(catalog: Catalog, manifest: Manifest) -> None:
    """Give new queries their first step, the times from which on they see all rows, and bits they can share."""
    newest = {name: p.newest + 1 for name, p in manifest.progress.items() if p.newest > NEVER}
    begins = {q.id for q in catalog.registry.queries if q.since < 0}
    newest |= seen_from(catalog, manifest, newest, begins)
    shares: dict[object, int] = {}
    changed = []
    for record in catalog.registry.queries:
        if record.since < 0 and not record.dropped:
            query = catalog.parsed(record)
            read = dict.fromkeys(s for r in query.roles for s in r.streams)
            seen = tuple((s, newest[s]) for s in read if s in newest)
            record = replace(record, since=manifest.step + 1, complete_from=seen)  # noqa: PLW2901
            alike = shared_form(record, query)
            if alike is not None:
                lead = shares.setdefault(alike, record.id)
                record = replace(record, share=None if lead == record.id else lead)  # noqa: PLW2901
        changed.append(record)
    catalog.registry = replace(catalog.registry, queries=tuple(changed))
    begun = [q for q in changed if q.since == manifest.step + 1 and q.start == "state" and not q.dropped]
    if begun and manifest.runs:
        _begin_from_state(catalog, {q.id for q in begun}, manifest, newest)


def _begin_from_state(catalog: Catalog, begun: Collection[int], manifest: Manifest, newest: Mapping[str, int]) -> None:
    saved = {q.id: q for q in catalog.saved.live()}
    streams = {**catalog.streams, **{s: d for q in saved.values() for s, d in catalog.whole(q).derived.items()}}
    before = build_network([catalog.standing(q) for q in saved.values()], streams, strategy=catalog.strategy)
    # Bits are those of the first query of a share, which may have been dropped since; all began alike.
    alike = {q.share or q.id: q for q in saved.values()}
    since = {share: q.since for share, q in alike.items()}
    complete = {share: dict(q.complete_from) for share, q in alike.items()}
    changed = []
    for record in catalog.registry.queries:
        if record.id in begun and record.id not in saved:
            held = held_from(
                before, catalog.network(), record.share or record.id, since, complete, manifest.reached(), newest
            )  # fmt: skip
            changed.append(replace(record, complete_from=tuple(held.items())))
        else:
            changed.append(record)
    catalog.registry = replace(catalog.registry, queries=tuple(changed))


def shared_form(record: QueryRecord, query: Query) -> object | None:
    """What queries must have in common to read the same bits; None if something in the query may raise, on its own account."""
    expressions = [*query.predicates, *query.residuals, *(e for part in query.keys for e in part if e is not None)]
    if query.aggregation is not None:
        # Aggregates of the same rows share what is kept of them, whatever they compute and show.
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
