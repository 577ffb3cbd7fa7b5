"""Runs of several blocks: what was written a piece at a time, and what is cold.

A block is one record batch with a dictionary of its own; blocks ascend by (key, time). Behind the Arrow file are an
index of the blocks and its length: what must be known of a block before it is read. A *cold* run is compressed, its
blocks are small, and a block is read only if a probe may find something in it: by keys, times, and a Bloom filter of
keys (decision 0041).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import StateError
from penstock.state.run import Ints, Rows, RunEntry

CODEC = "zstd"  # of cold runs
BITS_PER_KEY, HASHES = 10, 4  # of Bloom filters: about one key in a hundred is taken for another
_TAIL = 8  # bytes of the length of the index


class Block(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a block before it is read. `size`: bytes uncompressed; `start`, `stop`: its part of the file."""

    rows: int
    size: int
    start: int
    stop: int
    checksum: int
    min_key: int
    max_key: int
    min_time: int
    max_time: int
    patterns: tuple[tuple[int, ...], ...]
    keys: bytes = b""  # a Bloom filter, of cold runs

    def may_have(self, keys: Ints) -> bool:
        """Whether one of these sorted keys may be here; False only if none is."""
        low, high = np.searchsorted(keys, [self.min_key, self.max_key])
        if high < len(keys) and keys[high] == self.max_key:
            return True
        inside = keys[low:high]
        if not len(inside) or not self.keys:
            return bool(len(inside))
        words = np.frombuffer(self.keys, dtype=np.uint64)
        found = np.ones(len(inside), dtype=np.bool_)
        for place in _places(inside, 64 * len(words)):
            found &= (words[place >> np.uint64(6)] >> (place & np.uint64(63))) & np.uint64(1) == 1
        return bool(found.any())


def bloom(keys: Ints) -> bytes:
    """A Bloom filter of sorted keys."""
    own = keys[np.append(True, keys[1:] != keys[:-1])]
    bits = np.zeros(-(-BITS_PER_KEY * len(own) // 64) * 64, dtype=np.bool_)
    for place in _places(own, len(bits)):
        bits[place] = True
    return np.packbits(bits, bitorder="little").tobytes()


def _places(keys: Ints, bits: int) -> Iterator[npt.NDArray[np.uint64]]:
    """The bits of keys: two multiplicative hashes make all (Kirsch and Mitzenmacher 2006)."""
    one = (keys.view(np.uint64) ^ np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    one ^= one >> np.uint64(31)
    two = one * np.uint64(0x94D049BB133111EB) | np.uint64(1)
    for number in range(HASHES):
        yield ((one + np.uint64(number) * two) >> np.uint64(7)) % np.uint64(bits)


class BlockWriter:
    """Writes one run a block at a time; `types` are those of its columns, `cold` whether it is compressed."""

    def __init__(self, file: BinaryIO, table: str, types: Mapping[str, pa.DataType], *, cold: bool) -> None:
        self.blocks: list[Block] = []
        self._file, self._cold, self._types = _Counted(file), cold, types
        own = [("_key", pa.int64()), ("_ts", pa.int64()), ("_bits", pa.int32())]
        self._schema = pa.schema([*own, *types.items()], metadata={"table": table})
        options = pa.ipc.IpcWriteOptions(compression=CODEC if cold else None)
        self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), self._schema, options=options)

    def add(self, rows: Rows) -> None:
        """Add rows that are not before the last ones."""
        columns = [rows.columns[name].cast(kind) for name, kind in self._types.items()]
        arrays = [pa.array(rows.key), pa.array(rows.time), pa.array(rows.bits), *columns]
        batch = pa.record_batch(arrays, schema=self._schema)
        start = self._file.begin()
        self._writer.write_batch(batch)
        block = Block(
            len(rows), batch.nbytes, start, self._file.size, self._file.checksum, int(rows.key[0]), int(rows.key[-1]),
            int(rows.time.min()), int(rows.time.max()), rows.patterns, bloom(rows.key) if self._cold else b"",
        )  # fmt: skip
        self.blocks.append(block)

    def close(self) -> tuple[int, int]:
        """End the run; returns its bytes, and the checksum of its index."""
        self._writer.close()
        index = msgspec.msgpack.encode(self.blocks)
        self._file.write(index)
        self._file.write(len(index).to_bytes(_TAIL, "little"))
        return self._file.size, zlib.crc32(index)


class _Counted:
    """A file that counts its bytes, and sums those since the last `begin`."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.size, self.checksum = file, 0, 0

    def begin(self) -> int:
        self.checksum = 0
        return self.size

    def write(self, data: bytes | pa.Buffer) -> int:
        self.file.write(data)
        written = memoryview(data).nbytes
        self.size += written
        self.checksum = zlib.crc32(data, self.checksum)
        return written

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """All is flushed when the file is closed."""

    def close(self) -> None:
        """The owner of the file closes it."""


class Blocks:
    """A run of several blocks, opened: its index is in memory, its blocks are read one by one."""

    def __init__(self, buffer: pa.Buffer, entry: RunEntry, path: str = "") -> None:
        self.buffer, self.entry, self.path = buffer, entry, path or entry.name
        length = int.from_bytes(buffer[max(0, buffer.size - _TAIL) :].to_pybytes(), "little")
        self._end = buffer.size - _TAIL - length
        if buffer.size != entry.bytes or self._end < 0:
            raise self._damaged(f"it has {buffer.size} bytes instead of {entry.bytes}")
        index = buffer.slice(self._end, length)
        if zlib.crc32(index) != entry.checksum:
            raise self._damaged("its index has another checksum")
        self.index: Sequence[Block] = msgspec.msgpack.decode(index, type=tuple[Block, ...])
        self._checked: set[int] = set()

    def rows(self, number: int, columns: Sequence[str] | None = None) -> Rows:
        """A block, or only some of its columns; without copying if the run is not cold."""
        block = self.index[number]
        if number not in self._checked:
            if zlib.crc32(self.buffer.slice(block.start, block.stop - block.start)) != block.checksum:
                raise self._damaged(f"block {number} has another checksum")
            self._checked.add(number)
        source = self.buffer.slice(0, self._end)
        with pa.ipc.open_file(source) as reader:
            names = reader.schema.names[3:]
        wanted = names if columns is None else [name for name in names if name in columns]
        fields = [0, 1, 2, *(3 + names.index(name) for name in wanted)]
        with pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)) as own:
            batch = own.get_batch(number)
        found = {name: batch.column(place + 3) for place, name in enumerate(wanted)}
        key, time, bits = (batch.column(place).to_numpy() for place in range(3))
        return Rows(key, time, bits, block.patterns, found)

    def _damaged(self, why: str) -> StateError:
        return StateError(
            f"state file {self.path} is damaged ({why}); restore it from a backup, or remove the state directory and "
            "replay the sources"
        )
