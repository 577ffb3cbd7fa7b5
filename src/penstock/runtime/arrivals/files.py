"""Reading a batch's Parquet files in the workers: whole columns, instead of single rows through Spark's exchange.

Spark still decides which files a batch has, and remembers it; only their bytes take a shorter way. Every task reads the columns that
some query needs and keeps the rows of its own buckets, so this pays while tasks are few. It is for streams that are such files just
as they are, and for networks of which Spark has nothing to compute; whatever Arrow might read otherwise than Spark goes through Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.kernels.hash import hash_bigint
from penstock.model import Ref, Stream
from penstock.model.time import DAY, EARLIEST, LATEST, NEVER
from penstock.planner.network import Network, StateTable
from penstock.runtime.arrivals.admission import ACCEPTED, BAD, BEFORE, LATE, VERDICTS
from penstock.runtime.tasks.task import Plan, Task

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
    """Whether workers can key and filter rows of these streams by themselves: plain integer keys, and no expression that needs Spark."""
    return not any(d.stream in streams for d in network.derived) and all(
        not t.key or _key_column(t) is not None for t in network.tables if t.stream in streams
    )


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


def read_rows(plan: Plan, task: Task, low: int, high: int | None) -> pa.Table:
    """The rows whose keys lie in [low, high), and those of replicated tables, just as the exchange would bring them."""
    assert task.files is not None
    pieces = [
        piece
        for stream, paths in task.files.items()
        for path in paths
        for rows in _row_groups(path, _columns(plan, stream), plan.types[stream])
        for piece in _pieces(plan, task, stream, rows, (low, high))
    ]
    return pa.concat_tables(pieces, promote_options="default") if pieces else pa.table({})


def _columns(plan: Plan, stream: str) -> list[str]:
    declared = plan.types[stream]
    tables = plan.network.tables_of(stream)
    wanted = {c for t in tables for c in (*t.needed, _key_column(t), plan.network.streams[stream].event_time) if c}
    return sorted(wanted & declared.keys())


def _row_groups(path: str, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    """The columns of a file in the types of the stream; one that the file lacks is NULL, as in Spark."""
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            schema = _checked(file, columns, types)
            present = [c for c in columns if c in schema.names]
            for group in range(file.num_row_groups):
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


def _pieces(plan: Plan, task: Task, name: str, rows: pa.Table, own: tuple[int, int | None]) -> Iterator[pa.Table]:
    """Rows of one stream for each table that takes them, with the verdict on each."""
    stream, network, slots = plan.network.streams[name], plan.network, plan.names[name]
    times = _event_time(stream, rows)
    verdict = _verdict(times, task.progress.get(name, NEVER), network.origins.get(name, NEVER))
    keys = {t.name: _keys(t, rows, times) for t in network.tables_of(name)}
    for number, table in enumerate(network.tables_of(name)):
        key = keys[table.name]
        owned = in_range(key, *own)
        accepted = verdict == ACCEPTED
        wanted = accepted if table.index in task.routes.replicated else accepted & owned
        if number == 0:  # late and bad rows are counted once, wherever the row is owned
            wanted |= owned & ~accepted
        columns = {
            "_table": pa.array((VERDICTS * table.index + verdict).astype(np.int32)), "_key": key, "_ts": times,
            **{slots[c]: rows.column(c) for c in rows.column_names if c in table.needed},
            **{column: keys[other] for column, other in table.others},
        }  # fmt: skip
        yield pa.table(columns).filter(pa.array(wanted))


def in_range(keys: pa.Array, low: int, high: int | None) -> npt.NDArray[np.bool_]:
    """Which keys lie in [low, high); NULL counts as 0, so that such rows belong to somebody."""
    values = pc.fill_null(keys, 0).to_numpy(zero_copy_only=False)
    return np.asarray((values >= low) & (True if high is None else values < high))


def _verdict(times: pa.Array, progress: int, origin: int) -> npt.NDArray[np.int32]:
    valid = times.is_valid().to_numpy(zero_copy_only=False)
    values = pc.fill_null(times, 0).to_numpy(zero_copy_only=False)
    found = np.where(values < progress, np.int32(LATE), np.int32(ACCEPTED))
    found[values < origin] = BEFORE
    found[~valid | (values < EARLIEST) | (values > LATEST)] = BAD
    return found


def _event_time(stream: Stream, rows: pa.Table) -> pa.Array:
    """Event time in the engine's unit."""
    column = _whole(rows.column(stream.event_time))
    if pa.types.is_date(column.type):
        return pc.multiply(column.cast(pa.int32()).cast(pa.int64()), DAY)
    return column.cast(pa.int64())


def _keys(table: StateTable, rows: pa.Table, times: pa.Array) -> pa.Array:
    """The hash of each row's key, as Spark computes it; of a table without a key, that of its time."""
    column = _key_column(table)
    if column is None and table.grouped:
        return pa.array(np.zeros(len(rows), dtype=np.int64))
    values = times if column is None else _whole(rows.column(column)).cast(pa.int64())
    hashed = pa.array(hash_bigint(pc.fill_null(values, 0).to_numpy(zero_copy_only=False)))
    return pc.if_else(values.is_valid(), hashed, None) if values.null_count else hashed


def _key_column(table: StateTable) -> str | None:
    """The column of whole numbers that is the key, if it is one."""
    if len(table.key) != 1 or table.key_types != ("bigint",) or any(table.guards):
        return None
    match table.key[0]:
        case (Ref(_, column),) | ("CAST(", Ref(_, column), " AS BIGINT)"):
            return column
    return None


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
