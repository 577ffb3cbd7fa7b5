"""Any Spark batch reader as a source: read whole at each look, and compared with its previous content.

A DataFrame over files keeps the files of the moment it was made, so a source gets a function that makes the DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.columns.types import KNOWN, source_type
from penstock.errors import RegistrationError, StepError
from penstock.model import Column
from penstock.model.view import Source
from penstock.spark.analysis import columns_of, spark_message
from penstock.storage.secrets import resolved
from penstock.views.rows.bag import COUNT
from penstock.views.rows.difference import difference
from penstock.views.rows.files import read_files, to_arrow
from penstock.views.rows.slices import Files
from penstock.views.rows.types import schema_of
from penstock.views.sources.snapshot import Rows, counted

MakeFrame = Callable[[], DataFrame]
MANY = 1_000_000  # rows of the last look from which Spark compares them


class FrameFeed:
    """Reads Spark's present rows. With many rows, Spark compares them with the files of the last look."""

    hidden = pa.schema([])
    told = False

    def __init__(self, source: Source, make: MakeFrame) -> None:
        self.source, self.make = source, make
        self.schema = schema_of(source.name, source.columns)

    def look(self, state: dict[str, Any], held: Rows) -> tuple[pa.Table, dict[str, Any]] | None:
        try:
            now = self.make().select(*(f"`{c.name}`" for c in self.source.columns))
            if held.count > MANY:
                with held.files() as files:
                    delta = self._compared(now, files)
            else:
                rows = counted(to_arrow(now).cast(self.schema))
                delta = difference(held().select(rows.column_names).cast(rows.schema), rows)
        except (PySparkException, Py4JJavaError) as error:
            raise StepError(f"source {self.source.name!r} cannot be read: {spark_message(error)}") from None
        return (delta, state) if delta.num_rows else None

    def estimate(self) -> None:
        """Only reading everything would give it."""

    def _compared(self, now: DataFrame, files: Files) -> pa.Table:
        before = read_files(now.sparkSession, files)
        both = now.withColumn(COUNT, F.lit(1).cast("bigint")).unionAll(
            before.select(*(f"`{c.name}`" for c in self.source.columns), (-F.col(COUNT)).alias(COUNT))
        )
        total = both.groupBy(*(f"`{c.name}`" for c in self.source.columns)).agg(F.sum(COUNT).alias(COUNT))
        return to_arrow(total.filter(F.col(COUNT) != 0)).cast(self.schema.append(pa.field(COUNT, pa.int64())))


def reader_frame(spark: SparkSession, source: Source) -> MakeFrame:
    """The function that makes the DataFrame of a source declared in SQL: `format`, and the options of that format."""
    options = resolved(source.options, f"source {source.name!r}")
    form = options.pop("format", None)
    if form is None:
        raise RegistrationError(f"source {source.name!r} needs a format; write OPTIONS (format 'csv', path '..')")

    def make() -> DataFrame:
        reader = spark.read.format(form).options(**options)
        if source.columns:
            reader = reader.schema(", ".join(f"`{c.name}` {c.type}" for c in source.columns))
        return reader.load()

    return make


def frame_columns(name: str, make: MakeFrame) -> tuple[Column, ...]:
    """The columns of a DataFrame; refuses a stream, and types that views do not support."""
    try:
        frame = make()
    except (PySparkException, Py4JJavaError) as error:
        raise RegistrationError(f"source {name!r} cannot be read: {spark_message(error)}") from None
    if frame.isStreaming:
        raise RegistrationError(f"source {name!r} is a stream; register a query over it, and use the query as a source")
    for column, kind in columns_of(frame):
        if source_type(kind) is None:
            msg = (
                f"source {name!r}: column {column!r} has type {kind}, which views do not hold; select or cast "
                f"it, known: {KNOWN}"
            )
            raise RegistrationError(msg)
    return tuple(Column(n, t) for n, t in columns_of(frame))
