"""Results of queries as rows of a derived stream, as mappers read them from files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.columns.hash import Ints, whole_numbers
from penstock.columns.parcels import one_array
from penstock.columns.verdict import event_time
from penstock.model.memory import Limits
from penstock.model.time import LATEST
from penstock.planner.derived import LAST_TICK, DerivedStream, Ticks
from penstock.planner.network import Network
from penstock.results.part import Part
from penstock.results.read import ResultView, StoredFile
from penstock.state.manifest import Manifest
from penstock.step.files import as_text
from penstock.step.pieces import Text, Types, Unreadable, is_scannable

AT_ONCE = 1 << 18  # rows, approximately
LARGE_ROW = 1 << 10  # bytes


@dataclass(frozen=True)
class Taken:
    """The rows of a derived stream for a step, in the views on the results of its query and of those it continues."""

    derived: DerivedStream
    views: Sequence[ResultView]
    manifest: Manifest
    part: Part

    @property
    def name(self) -> str:
        return self.derived.name

    @property
    def count(self) -> int:
        """The approximate number of rows."""
        return sum(view.count(self.manifest, self.part) for view in self.views)

    def pieces(self, network: Network) -> list[ResultPiece] | None:
        """The rows as pieces; None if the source must read them: a select list is more than columns."""
        if not is_scannable(network, [self.name]):
            return None
        found: list[ResultPiece] = []
        for view in self.views:
            files = view.stored(self.manifest, self.part)
            if files is None:
                return None
            found += [ResultPiece(self.derived, view, file, self.part) for file in files]
        return found


@dataclass(frozen=True)
class ResultPiece:
    """A file of results whose rows are exactly the select list."""

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

    def read(
        self, network: Network, types: Types, limits: Limits | None = None
    ) -> Iterator[tuple[dict[str, pa.Array], Text]]:
        label = self.view.store.label(self.file.name)
        rows = AT_ONCE if limits is None else min(AT_ONCE, limits.work // LARGE_ROW)
        for table in self.view.selected(self.file, self.part, rows):
            yield laid_out(self.derived, table, network, types, label)


def laid_out(
    derived: DerivedStream, table: pa.Table, network: Network, types: Types, label: str
) -> tuple[dict[str, pa.Array], Text]:
    """Results as rows of a derived stream: its columns with `_ts`, and their text. Messages call them by this label."""
    stream, own = network.streams[derived.name], types[derived.name]
    columns = {name: _column(table, name, kind, label) for name, kind in own.items()}
    times = event_time(columns[stream.event_time])
    if derived.ticks is not None:
        of_roles = [event_time(columns[c]) for c, _ in derived.ticks.ranges]
        index, times, last = ticks_of(derived.ticks, of_roles)
        columns = {name: column.take(index) for name, column in columns.items()} | {LAST_TICK: last}
    return columns | {"_ts": times}, partial(_text, label, pa.table(columns))


def _text(label: str, rows: pa.Table, places: Ints) -> pa.Array:
    return as_text(label, rows.take(pa.array(places)))


def _column(table: pa.Table, name: str, kind: pa.DataType, label: str) -> pa.Array:
    if name not in table.column_names:
        return pa.nulls(len(table), kind)
    try:
        return one_array(table.column(name).cast(kind))
    except pa.ArrowException as error:
        raise Unreadable(f"{label}: {error}") from error


def ticks_of(ticks: Ticks, times: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """For the rows that count at some tick: (their places, the moments just before each first and each last tick).

    `times` are those of the rows' roles, as in `tick_sql`. What is later than any possible event time is left out.
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
