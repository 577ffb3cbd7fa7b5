"""Committed results of a query as a DataFrame, or without a Spark job as an Arrow table: a view on its join's result table.

A result that serves many queries is stored once, with its bits; a view takes the rows with the bit of its query and computes the select list.
What aggregates have beyond that is in `read_aggregates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.columns.parcels import one_array
from penstock.columns.terms.values import arrow_type
from penstock.kernels.aggregate.repeats import RUN
from penstock.kernels.compare import Evaluation
from penstock.model import Expression, Literal, Query, Ref, Stream, UserAggregate
from penstock.model.expression import PSEUDO_ROLE, WINDOW_START
from penstock.planner.keys import is_typed
from penstock.planner.network import result_column
from penstock.results.layout import OWN_KINDS, PANES, WINDOWS, computed_column
from penstock.results.own import own_files, own_frames, own_rows, own_tables
from penstock.results.part import Part
from penstock.results.stored import VERIFIED, batches, checked
from penstock.state.manifest import Manifest, ResultFile
from penstock.state.registry import QueryRecord, RegistryLog
from penstock.storage.store import Store

AT_ONCE = 1_000_000  # rows of a table, about
SHORT, LONG = 1, 2  # runs of windows


@dataclass(frozen=True)
class StoredFile:
    """A file with results of a query: its kind, the bit of its rows where others have rows there too, and whether some stand for several windows."""

    path: str
    bytes: int
    kind: str
    bit: int = 0
    runs: bool = False


class ResultView:
    """One query's view on the result files it has rows in. `positions[p]` = its role at join position p."""

    def __init__(
        self,
        store: Store,
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
        """The same rows without a Spark job, in tables of about so many, if kernels can compute the select list; else None.

        If `ordered`, all are put together first.
        """
        items = self._plain_items()
        if items is None:
            return None
        listed = own_tables(self.store, self.record, manifest, part)
        pieces = self._stored_rows(manifest, part, self._read_for(items), at_once)
        if ordered:
            held = list(pieces)
            whole = [pa.concat_tables(held).sort_by("_time")] if held else []
            pieces = (t.slice(start, at_once) for t in whole for start in range(0, len(t), at_once))
        return chain((self._selected(piece, items) for piece in gathered(pieces, at_once)), gathered(listed, at_once))

    def stored(self, manifest: Manifest, part: Part) -> list[StoredFile] | None:
        """The files whose rows are the query's results, or have all that kernels need for these; None if some are put together when they are read."""
        panes = any(
            f.kind == PANES and any(q == self.record.id for q, _ in f.counts) for f in manifest.results.values()
        )
        if panes or self._plain_items() is None:
            return None
        own = [StoredFile(self._checked(f), f.bytes, f.kind) for f in own_files(manifest, self.record.id, part)]
        return [*self._stored_files(manifest, part), *own]

    def selected(self, file: StoredFile, part: Part, at_once: int) -> Iterator[pa.Table]:
        """The results in a file."""
        if file.kind in OWN_KINDS:
            yield from own_rows(file.path, file.kind, self.record, part)
            return
        items = self._plain_items()
        assert items is not None
        for rows in self._rows_in(file, part, self._read_for(items), at_once):
            yield self._selected(rows, items)

    def _stored_files(self, manifest: Manifest, part: Part) -> Iterator[StoredFile]:
        for file in self._files(manifest, part):
            yield StoredFile(self._checked(file), file.bytes, file.kind, self._bit(file.version), holds_runs(file))

    def _stored_rows(self, manifest: Manifest, part: Part, names: Sequence[str], at_once: int) -> Iterator[pa.Table]:
        for file in self._stored_files(manifest, part):
            yield from self._rows_in(file, part, names, at_once)
        for each in self._pieces(manifest, part, at_once):
            yield each.select([*dict.fromkeys([*names, "_time", "_step"])])

    def _rows_in(self, file: StoredFile, part: Part, names: Sequence[str], at_once: int) -> Iterator[pa.Table]:
        wanted = [*dict.fromkeys([*names, "_time", "_step"])]
        word = f"_bits{file.bit // 64}"
        for batch in batches(file.path, [*wanted, word, *([RUN] if file.runs else [])]):
            rows = pa.Table.from_batches([batch])
            bits = rows.column(word).to_numpy().view(np.uint64) >> np.uint64(file.bit % 64) & np.uint64(1)
            step = rows.column("_step").to_numpy()
            keep = (bits == 1) & (step > part.since)
            if part.until is not None:
                keep &= step <= part.until
            for each in self._each(rows.filter(pa.array(keep)), part, at_once):
                yield each.select(wanted)

    def _selected(self, rows: pa.Table, items: Sequence[str | Expression]) -> pa.Table:
        """The select list of rows that hold what it is computed of."""
        evaluation = Evaluation(lambda ref: one_array(rows.column(self._column(ref))), len(rows))
        columns: list[Any] = []
        for number, item in enumerate(items):
            if isinstance(item, Expression):
                assert item.term is not None
                columns.append(evaluation.values(item.term)[0].cast(arrow_type(self.record.item_types[number])))
                continue
            column = rows.column(item)
            timed = item in ("_time", WINDOW_START) and number < len(self.query.items)
            if timed and self.query.items[number].expression.refs and not self.streams[0].integer_time:
                column = pc.cast(column, pa.timestamp("us", tz="UTC"))
            columns.append(column)
        return pa.table(columns, names=list(self.record.item_names))

    def _plain_items(self) -> list[str | Expression] | None:
        """The stored column that each item is, or what kernels compute of stored columns for it; None if Spark has to compute one."""
        found: list[str | Expression] = []
        for item, (text, kind, _) in zip(self.query.items, self._items(), strict=True):
            refs = item.expression.refs
            if not item.expression.total or (len(item.expression.parts) == 1 and refs):
                found.append("_time" if refs and refs[0].role == PSEUDO_ROLE else text)
            elif is_computed(item.expression) and is_typed(kind):
                found.append(item.expression)
            else:
                return None
        return found

    def _read_for(self, items: Sequence[str | Expression]) -> list[str]:
        """The stored columns that these items need."""
        return sorted({name for i in items for name in ([i] if isinstance(i, str) else map(self._column, i.refs))})

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
            text = item.expression.sql(self._column) if total else computed_column(self.record.id, number)
            found.append((text, kind, self.record.item_names[number]))
        return found

    def _fields(self) -> dict[str, str]:
        """The stored columns that the select list reads, with their types."""
        fields = {"_time": "bigint", "_step": "bigint"}
        for number, (item, kind) in enumerate(zip(self.query.items, self.record.item_types, strict=True)):
            if not item.expression.total:
                fields[computed_column(self.record.id, number)] = kind
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
        mine = (f for f in manifest.results.values() if f.kind not in (PANES, *OWN_KINDS) and f.count(self.record.id))
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


def is_computed(expression: Expression) -> bool:
    """Whether kernels compute an expression of the columns of rows, with the type that it has in Spark."""
    rows = all(ref.role >= 0 for ref in expression.refs)
    return expression.term is not None and rows and not isinstance(expression.term, Literal)


def holds_runs(file: ResultFile) -> bool:
    """Whether some rows of a file stand for several windows."""
    return file.kind == WINDOWS and file.rows < sum(count for _, count in file.counts)


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
