"""The content of a source, version by version, for sources that have no positions of their own.

A version is the result of one look at the source: the signed rows by which it differs from the previous one. Versions
are a log of manifests, so another process can update a view that was last refreshed at version 7, and every read is of
one whole version, whatever happens to the source meanwhile.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.codes import codes_of
from penstock.columns.hash import Ints
from penstock.errors import ChangesLostError, StateError
from penstock.planner.views.initial_load import Estimate
from penstock.storage.codec import exact, plain
from penstock.storage.log import Log
from penstock.storage.store import Store
from penstock.views.rows.bag import COUNT, consolidated, counts, total
from penstock.views.rows.slices import Files, SliceFile, Slices, young

FEW_ROWS = 1_000  # that are not worth merging


@dataclass(frozen=True)
class Version:
    """`content`: slices that add up to the source. `deltas`: the change of each version, as far as still needed.

    `state` is what the next look needs, `log` the id of the log: numbers of another log have no meaning here.
    """

    number: int
    content: tuple[SliceFile, ...]
    deltas: tuple[tuple[int, SliceFile], ...]
    state: dict[str, Any]
    log: str = ""

    def same(self, other: Version) -> bool:
        """Whether both are the same version; files have unique names, states may differ."""
        return (self.number, self.content, self.deltas) == (other.number, other.content, other.deltas)


class MovedOnError(StateError):
    """Another process has added a version; what was compared with the last one must be compared again."""


class Versions:
    """The log of one source under `folder`. Several processes may append to it, one after the other."""

    def __init__(self, store: Store, folder: str, schema: pa.Schema) -> None:
        self.store, self.folder = store, folder
        self.schema = schema if COUNT in schema.names else schema.append(pa.field(COUNT, pa.int64()))
        self.slices = Slices(store, f"{folder}/slices")
        self.log = Log(store, folder, "number", plain, partial(exact, kind=Version))
        self._lock = threading.Lock()
        self._settled = 0
        with self.slices.writing():
            self.newest = self._load()
            self.slices.collect(list(_files(self.newest)))

    def append(self, delta: pa.Table, state: dict[str, Any]) -> Version:
        """Append a version; without rows only if there is none yet. The state is stored with the version."""
        with self._lock, self.slices.writing():
            before = self.newest
            if not self._load().same(before):
                raise MovedOnError(f"{self.store.label(self.folder)} was changed by another process; refresh again")
            if not delta.num_rows and before.number:
                self.newest = replace(before, state=state)  # nothing to commit: the next look finds the same again
                return self.newest
            number = before.number + 1
            file = self.slices.write(delta.select(self.schema.names).cast(self.schema))
            content = self._merged((*before.content, file))
            deltas = (*((n, f) for n, f in before.deltas if n > self._settled), (number, file))
            version = Version(number, content, deltas, state, before.log if before.number else uuid.uuid4().hex)
            self.slices.sync()
            if not self.log.put(version):
                msg = (
                    f"version {number} of {self.store.label(self.folder)} was already written by another "
                    "process; refresh again"
                )
                raise MovedOnError(msg)
            self.newest = version
            kept = {*content, *(f for _, f in deltas)}
            self.slices.forget([f for f in _files(before) if f not in kept])
            for old in self.log.numbers():
                if old < number:
                    self.log.delete(old)
            return version

    def reload(self) -> None:
        """Continue from the newest version of all processes."""
        with self._lock:
            found, before = self._load(), self.newest
            if found.same(before):
                return  # and this one may know more
            self.newest = found
            self.slices.keep(_files(found))
        if before.number and found.log != before.log:
            msg = f"{self.store.label(self.folder)} was given up and filled anew by another process"
            raise ChangesLostError(msg)

    def reading(self) -> AbstractContextManager[Version]:
        """The newest version, which can be read until this ends, even if others are added."""
        return self.slices.holding(lambda: self.newest, _files)

    def changes(self, after: int, until: int) -> pa.Table:
        """The signed rows between two versions."""
        with self.reading() as newest:
            known = dict(newest.deltas)
            wanted = range(after + 1, until + 1)
            if missing := [n for n in wanted if n not in known]:
                msg = f"version {missing[0]} of {self.store.label(self.folder)} is no longer kept"
                raise ChangesLostError(msg)
            return pa.concat_tables([self.schema.empty_table(), *(self.slices.table(known[n]) for n in wanted)])

    def rows(self, names: Sequence[str], at: Version) -> pa.Table:
        """All rows of a version that is being read, with the columns `names` and their counts."""
        return pa.concat_tables([table.select([*names, COUNT]) for table in self._content(at.content)])

    def find(self, names: Sequence[str], columns: Sequence[str], sought: Ints, at: Version) -> pa.Table:
        """The rows whose code over `columns` is among `sought`, without deleted ones."""
        found = self.found(names, columns, sought, at)
        gone = counts(found) < 0
        if not gone.any():
            return found
        codes = codes_of(found, columns if set(columns) <= set(names) else names)
        touched = np.isin(codes, codes[gone])
        return pa.concat_tables([found.filter(pa.array(~touched)), consolidated(found.filter(pa.array(touched)))])

    def found(self, names: Sequence[str], columns: Sequence[str], sought: Ints, at: Version) -> pa.Table:
        """As `find`, but as stored in the slices, not added up."""
        wanted = sought if bool((sought[1:] > sought[:-1]).all()) else np.unique(sought)
        fields = pa.schema([self.schema.field(n) for n in (*names, COUNT)])
        tables = [self.slices.find(file, fields.names, columns, wanted) for file in at.content]
        return pa.concat_tables([fields.empty_table(), *(t for t in tables if len(t))]).combine_chunks()

    @contextmanager
    def files(self, names: Sequence[str]) -> Iterator[tuple[Files, Version]]:
        """The newest version as files of rows, kept until this ends; with deletions, in a file made for it."""
        schema = pa.schema([self.schema.field(n) for n in (*names, COUNT)])
        with self.reading() as version, ExitStack() as held:
            made: list[SliceFile] = []
            try:
                if not all(file.positive for file in version.content):
                    made.append(self.slices.write(pa.concat_tables(self._content(version.content))))
                found = [(self._path(f.name, held), f.rows) for f in made or version.content]
                yield Files(schema, tuple(found)), version
            finally:
                self.slices.forget(made)

    def _path(self, name: str, held: ExitStack) -> str:
        """Where other programs of this machine find a file: if need be a copy, until the end."""
        if self.store.has_paths:
            return self.store.path(name)
        copy = Path(held.enter_context(TemporaryDirectory(prefix="penstock-")), "copy.arrow")
        copy.write_bytes(self.store.map(name))
        return str(copy)

    def estimate(self, columns: Sequence[str]) -> Estimate:
        """The number of rows, and of different values in each of these columns, if lookups used it."""
        if not self.newest.content:
            return Estimate(0.0)
        first = self.newest.content[0]
        distinct = {c: float(n) for c in columns if (n := self.slices.distinct(first, [c])) is not None}
        return Estimate(float(first.rows), distinct)

    def settle(self, number: int) -> None:
        """Changes up to this version will not be requested again."""
        with self._lock:
            self._settled = max(self._settled, number)

    def _content(self, files: tuple[SliceFile, ...]) -> tuple[pa.Table, ...]:
        """The rows of all these slices, in tables that add up."""
        if all(file.positive for file in files):
            return (self.schema.empty_table(), *(self.slices.table(file) for file in files))
        return self.slices.content(files, self.schema, [n for n in self.schema.names if n != COUNT])

    def _merged(self, content: tuple[SliceFile, ...]) -> tuple[SliceFile, ...]:
        """Fewer slices: all as one once cancelling rows cost more than merging, else the last few.

        The first is large; to write and sort it again for every few small ones would cost more than all else.
        """
        first, others = content[0], content[1:]
        if sum(f.rows for f in others) > max(first.rows // 2, FEW_ROWS):
            return (self.slices.write(pa.concat_tables(self._content(content))),)
        cut = len(content) - young(content)
        if cut < len(content) - 1:
            return (*content[:cut], self.slices.write(total([self.slices.table(f) for f in content[cut:]])))
        return content

    def _load(self) -> Version:
        return self.log.newest() or Version(0, (), (), {})


def _files(version: Version) -> set[SliceFile]:
    return {*version.content, *(f for _, f in version.deltas)}
