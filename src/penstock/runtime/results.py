"""Committed rows as DataFrames: a query's results are a view on its join's result table, late and bad rows as they came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.errors import StateError
from penstock.model import Query, Ref, Stream
from penstock.model.expression import PSEUDO_ROLE
from penstock.planner.network import result_column
from penstock.state.manifest import Manifest, ResultFile
from penstock.state.registry import QueryRecord, RegistryLog
from penstock.state.store import LocalStore


def query_results(
    spark: SparkSession,
    store: LocalStore,
    files: Sequence[ResultFile],
    record: QueryRecord,
    query: Query,
    streams: Mapping[str, Stream],
    positions: Sequence[int],
    *,
    step: bool = False,
) -> DataFrame:
    """Exactly the query's select list over its committed rows. `positions[p]` = the role at join position p."""
    place = {role: position for position, role in enumerate(positions)}
    integer_time = streams[query.roles[0].stream].integer_time

    def column(ref: Ref) -> str:
        if ref.role == PSEUDO_ROLE:
            return "_time" if integer_time else "timestamp_micros(_time)"
        return result_column(place[ref.role], streams[query.roles[ref.role].stream], ref.column)

    fields: dict[str, str] = {"_time": "bigint"}
    items = []
    for number, (item, kind) in enumerate(zip(query.items, record.item_types, strict=True)):
        if item.expression.total:
            for ref in item.expression.refs:
                if ref.role != PSEUDO_ROLE:
                    stream = streams[query.roles[ref.role].stream]
                    declared = stream.column(ref.column)
                    assert declared is not None
                    fields[column(ref)] = declared.type
            text = item.expression.sql(column)
        else:
            text = f"x{record.id}_{number}"
            fields[text] = kind
        items.append(F.expr(f"CAST({text} AS {kind})").alias(record.item_names[number]))
    if step:
        fields["_step"] = "bigint"
        items.append(F.col("_step"))
    schema = ", ".join(f"{n} {t}" for n, t in fields.items())
    if not files:
        return spark.createDataFrame([], schema).select(*items)
    registry = RegistryLog(store)
    frames = []
    for version in sorted({f.version for f in files}):
        _, bit = registry.load(version).bits[record.id]
        paths = [_checked(store, f) for f in files if f.version == version]
        frame = spark.read.schema(f"{schema}, _bits{bit // 64} bigint").parquet(*paths)
        frames.append(frame.where(f"shiftright(_bits{bit // 64}, {bit % 64}) & 1 = 1").select(*items))
    return reduce(DataFrame.union, frames)


def side_rows(spark: SparkSession, store: LocalStore, manifest: Manifest, stream: Stream, reason: str) -> DataFrame:
    """The whole late or bad rows of a stream, with `_step`, `_reason` and `_progress`."""
    files = [s for s in manifest.sides if s.stream == stream.name and s.reason == reason]
    schema = ", ".join(f"`{c.name}` {c.type}" for c in stream.columns)
    raw_schema = "_row string, _step bigint, _reason string, _progress bigint"
    if files:
        raw = spark.read.schema(raw_schema).parquet(*[store.path(f.name) for f in files])
    else:
        raw = spark.createDataFrame([], raw_schema)
    options = {
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    }
    parsed = raw.withColumn("_row", F.from_json("_row", schema, options))
    return parsed.select("_row.*", "_step", "_reason", "_progress")


def _checked(store: LocalStore, file: ResultFile) -> str:
    path = store.path(file.name)
    found = Path(path).stat().st_size if Path(path).is_file() else None
    if found != file.bytes:
        state = "is missing" if found is None else f"has {found} bytes instead of {file.bytes}"
        msg = f"result file {path} {state}; restore it from a backup, or remove the state directory and replay the sources"
        raise StateError(msg)
    return path
