"""Committed rows as DataFrames: a query's results are a view on its join's result table, late and bad rows as they came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortWindow
from pyspark.sql import functions as F  # noqa: N812

from penstock.errors import StateError
from penstock.model import (
    Expression,
    Landmark,
    PerRow,
    Query,
    Ref,
    Sliding,
    SlidingRows,
    SortKey,
    Stream,
    Top,
    UserAggregate,
)
from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE, PSEUDO_ROLE, WINDOW_START
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_of_panes
from penstock.planner.grouped import first_start
from penstock.planner.network import StandingQuery, result_column
from penstock.runtime.assemble import Assembly
from penstock.runtime.ingest import SIDE_FORMATS, try_eval
from penstock.runtime.panes import PANES
from penstock.runtime.windows import FINAL, KIND, RUN, measure_column, written_out
from penstock.state.manifest import Manifest, ResultFile
from penstock.state.registry import QueryRecord, RegistryLog
from penstock.state.store import LocalStore

VERIFIED = {
    "parquet.page.verify-checksum.enabled": "true"
}  # files have a checksum in every page; damaged ones are never read
_SIDE_SCHEMA = "_row string, _step bigint, _reason string, _progress bigint"


@dataclass(frozen=True)
class Part:
    """Which of a query's results: steps after `since` up to `until`, with times from `horizon` on and before `before`."""

    since: int = -1
    until: int | None = None
    horizon: int = NEVER
    before: int = FOREVER

    def includes(self, step: int) -> bool:
        return step > self.since and (self.until is None or step <= self.until)

    def holds(self, file: ResultFile) -> bool:
        return file.step > self.since and file.max_time >= self.horizon and file.min_time < self.before

    @property
    def steps(self) -> str:
        return f"_step > {self.since}" + ("" if self.until is None else f" AND _step <= {self.until}")

    @property
    def times(self) -> str:
        return f"_time >= {self.horizon}L AND _time < {self.before}L"


class ResultView:
    """One query's view on the result files it has rows in. `positions[p]` = its role at join position p."""

    def __init__(
        self,
        store: LocalStore,
        record: QueryRecord,
        query: Query,
        streams: Mapping[str, Stream],
        positions: Sequence[int],
        own: Mapping[str, UserAggregate] | None = None,
    ) -> None:
        self.store, self.record, self.query, self.own = store, record, query, own or {}
        self.streams = [streams[role.stream] for role in query.roles]
        self.place = {role: position for position, role in enumerate(positions)}

    def frame(
        self, spark: SparkSession, manifest: Manifest, part: Part, *, step: bool = False, time: bool = False
    ) -> DataFrame:
        """Exactly the select list, plus `_step` and `_time` if asked."""
        items = [
            self._value(number, f"CAST({text} AS {kind})").alias(name)
            for number, (text, kind, name) in enumerate(self._items())
        ]
        items += [F.col(name) for name, asked in (("_step", step), ("_time", time)) if asked]
        schema = ", ".join(f"{n} {t}" for n, t in self._fields().items())
        files = self._files(manifest, part)
        frames = [self._chosen(frame).select(*items) for frame in self._assembled(spark, manifest, part, schema)]
        if not files and not frames:
            return spark.createDataFrame([], schema).select(*items)
        for version in sorted({f.version for f in files}):
            bit = self._bit(version)
            found = []
            for runs in sorted({holds_runs(f) for f in files if f.version == version}):
                paths = [self._checked(f) for f in files if (f.version, holds_runs(f)) == (version, runs)]
                stored = f"{schema}, _bits{bit // 64} bigint" + (f", {RUN} bigint" if runs else "")
                frame = spark.read.schema(stored).options(**VERIFIED).parquet(*paths)
                mine = frame.where(f"shiftright(_bits{bit // 64}, {bit % 64}) & 1 = 1 AND {part.steps}")
                each = self._written_out(mine) if runs else mine
                found.append(each.where(part.times).select(*self._fields()))
            # A window may have rows in files of both kinds, and what is chosen of it is chosen from all of them.
            frames.append(self._chosen(reduce(DataFrame.union, found)).select(*items))
        return reduce(DataFrame.union, frames)

    def table(self, manifest: Manifest, part: Part, *, ordered: bool = False) -> pa.Table | None:
        """The same rows without a Spark job, if the select list is columns as they stand; else None."""
        names = self._plain_columns()
        if names is None:
            return None
        pieces = []
        wanted = [*dict.fromkeys([*names, "_time", "_step"])]
        for file in self._files(manifest, part):
            bit = self._bit(file.version)
            word = f"_bits{bit // 64}"
            columns = [*wanted, word, *([RUN] if holds_runs(file) else [])]
            rows = pq.read_table(self._checked(file), columns=columns, page_checksum_verification=True)
            bits = rows.column(word).to_numpy().view(np.uint64) >> np.uint64(bit % 64) & np.uint64(1)
            rows = rows.filter(pa.array(bits == 1))
            if holds_runs(file):
                rows = self._each(rows)
            step, time = rows.column("_step").to_numpy(), rows.column("_time").to_numpy()
            keep = (step > part.since) & (time >= part.horizon) & (time < part.before)
            if part.until is not None:
                keep &= step <= part.until
            pieces.append(rows.filter(pa.array(keep)))
        pieces += self._pieces(manifest, part)
        if not pieces:
            return None
        rows = pa.concat_tables([piece.select(wanted) for piece in pieces])
        if ordered:
            rows = rows.sort_by("_time")
        columns = [rows.column(name) for name in names]
        for number, (name, item) in enumerate(zip(names, self.query.items, strict=False)):
            timed = name in ("_time", WINDOW_START)
            if timed and item.expression.refs and not self.streams[0].integer_time:
                columns[number] = pc.cast(columns[number], pa.timestamp("us", tz="UTC"))
        return pa.table(columns, names=list(self.record.item_names))

    def _plain_columns(self) -> list[str] | None:
        """The stored columns that are the select list, if it is columns as they stand."""
        names = []
        for item, (text, _, _) in zip(self.query.items, self._items(), strict=True):
            refs = item.expression.refs
            if item.expression.total and (len(item.expression.parts) != 1 or not refs):
                return None
            names.append("_time" if refs and refs[0].role == PSEUDO_ROLE else text)
        return names

    def _value(self, _number: int, text: str) -> Column:
        """A select item; what may raise was computed before it was stored."""
        return F.expr(text)

    def _chosen(self, frame: DataFrame) -> DataFrame:
        """The rows that are results: all that are stored."""
        return frame

    def _items(self) -> list[tuple[str, str, str]]:
        """(SQL over the stored columns, type, name) of each select item."""
        found = []
        for number, (item, kind) in enumerate(zip(self.query.items, self.record.item_types, strict=True)):
            total = item.expression.total
            text = item.expression.sql(self._column) if total else f"x{self.record.id}_{number}"
            found.append((text, kind, self.record.item_names[number]))
        return found

    def _fields(self) -> dict[str, str]:
        """The stored columns that the select list reads, with their types."""
        fields = {"_time": "bigint", "_step": "bigint"}
        for number, (item, kind) in enumerate(zip(self.query.items, self.record.item_types, strict=True)):
            if not item.expression.total:
                fields[f"x{self.record.id}_{number}"] = kind
                continue
            for ref in item.expression.refs:
                declared = None if ref.role == PSEUDO_ROLE else self.streams[ref.role].column(ref.column)
                if declared is not None:
                    fields[self._column(ref)] = declared.type
        return fields

    def _column(self, ref: Ref) -> str:
        if ref.role == PSEUDO_ROLE:
            return "_time" if self.streams[0].integer_time else "timestamp_micros(_time)"
        return result_column(self.place[ref.role], self.streams[ref.role], ref.column)

    def _files(self, manifest: Manifest, part: Part) -> list[ResultFile]:
        mine = (f for f in manifest.results.values() if f.kind != PANES and f.count(self.record.id))
        return [f for f in mine if part.holds(f)]

    def _assembled(self, _spark: SparkSession, _manifest: Manifest, _part: Part, _schema: str) -> list[DataFrame]:
        """Results that are put together when they are read: a join has none."""
        return []

    def _pieces(self, _manifest: Manifest, _part: Part) -> list[pa.Table]:
        return []

    def _written_out(self, frame: DataFrame) -> DataFrame:
        """Rows that stand for several windows, one by one: a join has none."""
        return frame

    def _each(self, rows: pa.Table) -> pa.Table:
        return rows

    def _bit(self, version: int) -> int:
        return RegistryLog(self.store).load(version).bits[self.record.id][1]

    def _checked(self, file: ResultFile) -> str:
        path = self.store.path(file.name)
        try:
            found: int | None = self.store.size(file.name)
        except FileNotFoundError:
            found = None
        if found != file.bytes:
            state = "is missing" if found is None else f"has {found} bytes instead of {file.bytes}"
            msg = f"result file {path} {state}; restore it from a backup, or remove the state directory and replay the sources"
            raise StateError(msg)
        return path


class AggregateView(ResultView):
    """An aggregated query's view on the result files of its aggregate.

    HAVING beyond the kernels, what may raise, and which of the rows that tasks have kept are the first of their window are decided here.
    """

    def _plain_columns(self) -> list[str] | None:
        if self._left_to_spark is not None or self._over_tasks is not None:
            return None
        names = []
        for item in self.query.items:
            bare = item.expression.parts[0] if len(item.expression.parts) == 1 else None
            if not isinstance(bare, Ref):
                return None
            names.append(self._stored(bare))
        return [*names, *(["_step", FINAL] if self._early else [])]

    def _assembled(self, spark: SparkSession, manifest: Manifest, part: Part, schema: str) -> list[DataFrame]:
        assembly = self._assembly(manifest, part)
        if assembly is None:
            return []
        columns, shares = list(self._fields()), assembly.shares(spark.sparkContext.defaultParallelism)

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for share in batch.column(0).to_pylist():
                    for table in assembly.tables(share, shares):
                        yield from table.select(columns).combine_chunks().to_batches()

        return [spark.range(0, shares, 1, shares).mapInArrow(work, schema)]

    def _pieces(self, manifest: Manifest, part: Part) -> list[pa.Table]:
        assembly = self._assembly(manifest, part)
        return [] if assembly is None else list(assembly.tables(0, 1))

    def _written_out(self, frame: DataFrame) -> DataFrame:
        window = self._window
        if window is None:
            return frame
        each = frame.withColumn("_number", F.explode(F.expr(f"sequence(0L, coalesce({RUN}, 1L) - 1L)")))
        each = each.withColumn("_time", F.expr(f"_time + _number * {window.slide}L"))
        if isinstance(window, Sliding) and WINDOW_START in frame.columns:
            begins = f"_time - {window.range}L"
            text = begins if window.origin is None else f"greatest({begins}, {window.origin}L)"
            each = each.withColumn(WINDOW_START, F.expr(text))
        return each

    def _each(self, rows: pa.Table) -> pa.Table:
        return rows if self._window is None else written_out(rows, self._window)

    @property
    def _window(self) -> Sliding | Landmark | None:
        """The windows that a row may stand for several of; None where the runs in a file are those of other queries."""
        assert self.query.aggregation is not None
        window = self.query.aggregation.window
        return window if isinstance(window, Sliding | Landmark) else None

    def _assembly(self, manifest: Manifest, part: Part) -> Assembly | None:
        """How windows are put together from the panes that are there; None if there are none to show."""
        files = [
            f for f in manifest.results.values() if f.kind == PANES and any(q == self.record.id for q, _ in f.counts)
        ]
        closings = [c for c in {c for f in files for c in f.closings} if part.includes(c[0])]
        if not closings:
            return None
        first, last = min(c[1] for c in closings), max(c[2] for c in closings)
        assert self.query.aggregation is not None
        standing = StandingQuery(self.record.id, self.record.name, self.query, complete_from=self.record.complete_from)
        arguments = zip(self.query.aggregation.aggregates, self.record.types[1], strict=True)
        types = {a.argument: kind for a, kind in arguments if a.argument is not None}
        plan = plan_of_panes(self.record.id, self.query.aggregation, types, self.own)
        needed = [f for f in files if f.max_time > max(first, part.horizon - 1) and f.min_time < min(last, part.before)]
        return Assembly(
            plan,
            tuple((self._checked(f), self._bit(f.version)) for f in needed),
            tuple(closings),
            first_start(standing),
            part,
            tuple(measure_column(a) for a in self.query.aggregation.aggregates),
            sum(f.count(self.record.id) for f in files),
        )

    def _value(self, number: int, text: str) -> Column:
        value = F.expr(text)
        given = number >= len(self.query.items)
        return value if given or self.query.items[number].expression.total else try_eval(value)

    def _chosen(self, frame: DataFrame) -> DataFrame:
        having, top = self._left_to_spark, self._over_tasks
        if having is not None:
            condition = F.expr(having.sql(self._column))
            frame = frame.where(condition if having.total else try_eval(condition))
        if top is None:
            return frame
        keys = [self._sorted(key) for key in top.keys]
        place = F.row_number().over(SortWindow.partitionBy("_time").orderBy(*keys, *self._groups))
        return frame.withColumn("_place", place).where(F.col("_place") <= top.count)

    def _sorted(self, key: SortKey) -> Column:
        value = F.expr(key.expression.sql(self._column))
        value = value if key.expression.total else try_eval(value)
        if key.descending:
            return value.desc_nulls_first() if key.nulls_first else value.desc_nulls_last()
        return value.asc_nulls_first() if key.nulls_first else value.asc_nulls_last()

    @property
    def _groups(self) -> list[str]:
        assert self.query.aggregation is not None
        return [f"g{number}" for number in range(len(self.query.aggregation.groups))]

    @property
    def _over_tasks(self) -> Top | None:
        """The first rows of each window, where they are not known yet: each task has kept the first ones of its own groups, or all.

        All rows of a window of time come in one step; a window of rows is in one task.
        """
        assert self.query.aggregation is not None
        by_rows = isinstance(self.query.aggregation.window, SlidingRows | PerRow)
        return None if by_rows else self.query.aggregation.top

    @property
    def _early(self) -> bool:
        """Whether open windows are shown too: each row then says its revision, which is its step, and whether it is the last one."""
        return self.query.aggregation is not None and self.query.aggregation.emit is not None

    @property
    def _left_to_spark(self) -> Expression | None:
        assert self.query.aggregation is not None
        having = self.query.aggregation.having
        return having if having is not None and having.term is None else None

    def _items(self) -> list[tuple[str, str, str]]:
        texts = [item.expression.sql(self._column) for item in self.query.items]
        texts += ["_step", FINAL] if self._early else []
        return list(zip(texts, self.record.item_types, self.record.item_names, strict=True))

    def _fields(self) -> dict[str, str]:
        fields = {"_time": "bigint", "_step": "bigint"} | ({FINAL: "boolean"} if self._early else {})
        groups, _, values = self.record.types
        others = [] if self._left_to_spark is None else [self._left_to_spark]
        if self._over_tasks is not None:
            others += [key.expression for key in self._over_tasks.keys]
            fields |= dict(zip(self._groups, groups, strict=True))
        for expression in (*(item.expression for item in self.query.items), *others):
            for ref in expression.refs:
                types = {GROUP_ROLE: groups, AGGREGATE_ROLE: values}.get(ref.role)
                fields[self._stored(ref)] = "bigint" if types is None else types[int(ref.column[1:])]
        return fields

    def _column(self, ref: Ref) -> str:
        name = self._stored(ref)
        return f"timestamp_micros({name})" if ref.role == PSEUDO_ROLE and not self.streams[0].integer_time else name

    def _stored(self, ref: Ref) -> str:
        assert self.query.aggregation is not None
        if ref.role == GROUP_ROLE:
            return ref.column
        if ref.role == AGGREGATE_ROLE:
            return measure_column(self.query.aggregation.aggregates[int(ref.column[1:])])
        return WINDOW_START if ref.column == WINDOW_START else "_time"


def holds_runs(file: ResultFile) -> bool:
    """Whether some rows of a file stand for several windows."""
    return file.kind == KIND and file.rows < sum(count for _, count in file.counts)


def side_rows(spark: SparkSession, store: LocalStore, manifest: Manifest, stream: Stream, reason: str) -> DataFrame:
    """The whole late or bad rows of a stream, with `_step`, `_reason` and `_progress`."""
    files = [s for s in manifest.sides if s.stream == stream.name and s.reason == reason]
    schema = ", ".join(f"`{c.name}` {c.type}" for c in stream.columns)
    if files:
        raw = spark.read.schema(_SIDE_SCHEMA).options(**VERIFIED).parquet(*[store.path(f.name) for f in files])
    else:
        raw = spark.createDataFrame([], _SIDE_SCHEMA)
    parsed = raw.withColumn("_row", F.from_json("_row", schema, SIDE_FORMATS))
    return parsed.select("_row.*", "_step", "_reason", "_progress")
