"""Reading a batch's Parquet files in the workers: whole columns, instead of single rows through Spark's exchange.

Spark still decides which files a batch has, and remembers it; only their bytes take a shorter way. Every task reads the columns that
some query needs and maps all rows for itself (`step/mapper.py`), so this pays while tasks are few. It is for streams that are such files just
as they are, and for networks of which Spark has nothing to compute; whatever Arrow might read otherwise than Spark goes through Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.columns.hash import Ints
from penstock.columns.parcels import one_array
from penstock.columns.text import has_text, rows_as_text
from penstock.columns.verdict import event_time
from penstock.planner.network import Network
from penstock.runtime.tasks.task import Plan
from penstock.step.mapper import Text, brought

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_TASKS = 4  # every task reads all the files of a step: with more of them, an exchange is cheaper

# Options of a file stream that only say which files it has.
_LISTING = frozenset({
    "path", "maxfilespertrigger", "maxbytespertrigger", "maxfileage", "maxcachedfiles", "latestfirst", "filenameonly",
    "cleansource", "sourcearchivedir", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter",
})  # fmt: skip
_LENIENT = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")


class Unreadable(Exception):  # noqa: N818  (not an error: Spark reads such files)
    """A file that Arrow cannot read, or might read otherwise than Spark."""


def is_plain(frame: DataFrame) -> bool:
    """Whether a stream is Parquet files just as they are: nothing is done to their rows."""
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    if plan.getClass().getSimpleName() != "StreamingRelation" or any(f.metadata for f in frame.schema.fields):
        return False
    source = plan.dataSource()
    options = frame.sparkSession.sparkContext._jvm.scala.jdk.javaapi.CollectionConverters.asJava(source.options())  # type: ignore[union-attr]  # noqa: SLF001
    lenient = any(frame.sparkSession.conf.get(name, "false") == "true" for name in _LENIENT)
    return (
        source.className() == "parquet"
        and source.partitionColumns().isEmpty()
        and {str(key).lower() for key in options} <= _LISTING
        and not lenient
    )


def is_scannable(network: Network, streams: Collection[str]) -> bool:
    """Whether workers can map rows of these streams by themselves: no expression needs Spark, not even that of a key."""
    computed = any(d.stream in streams and d.term is None for d in network.derived)
    return not computed and all(t.hashed is not None for t in network.tables if t.stream in streams)


def batch_files(session: SparkSession, streams: tuple[str, ...]) -> dict[str, tuple[str, ...]] | None:
    """The local files of each stream in the batch that runs on this thread; None if there are others, or it cannot be told."""
    query = session.streams.get(session.sparkContext.getLocalProperty("sql.streaming.queryId") or "")
    if query is None:
        return None
    leaves = query._jsq.streamingQuery().lastExecution().logical().collectLeaves()  # noqa: SLF001
    if leaves.size() != len(streams):
        return None
    found = {}
    for number, stream in enumerate(streams):
        leaf = leaves.apply(number)
        kind = leaf.getClass().getSimpleName()
        if kind == "LocalRelation" and leaf.data().isEmpty():
            continue  # nothing new
        if kind != "LogicalRelation" or not leaf.relation().partitionSchema().isEmpty():
            return None
        places = [urlsplit(name) for name in leaf.relation().location().inputFiles()]
        if any(place.scheme != "file" or place.netloc for place in places):
            return None
        found[stream] = tuple(unquote(place.path) for place in places)
    return found


def read_files(plan: Plan, files: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, dict[str, pa.Array], Text]]:
    """All rows as a mapper takes them: (stream, columns, the whole rows at some places as text)."""
    for name, paths in files.items():
        stream, types = plan.network.streams[name], plan.types[name]
        wanted = sorted((brought(plan.network, stream) | {stream.event_time}) & types.keys())
        for path in paths:
            for group, rows in enumerate(_row_groups(path, wanted, types)):
                columns = {column: one_array(rows.column(column)) for column in rows.column_names}
                times = {"_ts": event_time(columns[stream.event_time])}
                yield name, columns | times, partial(_whole_rows, path, types, group)


def _whole_rows(path: str, types: Mapping[str, pa.DataType], number: int, places: Ints) -> pa.Array:
    """The rows of a group at those places, as Spark would write them."""
    if not all(map(has_text, types.values())):
        raise Unreadable(f"{path}: Spark has to write the rows that are put aside")
    (rows,) = _row_groups(path, list(types), types, number)
    try:
        return rows_as_text(rows.take(pa.array(places)))
    except (UnicodeDecodeError, OverflowError, ValueError) as error:
        raise Unreadable(f"{path}: {error}") from error


def _row_groups(
    path: str, columns: list[str], types: Mapping[str, pa.DataType], only: int | None = None
) -> Iterator[pa.Table]:
    """The columns of a file (or of one group of its rows) in the types of the stream; one that the file lacks is NULL, as in Spark."""
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            schema = _checked(file, columns, types)
            present = [c for c in columns if c in schema.names]
            for group in range(file.num_row_groups) if only is None else [only]:
                rows = file.read_row_group(group, columns=present, use_threads=False)
                yield pa.table([
                    rows.column(c).cast(types[c]) if c in present else pa.nulls(len(rows), types[c]) for c in columns
                ], columns)  # fmt: skip
    except (OSError, pa.ArrowException) as error:
        raise Unreadable(f"{path}: {error}") from error


def _checked(file: pq.ParquetFile, columns: list[str], types: Mapping[str, pa.DataType]) -> pa.Schema:
    schema = file.schema_arrow
    if any(key.startswith(b"org.apache.spark.legacy") for key in file.metadata.metadata or {}):
        raise Unreadable("written by an old Spark, with another calendar")
    known = {name.lower(): name for name in schema.names}
    if len(known) < len(schema.names) or any(known.get(c.lower(), c) != c for c in columns):
        raise Unreadable("names of columns that differ in case")
    physical = {file.schema.column(i).name: file.schema.column(i).physical_type for i in range(len(file.schema))}
    for column in columns:
        if column in schema.names and (
            physical.get(column) == "INT96" or not _same(schema.field(column).type, types[column])
        ):
            raise Unreadable(
                f"column {column} is {schema.field(column).type} in the file, and {types[column]} in the stream"
            )
    return schema


def _same(stored: pa.DataType, declared: pa.DataType) -> bool:
    """Equal types, or a narrower integer."""
    if pa.types.is_signed_integer(stored) and pa.types.is_signed_integer(declared):
        return bool(stored.bit_width <= declared.bit_width)
    return bool(stored == declared)
