"""Results of queries as rows of a derived stream: from their files as mappers read them, or as Spark does where a select list is more than columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.columns.hash import Ints, whole_numbers
from penstock.columns.parcels import one_array
from penstock.columns.verdict import event_time
from penstock.model.time import LATEST
from penstock.planner.derived import LAST_TICK, DerivedStream, Ticks
from penstock.planner.network import Network
from penstock.results.part import Part
from penstock.results.read import ResultView, StoredFile
from penstock.spark.files import is_scannable
from penstock.spark.ingest import Layout
from penstock.sql.spelling import time_in_units
from penstock.state.manifest import Manifest
from penstock.step.files import as_text
from penstock.step.pieces import Text, Types, Unreadable

AT_ONCE = 1 << 18  # rows, about


@dataclass(frozen=True)
class Taken:
    """What a derived stream has for a step, in the views on the results of its query and of those that it continues."""

    derived: DerivedStream
    views: Sequence[ResultView]
    manifest: Manifest
    part: Part

    @property
    def name(self) -> str:
        return self.derived.name

    @property
    def count(self) -> int:
        """About how many rows that is."""
        return sum(view.count(self.manifest, self.part) for view in self.views)

    def pieces(self, network: Network) -> list[ResultPiece] | None:
        """The rows as pieces; None if Spark has to read them."""
        if not is_scannable(network, [self.name]):
            return None
        found: list[ResultPiece] = []
        for view in self.views:
            files = view.stored(self.manifest, self.part)
            if files is None:
                return None
            found += [ResultPiece(self.derived, view, file, self.part) for file in files]
        return found

    def frames(self, session: SparkSession, layout: Layout) -> list[DataFrame]:
        """The rows from Spark, laid out like a batch."""
        return [
            _branch(self.derived, view, view.frame(session, self.manifest, self.part), layout) for view in self.views
        ]


@dataclass(frozen=True)
class ResultPiece:
    """A file of results whose rows are the select list as it stands."""

    derived: DerivedStream
    view: ResultView
    file: StoredFile
    part: Part

    @property
    def stream(self) -> str:
        return self.derived.name

    @property
    def bytes(self) -> int:
        return self.file.bytes

    def split(self) -> Sequence[ResultPiece]:
        return [self]

    def read(self, network: Network, types: Types) -> Iterator[tuple[dict[str, pa.Array], Text]]:
        stream, own = network.streams[self.stream], types[self.stream]
        for table in self.view.selected(self.file, self.part, AT_ONCE):
            columns = {name: self._column(table, name, kind) for name, kind in own.items()}
            times = event_time(columns[stream.event_time])
            if self.derived.ticks is not None:
                of_roles = [event_time(columns[c]) for c, _ in self.derived.ticks.ranges]
                index, times, last = ticks_of(self.derived.ticks, of_roles)
                columns = {name: column.take(index) for name, column in columns.items()} | {LAST_TICK: last}
            yield columns | {"_ts": times}, partial(self._text, pa.table(columns))

    def _text(self, rows: pa.Table, places: Ints) -> pa.Array:
        return as_text(self.file.path, rows.take(pa.array(places)))

    def _column(self, table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
        if name not in table.column_names:
            return pa.nulls(len(table), kind)
        try:
            return one_array(table.column(name).cast(kind))
        except pa.ArrowException as error:
            raise Unreadable(f"{self.file.path}: {error}") from error


def ticks_of(ticks: Ticks, times: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Of the rows that count at some tick: (their places, the moments just before the first tick of each, those before the last one).

    `times` are those of the rows' roles, as in `tick_sql`. What is later than any event time may be is left out.
    """
    if any(time.null_count for time in times):
        raise Unreadable("a row of a join without a time")
    own = [whole_numbers(time) for time in times]
    newest, oldest = np.maximum.reduce(own), np.minimum.reduce(own)
    last = np.minimum.reduce([t + n for t, (_, n) in zip(own, ticks.ranges, strict=True) if n is not None])
    first = newest - (newest - ticks.start) % ticks.slide + ticks.slide
    counted = first <= last
    if ticks.origin is not None:
        counted &= oldest >= ticks.origin
    index = np.flatnonzero(counted)
    begin, end = first[index] - 1, last[index] - 1
    end = np.minimum(end - (end - begin) % ticks.slide, LATEST - (LATEST - begin) % ticks.slide)
    return pa.array(index), pa.array(begin), pa.array(end)


def _branch(derived: DerivedStream, view: ResultView, frame: DataFrame, layout: Layout) -> DataFrame:
    """Results of one query as rows of the derived stream."""
    held = {name: f"_i{number}" for number, name in enumerate(view.record.item_names)}
    frame = frame.toDF(*held.values())
    columns = {slot: column for column, slot in layout.slots[derived.name].items()}
    fields = [
        f"{held[columns[slot]]} AS {slot}" if columns.get(slot) in held else f"CAST(NULL AS {kind}) AS {slot}"
        for slot, kind in layout.types
    ]
    tag = layout.order.index(derived.name)
    if layout.marked:
        fields += ["CAST(NULL AS INT) AS _mark", "CAST(NULL AS STRING) AS _pattern"]
    if layout.placed:
        fields.append("CAST(NULL AS BIGINT) AS _seq")
    types = {c.name: c.type for c in derived.stream.columns}
    if derived.ticks is None:
        time = time_in_units(types[derived.stream.event_time], held[derived.stream.event_time])
    else:
        times = [time_in_units(types[column], held[column]) for column, _ in derived.ticks.ranges]
        counted, time, last = tick_sql(derived.ticks, times)
        slot = layout.slots[derived.name][LAST_TICK]
        fields = [f"{last} AS {slot}" if field.endswith(f" AS {slot}") else field for field in fields]
        frame = frame.where(counted)
    return frame.selectExpr(f"{tag} AS _stream", f"{time} AS _ts", *fields)


def tick_sql(ticks: Ticks, times: Sequence[str]) -> tuple[str, str, str]:
    """(whether a row counts at some tick, the moment just before the first, that before the last) in Spark's words; `times` are those of its roles."""
    last = _greatest("least", [f"{t} + {n}L" for t, (_, n) in zip(times, ticks.ranges, strict=True) if n is not None])
    newest = _greatest("greatest", times)
    first = f"{newest} - pmod({newest} - {ticks.start}L, {ticks.slide}L) + {ticks.slide}L"
    some = f"{first} <= {last}"
    if ticks.origin is not None:
        some += f" AND {_greatest('least', times)} >= {ticks.origin}L"
    begin, end = f"({first} - 1L)", f"({last} - 1L)"
    whole = f"{end} - pmod({end} - {begin}, {ticks.slide}L)"
    return some, begin, f"least({whole}, {LATEST}L - pmod({LATEST}L - {begin}, {ticks.slide}L))"


def _greatest(function: str, values: Sequence[str]) -> str:
    return f"{function}({', '.join(values)})" if len(values) > 1 else f"({values[0]})"
