"""Committed results of a query, and rejected rows, as DataFrames.

The view on the results (`results/read`, `results/read_aggregates`) defines what is stored, and how the select list
follows from it; here Spark reads it, and decides what tasks could not decide alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortWindow
from pyspark.sql import functions as F  # noqa: N812

from penstock.kernels.aggregate.repeats import RUN, cut, written_out
from penstock.model import Column as Declared
from penstock.model import Expression, Sliding, SortKey, Stream
from penstock.model.expression import WINDOW_START
from penstock.results.layout import MERGED, OWN_KINDS, STEP
from penstock.results.own import own_files
from penstock.results.part import Part
from penstock.results.read import ResultView, holds_runs
from penstock.spark.ingest import SIDE_FORMATS, try_eval
from penstock.spark.stored_rows import stored_rows
from penstock.sql.spelling import ddl, quote
from penstock.state.manifest import Manifest
from penstock.state.result_files import ResultFile
from penstock.storage.parquet import metadata
from penstock.storage.store import Store

BATCH = 1 << 16  # rows of a batch of expanded windows
LISTED = 1 << 16  # windows that Spark lists for a row
KNOWN_FILES = 4096  # whose longest run is cached
SHORT, LONG = 1, 2  # numbers of windows per row
_STEP_OF_NAME = r"([0-9]+)-[0-9a-f]+\.parquet"
_SIDE_SCHEMA = "_row string, _step bigint, _reason string, _progress bigint"


def result_frame(
    view: ResultView, spark: SparkSession, manifest: Manifest, part: Part, *, step: bool = False, time: bool = False
) -> DataFrame:
    """Exactly the select list, plus `_step` and `_time` if requested."""
    items = [
        _evaluated(f"CAST({item.text} AS {item.type})", risky=item.risky).alias(item.name) for item in view.items()
    ]
    items += [F.col(name) for name, asked in (("_step", step), ("_time", time)) if asked]
    fields = view.fields()
    schema = ", ".join(f"{name} {kind}" for name, kind in fields.items())
    files = view.files(manifest, part)
    frames = [_chosen(view, frame).select(*items) for frame in _assembled(view, spark, manifest, part, schema)]
    frames += _own_frames(view, spark, manifest, part, step=step)
    if not files and not frames:
        return spark.createDataFrame([], schema).select(*items)
    longest = {f.name: _longest_run(view, f) for f in files}
    for version in sorted({f.version for f in files}):
        bit = view.bit(version)
        found = []
        for runs in sorted({longest[f.name] for f in files if f.version == version}):
            matching = [f for f in files if (f.version, longest[f.name]) == (version, runs)]
            stored = f"{schema}, _bits{bit // 64} bigint" + (f", {RUN} bigint" if runs else "")
            frame = stored_rows(spark, view.store, matching, stored)
            mine = frame.where(f"shiftright(_bits{bit // 64}, {bit % 64}) & 1 = 1 AND {part.steps}")
            each = _written_out(view, mine, schema, part, long=runs == LONG) if runs else mine
            found.append(each.where(part.times).select(*fields))
        # A window may have rows in files of both kinds, and its first rows are chosen from all of them.
        frames.append(_chosen(view, reduce(DataFrame.union, found)).select(*items))
    return reduce(DataFrame.union, frames)


def united(frames: Sequence[DataFrame], *, ordered: bool) -> DataFrame:
    """The results of queries that continue each other as one DataFrame; if `ordered`, by `_time`, then dropped."""
    whole = reduce(DataFrame.union, frames)
    return whole.orderBy("_time").drop("_time") if ordered else whole


def side_rows(spark: SparkSession, store: Store, manifest: Manifest, stream: Stream, reason: str) -> DataFrame:
    """The whole late or invalid rows of a stream, with `_step`, `_reason` and `_progress`."""
    files = [s for s in manifest.sides if s.stream == stream.name and s.reason == reason]
    raw = stored_rows(spark, store, files, _SIDE_SCHEMA) if files else spark.createDataFrame([], _SIDE_SCHEMA)
    parsed = raw.withColumn("_row", F.from_json("_row", ddl(stream.columns), SIDE_FORMATS))
    return parsed.select("_row.*", "_step", "_reason", "_progress")


def _own_frames(
    view: ResultView, spark: SparkSession, manifest: Manifest, part: Part, *, step: bool
) -> list[DataFrame]:
    """The rows in files of the query alone, plus `_step` if requested."""
    record = view.record
    columns = [Declared(name, kind) for name, kind in zip(record.item_names, record.item_types, strict=True)]
    found = own_files(manifest, record.id, part)
    frames = []
    for kind in OWN_KINDS:
        own = [f for f in found if f.kind == kind]
        if not own:
            continue
        merged = kind == MERGED
        schema = ddl(columns) + (f", {STEP} bigint" if merged else "")
        # A file of one step has no column with it; Spark knows it by the file's name.
        added = step and not merged and not view.store.has_paths
        frame = stored_rows(spark, view.store, own, schema, step=added)
        if merged:
            frame = frame.where(part.steps)
        by_name = step and not merged and not added
        number = F.regexp_extract(F.input_file_name(), _STEP_OF_NAME, 1) if by_name else F.col(STEP)
        frames.append(
            frame.select(*[quote(c.name) for c in columns], *([number.cast("bigint").alias(STEP)] if step else []))
        )
    return frames


def _assembled(view: ResultView, spark: SparkSession, manifest: Manifest, part: Part, schema: str) -> list[DataFrame]:
    """Results that are assembled on read."""
    assembly, window = view.assembly(manifest, part), view.window
    if assembly is None:
        return []
    assert window is not None
    columns, shares = list(view.fields()), assembly.shares(spark.sparkContext.defaultParallelism)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(0).to_pylist():
                for runs in assembly.tables(share, shares):
                    for table in written_out(runs, window, BATCH, "_time"):
                        yield from table.select(columns).combine_chunks().to_batches()

    return [spark.range(0, shares, 1, shares).mapInArrow(work, schema)]


def _written_out(view: ResultView, frame: DataFrame, schema: str, part: Part, *, long: bool) -> DataFrame:
    """Rows that stand for several windows, expanded."""
    window = view.window
    assert window is not None
    if long:
        # Not in Spark: it lists all windows of a row at once, and of nested lists all before the first row passes.
        columns = list(view.fields())

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                runs = cut(pa.Table.from_batches([batch]), window, part.horizon, part.before, "_time")
                for table in written_out(runs, window, BATCH, "_time"):
                    yield from table.select(columns).combine_chunks().to_batches()

        return frame.mapInArrow(work, schema)
    each = frame.withColumn("_number", F.explode(F.expr(f"sequence(0L, coalesce({RUN}, 1L) - 1L)")))
    each = each.withColumn("_time", F.expr(f"_time + _number * {window.slide}L"))
    if isinstance(window, Sliding) and WINDOW_START in frame.columns:
        begins = f"_time - {window.range}L"
        text = begins if window.origin is None else f"greatest({begins}, {window.origin}L)"
        each = each.withColumn(WINDOW_START, F.expr(text))
    return each


def _longest_run(view: ResultView, file: ResultFile) -> int:
    """Whether some rows of a file stand for several windows (`SHORT`), or for more than Spark can list (`LONG`)."""
    if view.window is None or not holds_runs(file):
        return 0
    few = file.count(view.record.id) <= LISTED or longest_run(view.store, view.checked(file)) <= LISTED
    return SHORT if few else LONG


_longest: dict[str, int] = {}  # by the name of a file, which never changes


def longest_run(store: Store, name: str) -> int:
    """The most windows that a row of a result file stands for, from the file's metadata."""
    if name not in _longest:
        if len(_longest) >= KNOWN_FILES:
            _longest.clear()
        told = metadata(store, name)
        place = told.schema.to_arrow_schema().get_field_index(RUN)
        found = [told.row_group(number).column(place).statistics for number in range(told.num_row_groups)]
        _longest[name] = max((own.max for own in found if own is not None and own.has_min_max), default=1)
    return _longest[name]


def _chosen(view: ResultView, frame: DataFrame) -> DataFrame:
    """The rows that are results."""
    having, top = view.left_to_spark, view.over_tasks
    if having is not None:
        frame = frame.where(_expression(view, having))
    if top is None:
        return frame
    keys = [_sorted(view, key) for key in top.keys]
    place = F.row_number().over(SortWindow.partitionBy("_time").orderBy(*keys, *view.groups))
    return frame.withColumn("_place", place).where(F.col("_place") <= top.count)


def _sorted(view: ResultView, key: SortKey) -> Column:
    value = _expression(view, key.expression)
    if key.descending:
        return value.desc_nulls_first() if key.nulls_first else value.desc_nulls_last()
    return value.asc_nulls_first() if key.nulls_first else value.asc_nulls_last()


def _expression(view: ResultView, expression: Expression) -> Column:
    return _evaluated(expression.sql(view.column), risky=not expression.total)


def _evaluated(text: str, *, risky: bool) -> Column:
    """A value; NULL where evaluation raises, if it may."""
    return try_eval(F.expr(text)) if risky else F.expr(text)
