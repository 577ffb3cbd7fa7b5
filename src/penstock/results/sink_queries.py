"""Which queries have a sink, and the rows for it: of a query and of those that it replaced.

What sinks are is said in `sink`, when they get their rows in `delivery`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.catalog.catalog import Catalog
from penstock.catalog.lineage import lineages
from penstock.errors import ResultsError
from penstock.model import Sink
from penstock.model.limits import MOST_DELIVERED, MOST_SORTED
from penstock.results.delivery import SinkQuery
from penstock.results.part import Part
from penstock.results.read import ResultView
from penstock.results.views import united_tables, view_of
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord


def sink_queries(catalog: Catalog) -> list[SinkQuery]:
    """The live queries that have a sink."""
    found, lineage = [], lineages(catalog.registry)
    for record in catalog.registry.shown():
        into = catalog.target(record)
        if into is not None:
            place = str(into) if isinstance(into, Path) else into
            schema = (*record.item_names, *record.item_types)
            line = tuple(r.id for r in _continued(lineage(record), record))
            found.append(SinkQuery(record.id, record.name, place, schema, record.ordered, line))
    return found


def sink_views(catalog: Catalog, manifest: Manifest, queries: Sequence[int], part: Part) -> list[ResultView]:
    """The files with a part of the results of queries that continue each other; refused if too many for a sink."""
    record = catalog.numbered(queries[-1])
    views = [view_of(catalog, catalog.numbered(query)) for query in queries]
    check_few(record.name, views, manifest, part, MOST_DELIVERED, "a sink takes")
    return views


def sink_tables(catalog: Catalog, manifest: Manifest, queries: Sequence[int], part: Part) -> Iterator[pa.Table] | None:
    """That part as Arrow tables; None if only Spark can compute them."""
    record, views = catalog.numbered(queries[-1]), sink_views(catalog, manifest, queries, part)
    tables = united_tables(views, manifest, part, ordered=record.ordered)
    if tables is not None and record.ordered:
        check_few(record.name, views, manifest, part, MOST_SORTED, "the driver sorts")
    return tables


def check_few(name: str, views: Iterable[ResultView], manifest: Manifest, part: Part, most: int, what: str) -> None:
    """Refuse to deliver more than possible."""
    count = sum(view.count(manifest, part) for view in views)
    if count > most:
        msg = (
            f"query {name!r} has {count:,} results to deliver at once, and {what} {most:,} at a time; read "
            "them by results(), or drop the query "
            "and give it fewer windows (a longer SLIDE, a shorter RANGE) under another name"
        )
        raise ResultsError(msg)


def _continued(lineage: Sequence[QueryRecord], record: QueryRecord) -> list[QueryRecord]:
    """The record and earlier ones whose results go to the same sink in the same way, oldest first."""
    found: list[QueryRecord] = []
    for one in reversed(lineage):
        into = one.into
        alike = into == record.into or (isinstance(into, Sink) and into.same(record.into))
        if not alike or one.ordered != record.ordered:
            break
        found.insert(0, one)
    return found
