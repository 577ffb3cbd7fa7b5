"""Spark's Arrow types of declared columns and of rows passed to the JVM, as the workers see them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.model import Column
from penstock.planner.network import Network
from penstock.sql.spelling import ddl
from penstock.step.handover import finished_joins, handover_schema

_known_types: dict[
    tuple[Column, ...], dict[str, pa.DataType]
] = {}  # asking Spark takes milliseconds, at every change of a network


def arrow_types(spark: SparkSession, network: Network) -> dict[str, dict[str, pa.DataType]]:
    """The Arrow types of all declared columns, as the workers see them."""
    return {stream.name: types_of(spark, stream.columns) for stream in network.streams.values()}


def listed_types(spark: SparkSession, network: Network) -> dict[int, pa.Schema]:
    """The select lists of queries whose rows may be written as they say, as Spark's own sink would."""
    listed = {q.id: tuple(Column(name, kind) for name, kind in q.listed) for q in network.queries if q.listed}
    return {query: pa.schema(list(types_of(spark, columns).items())) for query, columns in listed.items()}


def handover_types(spark: SparkSession, network: Network) -> pa.Schema | None:
    """The layout of rows that Spark finishes, in Arrow at the workers."""
    if not finished_joins(network):
        return None
    schema = spark.createDataFrame([], handover_schema(network)).schema
    return to_arrow_schema(schema, timezone="UTC")


def types_of(spark: SparkSession, columns: tuple[Column, ...]) -> dict[str, pa.DataType]:
    """The Arrow types of columns."""
    if columns not in _known_types:
        schema = to_arrow_schema(spark.createDataFrame([], ddl(columns)).schema, timezone="UTC")
        _known_types[columns] = {field.name: field.type for field in schema}
    return _known_types[columns]
