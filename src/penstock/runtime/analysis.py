"""What Spark says of a query or a source before it runs: names, types, determinism; and refusals in the user's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.errors import RegistrationError
from penstock.model import Query, Ref, Stream
from penstock.model.expression import PSEUDO_ROLE

# Operators that keep state of their own or read the past: a stream must be a plain projection of its source.
_STATEFUL = ("EventTimeWatermark", "Aggregate", "Join", "Deduplicate", "FlatMapGroupsWithState", "TransformWithState")


@dataclass(frozen=True)
class Facts:
    """Names and types of the select list, and types of the key parts (per part and role)."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    key_types: tuple[tuple[str, ...], ...]


def analyze(spark: SparkSession, name: str, query: Query, streams: Mapping[str, Stream]) -> Facts:
    """Let Spark resolve every expression of the query against empty tables of the streams' schemas."""
    frame: DataFrame | None = None
    for number, role in enumerate(query.roles):
        schema = ", ".join(f"`{c.name}` {c.type}" for c in streams[role.stream].columns)
        table = spark.createDataFrame([], schema).alias(f"_r{number}")
        frame = table if frame is None else frame.crossJoin(table)
    assert frame is not None
    kind = "bigint" if streams[query.roles[0].stream].integer_time else "timestamp"
    pseudo = spark.createDataFrame([], f"result_time {kind}").alias("_result")
    frame = frame.crossJoin(pseudo)

    def column(ref: Ref) -> str:
        return "_result.result_time" if ref.role == PSEUDO_ROLE else f"_r{ref.role}.`{ref.column}`"

    try:
        items = frame.selectExpr(*[item.expression.sql(column) for item in query.items])
        for condition in (*query.predicates, *query.residuals):
            _deterministic(name, frame.where(condition.sql(column)))
        _deterministic(name, items)
        keys = [frame.selectExpr(*[e.sql(column) for e in part]).schema for part in query.keys]
    except AnalysisException as error:
        raise RegistrationError(f"query {name!r}: {spark_message(error)}") from None
    names = [item.name or given for item, given in zip(query.items, items.columns, strict=True)]
    return Facts(tuple(names), tuple(_types(items.schema)), tuple(tuple(_types(s)) for s in keys))


def check_source(name: str, frame: DataFrame) -> None:
    """Refuse a DataFrame whose replay would not repeat its rows, or that is not a plain stream."""
    if not frame.isStreaming:
        msg = f"stream {name!r}: the DataFrame is not streaming; make it with spark.readStream"
        raise RegistrationError(msg)
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    if not plan.deterministic():
        msg = (
            f"stream {name!r} uses a non-deterministic expression (rand, uuid, ..): after a crash its rows would come back "
            "different; compute such columns before they reach the source"
        )
        raise RegistrationError(msg)
    found = next((node for node in _operators(plan) if node in _STATEFUL), None)
    if found:
        msg = (
            f"stream {name!r} has a stateful operator of its own ({found}); register the plain source, and give the delay "
            "with delay= instead of withWatermark"
        )
        raise RegistrationError(msg)


def columns_of(frame: DataFrame) -> list[tuple[str, str]]:
    return [(f.name, f.dataType.simpleString()) for f in frame.schema.fields]


def _operators(plan: Any) -> Iterator[str]:
    yield plan.nodeName()
    children = plan.children()
    for i in range(children.size()):
        yield from _operators(children.apply(i))


def _types(schema: StructType) -> list[str]:
    return [f.dataType.simpleString() for f in schema.fields]


def _deterministic(name: str, frame: DataFrame) -> None:
    if not frame._jdf.queryExecution().analyzed().deterministic():  # noqa: SLF001
        msg = f"query {name!r} uses a non-deterministic function; its answer would change when a step is repeated"
        raise RegistrationError(msg)


def spark_message(error: Exception) -> str:
    """What Spark says of a mistake, in one line, without places in texts that the user did not write."""
    java = getattr(error, "java_exception", None)  # of an error that Spark's Python side has no class for
    text = str(error if java is None else java.getMessage()).splitlines()[0]
    return re.sub(r"( SQLSTATE: \w+)?(; line \d+ pos \d+)?;?$", "", text)
