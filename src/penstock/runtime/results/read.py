"""Committed results of a query as a DataFrame, or without a Spark job as an Arrow table: a view on its join's result table.

A result that serves many queries is stored once, with its bits; a view takes the rows with the bit of its query and computes the select list.
What aggregates have beyond that is in `aggregate_results`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.kernels.aggregate.repeats import RUN
from penstock.model import Query, Ref, Stream, UserAggregate
from penstock.model.expression import PSEUDO_ROLE, WINDOW_START
from penstock.planner.network import result_column
from penstock.runtime.results.own import LISTED, own_frames, own_tables
from penstock.runtime.results.part import Part
from penstock.runtime.results.stored import VERIFIED, batches, checked
from penstock.runtime.tasks.panes import PANES
from penstock.runtime.tasks.windows import KIND
from penstock.state.manifest import Manifest, ResultFile
from penstock.state.registry import QueryRecord, RegistryLog
from penstock.state.store import LocalStore

AT_ONCE = 1_000_000  # rows of a table, about
SHORT, LONG = 1, 2  # runs of windows


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
        frames += own_frames(spark, self.store, self.record, manifest, part, step=step)
        if not files and not frames:
            return spark.createDataFrame([], schema).select(*items)
        longest = {f.name: self._longest_run(f) for f in files}
        for version in sorted({f.version for f in files}):
            bit = self._bit(version)
            found = []
            for runs in sorted({longest[f.name] for f in files if f.version == version}):
                paths = [self._checked(f) for f in files if (f.version, longest[f.name]) == (version, runs)]
                stored = f"{schema}, _bits{bit // 64} bigint" + (f", {RUN} bigint" if runs else "")
                frame = spark.read.schema(stored).options(**VERIFIED).parquet(*paths)
                mine = frame.where(f"shiftright(_bits{bit // 64}, {bit % 64}) & 1 = 1 AND {part.steps}")
                each = self._written_out(mine, schema, part, long=runs == LONG) if runs else mine
                found.append(each.where(part.times).select(*self._fields()))
            # A window may have rows in files of both kinds, and what is chosen of it is chosen from all of them.
            frames.append(self._chosen(reduce(DataFrame.union, found)).select(*items))
        return reduce(DataFrame.union, frames)

    def count(self, manifest: Manifest, part: Part) -> int:
        """How many results there are of that part, or a few more."""
        mine = (f for f in manifest.results.values() if part.includes(f.step) and part.holds(f))
        return sum(file.count(self.record.id) for file in mine)

    def tables(
        self, manifest: Manifest, part: Part, *, ordered: bool = False, at_once: int = AT_ONCE
    ) -> Iterator[pa.Table] | None:
        """The same rows without a Spark job, in tables of about so many, if the select list is columns as they stand; else None.

        If `ordered`, all are put together first.
        """
        names = self._plain_columns()
        if names is None:
            return None
        listed = own_tables(self.store, self.record, manifest, part)
        pieces = self._stored_rows(manifest, part, names, at_once)
        if ordered:
            held = list(pieces)
            whole = [pa.concat_tables(held).sort_by("_time")] if held else []
            pieces = (t.slice(start, at_once) for t in whole for start in range(0, len(t), at_once))
        return chain((self._selected(piece, names) for piece in gathered(pieces, at_once)), gathered(listed, at_once))

    def _stored_rows(self, manifest: Manifest, part: Part, names: Sequence[str], at_once: int) -> Iterator[pa.Table]:
        wanted = [*dict.fromkeys([*names, "_time", "_step"])]
        for file in self._files(manifest, part):
            bit = self._bit(file.version)
            word = f"_bits{bit // 64}"
            columns = [*wanted, word, *([RUN] if holds_runs(file) else [])]
            for batch in batches(self._checked(file), columns):
                rows = pa.Table.from_batches([batch])
                bits = rows.column(word).to_numpy().view(np.uint64) >> np.uint64(bit % 64) & np.uint64(1)
                step = rows.column("_step").to_numpy()
                keep = (bits == 1) & (step > part.since)
                if part.until is not None:
                    keep &= step <= part.until
                for each in self._each(rows.filter(pa.array(keep)), part, at_once):
                    yield each.select(wanted)
        for each in self._pieces(manifest, part, at_once):
            yield each.select(wanted)

    def _selected(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """The select list of rows that hold these columns for it."""
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
        """The files that hold rows for all queries of its join or aggregate."""
        mine = (f for f in manifest.results.values() if f.kind not in (PANES, *LISTED) and f.count(self.record.id))
        return [f for f in mine if part.holds(f)]

    def _assembled(self, _spark: SparkSession, _manifest: Manifest, _part: Part, _schema: str) -> list[DataFrame]:
        """Results that are put together when they are read: a join has none."""
        return []

    def _pieces(self, _manifest: Manifest, _part: Part, _at_once: int) -> Iterator[pa.Table]:
        return iter(())

    def _longest_run(self, _file: ResultFile) -> int:
        """Whether some rows of a file stand for several windows (`SHORT`), and for more than Spark can list in one place (`LONG`)."""
        return 0

    def _written_out(self, frame: DataFrame, _schema: str, _part: Part, *, long: bool) -> DataFrame:  # noqa: ARG002
        """Rows that stand for several windows, one by one: a join has none."""
        return frame

    def _each(self, rows: pa.Table, part: Part, _at_once: int) -> Iterator[pa.Table]:
        """The rows with times in a part, one by one."""
        time = rows.column("_time").to_numpy()
        yield rows.filter(pa.array((time >= part.horizon) & (time < part.before)))

    def _bit(self, version: int) -> int:
        return RegistryLog(self.store).load(version).bits[self.record.id][1]

    def _checked(self, file: ResultFile) -> str:
        return checked(self.store, file)


def holds_runs(file: ResultFile) -> bool:
    """Whether some rows of a file stand for several windows."""
    return file.kind == KIND and file.rows < sum(count for _, count in file.counts)


def gathered(pieces: Iterable[pa.Table], at_once: int) -> Iterator[pa.Table]:
    """Pieces put together to tables of about so many rows; none is empty."""
    held: list[pa.Table] = []
    for piece in pieces:
        if len(piece):
            held.append(piece)
        if sum(map(len, held)) >= at_once:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def united(frames: Sequence[DataFrame], *, ordered: bool) -> DataFrame:
    """The results of queries that continue each other as one DataFrame; if `ordered`, by their `_time`, which is then left out."""
    whole = reduce(DataFrame.union, frames)
    return whole.orderBy("_time").drop("_time") if ordered else whole
