"""Committed results of a query: a view on the files of its join, which defines how the select list follows from them.

A result that serves many queries is stored once, with its bits (decision 0007); a view selects the rows with the bit of
its query. It reads them as Arrow tables if kernels can compute the select list; `spark/result_frames` reads them as
DataFrames, by the view's definitions. `read_aggregates` adds what aggregates need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.parcels import one_array
from penstock.columns.terms.evaluation import Evaluation
from penstock.columns.types import arrow_type
from penstock.kernels.aggregate.repeats import RUN
from penstock.model import Expression, Landmark, Literal, Query, Ref, Sliding, Stream, Top
from penstock.model.expression import PSEUDO_ROLE, WINDOW_START
from penstock.model.stream import INTEGER_TYPES
from penstock.planner.join import result_column
from penstock.planner.keys import is_typed
from penstock.results.assemble import Assembly
from penstock.results.layout import OWN_KINDS, PANES, WINDOWS, computed_column
from penstock.results.own import own_files, own_rows, own_tables
from penstock.results.part import Part
from penstock.state.manifest import Manifest
from penstock.state.registry import Bits, QueryRecord
from penstock.state.result_files import ResultFile
from penstock.storage.parquet import batches, checked
from penstock.storage.store import Store

AT_ONCE = 1_000_000  # rows of a table, approximately


@dataclass(frozen=True)
class StoredFile:
    """A file with results of a query: its kind, the bit of its rows if shared, and whether rows combine windows."""

    name: str
    bytes: int
    kind: str
    bit: int = 0
    runs: bool = False


@dataclass(frozen=True)
class Listed:
    """An item of the select list: SQL over the stored columns, its type and name; `risky` if that may raise."""

    text: str
    type: str
    name: str
    risky: bool = False


class ResultView:
    """One query's view on the result files with its rows. `positions[p]` = its role at join position p."""

    window: Sliding | Landmark | None = None  # the windows of which a row may stand for several
    left_to_spark: Expression | None = None  # the part of HAVING that is decided when results are read
    over_tasks: Top | None = None  # the first rows of each window, if they are not known yet
    groups: Sequence[str] = ()  # the stored columns that distinguish rows with equal keys

    def __init__(
        self,
        store: Store,
        record: QueryRecord,
        query: Query,
        streams: Mapping[str, Stream],
        bits: Bits,
        positions: Sequence[int] = (),
    ) -> None:
        self.store, self.record, self.query, self.bits = store, record, query, bits
        self.streams = [streams[role.stream] for role in query.roles]
        self.place = {role: position for position, role in enumerate(positions)}

    # -- what is stored -----------------------------------------------------------------------------------------------

    def items(self) -> list[Listed]:
        """The select list; what may raise was computed before it was stored."""
        found = []
        for number, (item, kind) in enumerate(zip(self.query.items, self.record.item_types, strict=True)):
            total = item.expression.total
            text = item.expression.sql(self.column) if total else computed_column(self.record.id, number)
            found.append(Listed(text, kind, self.record.item_names[number]))
        return found

    def fields(self) -> dict[str, str]:
        """The stored columns that the select list reads, with their types."""
        fields = {"_time": "bigint", "_step": "bigint"}
        for number, (item, kind) in enumerate(zip(self.query.items, self.record.item_types, strict=True)):
            if not item.expression.total:
                fields[computed_column(self.record.id, number)] = kind
                continue
            for ref in item.expression.refs:
                declared = None if ref.role == PSEUDO_ROLE else self.streams[ref.role].column(ref.column)
                if declared is not None:
                    fields[self.column(ref)] = declared.type
        return fields

    def column(self, ref: Ref) -> str:
        """A reference as SQL over the stored columns."""
        if ref.role == PSEUDO_ROLE:
            return "_time" if self.streams[0].integer_time else "timestamp_micros(_time)"
        return result_column(self.place[ref.role], self.streams[ref.role], ref.column)

    def files(self, manifest: Manifest, part: Part) -> list[ResultFile]:
        """The files with rows for all queries of its join or aggregate."""
        mine = part.files(manifest, self.record.id)
        return [f for f in mine if f.kind not in (PANES, *OWN_KINDS) and f.count(self.record.id)]

    def assembly(self, _manifest: Manifest, _part: Part) -> Assembly | None:
        """How results are assembled on read: a join has none of these."""
        return None

    def bit(self, version: int) -> int:
        """Its bit in files of a version of the registry."""
        return self.bits.of(self.record.id, version)

    def checked(self, file: ResultFile) -> str:
        return checked(self.store, file)

    def count(self, manifest: Manifest, part: Part) -> int:
        """How many results there are of that part, or slightly more."""
        mine = (f for f in part.files(manifest, self.record.id) if part.includes(f.step))
        return sum(file.count(self.record.id) for file in mine)

    # -- read without Spark -------------------------------------------------------------------------------------------

    def tables(
        self, manifest: Manifest, part: Part, *, time: bool = False, at_once: int = AT_ONCE
    ) -> Iterator[pa.Table] | None:
        """The results in tables of about `at_once` rows; None if kernels cannot. `time` adds it as last column."""
        items = self._plain_items()
        if items is None:
            return None
        listed = own_tables(self.store, self.record, manifest, part)
        pieces = self._stored_rows(manifest, part, self._read_for(items), at_once)
        return chain(
            (self._selected(piece, items, time=time) for piece in gathered(pieces, at_once)), gathered(listed, at_once)
        )

    def stored(self, manifest: Manifest, part: Part) -> list[StoredFile] | None:
        """Files whose rows are the query's results, or from which kernels compute them; None if any are assembled."""
        panes = any(f.kind == PANES for f in manifest.results.of(self.record.id, since=part.since))
        if panes or self._plain_items() is None:
            return None
        own = [StoredFile(self.checked(f), f.bytes, f.kind) for f in own_files(manifest, self.record.id, part)]
        return [*self._stored_files(manifest, part), *own]

    def selected(self, file: StoredFile, part: Part, at_once: int) -> Iterator[pa.Table]:
        """The results in a file."""
        if file.kind in OWN_KINDS:
            yield from own_rows(self.store, file.name, file.kind, self.record, part)
            return
        items = self._plain_items()
        assert items is not None
        for rows in self._rows_in(file, part, self._read_for(items), at_once):
            yield self._selected(rows, items)

    def _stored_files(self, manifest: Manifest, part: Part) -> Iterator[StoredFile]:
        for file in self.files(manifest, part):
            yield StoredFile(self.checked(file), file.bytes, file.kind, self.bit(file.version), holds_runs(file))

    def _stored_rows(self, manifest: Manifest, part: Part, names: Sequence[str], at_once: int) -> Iterator[pa.Table]:
        for file in self._stored_files(manifest, part):
            yield from self._rows_in(file, part, names, at_once)
        for each in self._pieces(manifest, part, at_once):
            yield each.select([*dict.fromkeys([*names, "_time", "_step"])])

    def _rows_in(self, file: StoredFile, part: Part, names: Sequence[str], at_once: int) -> Iterator[pa.Table]:
        wanted = [*dict.fromkeys([*names, "_time", "_step"])]
        word = f"_bits{file.bit // 64}"
        for batch in batches(self.store, file.name, [*wanted, word, *([RUN] if file.runs else [])]):
            rows = pa.Table.from_batches([batch])
            bits = rows.column(word).to_numpy().view(np.uint64) >> np.uint64(file.bit % 64) & np.uint64(1)
            keep = (bits == 1) & part.includes_each(rows.column("_step").to_numpy())
            for each in self._each(rows if keep.all() else rows.filter(pa.array(keep)), part, at_once):
                yield each.select(wanted)

    def _selected(self, rows: pa.Table, items: Sequence[str | Expression], *, time: bool = False) -> pa.Table:
        """The select list over rows with its inputs."""
        evaluation = Evaluation(lambda ref: one_array(rows.column(self.column(ref))), len(rows))
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
        names = list(self.record.item_names)
        return pa.table([*columns, rows.column("_time")], [*names, "_time"]) if time else pa.table(columns, names)

    def _plain_items(self) -> list[str | Expression] | None:
        """The stored column of each item, or what kernels compute for it from stored columns; None if Spark must."""
        found: list[str | Expression] = []
        for item, listed in zip(self.query.items, self.items(), strict=True):
            refs = item.expression.refs
            if not item.expression.total or (len(item.expression.parts) == 1 and refs):
                found.append("_time" if refs and refs[0].role == PSEUDO_ROLE else listed.text)
            elif is_computed(item.expression, listed.type):
                found.append(item.expression)
            else:
                return None
        return found

    def _read_for(self, items: Sequence[str | Expression]) -> list[str]:
        """The stored columns that these items need."""
        return sorted({name for i in items for name in ([i] if isinstance(i, str) else map(self.column, i.refs))})

    def _pieces(self, _manifest: Manifest, _part: Part, _at_once: int) -> Iterator[pa.Table]:
        """Results that are assembled on read."""
        return iter(())

    def _each(self, rows: pa.Table, part: Part, _at_once: int) -> Iterator[pa.Table]:
        """The rows with times in a part, expanded."""
        time = rows.column("_time").to_numpy()
        inside = (time >= part.horizon) & (time < part.before)
        yield rows if inside.all() else rows.filter(pa.array(inside))


def is_computed(expression: Expression, kind: str) -> bool:
    """Whether kernels compute an expression over stored columns, with Spark's type; it is NULL where it raises."""
    columns = all(ref.role != PSEUDO_ROLE for ref in expression.refs)
    if isinstance(expression.term, Literal):  # whose own type may differ
        return kind in INTEGER_TYPES or kind in ("string", "boolean", "double")
    return expression.term is not None and columns and is_typed(kind)


def holds_runs(file: ResultFile) -> bool:
    """Whether some rows of a file stand for several windows."""
    return file.kind == WINDOWS and file.rows < sum(count for _, count in file.counts)


def gathered(pieces: Iterable[pa.Table], at_once: int) -> Iterator[pa.Table]:
    """Pieces concatenated to tables of about `at_once` rows; none is empty. Their types may differ in width."""
    held: list[pa.Table] = []
    for piece in pieces:
        if len(piece):
            held.append(piece)
        if sum(map(len, held)) >= at_once:
            yield pa.concat_tables(held, promote_options="permissive")
            held = []
    if held:
        yield pa.concat_tables(held, promote_options="permissive")


def in_order(tables: Iterable[pa.Table], at_once: int = AT_ONCE) -> Iterator[pa.Table]:
    """The rows of tables by their times, which are the last column and dropped."""
    held = list(tables)
    if held:
        whole = pa.concat_tables(held)
        last = whole.num_columns - 1
        whole = whole.take(pc.sort_indices(whole.column(last))).remove_column(last)
        yield from (whole.slice(start, at_once) for start in range(0, len(whole), at_once))
