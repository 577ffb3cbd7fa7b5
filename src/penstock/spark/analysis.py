"""Spark's analysis of a query or a source before it runs: names, types, determinism, refusals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from penstock.catalog.analysis import Fields, Resolved
from penstock.errors import RegistrationError
from penstock.model import Expression, Ref
from penstock.planner.meaning import ANSI, ZONE
from penstock.spark.sources import listed
from penstock.sql.spelling import ddl, quote

# Operators with state of their own or that read the past: a stream must be a plain projection of its source.
_STATEFUL = (
    "EventTimeWatermark", "Aggregate", "Join", "Deduplicate", "Distinct", "GlobalLimit", "LocalLimit", "Offset", "Tail",
    "Sort",
    "FlatMapGroups", "FlatMapCoGroups", "TransformWithState",
)  # fmt: skip


SETTINGS = (ZONE, ANSI)


@dataclass(frozen=True)
class SparkAnalysis:
    """Spark's analysis of expressions: all of them together, against empty tables of their columns."""

    spark: SparkSession

    @property
    def settings(self) -> dict[str, str]:
        return {key: str(self.spark.conf.get(key)) for key in SETTINGS}

    def resolve(
        self,
        query: str,
        fields: Fields,
        expressions: Sequence[Expression | None],
        conditions: Sequence[Expression] = (),
    ) -> list[Resolved]:
        texts = ["NULL" if e is None else e.sql(_column) for e in expressions]
        texts += [f"CASE WHEN {c.sql(_column)} THEN 1 END" for c in conditions]
        try:
            resolved = _empty(self.spark, fields).selectExpr(*texts)
        except AnalysisException as error:
            raise RegistrationError(f"query {query!r}: {spark_message(error)}") from None
        if not resolved._jdf.queryExecution().analyzed().deterministic():  # noqa: SLF001
            msg = f"query {query!r} uses a non-deterministic function; its answer would change when a step is repeated"
            raise RegistrationError(msg)
        found = resolved.schema.fields
        for field in found:
            check_type(f"query {query!r}: item {field.name!r}", field.dataType)
        return [Resolved(f.name, f.dataType.simpleString()) for f in found[: len(expressions)]]


def _column(ref: Ref) -> str:
    return f"_r{ref.role}.{quote(ref.column)}" if ref.role >= 0 else f"_result.{ref.column}"


def check_type(what: str, kind: DataType) -> None:
    """Refuse a type that Spark cannot send to its workers: the first step with such a value would fail."""
    try:
        to_arrow_type(kind, timezone="UTC")
    except PySparkTypeError:
        msg = (
            f"{what} has type {kind.simpleString()}, which cannot be read by Spark's Python workers; cast it to another"
        )
        raise RegistrationError(msg) from None


# Making one takes longer than resolving a query.
_empties: dict[Fields, tuple[SparkSession, DataFrame]] = {}
MOST_EMPTIES = 64


def _empty(spark: SparkSession, fields: Fields) -> DataFrame:
    """No rows, with the columns of the roles joined as `_r0`, `_r1`, .., and those of the result."""
    if fields not in _empties or _empties[fields][0] is not spark:
        frame = spark.createDataFrame([], ddl(fields.result)).alias("_result")
        for number, columns in enumerate(fields.roles):
            frame = frame.crossJoin(spark.createDataFrame([], ddl(columns)).alias(f"_r{number}"))
        if len(_empties) > MOST_EMPTIES:
            _empties.clear()
        _empties[fields] = (spark, frame)
    return _empties[fields][1]


def check_source(name: str, frame: DataFrame) -> None:
    """Refuse a DataFrame whose replay would not repeat its rows, or that is not a plain stream."""
    if not frame.isStreaming:
        msg = f"stream {name!r}: the DataFrame is not streaming; make it with spark.readStream"
        raise RegistrationError(msg)
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    if not plan.deterministic():
        msg = (
            f"stream {name!r} uses a non-deterministic expression (rand, uuid, ..): after a crash its rows "
            "would come back "
            "different; compute such columns before they reach the source"
        )
        raise RegistrationError(msg)
    for field in frame.schema.fields:
        check_type(f"stream {name!r}: column {field.name!r}", field.dataType)
    found = next((node for node in _operators(plan) if node.startswith(_STATEFUL)), None)
    if found:
        msg = (
            f"stream {name!r} has a stateful operator of its own ({found}); register the plain source, and "
            "give the delay "
            "with delay= instead of withWatermark"
        )
        raise RegistrationError(msg)


def columns_of(frame: DataFrame) -> list[tuple[str, str]]:
    return [(f.name, f.dataType.simpleString()) for f in frame.schema.fields]


def _operators(plan: Any) -> Iterator[str]:
    yield plan.nodeName()
    for child in listed(plan.children()):
        yield from _operators(child)


def spark_message(error: Exception) -> str:
    """Spark's message about an error, in one line, without places in texts that the user did not write."""
    java = getattr(error, "java_exception", None)  # for errors without a class on Spark's Python side
    whole = str(error) if java is None else java.getMessage() or java.toString()
    text = next(iter(whole.splitlines()), type(error).__name__)
    return re.sub(r"( SQLSTATE: \w+)?(; line \d+ pos \d+)?;?$", "", text)
