"""Parquet files of a store as a DataFrame: read by Spark where it has their paths, else by tasks through the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.results.layout import STEP
from penstock.storage.parquet import VERIFIED, batches, checked, columns
from penstock.storage.store import Store


class Stepped(Protocol):
    """A file as a manifest names it, with the step of its rows."""

    @property
    def name(self) -> str: ...

    @property
    def bytes(self) -> int: ...

    @property
    def step(self) -> int: ...


def stored_rows(
    spark: SparkSession, store: Store, files: Sequence[Stepped], schema: str, *, step: bool = False
) -> DataFrame:
    """The rows of files with these columns; with `step` also the step of each file, which is no column of it."""
    names = [(checked(store, file), file.step) for file in files]
    if store.has_paths and not step:
        return spark.read.schema(schema).options(**VERIFIED).parquet(*(store.path(name) for name, _ in names))
    fields = spark.createDataFrame([], schema).schema
    whole = StructType([*fields, *spark.createDataFrame([], f"{STEP} bigint").schema] if step else [*fields])
    arrow = to_arrow_schema(fields, timezone="UTC")

    def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                name, of = names[number]
                for rows in _rows(store, name, arrow):
                    found = rows.append_column(STEP, pa.repeat(pa.scalar(of, pa.int64()), len(rows))) if step else rows
                    yield from found.to_batches()

    share = min(len(names), spark.sparkContext.defaultParallelism)
    return spark.range(0, len(names), 1, share).mapInArrow(work, whole)


def _rows(store: Store, name: str, wanted: pa.Schema) -> Iterator[pa.Table]:
    there = set(columns(store, name))
    own = [field.name for field in wanted if field.name in there]
    for batch in batches(store, name, own):
        yield pa.table(
            [
                batch.column(field.name).cast(field.type) if field.name in there else pa.nulls(len(batch), field.type)
                for field in wanted
            ],
            schema=wanted,
        )
