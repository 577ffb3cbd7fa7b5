"""Spark's analysis of a query or a source before it runs: names, types, determinism, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from penstock.errors import RegistrationError
from penstock.kernels.aggregate.stored import stored_type
from penstock.model import Aggregation, Query, Ref, Stream, UserAggregate
from penstock.model.expression import PSEUDO_ROLE, RESULT_TIME, WINDOW_END, WINDOW_START
from penstock.planner.aggregates import is_cut_by_kernels
from penstock.spark.sources import listed
from penstock.sql.aggregates import PLAIN, is_plain, refused_type, result_type
from penstock.sql.spelling import ddl, quote

# Operators with state of their own or that read the past: a stream must be a plain projection of its source.
_STATEFUL = (
    "EventTimeWatermark", "Aggregate", "Join", "Deduplicate", "Distinct", "GlobalLimit", "LocalLimit", "Offset", "Tail",
    "Sort",
    "FlatMapGroups", "FlatMapCoGroups", "TransformWithState",
)  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """Names and types of the select list, and types of the keys (per key and role; `void` for roles without the key).

    For an aggregated query, `aggregated` are the types of groups, of the argument of each aggregate, and of its value.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    key_types: tuple[tuple[str, ...], ...]
    aggregated: tuple[tuple[str, ...], ...] = ()


def analyze(
    spark: SparkSession,
    name: str,
    query: Query,
    streams: Mapping[str, Stream],
    own: Mapping[str, UserAggregate] | None = None,
) -> Facts:
    """Let Spark resolve all expressions of the query together, against empty tables of the streams' schemas."""
    if query.aggregation is not None:
        return _analyze_aggregated(spark, name, query, query.aggregation, streams, own or {})
    frame = _empty(spark, tuple(streams[role.stream] for role in query.roles))

    def column(ref: Ref) -> str:
        return "_result.result_time" if ref.role == PSEUDO_ROLE else f"_r{ref.role}.{quote(ref.column)}"

    items = [item.expression.sql(column) for item in query.items]
    keys = ["NULL" if e is None else e.sql(column) for part in query.keys for e in part]
    conditions = [f"CASE WHEN {c.sql(column)} THEN 1 END" for c in (*query.predicates, *query.residuals)]
    found = _resolved(name, frame, [*items, *keys, *conditions])
    names = _names(name, frame, query, column, found)
    of_keys = [kind for _, kind in found[len(items) : len(items) + len(keys)]]
    width = len(query.roles)
    parts = [tuple(of_keys[start : start + width]) for start in range(0, len(of_keys), width)]
    return Facts(tuple(names), tuple(kind for _, kind in found[: len(items)]), tuple(parts))


def _resolved(name: str, frame: DataFrame, texts: list[str]) -> list[tuple[str, str]]:
    """Spark's names and types of expressions over a frame."""
    try:
        resolved = frame.selectExpr(*texts)
    except AnalysisException as error:
        raise RegistrationError(f"query {name!r}: {spark_message(error)}") from None
    if not resolved._jdf.queryExecution().analyzed().deterministic():  # noqa: SLF001
        msg = f"query {name!r} uses a non-deterministic function; its answer would change when a step is repeated"
        raise RegistrationError(msg)
    for field in resolved.schema.fields:
        check_type(f"query {name!r}: item {field.name!r}", field.dataType)
    return [(f.name, f.dataType.simpleString()) for f in resolved.schema.fields]


def _names(
    name: str, frame: DataFrame, query: Query, column: Callable[[Ref], str], found: Sequence[tuple[str, str]]
) -> list[str]:
    """The names of the select list: those given, or Spark's name for an item as written."""
    names = []
    for item, (given, _) in zip(query.items, found, strict=False):
        if item.name is None and item.expression.written:
            given = _resolved(name, frame, [item.expression.shown(column)])[0][0]  # noqa: PLW2901
        names.append(item.name or given)
    return names


def check_type(what: str, kind: DataType) -> None:
    """Refuse a type that Spark cannot send to its workers: the first step with such a value would fail."""
    try:
        to_arrow_type(kind, timezone="UTC")
    except PySparkTypeError:
        msg = (
            f"{what} has type {kind.simpleString()}, which cannot be read by Spark's Python workers; cast it to another"
        )
        raise RegistrationError(msg) from None


def _analyze_aggregated(
    spark: SparkSession,
    name: str,
    query: Query,
    aggregation: Aggregation,
    streams: Mapping[str, Stream],
    own: Mapping[str, UserAggregate],
) -> Facts:
    """First groups, arguments, conditions over rows of the streams; then select list, HAVING over their values."""

    def column(ref: Ref) -> str:
        return f"_r{ref.role}.{quote(ref.column)}"

    groups = [item.expression.sql(column) for item in aggregation.groups]
    arguments = ["NULL" if a.argument is None else a.argument.sql(column) for a in aggregation.aggregates]
    conditions = [f"CASE WHEN {c.sql(column)} THEN 1 END" for c in (*query.predicates, *query.residuals)]
    frame = _empty(spark, tuple(streams[role.stream] for role in query.roles))
    kinds = (
        [kind for _, kind in _resolved(name, frame, [*groups, *arguments, *conditions])] if groups or arguments else []
    )
    group_types = tuple(kinds[: len(groups)])
    argument_types = tuple(
        "" if a.argument is None else kind
        for a, kind in zip(aggregation.aggregates, kinds[len(groups) :], strict=False)
    )
    _check_stored(name, aggregation, group_types, argument_types)
    values = tuple(
        own[a.function].type if a.function in own else str(result_type(a.function, kind or None, len(a.parameters)))
        for a, kind in zip(aggregation.aggregates, argument_types, strict=True)
    )
    time = "bigint" if streams[query.roles[0].stream].integer_time else "timestamp"
    fields = [f"{pseudo} {time}" for pseudo in (RESULT_TIME, WINDOW_START, WINDOW_END)]
    fields += [f"g{n} {kind}" for n, kind in enumerate(group_types)] + [f"a{n} {kind}" for n, kind in enumerate(values)]
    having = [] if aggregation.having is None else [f"CASE WHEN {aggregation.having.sql(_name)} THEN 1 END"]
    having += [] if aggregation.top is None else [key.expression.sql(_name) for key in aggregation.top.keys]
    shown = spark.createDataFrame([], ", ".join(fields))
    found = _resolved(name, shown, [*(item.expression.sql(_name) for item in query.items), *having])
    if is_cut_by_kernels(aggregation, own):
        assert aggregation.top is not None
        for text, kind in found[-len(aggregation.top.keys) :]:
            if not is_plain(kind):
                msg = f"query {name!r}: rows cannot be ordered by {text}, which has type {kind}; {PLAIN}"
                raise RegistrationError(msg)
    names = _names(name, shown, query, _name, found)
    types = [kind for _, kind in found[: len(query.items)]]
    if aggregation.emit is not None:
        names, types = [*names, "_revision", "_final"], [*types, "bigint", "boolean"]
    return Facts(tuple(names), tuple(types), (), (group_types, argument_types, values))


def _check_stored(
    name: str, aggregation: Aggregation, group_types: tuple[str, ...], argument_types: tuple[str, ...]
) -> None:
    """Refuse what kernels cannot store or compare: the first step with such a row would fail, for all queries."""
    for kind in (*group_types, *argument_types):
        try:
            stored_type(kind or "bigint")
        except ValueError as error:
            raise RegistrationError(f"query {name!r}: {error}") from None
    for item, kind in zip(aggregation.groups, group_types, strict=True):
        if not is_plain(kind):
            text = item.expression.shown(_name)
            msg = f"query {name!r}: rows cannot be grouped by {text}, which has type {kind}; {PLAIN}"
            raise RegistrationError(msg)
    for aggregate, kind in zip(aggregation.aggregates, argument_types, strict=True):
        refusal = refused_type(aggregate.function, kind, distinct=aggregate.distinct) if kind else None
        if refusal is not None:
            raise RegistrationError(f"query {name!r}: {aggregate.function} {refusal[0]}; {refusal[1]}")


def _name(ref: Ref) -> str:
    return ref.column


_empties: dict[
    tuple[Stream, ...], tuple[SparkSession, DataFrame]
] = {}  # making one takes longer than resolving a query
MOST_EMPTIES = 64


def _empty(spark: SparkSession, streams: tuple[Stream, ...]) -> DataFrame:
    """No rows of the streams, joined, as `_r0`, `_r1`, .., and a result time."""
    if streams not in _empties or _empties[streams][0] is not spark:
        kind = "bigint" if streams[0].integer_time else "timestamp"
        frame = spark.createDataFrame([], f"result_time {kind}").alias("_result")
        for number, stream in enumerate(streams):
            frame = frame.crossJoin(spark.createDataFrame([], ddl(stream.columns)).alias(f"_r{number}"))
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
