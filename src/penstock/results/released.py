"""Which results of a query are complete, by the progress of its streams, and which have expired."""

from __future__ import annotations

from penstock.catalog.catalog import Catalog
from penstock.catalog.lineage import united
from penstock.errors import PenstockError
from penstock.model.time import FOREVER, NEVER
from penstock.planner.reached import Reached, as_answered, output_progress
from penstock.state.manifest import Manifest
from penstock.state.owed import before, of_joins
from penstock.state.registry import QueryRecord


def released(catalog: Catalog, record: QueryRecord, manifest: Manifest) -> int:
    """Results of a query with a time below this are complete: the least progress of its streams, as answered so far."""
    reached: Reached = manifest.reached()
    if manifest.owed:
        bits, parts = catalog.network().bits, {q.id for q in united(catalog.registry, record)}
        reached = before(reached, of_joins(manifest.owed, {bits[part][0] for part in parts if part in bits}))
    return output_progress(catalog.compiled(record).whole, as_answered(reached, record.id))


def horizon(catalog: Catalog, record: QueryRecord, manifest: Manifest) -> int:
    """Results of a query with a time below this have expired, even of a dropped one.

    Later ones come at or after its output progress; at the end of the streams, from the time of their last rows.
    """
    if record.retain is None:
        return NEVER
    try:
        least = released(catalog, record, manifest)
        roles = catalog.compiled(record).whole.roles
    except PenstockError:
        return NEVER  # a stream or a function of a dropped query is no longer declared
    if least >= FOREVER:
        seen = [manifest.progress[s] for role in roles for s in role.streams if s in manifest.progress]
        least = max((progress.newest for progress in seen), default=NEVER) + 1
    return least - record.retain if least > NEVER + 1 else NEVER
