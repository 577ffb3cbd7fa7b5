"""What Spark says of a query or a source before it runs: names, types, determinism; and refusals in the user's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import RegistrationError
from penstock.model import Query, Ref, Stream
from penstock.model.expression import PSEUDO_ROLE

# Operators that keep state of their own or read the past: a stream must be a plain projection of its source.
_STATEFUL = ("EventTimeWatermark", "Aggregate", "Join", "Deduplicate", "FlatMapGroupsWithState", "TransformWithState")


@dataclass(frozen=True)
class Facts:
    """Names and types of the select list, and types of the keys (per key and role; `void` where a key does not reach a role)."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    key_types: tuple[tuple[str, ...], ...]


def analyze(spark: SparkSession, name: str, query: Query, streams: Mapping[str, Stream]) -> Facts:
    """Let Spark resolve every expression of the query, all at once, against empty tables of the streams' schemas."""
    frame = _empty(spark, tuple(streams[role.stream] for role in query.roles))

    def column(ref: Ref) -> str:
        return "_result.result_time" if ref.role == PSEUDO_ROLE else f"_r{ref.role}.`{ref.column}`"

    items = [item.expression.sql(column) for item in query.items]
    keys = ["NULL" if e is None else e.sql(column) for part in query.keys for e in part]
    conditions = [f"CASE WHEN {c.sql(column)} THEN 1 END" for c in (*query.predicates, *query.residuals)]
    try:
        resolved = frame.selectExpr(*items, *keys, *conditions)
    except AnalysisException as error:
        raise RegistrationError(f"query {name!r}: {spark_message(error)}") from None
    if not resolved._jdf.queryExecution().analyzed().deterministic():  # noqa: SLF001
        msg = f"query {name!r} uses a non-deterministic function; its answer would change when a step is repeated"
        raise RegistrationError(msg)
    found = [(f.name, f.dataType.simpleString()) for f in resolved.schema.fields]
    names = [item.name or given for item, (given, _) in zip(query.items, found, strict=False)]
    of_keys = [kind for _, kind in found[len(items) : len(items) + len(keys)]]
    width = len(query.roles)
    parts = [tuple(of_keys[start : start + width]) for start in range(0, len(of_keys), width)]
    return Facts(tuple(names), tuple(kind for _, kind in found[: len(items)]), tuple(parts))


_empties: dict[
    tuple[Stream, ...], tuple[SparkSession, DataFrame]
] = {}  # making one takes longer than resolving a query
MOST_EMPTIES = 64


def _empty(spark: SparkSession, streams: tuple[Stream, ...]) -> DataFrame:
    """No rows of the streams side by side, as `_r0`, `_r1`, .., and a result time."""
    if streams not in _empties or _empties[streams][0] is not spark:
        kind = "bigint" if streams[0].integer_time else "timestamp"
        frame = spark.createDataFrame([], f"result_time {kind}").alias("_result")
        for number, stream in enumerate(streams):
            schema = ", ".join(f"`{c.name}` {c.type}" for c in stream.columns)
            frame = frame.crossJoin(spark.createDataFrame([], schema).alias(f"_r{number}"))
        if len(_empties) > MOST_EMPTIES:
            _empties.clear()
        _empties[streams] = (spark, frame)
    return _empties[streams][1]


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


def spark_message(error: Exception) -> str:
    """What Spark says of a mistake, in one line, without places in texts that the user did not write."""
    java = getattr(error, "java_exception", None)  # of an error that Spark's Python side has no class for
    text = str(error if java is None else java.getMessage()).splitlines()[0]
    return re.sub(r"( SQLSTATE: \w+)?(; line \d+ pos \d+)?;?$", "", text)
