"""Committed results of window aggregates as DataFrames and Arrow tables.

They lie in files of single windows, of rows that stand for several windows, or of panes from which windows are put together; what tasks
could not decide alone is decided here, in Spark. The results of joins, and what both have in common, are in `results`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortWindow
from pyspark.sql import functions as F  # noqa: N812

from penstock.columns.parcels import one_array
from penstock.kernels.aggregate.repeats import RUN, cut, written_out
from penstock.kernels.aggregate.results import leading
from penstock.kernels.compare import values
from penstock.model import Expression, Landmark, PerRow, Ref, Sliding, SlidingRows, SortKey, Top
from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE, PSEUDO_ROLE, WINDOW_START
from penstock.model.limits import MOST_SORTED
from penstock.planner.aggregate_tables import first_start
from penstock.planner.aggregates import is_cut_by_kernels, plan_of_panes
from penstock.planner.network import StandingQuery
from penstock.results.assemble import Assembly
from penstock.results.layout import FINAL, PANES, measure_column
from penstock.results.part import Part
from penstock.results.read import AT_ONCE, LONG, SHORT, ResultView, StoredFile, holds_runs
from penstock.spark.ingest import try_eval
from penstock.state.manifest import Manifest, ResultFile

BATCH = 1 << 16  # rows of a batch in which windows are written out
LISTED = 1 << 16  # windows that Spark lists for a row


class AggregateView(ResultView):
    """An aggregated query's view on the result files of its aggregate.

    HAVING beyond the kernels, what may raise, and which of the rows that tasks have kept are the first of their window are decided here.
    """

    def tables(
        self, manifest: Manifest, part: Part, *, ordered: bool = False, at_once: int = AT_ONCE
    ) -> Iterator[pa.Table] | None:
        """The same rows without a Spark job; the first ones of windows are told from all of them together, which are few where tasks have cut."""
        top, items = self._over_tasks, self._plain_items()
        if top is None or items is None:
            return super().tables(manifest, part, ordered=ordered, at_once=at_once)
        assert self.query.aggregation is not None
        cut = is_cut_by_kernels(self.query.aggregation, self.own) and not self._early
        if not cut or self.count(manifest, part) > MOST_SORTED:
            return None
        read = {self._stored(ref): "" for key in top.keys for ref in key.expression.refs}
        held = list(self._stored_rows(manifest, part, [*self._read_for(items), *self._groups, *read], at_once))
        if not held:
            return iter(())
        best = self._leading(top, pa.concat_tables(held).combine_chunks())
        whole = self._selected(best.sort_by("_time") if ordered else best, items)
        return (whole.slice(start, at_once) for start in range(0, len(whole), at_once))

    def stored(self, manifest: Manifest, part: Part) -> list[StoredFile] | None:
        return None if self._over_tasks is not None else super().stored(manifest, part)

    def _leading(self, top: Top, rows: pa.Table) -> pa.Table:
        """The first rows of each window."""

        def column(name: str) -> pa.Array:
            return one_array(rows.column(name))

        def lookup(ref: Ref) -> pa.Array:
            return column(self._stored(ref))

        terms = [key.expression.term for key in top.keys]
        keys = [lookup(t) if isinstance(t, Ref) else values(t, lookup, len(rows))[0] for t in terms if t is not None]
        groups = [column(name) for name in self._groups]
        return rows.filter(pa.array(leading(top, keys, groups, column("_time").to_numpy())))

    def _plain_items(self) -> list[str | Expression] | None:
        if self._left_to_spark is not None:
            return None
        names: list[str | Expression] = []
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
        window = self._window
        assert window is not None

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for share in batch.column(0).to_pylist():
                    for runs in assembly.tables(share, shares):
                        for table in written_out(runs, window, BATCH, "_time"):
                            yield from table.select(columns).combine_chunks().to_batches()

        return [spark.range(0, shares, 1, shares).mapInArrow(work, schema)]

    def _pieces(self, manifest: Manifest, part: Part, at_once: int) -> Iterator[pa.Table]:
        assembly, window = self._assembly(manifest, part), self._window
        if assembly is not None:
            assert window is not None
            for runs in assembly.tables(0, 1):
                yield from written_out(runs, window, at_once, "_time")

    def _longest_run(self, file: ResultFile) -> int:
        if self._window is None or not holds_runs(file):
            return 0
        few = file.count(self.record.id) <= LISTED or longest_run(self._checked(file)) <= LISTED
        return SHORT if few else LONG

    def _written_out(self, frame: DataFrame, schema: str, part: Part, *, long: bool) -> DataFrame:
        window = self._window
        assert window is not None
        if long:
            # Not in Spark: what it lists for a row it lists at once, and of nested lists all before the first row goes on.
            columns = list(self._fields())

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

    def _each(self, rows: pa.Table, part: Part, at_once: int) -> Iterator[pa.Table]:
        if self._window is None or RUN not in rows.column_names:
            return super()._each(rows, part, at_once)
        runs = cut(rows, self._window, part.horizon, part.before, "_time")
        return written_out(runs, self._window, at_once, "_time")

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


@lru_cache(maxsize=4096)
def longest_run(path: str) -> int:
    """The most windows that a row of a result file stands for, as the file says of itself; files never change."""
    metadata = pq.read_metadata(path)
    place = metadata.schema.to_arrow_schema().get_field_index(RUN)
    found = [metadata.row_group(number).column(place).statistics for number in range(metadata.num_row_groups)]
    return max((own.max for own in found if own is not None and own.has_min_max), default=1)
