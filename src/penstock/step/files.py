"""Row groups of Parquet files as pieces of a stream: whole columns, but only those that some query needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.columns.hash import Ints
from penstock.columns.text import has_text, rows_as_text
from penstock.columns.verdict import event_time
from penstock.model.memory import Limits
from penstock.planner.network import Network
from penstock.step.mapper import brought
from penstock.step.pieces import Text, Types, Unreadable
from penstock.step.selection import Selection

FAIR_BYTES = 1 << 20  # of row groups that deserve a piece of their own

Part = tuple[int, int]  # a row group, and the number of a part of it


@dataclass(frozen=True)
class FilePiece:
    """Row groups of a file; all of them if `groups` is None. `selection` is what the source makes of them."""

    stream: str
    path: str
    selection: Selection
    bytes: int = 0
    groups: tuple[int, ...] | None = None

    def read(
        self, network: Network, types: Types, limits: Limits | None = None
    ) -> Iterator[tuple[dict[str, pa.Array], Text]]:
        stream, own = network.streams[self.stream], types[self.stream]
        wanted = sorted((brought(network, stream) | {stream.event_time}) & own.keys())
        kinds = {column: own[column] for column in wanted}
        most = None if limits is None else limits.work
        for part, rows in self._rows(wanted, self.groups, most):
            columns = self.selection.computed(rows, kinds)
            times = {"_ts": event_time(columns[stream.event_time])}
            yield columns | times, partial(self._text, own, part, most)

    def _rows(
        self, columns: Collection[str], groups: Sequence[int] | None, most: int | None
    ) -> Iterator[tuple[Part, pa.Table]]:
        """The columns that the stream needs, for the rows in each part that belong to the stream."""
        needed = self.selection.read_for(columns)
        for part, rows in row_groups(self.path, needed, self.selection.types, groups, most):
            yield part, self.selection.passing(rows)

    def _text(self, types: Mapping[str, pa.DataType], part: Part, most: int | None, places: Ints) -> pa.Array:
        """Whole rows of a part, as Spark would write them."""
        group, number = part
        found = next(rows for (_, n), rows in self._rows(types, [group], most) if n == number)
        whole = self.selection.computed(found.take(pa.array(places)), types)
        return as_text(self.path, pa.table(whole))

    def split(self) -> Sequence[FilePiece]:
        try:
            found = pq.read_metadata(self.path)
        except (OSError, pa.ArrowException):
            return [self]  # the reader will report the reason
        cut: list[FilePiece] = []
        for group in range(found.num_row_groups):
            size = found.row_group(group).total_byte_size
            if cut and cut[-1].bytes < FAIR_BYTES:
                cut[-1] = replace(cut[-1], bytes=cut[-1].bytes + size, groups=(*(cut[-1].groups or ()), group))
            else:
                cut.append(replace(self, bytes=size, groups=(group,)))
        return cut


def row_groups(
    path: str,
    columns: Sequence[str],
    types: Mapping[str, pa.DataType],
    groups: Sequence[int] | None = None,
    most: int | None = None,
) -> Iterator[tuple[Part, pa.Table]]:
    """The columns of each row group, or of some, in the types of the stream; a missing column is NULL, as in Spark.

    Whole row groups, or parts of them of about `most` bytes; the parts do not depend on the columns.
    """
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            schema = _checked(file, columns, types)
            present = [c for c in columns if c in schema.names]
            for group in range(file.num_row_groups) if groups is None else groups:
                for number, rows in enumerate(_parts(file, group, present, most)):
                    yield (group, number), pa.table([
                        rows.column(c).cast(types[c]) if c in present else pa.nulls(len(rows), types[c])
                        for c in columns
                    ], list(columns))  # fmt: skip
    except (OSError, pa.ArrowException) as error:
        raise Unreadable(f"{path}: {error}") from error


def _parts(file: pq.ParquetFile, group: int, columns: Sequence[str], most: int | None) -> Iterator[pa.Table]:
    """The rows of a row group, at once or some at a time."""
    about = file.metadata.row_group(group)
    if most is None or about.total_byte_size <= most:
        yield file.read_row_group(group, columns=columns, use_threads=False)
        return
    rows = max(1, most * about.num_rows // about.total_byte_size)
    read = columns or file.schema_arrow.names[:1]  # without a column no part would have a length
    for batch in file.iter_batches(rows, row_groups=[group], columns=read, use_threads=False):
        yield pa.Table.from_batches([batch])


def as_text(path: str, rows: pa.Table) -> pa.Array:
    """Rows as Spark would write them."""
    if not all(has_text(column.type) for column in rows.columns):
        raise Unreadable(f"{path}: Spark has to write the rows that are put aside")
    try:
        return rows_as_text(rows)
    except (UnicodeDecodeError, OverflowError, ValueError) as error:
        raise Unreadable(f"{path}: {error}") from error


def _checked(file: pq.ParquetFile, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Schema:
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
