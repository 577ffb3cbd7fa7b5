"""Conversion of rows between Arrow and Spark: tables and slices to DataFrames, and DataFrames to tables."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.views.rows.slices import Files

PART = 250_000  # rows of a file per task


def to_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows as a DataFrame; times without a zone stay without one, whatever the session's default."""
    return spark.createDataFrame(rows, from_arrow_schema(rows.schema))


def read_files(spark: SparkSession, files: Files) -> DataFrame:
    """The rows of slices as a DataFrame: its tasks map the files, bypassing the driver."""
    schema = from_arrow_schema(files.schema)
    parts = [(f, start, min(PART, rows - start)) for f, rows in files.files for start in range(0, rows, PART)]
    if not parts:
        return spark.createDataFrame([], schema)
    names = files.schema.names

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                path, start, length = parts[number]
                with pa.memory_map(path) as mapped:
                    yield from pa.ipc.open_file(mapped).read_all().select(names).slice(start, length).to_batches()

    return spark.range(len(parts), numPartitions=len(parts)).mapInArrow(read, schema)


def to_arrow(frame: DataFrame) -> pa.Table:
    """The rows of a DataFrame, times in UTC."""
    found = frame.toArrow()
    fields = [
        pa.field(f.name, pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(f.type) and f.type.tz else f.type)
        for f in found.schema
    ]
    return found.cast(pa.schema(fields))
