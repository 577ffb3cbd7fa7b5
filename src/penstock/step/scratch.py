"""What a task puts aside when it has more than it may keep in memory: files without a name on a local disk, mapped.

No other attempt can meet such a file, and the system removes it with the process, however that ends. It is no state:
nothing is synced. Mapped pages belong to the file, so they do not count as memory of the task.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from penstock.state.run import Rows

Patterns = tuple[tuple[int, ...], ...]


@dataclass
class Scratch:
    """The files of one task. `bytes` are those written so far."""

    bytes: int = 0

    def rows(self, rows: Rows) -> Rows:
        """The same rows, mapped from a file."""
        return self.all_rows([rows])[0]

    def all_rows(self, pieces: Iterable[Rows]) -> tuple[Rows, ...]:
        """The same rows, mapped from one file; all have columns of the same types."""
        file, known, writer = _file(), list[Patterns](), None
        for rows in pieces:
            arrays = [pa.array(rows.key), pa.array(rows.time), pa.array(rows.bits), *rows.columns.values()]
            batch = pa.record_batch(arrays, names=["_key", "_ts", "_bits", *rows.columns])
            if writer is None:
                writer = pa.ipc.new_file(pa.PythonFile(file, mode="w"), batch.schema)
            writer.write_batch(batch)
            known.append(rows.patterns)
        if writer is None:
            file.close()
            return ()
        writer.close()
        with pa.ipc.open_file(self.mapped(file)) as reader:
            return tuple(_rows(reader.get_batch(number), patterns) for number, patterns in enumerate(known))

    def mapped(self, file: BinaryIO) -> pa.Buffer:
        file.flush()
        size = os.fstat(file.fileno()).st_size
        self.bytes += size
        with file:
            return pa.py_buffer(mmap.mmap(file.fileno(), size, mmap.MAP_SHARED, mmap.PROT_READ))


@dataclass
class Bodies:
    """Parcels that wait, in memory up to `most` bytes and in a file beyond that."""

    scratch: Scratch
    most: int
    _held: list[pa.Buffer] = field(default_factory=list)
    _size: int = 0
    _file: BinaryIO | None = None
    _places: list[tuple[int, int]] = field(default_factory=list)

    def add(self, body: pa.Buffer) -> None:
        self._held.append(body)
        self._size += body.size
        if self._size > self.most:
            if self._file is None:
                self._file = _file()
            for own in self._held:
                start = self._file.tell() + -self._file.tell() % 64
                self._file.seek(start)
                self._file.write(own)
                self._places.append((start, own.size))
            self._held, self._size = [], 0

    def all(self) -> Sequence[pa.Buffer]:
        """All of them; none can be added after that."""
        found: list[pa.Buffer] = []
        if self._file is not None:
            whole = self.scratch.mapped(self._file)
            found = [whole.slice(start, size) for start, size in self._places]
        return [*found, *self._held]


def _rows(batch: pa.RecordBatch, patterns: Patterns) -> Rows:
    key, time, bits = (batch.column(place).to_numpy() for place in range(3))
    return Rows(key, time, bits, patterns, {f.name: batch.column(n) for n, f in enumerate(batch.schema) if n > 2})


def _file() -> BinaryIO:
    """A new file without a name, in a folder that Spark gives its executors for such files, if there is one."""
    given = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    folder = given if given and Path(given).is_dir() else None
    return cast("BinaryIO", tempfile.TemporaryFile(dir=folder))
