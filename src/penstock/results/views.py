"""The views on the results of registered queries, as their records and the queries that they stand for make them."""

from __future__ import annotations

from penstock.catalog.catalog import Catalog
from penstock.catalog.lineage import lineage
from penstock.planner.meaning import settled
from penstock.results.read import ResultView
from penstock.results.read_aggregates import AggregateView
from penstock.state.registry import QueryRecord


def views_of(catalog: Catalog, query: int) -> list[ResultView]:
    """What holds the results of a query, and of those that it continues."""
    return [view_of(catalog, one) for one in lineage(catalog.registry, catalog.numbered(query))]


def view_of(catalog: Catalog, record: QueryRecord) -> ResultView:
    query = settled(catalog.compiled(record).query, catalog.settings)
    streams = catalog.streams_of(record)
    if query.aggregation is not None:
        return AggregateView(catalog.store, record, query, streams, (), catalog.own)
    return ResultView(catalog.store, record, query, streams, catalog.positions(record))
