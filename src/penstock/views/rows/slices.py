"""Signed rows in immutable Arrow files, mapped into memory, with the order of their codes stored beside them.

A lookup is a binary search per key and one gather. Callers decide what a set of slices means together; while they read
one, its files are not deleted (`holding`), however many versions are installed meanwhile.
"""

from __future__ import annotations

import threading
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit, types

from penstock.columns.codes import codes_of
from penstock.columns.hash import Ints
from penstock.errors import StateError
from penstock.storage.store import Store
from penstock.views.rows.bag import COUNT, counts, negated
from penstock.views.rows.difference import remaining

Version = TypeVar("Version")
FEW = 4  # young files that are merged
_WAIT, _WAITS = 0.02, 500  # seconds between two attempts to get the lock, and attempts


class SliceFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file of signed rows: its name, its rows, its bytes, and whether all its counts are positive."""

    name: str
    rows: int
    bytes: int
    positive: bool


@dataclass(frozen=True)
class Files:
    """Slices without deletions, which add up: (path, rows) of each, and the columns to read, with their counts."""

    schema: pa.Schema
    files: tuple[tuple[str, int], ...]

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.files)


@dataclass
class Slices:
    """Reads and writes the slices of one folder of a store; files stay mapped once read."""

    store: Store
    folder: str
    _tables: dict[str, pa.Table] = field(default_factory=dict)
    _orders: dict[tuple[str, tuple[str, ...]], tuple[Ints, Ints]] = field(default_factory=dict)
    _held: Counter[str] = field(default_factory=Counter)
    _dropped: dict[str, SliceFile] = field(default_factory=dict)  # to be deleted once no reader holds them
    _written: bool = False  # files whose names are not durable
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def holding(
        self, newest: Callable[[], Version], files: Callable[[Version], Iterable[SliceFile]]
    ) -> Iterator[Version]:
        """The newest version, whose files are kept until this ends.

        A version's files are dropped only after another one has become the newest. So if this one is still the newest
        when its files are marked as held, they have not been dropped before that.
        """
        while True:
            version = newest()
            names = [file.name for file in files(version)]
            with self._lock:
                self._held.update(names)
            if newest() is version:
                break
            self._release(names)
        try:
            yield version
        finally:
            self._release(names)

    def write(self, table: pa.Table) -> SliceFile:
        """A new file, invisible until a manifest names it."""
        name = f"{self.folder}/{uuid.uuid4().hex}.arrow"
        whole = table.combine_chunks()
        data = _ipc(whole)
        self.store.write(name, data)
        self._written = True
        return SliceFile(name, table.num_rows, data.size, bool((counts(table) > 0).all()))

    def sync(self) -> None:
        """Make the names of new files durable, before a version that lists them."""
        if self._written:
            self.store.sync([f"{self.folder}/."])
            self._written = False

    def table(self, file: SliceFile) -> pa.Table:
        with self._lock:
            if file.name not in self._tables:
                self._tables[file.name] = self._open(file)
            return self._tables[file.name]

    def find(self, file: SliceFile, names: Sequence[str], columns: Sequence[str], sought: Ints) -> pa.Table:
        """The columns `names` of the rows whose code over `columns` is among the sorted, distinct `sought`."""
        table = self.table(file).select(names)
        if not table.num_rows or not len(sought):
            return table.slice(0, 0)
        at = self.positions(file, columns, sought)
        return table.take(pa.array(at)) if len(at) else table.slice(0, 0)

    def positions(self, file: SliceFile, columns: Sequence[str], sought: Ints) -> Ints:
        """The numbers of the rows that `find` returns."""
        return _rows_of(*self._order(file, tuple(columns)), sought)  # type: ignore[no-any-return]

    def distinct(self, file: SliceFile, columns: Sequence[str]) -> int | None:
        """The number of different codes of its rows, if their order is known already."""
        with self._lock:
            known = self._orders.get((file.name, tuple(columns)))
        return None if known is None else int(np.count_nonzero(np.diff(known[0]))) + 1

    def content(
        self, files: Sequence[SliceFile], schema: pa.Schema, columns: Sequence[str]
    ) -> tuple[pa.Table, pa.Table]:
        """The sum of files, the first without deletions: (its rows that no deletion affects, the rest of all files).

        Deletions are matched by `columns`. Most rows are passed on without comparison.
        """
        first, later = files[:1], pa.concat_tables([schema.empty_table(), *(self.table(file) for file in files[1:])])
        went = pc.less(later.column(COUNT), 0)
        removed, added = later.filter(went), later.filter(pc.invert(went))
        if not first:
            return schema.empty_table(), remaining(added, negated(removed))
        base = self.table(first[0])
        if not len(removed):
            return base, added
        at = self.positions(first[0], columns, np.unique(codes_of(removed, columns)))
        stays = np.ones(len(base), np.bool_)
        stays[at] = False
        met = pa.concat_tables([base.take(pa.array(at)), added])
        return base.filter(pa.array(stays)), remaining(met, negated(removed))

    def forget(self, dropped: Sequence[SliceFile]) -> None:
        """Unmap and delete files that no manifest names any more, with their orders, once no reader holds them."""
        with self._lock:
            self._dropped.update({file.name: file for file in dropped})
        self._sweep()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Exclude other writers while a version is made: one would take the other's new files for orphans.

        Another process needs only a moment for one, so this waits.
        """
        self.store.make(self.folder)
        with ExitStack() as held:
            for left in reversed(range(_WAITS)):
                try:
                    held.enter_context(self.store.owner_lock(self.folder))
                    break
                except StateError:
                    if not left:
                        raise
                    time.sleep(_WAIT)
            yield

    def keep(self, files: Iterable[SliceFile]) -> None:
        """Unmap all others; the process that dropped them deletes them."""
        names = {file.name for file in files}
        with self._lock:
            self._tables = {name: table for name, table in self._tables.items() if name in names}
            self._orders = {key: order for key, order in self._orders.items() if key[0] in names}

    def collect(self, kept: Sequence[SliceFile]) -> None:
        """Delete leftovers of a process that died."""
        names = {file.name for file in kept}
        for found in self.store.names(self.folder):
            if ".arrow" in found and f"{self.folder}/{found.partition('.arrow')[0]}.arrow" not in names:
                self.store.delete(f"{self.folder}/{found}")

    def _release(self, names: Sequence[str]) -> None:
        with self._lock:
            self._held.subtract(names)
            for name in names:
                if not self._held[name]:
                    del self._held[name]
        self._sweep()

    def _sweep(self) -> None:
        with self._lock:
            free = [self._dropped.pop(name) for name in list(self._dropped) if name not in self._held]
            gone = []
            for file in free:
                self._tables.pop(file.name, None)
                orders = [key for key in self._orders if key[0] == file.name]
                gone += [self._order_name(file, columns) for _, columns in orders] + [file.name]
                for key in orders:
                    del self._orders[key]
        for name in gone:
            self.store.delete(name)

    def _open(self, file: SliceFile) -> pa.Table:
        buffer = self.store.map(file.name)
        if buffer.size != file.bytes:
            msg = (
                f"{self.store.label(file.name)} has {buffer.size} bytes instead of {file.bytes}; "
                "restore it from a backup, or recompute the view"
            )
            raise StateError(msg)
        try:
            return pa.ipc.open_file(buffer).read_all()
        except (pa.ArrowException, OSError, ValueError) as error:
            msg = (
                f"{self.store.label(file.name)} is damaged ({next(iter(str(error).splitlines()), error)}); "
                "restore it from a backup, or recompute the view"
            )
            raise StateError(msg) from error

    def _order(self, file: SliceFile, columns: tuple[str, ...]) -> tuple[Ints, Ints]:
        """Sorted codes of the rows, and the rows in that order."""
        with self._lock:
            known = self._orders.get((file.name, columns))
        if known is None:
            known = self._load_order(file, columns)
            with self._lock:
                self._orders[file.name, columns] = known
        return known

    def _load_order(self, file: SliceFile, columns: tuple[str, ...]) -> tuple[Ints, Ints]:
        table = self.table(file)
        name = self._order_name(file, columns)
        try:
            found = pa.ipc.open_file(self.store.map(name)).read_all()
        except (FileNotFoundError, pa.ArrowInvalid):
            codes = codes_of(table, columns)
            order = np.argsort(codes, kind="stable")
            found = pa.table({"code": codes[order], "row": order})
            if table.num_rows >= _WORTH_KEEPING:
                # It follows from the rows: if two make it at once, or part of it is lost, it is made again.
                self.store.delete(name)
                self.store.put_if_absent(name, _ipc(found).to_pybytes())
        return found.column(0).to_numpy(), found.column(1).to_numpy()

    def _order_name(self, file: SliceFile, columns: tuple[str, ...]) -> str:
        digest = zlib.crc32("\0".join(columns).encode())
        return f"{file.name}.{digest:08x}.order"


_INTS = types.Array(types.int64, 1, "C", readonly=True)


@njit(types.Array(types.int64, 1, "C")(_INTS, _INTS, _INTS), cache=True, nogil=True)
def _rows_of(codes: Ints, order: Ints, sought: Ints) -> Ints:
    """The rows of all sought codes. Both are sorted, so each search starts at the last one's end, in doubling steps."""
    first = np.empty(len(sought), np.int64)
    last = np.empty(len(sought), np.int64)
    at = total = 0
    for k in range(len(sought)):
        low = high = at
        step = 1
        while high < len(codes) and codes[high] < sought[k]:
            low = high + 1
            high += step
            step *= 2
        high = min(high, len(codes))
        while low < high:
            middle = (low + high) // 2
            if codes[middle] < sought[k]:
                low = middle + 1
            else:
                high = middle
        first[k] = at = low
        while at < len(codes) and codes[at] == sought[k]:
            at += 1
        last[k] = at
        total += at - low
    found = np.empty(total, np.int64)
    filled = 0
    for k in range(len(sought)):
        for place in range(first[k], last[k]):
            found[filled] = order[place]
            filled += 1
    return found


def young(files: Sequence[SliceFile]) -> int:
    """How many of the last files to merge into one; 1 for none. The large first file is never among them.

    They are merged once there are a few, together with files not much larger than all later ones: so there are never
    many, and a row is rewritten no more often than the logarithm of their number.
    """
    rows = taken = 0
    for file in reversed(files[1:]):
        if taken and file.rows > _LARGER * rows:
            break
        rows += file.rows
        taken += 1
    return taken if taken >= FEW else 1


_WORTH_KEEPING = 100_000
_LARGER = 2


def _ipc(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
