"""Sinks of Spark's batch writer, and what Spark adds to others: rows whose select list only it can compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.catalog.catalog import Catalog
from penstock.model import Sink
from penstock.model.limits import MOST_SORTED
from penstock.results import open_sink as without_spark
from penstock.results.delivery import cause_of
from penstock.results.part import Part
from penstock.results.sink import Into, Line, OpenSink
from penstock.results.sink_queries import check_few, sink_tables, sink_views
from penstock.spark.analysis import spark_message
from penstock.spark.result_frames import result_frame, united
from penstock.state.manifest import Manifest
from penstock.storage.secrets import resolved
from penstock.storage.store import Store


@dataclass(frozen=True)
class SinkRows:
    """Reads parts of the results of queries that continue each other, by the newest manifest."""

    catalog: Catalog
    manifest: Callable[[], Manifest]
    session: Callable[[], SparkSession]

    def frame(self, queries: Sequence[int], part: Part) -> DataFrame:
        """As a DataFrame; of an ordered query in order."""
        manifest, ordered = self.manifest(), self.catalog.numbered(queries[-1]).ordered
        views = sink_views(self.catalog, manifest, queries, part)
        frames = [result_frame(view, self.session(), manifest, part, time=ordered) for view in views]
        return united(frames, ordered=ordered)

    def tables(self, queries: Sequence[int], part: Part) -> Iterator[pa.Table]:
        """As bounded Arrow tables, without a Spark job if possible."""
        manifest, record = self.manifest(), self.catalog.numbered(queries[-1])
        tables = sink_tables(self.catalog, manifest, queries, part)
        if tables is not None:
            return tables
        views = sink_views(self.catalog, manifest, queries, part)
        most = "the driver collects, of what Spark has to compute,"
        check_few(record.name, views, manifest, part, MOST_SORTED, most)
        return iter([self.frame(queries, part).toArrow()])


@dataclass(frozen=True)
class WriterSink:
    """A target of Spark's batch writer, with one job per step."""

    into: Sink
    frame: Callable[[Sequence[int], Part], DataFrame]

    def name(self, query: str) -> str:  # noqa: ARG002
        return f"sink:{self.into}"

    def write(self, lines: Sequence[Line], step: int) -> None:  # noqa: ARG002
        options = resolved(self.into.options, f"sink {self.into}")
        union = reduce(DataFrame.union, [self.frame(line.queries, line.part) for line in lines])
        union.write.format(self.into.format).options(**options).mode("append").save()


def open_sink(into: Into, rows: SinkRows, store: Store, owner: str) -> OpenSink:
    """A sink of any kind."""
    if isinstance(into, Sink):
        return WriterSink(into, rows.frame)
    return without_spark.open_sink(into, rows.tables, store, owner)


def cause(error: BaseException) -> str:
    """An error of a sink, in one line."""
    return spark_message(error) if isinstance(error, PySparkException | Py4JJavaError) else cause_of(error)
