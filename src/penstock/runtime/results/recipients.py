"""Which queries have a sink, and the rows that go there: of a query and of those whose place it has taken.

What sinks are, and when they get their rows, is said in `sinks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.model import Sink
from penstock.runtime.declared.catalog import Catalog
from penstock.runtime.results.part import Part
from penstock.runtime.results.read import united
from penstock.runtime.results.sinks import Recipient
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
    """A part of the rows of queries that continue each other: as a DataFrame, or as an Arrow table (without a Spark job where possible)."""
    record = catalog.numbered(queries[-1])
    views = [catalog.view(catalog.numbered(query)) for query in queries]
    if not as_frame and (len(views) == 1 or not record.ordered):
        tables = [view.table(manifest, part, ordered=record.ordered) for view in views]
        known = [table for table in tables if table is not None]
        if len(known) == len(views):
            return pa.concat_tables(known)
    frames = [view.frame(session(), manifest, part, time=record.ordered) for view in views]
    frame = united(frames, ordered=record.ordered)
    return frame if as_frame else frame.toArrow()


def _continued(catalog: Catalog, record: QueryRecord) -> list[QueryRecord]:
    """The record and those before it whose results go to the same sink in the same way, oldest first."""
    found: list[QueryRecord] = []
    for one in reversed(catalog.lineage(record)):
        into = one.into
        alike = into == record.into or (isinstance(into, Sink) and into.same(record.into))
        if not alike or one.ordered != record.ordered:
            break
        found.insert(0, one)
    return found
