"""Which queries have a sink, and the rows that go there: of a query and of those whose place it has taken.

What sinks are, and when they get their rows, is said in `sinks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.catalog.catalog import Catalog
from penstock.catalog.lineage import lineage
from penstock.errors import ResultsError
from penstock.model import Sink
from penstock.model.limits import MOST_DELIVERED, MOST_SORTED
from penstock.results.part import Part
from penstock.results.read import united
from penstock.results.sinks import Recipient
from penstock.results.views import view_of
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord


def receivers_of(catalog: Catalog) -> list[Recipient]:
    """The live queries that have a sink."""
    found = []
    for record in catalog.registry.shown():
        target = catalog.target(record)
        if target is not None:
            place = str(target) if isinstance(target, Path) else target
            schema = (*record.item_names, *record.item_types)
            line = tuple(r.id for r in _continued(catalog, record))
            found.append(Recipient(record.id, record.name, place, schema, record.ordered, line))
    return found


def received_rows(
    catalog: Catalog,
    manifest: Manifest,
    session: Callable[[], SparkSession],
    queries: Sequence[int],
    part: Part,
    *,
    as_frame: bool,
) -> Any:
    """A part of the rows of queries that continue each other: as a DataFrame, or as Arrow tables (without a Spark job where possible)."""
    record = catalog.numbered(queries[-1])
    views = [view_of(catalog, catalog.numbered(query)) for query in queries]
    count = sum(view.count(manifest, part) for view in views)
    _check_few(record.name, count, MOST_DELIVERED, "a sink takes")
    if not as_frame and (len(views) == 1 or not record.ordered):
        tables = [view.tables(manifest, part, ordered=record.ordered) for view in views]
        known = [pieces for pieces in tables if pieces is not None]
        if len(known) == len(views):
            if record.ordered:
                _check_few(record.name, count, MOST_SORTED, "the driver sorts")
            return chain.from_iterable(known)
    frames = [view.frame(session(), manifest, part, time=record.ordered) for view in views]
    frame = united(frames, ordered=record.ordered)
    if as_frame:
        return frame
    _check_few(record.name, count, MOST_SORTED, "the driver collects, of what Spark has to compute,")
    return iter([frame.toArrow()])


def _check_few(name: str, count: int, most: int, what: str) -> None:
    """Refuse to deliver more than can be."""
    if count > most:
        msg = (
            f"query {name!r} has {count:,} results to deliver at once, and {what} {most:,} at a time; read them by results(), or drop the query "
            "and give it fewer windows (a longer SLIDE, a shorter RANGE) under another name"
        )
        raise ResultsError(msg)


def _continued(catalog: Catalog, record: QueryRecord) -> list[QueryRecord]:
    """The record and those before it whose results go to the same sink in the same way, oldest first."""
    found: list[QueryRecord] = []
    for one in reversed(lineage(catalog.registry, record)):
        into = one.into
        alike = into == record.into or (isinstance(into, Sink) and into.same(record.into))
        if not alike or one.ordered != record.ordered:
            break
        found.insert(0, one)
    return found
