"""Runs: one immutable sorted file of a state table, and the rows in it.

A run is an Arrow file sorted by (bucket, key, time, order), read by mapping it into memory. The bucket is the top bits
of the key's hash, so sorting by hash sorts by bucket. A *slice* is a row range of a run. The schema's metadata has the
dictionary of bits ids, the offsets of buckets, and the range of times.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import StateError
from penstock.model import Tumbling
from penstock.model.time import NEVER
from penstock.planner.reached import Clock, Reached
from penstock.state.buckets import BUCKETS, first_keys

PARTS = 8  # of a run, with equal numbers of rows

NO_PIECES: Mapping[int, Tumbling] = MappingProxyType({})

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Sorted rows of one state table, in memory or mapped.

    `patterns[bits[i]]` = ids of the roles that row i serves, and marks of columns it was stored without (`gap`).
    """

    key: Ints
    time: Ints
    bits: npt.NDArray[np.int32]
    patterns: tuple[tuple[int, ...], ...]
    columns: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return len(self.key)

    @property
    def nbytes(self) -> int:
        own = self.key.nbytes + self.time.nbytes + self.bits.nbytes
        return int(own + sum(column.nbytes for column in self.columns.values()))

    def between(self, low: int, high: int | None) -> Rows:
        """The rows with low <= key < high (to the end if None): the slice that one task owns."""
        start = int(np.searchsorted(self.key, low))
        return self.part(start, len(self) if high is None else int(np.searchsorted(self.key, high)))

    def since(self, low: int, high: int) -> Rows:
        """The rows with low <= time < high, of rows sorted by time alone."""
        return self.part(*(int(i) for i in np.searchsorted(self.time, [low, high])))

    def part(self, start: int, stop: int) -> Rows:
        """The rows from one place to before another."""
        if start == 0 and stop == len(self):
            return self
        columns = {name: column.slice(start, stop - start) for name, column in self.columns.items()}
        return Rows(self.key[start:stop], self.time[start:stop], self.bits[start:stop], self.patterns, columns)


class RunEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the manifest: a run file and what decisions about it need without opening it.

    `life` is the longest life of its rows, which determines its link of the chain; `until[s]` = the progress of stream
    s from which no row of the run can join a row of s. `quantiles` are times that cut the rows into parts of equal
    size, if the table has no key. When all streams have reached `fades[n]`, about n + 1 of `PARTS` equal parts of the
    rows have expired.
    """

    name: str
    table: str
    level: int
    step: int
    rows: int
    bytes: int
    min_time: int
    max_time: int
    min_key: int
    max_key: int
    life: int
    until: tuple[tuple[Clock, int], ...]
    version: int
    checksum: int
    quantiles: tuple[int, ...] = ()
    fades: tuple[int, ...] = ()
    blocks: int = 0  # see `blocks`; none if the run is one record batch
    cold: bool = False

    def expired(self, progress: Reached) -> bool:
        """Whether every row has expired."""
        return all(progress.get(stream, end - 1) >= end for stream, end in self.until)

    def gone(self, progress: Reached) -> float:
        """Approximately how many rows have expired; rather too few than too many."""
        least = min((progress.get(stream, NEVER) for stream, _ in self.until), default=NEVER)
        return self.rows * bisect_right(self.fades, least) / PARTS


def gap(column: str) -> int:
    """The mark, among the roles of a row, that the row was stored without this column."""
    return -1 - zlib.crc32(column.encode())


def encode_run(rows: Rows, table: str, buckets: int = BUCKETS) -> pa.Buffer:
    """The bytes of a run file."""
    footer = {
        "table": table,
        "patterns": rows.patterns,
        "min_time": int(rows.time.min()),
        "max_time": int(rows.time.max()),
        "buckets": np.searchsorted(rows.key, first_keys(buckets)[1:]).tolist(),
    }
    arrays = [pa.array(rows.key), pa.array(rows.time), pa.array(rows.bits), *rows.columns.values()]
    names = ["_key", "_ts", "_bits", *rows.columns]
    fields = [pa.field(n, a.type) for n, a in zip(names, arrays, strict=True)]
    schema = pa.schema(fields, metadata={"penstock": json.dumps(footer)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    return sink.getvalue()


def decode_run(buffer: pa.Buffer, entry: RunEntry, path: str = "") -> Rows:
    """The rows of a run file, without copying; raises StateError, with the path if known, on damage."""
    if buffer.size != entry.bytes or zlib.crc32(buffer) != entry.checksum:
        msg = (
            f"state file {path or entry.name} is damaged (expected {entry.bytes} bytes with checksum "
            f"{entry.checksum:08x}, "
            f"found {buffer.size} bytes); restore it from a backup, or remove the state directory and replay "
            "the sources"
        )
        raise StateError(msg)
    with pa.ipc.open_file(buffer) as reader:
        batch = reader.get_batch(0)
    footer = json.loads(batch.schema.metadata[b"penstock"])
    columns = {f.name: batch.column(i) for i, f in enumerate(batch.schema) if i > 2}
    return Rows(
        batch.column(0).to_numpy(),
        batch.column(1).to_numpy(),
        batch.column(2).to_numpy(),
        tuple(tuple(p) for p in footer["patterns"]),
        columns,
    )


def checksum(buffer: pa.Buffer) -> int:
    return zlib.crc32(buffer)


def expiry(
    rows: Rows,
    lives: Mapping[int, Sequence[tuple[Clock, int]]],
    forever: int,
    pieces: Mapping[int, Tumbling] = NO_PIECES,
) -> dict[Clock, int]:
    """For each stream: the progress from which no row here can join it (the `until` of a manifest line).

    `pieces` are the windows of roles whose rows expire at the end of their piece of time.
    """
    newest = np.full(len(rows.patterns), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(newest, rows.bits, rows.time)
    until: dict[Clock, int] = {}
    for pattern, time in zip(rows.patterns, newest.tolist(), strict=True):
        if time == np.iinfo(np.int64).min:
            continue
        for role in pattern:
            for stream, life in lives.get(role, ()):
                end = forever if life >= forever else time + life
                if role in pieces:
                    end = min(end, pieces[role].start(time) + pieces[role].length)
                until[stream] = max(until.get(stream, end), end)
    return until


def fading(rows: Rows, lives: Mapping[int, Sequence[tuple[Clock, int]]], forever: int) -> tuple[int, ...]:
    """The times at which one part of the rows after the other has expired, for all streams (the `fades` of a run).

    None if most rows stay for ever.
    """
    longest = np.array(
        [max((life for role in pattern for _, life in lives.get(role, ())), default=0) for pattern in rows.patterns],
        dtype=np.int64,
    )
    life = longest[rows.bits]
    ends = np.where(life >= forever, forever, rows.time + life)
    last = -(-np.arange(1, PARTS) * len(ends) // PARTS) - 1
    fades = np.partition(ends, last)[last]
    return () if fades[0] >= forever else tuple(fades.tolist())
