"""Views on the results of registered queries, from their records and compiled queries, and what they read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from penstock.catalog.catalog import Catalog
from penstock.catalog.lineage import lineage
from penstock.errors import ResultsError
from penstock.model.time import FOREVER
from penstock.planner.meaning import settled
from penstock.results.part import Part
from penstock.results.read import AT_ONCE, ResultView, gathered, in_order
from penstock.results.read_aggregates import AggregateView
from penstock.results.released import horizon, released
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord


def views_of(catalog: Catalog, query: int) -> list[ResultView]:
    """The views on the results of a query, and of those that it continues."""
    return [view_of(catalog, one) for one in lineage(catalog.registry, catalog.numbered(query))]


def view_of(catalog: Catalog, record: QueryRecord) -> ResultView:
    query = settled(catalog.compiled(record).query, catalog.settings)
    streams = catalog.streams_of(record)
    if query.aggregation is not None:
        return AggregateView(catalog.store, record, query, streams, catalog.bits, catalog.own)
    return ResultView(catalog.store, record, query, streams, catalog.bits, catalog.positions(record))


def part_of(catalog: Catalog, record: QueryRecord, manifest: Manifest, *, since: int = -1, ordered: bool) -> Part:
    """The visible results of a query: those that have not expired and, if `ordered`, that progress has passed."""
    before = released(catalog, record, manifest) if ordered else FOREVER
    return Part(since=since, horizon=horizon(catalog, record, manifest), before=before)


def united_tables(
    views: Sequence[ResultView], manifest: Manifest, part: Part, *, ordered: bool
) -> Iterator[pa.Table] | None:
    """Part of the results of queries that continue each other, if `ordered` by time; None if only Spark can."""
    tables = [view.tables(manifest, part, time=ordered) for view in views]
    known = chain.from_iterable(pieces for pieces in tables if pieces is not None)
    if None in tables:
        return None
    return in_order(known) if ordered else gathered(known, AT_ONCE)


def results_table(catalog: Catalog, name: str, manifest: Manifest) -> pa.Table:
    """The committed results of a query, as in `Engine.results`; refused if only Spark can compute its select list."""
    newest = catalog.record(name)
    found = []
    for record in lineage(catalog.registry, newest):
        part = part_of(catalog, record, manifest, ordered=newest.ordered)
        tables = view_of(catalog, record).tables(manifest, part, time=newest.ordered)
        if tables is None:
            raise ResultsError(f"query {name!r}: its results are computed by Spark when they are read: {record.sql}")
        found.append(tables)
    tables = chain.from_iterable(found)
    places = [str(number) for number in range(len(newest.item_names))]  # names of items may be equal
    whole = [table.rename_columns(places) for table in (in_order(tables) if newest.ordered else tables)]
    found = (
        pa.concat_tables(whole, promote_options="permissive") if whole else pa.table({p: pa.nulls(0) for p in places})
    )
    return found.rename_columns(list(newest.item_names))
