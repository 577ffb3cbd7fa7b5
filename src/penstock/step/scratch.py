"""What a task puts aside when it has more than it may keep in memory: files without a name on a local disk, mapped.

No other attempt can meet such a file, and the system removes it with the process, however that ends. It is no state:
nothing is synced. Mapped pages belong to the file, so they do not count as memory of the task.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from penstock.state.run import Rows


@dataclass
class Scratch:
    """The files of one task. `bytes` are those written so far."""

    bytes: int = 0

    def rows(self, rows: Rows) -> Rows:
        """The same rows, mapped from a file."""
        arrays = [pa.array(rows.key), pa.array(rows.time), pa.array(rows.bits), *rows.columns.values()]
        batch = self.batch(pa.record_batch(arrays, names=["_key", "_ts", "_bits", *rows.columns]))
        columns = {name: batch.column(place + 3) for place, name in enumerate(rows.columns)}
        return replace(
            rows,
            key=batch.column(0).to_numpy(),
            time=batch.column(1).to_numpy(),
            bits=batch.column(2).to_numpy(),
            columns=columns,
        )

    def table(self, table: pa.Table) -> pa.Table:
        """The same table, mapped from a file."""
        return pa.Table.from_batches([self.batch(b) for b in table.to_batches()], table.schema)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        file = _file()
        with pa.ipc.new_file(pa.PythonFile(file, mode="w"), batch.schema) as writer:
            writer.write_batch(batch)
        with pa.ipc.open_file(self._mapped(file)) as reader:
            return reader.get_batch(0)

    def _mapped(self, file: BinaryIO) -> pa.Buffer:
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
            whole = self.scratch._mapped(self._file)  # noqa: SLF001  (of this module)
            found = [whole.slice(start, size) for start, size in self._places]
        return [*found, *self._held]


def _file() -> BinaryIO:
    """A new file without a name, in a folder that Spark gives its executors for such files, if there is one."""
    given = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    folder = given if given and Path(given).is_dir() else None
    return cast("BinaryIO", tempfile.TemporaryFile(dir=folder))
