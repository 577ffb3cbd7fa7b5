"""Files of result rows: one Parquet file per task or mapper, opened at its first row, written by row groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.model.time import FOREVER
from penstock.state.result_files import ResultFile
from penstock.state.run import Ints
from penstock.storage.store import Store, file_name

ROW_GROUP = 1 << 17  # rows
MOST_HELD = 32 << 20  # bytes that wait to be written to a file: there may be one for each query
_SAMPLE = 1 << 13  # rows


@dataclass
class RowFile:
    """A file of result rows of a step. `encoded` are the columns that are compact as dictionaries, besides strings."""

    store: Store
    step: int
    encoded: Collection[str] = ()
    most: int = MOST_HELD  # bytes that wait
    rows: int = 0
    min_time: int = FOREVER
    max_time: int = -FOREVER
    name: str = ""
    _waiting: list[pa.Table] = field(default_factory=list)
    _held: int = 0  # rows
    _weight: int = 0  # bytes
    _size: int = 0  # of the ended file
    _file: Any = None
    _stream: Any = None
    _writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table, times: Ints) -> None:
        """Add rows with these result times; small pieces are gathered to one row group."""
        self._waiting.append(table)
        self.rows += len(table)
        self._held += len(table)
        self._weight += table.nbytes
        self.min_time, self.max_time = min(self.min_time, int(times.min())), max(self.max_time, int(times.max()))
        if self._held >= ROW_GROUP or self._weight >= self.most:
            self.flush()

    @property
    def waiting(self) -> int:
        """The bytes that wait to be written."""
        return self._weight

    @property
    def bytes(self) -> int:
        """The bytes written so far."""
        return self._stream.tell() if self._stream is not None else 0

    def share(self, rows: int) -> int:
        """The bytes of that many rows."""
        return self.bytes * min(int(rows), self.rows) // max(self.rows, 1)

    def close(self) -> bool:
        """End the file; returns whether there is one."""
        self.flush()
        if self._writer is None:
            return False
        self._writer.close()
        self._size = self._stream.tell()
        self._file.__exit__(None, None, None)
        return True

    def file(self, join: str, version: int, counts: Sequence[tuple[int, int]], kind: str) -> ResultFile:
        """The manifest's record of the ended file, with that many results of each query."""
        return ResultFile(
            self.name, join, self.step, version, self.rows, self._size, self.min_time, self.max_time, tuple(counts),
            kind
        )  # fmt: skip

    def abandon(self) -> None:
        """Delete what was written."""
        self._waiting = []
        if self._writer is not None:
            self._writer.close()
            self._file.__exit__(None, None, None)
            self.store.delete(self.name)
            self._writer = None

    def flush(self) -> None:
        """Write what waits, as a row group."""
        if not self._waiting:
            return
        table = pa.concat_tables([_as(self._waiting[0].schema, t) for t in self._waiting])
        self._waiting, self._held, self._weight = [], 0, 0
        if self._writer is None:
            self.name = file_name("results", self.step, "parquet")
            self._file = self.store.create(self.name)
            self._stream = self._file.__enter__()
            encoded = [f.name for f in table.schema if f.name in self.encoded or pa.types.is_string(f.type)]
            self._writer = pq.ParquetWriter(
                self._stream,
                table.schema,
                compression=compression_of(table),
                use_dictionary=encoded,
                write_page_checksum=True,
            )
        self._writer.write_table(_as(self._writer.schema, table))


def _as(schema: pa.Schema, table: pa.Table) -> pa.Table:
    return table if table.schema.equals(schema) else table.cast(schema)


def relieve(files: Iterable[RowFile], most: int) -> None:
    """Write what waits in the largest of several files until no more than so many bytes wait in all."""
    by_size = sorted(files, key=lambda file: file.waiting)
    total = sum(file.waiting for file in by_size)
    while total > most:
        largest = by_size.pop()
        total -= largest.waiting
        largest.flush()


def compression_of(table: pa.Table) -> dict[str, str]:
    """The codec of each column: it costs more than the rest of writing, so it must at least halve the size.

    Small files, which are merged and compressed later, are not compressed.
    """
    found = {}
    for field_ in table.schema:
        pays = len(table) >= ROW_GROUP
        if pays and pa.types.is_primitive(field_.type) and field_.type.bit_width >= 8:
            start = table.column(field_.name).slice(0, _SAMPLE).combine_chunks()
            whole = start if isinstance(start, pa.Array) else pa.concat_arrays(start.chunks)
            width = field_.type.bit_width // 8
            values = whole.buffers()[1].slice(whole.offset * width, len(whole) * width)
            pays = 2 * pa.Codec("snappy").compress(values).size <= values.size
        found[field_.name] = "snappy" if pays else "none"
    return found
