"""A source without positions: each look at it is compared with the previous one and stored as a version.

Lookups read the newest version and never the source itself, so that those of one refresh see the same rows; a scan
looks first. A `Feed` looks at the source.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.codes import codes_of
from penstock.errors import ChangesLostError, StepError
from penstock.model import Expression
from penstock.model.view import Source
from penstock.planner.views.initial_load import Estimate, keyed
from penstock.storage.store import Store
from penstock.views.rows.bag import COUNT, consolidated, total
from penstock.views.rows.difference import difference
from penstock.views.rows.evaluate import select
from penstock.views.rows.slices import Files
from penstock.views.rows.types import schema_of
from penstock.views.sources.source import Answer
from penstock.views.sources.versions import MovedOnError, Version, Versions

STAMPS = "stamps"  # the part of a feed's state that identifies what it need not read again
_TRIES = 5  # to read what another process replaces repeatedly


class Rows(Protocol):
    """The newest version's rows, with hidden columns and counts: all, or those with one of these keys, not added up."""

    def __call__(self, keys: pa.Table | None = None) -> pa.Table: ...

    @property
    def count(self) -> int:
        """Their approximate number."""
        ...

    def files(self) -> AbstractContextManager[Files]:
        """All of them, for others to read."""
        ...


class Feed(Protocol):
    """How one kind of source is read."""

    hidden: pa.Schema  # its own additional columns of each row
    told: bool  # whether its changes are reported by others, instead of found by comparison

    def look(self, state: dict[str, Any], held: Rows) -> tuple[pa.Table, dict[str, Any]] | None:
        """The signed rows by which the source now differs from `held`, and the new state; None without changes.

        Without `STAMPS` in its state it reads everything that it can.
        """
        ...

    def estimate(self) -> Estimate | None:
        """The estimate without looking."""
        ...


class SnapshotReader:
    """Looks at a source when asked for its position, its changes or all of it; answers from the last look."""

    connections = 4  # lookups use memory and cores, not a server

    def __init__(self, source: Source, store: Store, folder: str, feed: Feed) -> None:
        self.source, self.feed = source, feed
        self.requests = 0
        own = schema_of(source.name, source.columns)
        self._versions = Versions(store, folder, pa.schema([*own, *feed.hidden]))
        self._looking, self._counting = threading.Lock(), threading.Lock()
        self._distrusted = threading.Event()

    def position(self) -> int:
        with self._looking:
            for left in reversed(range(_TRIES)):
                try:
                    return self._look()
                except (MovedOnError, FileNotFoundError):
                    # Another process looked at the same time, and removed the version that this one compared with.
                    if not left:
                        raise
        raise AssertionError

    def distrust(self) -> None:
        """Make the next look read everything, even what seems unchanged."""
        self._distrusted.set()

    def changes(self, after: int, until: int | None = None) -> tuple[pa.Table, int]:
        end = self.position() if until is None else until
        found, _ = self._there(lambda _: self._versions.changes(after, end))
        return found.select([*(c.name for c in self.source.columns), COUNT]), end

    def lookup(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        sought, read = codes_of(keys, keys.column_names), self._read(columns, filters)
        if not self._versions.newest.number:
            self.position()
        self._count()
        rows, number = self._there(lambda at: self._versions.find(read, keys.column_names, sought, at))
        return self._answer(rows, columns, filters, number)

    def scan(self, columns: Sequence[str], filters: Sequence[Expression]) -> Answer:
        self.position()  # a scan is of the present rows
        self._count()
        rows, number = self._there(lambda at: self._versions.rows(self._read(columns, filters), at))
        return self._answer(rows, columns, filters, number)

    @contextmanager
    def files(self, columns: Sequence[str]) -> Iterator[tuple[Files, int]]:
        """All rows as files that others may read until this ends, and their position."""
        self.position()
        self._count()
        with self._versions.files(columns) as (found, version):
            yield found, version.number

    def estimate(self, columns: Sequence[str]) -> Estimate | None:
        """The counts of the last look; before the first, the feed's estimate."""
        found = self._versions.estimate(columns) if self._versions.newest.number else self.feed.estimate()
        return None if found is None else keyed(found, self.source)

    def mark(self, position: int) -> str:
        log = self._versions.newest.log
        return f"{position}@{log}" if log else str(position)

    def resume(self, mark: str) -> int:
        number, _, log = mark.partition("@")
        if log != self._versions.newest.log:
            raise ChangesLostError(f"the copy of source {self.source.name!r} was given up and filled anew")
        return int(number)

    def settle(self, position: int) -> None:
        self._versions.settle(position)

    def close(self) -> None: ...

    def _look(self) -> int:
        self._versions.reload()
        newest = self._versions.newest
        self._count()
        distrusted = self._distrusted.is_set()
        state = {k: v for k, v in newest.state.items() if k != STAMPS or not distrusted}
        found = self.feed.look(state, Held(self._versions))
        if found is not None:
            self._check(found[0])
            newest = self._versions.append(*found)
        elif not newest.number:
            newest = self._versions.append(self._versions.schema.empty_table(), {})
        if distrusted:
            self._distrusted.clear()
        return newest.number

    def _there(self, read: Callable[[Version], pa.Table]) -> tuple[pa.Table, int]:
        """What is read of the newest version, and its number; of the next, if another process has removed a file."""
        for left in reversed(range(_TRIES)):
            try:
                with self._versions.reading() as version:
                    return read(version), version.number
            except FileNotFoundError:
                if not left:
                    raise
                self._versions.reload()
        raise AssertionError

    def _check(self, delta: pa.Table) -> None:
        """Refuse the reported deletion of a row that is not there, and a second row of the same key."""
        if self.feed.told:
            names = [c.name for c in self.source.columns]
            refuse_absent(self.source, self._after(delta, names, pc.less(delta.column(COUNT), 0)))
        if self.source.key:
            refuse_doubles(self.source, self._after(delta, self.source.key, pc.greater(delta.column(COUNT), 0)))

    def _after(self, delta: pa.Table, names: Sequence[str], concerned: pa.ChunkedArray) -> pa.Table:
        """How many of the affected rows, by some columns, there will be after a change."""
        plain = delta.select([*names, COUNT])
        sought = np.unique(codes_of(plain.filter(concerned), names))
        mine = plain.filter(pa.array(np.isin(codes_of(plain, names), sought)))
        if not self._versions.newest.number:
            return consolidated(mine)
        with self._versions.reading() as version:
            return total([mine, self._versions.found(names, names, sought, version).select(mine.column_names)])

    def _count(self) -> None:
        with self._counting:
            self.requests += 1

    def _read(self, columns: Sequence[str], filters: Sequence[Expression]) -> list[str]:
        return list(dict.fromkeys([*columns, *(r.column for f in filters for r in f.refs)]))

    def _answer(self, rows: pa.Table, columns: Sequence[str], filters: Sequence[Expression], position: int) -> Answer:
        return Answer(select(rows, filters, lambda ref: ref.column).select([*columns, COUNT]), position)


@dataclass(frozen=True)
class Held:
    """The newest version of a source for a feed."""

    versions: Versions

    def __call__(self, keys: pa.Table | None = None) -> pa.Table:
        names = [n for n in self.versions.schema.names if n != COUNT]
        with self.versions.reading() as version:
            if keys is None:
                return self.versions.rows(names, version)
            return self.versions.found(names, keys.column_names, codes_of(keys, keys.column_names), version)

    @property
    def count(self) -> int:
        return sum(file.rows for file in self.versions.newest.content)

    @contextmanager
    def files(self) -> Iterator[Files]:
        with self.versions.files([n for n in self.versions.schema.names if n != COUNT]) as (found, _):
            yield found


class Comparison:
    """A feed that reads everything and compares; `read` gives the present rows, in the source's own columns."""

    hidden = pa.schema([])
    told = False

    def __init__(self, read: Callable[[], pa.Table]) -> None:
        self.read = read

    def look(self, state: dict[str, Any], held: Rows) -> tuple[pa.Table, dict[str, Any]] | None:
        now = counted(self.read())
        delta = difference(held().select(now.column_names).cast(now.schema), now)
        return (delta, state) if delta.num_rows else None

    def estimate(self) -> None:
        """Only reading everything would give it."""


def refuse_absent(source: Source, after: pa.Table) -> None:
    """Report a row with a negative count."""
    wrong = after.filter(pc.less(after.column(COUNT), 0))
    if len(wrong):
        row = wrong.drop_columns(COUNT).slice(0, 1).to_pylist()[0]
        msg = (
            f"source {source.name!r}: its changes tell of the deletion of {row}, which was not there; "
            "let them tell of its insertion, or declare the source anew"
        )
        raise StepError(msg)


def refuse_doubles(source: Source, after: pa.Table) -> None:
    """Report a key that two rows would have, or one that is not complete."""
    missing = reduce(pc.or_, (pc.is_null(after.column(name)) for name in source.key))
    wrong = after.filter(
        pc.or_(pc.greater(after.column(COUNT), 1), pc.and_(missing, pc.greater(after.column(COUNT), 0)))
    )
    if len(wrong):
        row = wrong.slice(0, 1).to_pylist()[0]
        times = row.pop(COUNT)
        what = "has a row without a value in its key" if None in row.values() else f"has {times} rows"
        msg = f"source {source.name!r} {what}: {row}; correct it, or declare it without KEY ({', '.join(source.key)})"
        raise StepError(msg)


def counted(rows: pa.Table, count: int = 1) -> pa.Table:
    """Rows with their counts; one each unless they have them already."""
    if COUNT in rows.column_names:
        return rows
    return rows.append_column(pa.field(COUNT, pa.int64()), pa.repeat(pa.scalar(count, pa.int64()), rows.num_rows))
