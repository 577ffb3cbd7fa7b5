"""The installed view: signed rows appended as files, merged on read, and one manifest per version.

A version names the files of the view and the position of each source; both change together, by putting the next
manifest unless somebody else has. Readers see one whole version. A process that dies before the manifest leaves the old
version and files that the next one removes; the refresh is then repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.codes import codes_of
from penstock.errors import StateError, StepError
from penstock.planner.views.statistics import Remembered
from penstock.storage.codec import exact, plain
from penstock.storage.log import Log
from penstock.storage.seal import unseal
from penstock.storage.store import Store
from penstock.views.refresh.aggregate import Grouping
from penstock.views.rows.bag import COUNT, consolidated, total
from penstock.views.rows.slices import SliceFile, Slices, young
from penstock.views.sources.change_audit import PREFIX, Told
from penstock.views.sources.change_audit import SCHEMA as TOLD

ROWS, GROUPS = "rows", "groups"
DEFINITION = "definition"  # the file with the view's definition and id
_KEPT_FACTS = 50  # refreshes


@dataclass(frozen=True)
class Installed:
    """One version: the files of each bag, the mark of each source, and the costs of refreshes, newest last.

    `learned` is what the next refresh may need to know of the sources, in any process.
    """

    number: int = 0
    bags: Mapping[str, tuple[SliceFile, ...]] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)
    facts: tuple[Mapping[str, Any], ...] = ()
    learned: Remembered | None = None


class ViewStore:
    """The versions of one view under `folder`. `schema` are the view's joined rows, without their counts.

    `identity` is the id in its definition, if it has one: a view that was dropped and declared again has another one.
    """

    def __init__(
        self,
        store: Store,
        folder: str,
        schema: pa.Schema,
        grouping: Grouping | None = None,
        identity: str | None = None,
    ) -> None:
        self.store, self.folder, self.grouping, self.identity = store, folder, grouping, identity
        self.schema = schema.append(pa.field(COUNT, pa.int64()))
        self.slices = Slices(store, f"{folder}/slices")
        self.log = Log(store, folder, "number", plain, partial(exact, kind=Installed))
        self.newest = self.load()
        self._cleared = False

    # -- writing ----------------------------------------------------------------------------------------------------

    def install(
        self,
        rows: pa.Table,
        marks: Mapping[str, str],
        facts: Mapping[str, Any] | None = None,
        *,
        whole: bool = False,
        told: Told | None = None,
        learned: Remembered | None = None,
    ) -> Installed:
        """The next version: the view plus these signed rows, or (`whole`) these rows alone; its costs, the changes that
        sources reported up to it, and statistics of the sources, if there are new ones.
        """
        with self._writing():
            bags = self._bags(rows, whole=whole, told=told or Told())
            kept = (*self.newest.facts, *(() if facts is None else (facts,)))[-_KEPT_FACTS:]
            news = self.newest.learned if learned is None else learned
            return self._commit(Installed(self.newest.number + 1, bags, dict(marks), kept, news))

    def absent(self, bag: str, delta: pa.Table) -> pa.Table:
        """The rows with a negative count in the bag after a change."""
        removed = delta.filter(pc.less(delta.column(COUNT), 0))
        columns = [name for name in delta.column_names if name != COUNT]
        there = self._there(self.newest.bags.get(bag, ()), removed, columns)
        after = total([removed, *there])
        return after.filter(pc.less(after.column(COUNT), 0))

    def _bags(self, rows: pa.Table, *, whole: bool, told: Told) -> dict[str, tuple[SliceFile, ...]]:
        before = replace(self.newest, bags={}) if whole else self.newest
        rows = consolidated(rows.select(self.schema.names).cast(self.schema))
        bags = {bag: files for bag, files in self.newest.bags.items() if not whole or bag.startswith(PREFIX)}
        for bag, codes in told.coded.items():
            bags[bag] = self._grown(Installed() if told.whole else self.newest, bag, codes, TOLD)
        if self.grouping is None:
            bags[ROWS] = self._grown(before, ROWS, rows, self.schema)
        else:
            states = self._regrouped(before, rows)
            if self.grouping.needs_rows:
                bags[ROWS] = self._grown(before, ROWS, rows, self.schema)
            bags[GROUPS] = self._grown(before, GROUPS, states, self.grouping.state)
        return bags

    def compact(self) -> Installed:
        """The same content in one file per bag."""
        with self._writing():
            bags = {
                bag: files if len(files) <= 1 else (self.slices.write(self.content(bag, self.newest)),)
                for bag, files in self.newest.bags.items()
            }
            return self._commit(replace(self.newest, number=self.newest.number + 1, bags=bags))

    # -- reading ----------------------------------------------------------------------------------------------------

    def load(self) -> Installed:
        """The newest version there is; number 0 if the view was never computed."""
        return self.log.newest() or Installed()

    def read(self) -> tuple[pa.Table, int]:
        """What a reader sees, with counts (one of each group under aggregates), and the version."""
        for last in (False, False, True):
            try:
                with self.slices.holding(lambda: self.newest, _files) as version:
                    found = self.content(GROUPS if self.grouping else ROWS, version)
                break
            except FileNotFoundError:
                # Another process has installed a newer version and removed a file of this one.
                self._refuse_stale()
                if last:
                    raise
                self.newest = self.load()
        if self.grouping is not None:
            found = self.grouping.answer(found)
            found = found.append_column(COUNT, pa.repeat(pa.scalar(1, pa.int64()), len(found)))
        return found, version.number

    def content(self, bag: str, version: Installed) -> pa.Table:
        """All rows of a bag. Rows that no deletion affects are passed through."""
        schema = TOLD if bag.startswith(PREFIX) else self.schema if bag == ROWS else self._state()
        columns = _key(schema, self.grouping if bag == GROUPS else None)
        kept, changed = self.slices.content(version.bags.get(bag, ()), schema, columns)
        _refuse_negative(changed)
        return pa.concat_tables([kept, changed]) if len(changed) else kept

    @property
    def stale(self) -> bool:
        """Whether another process dropped this view, whatever is there under its name now."""
        return self.identity is not None and identity_of(self.store, self.folder) != self.identity

    # -- inside -----------------------------------------------------------------------------------------------------

    def _refuse_stale(self) -> None:
        if self.stale:
            msg = f"the view in {self.store.label(self.folder)} was dropped by somebody else; declare it again"
            raise StateError(msg)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Exclusive, on the newest version, and without leftovers of a process that died."""
        self._refuse_stale()  # before a folder is made for the lock
        with self.slices.writing():
            self._refuse_stale()
            found = self.load()
            if found.number != self.newest.number:
                self.newest = found
                msg = (
                    f"version {found.number} of {self.store.label(self.folder)} was installed by somebody else; "
                    "refresh again"
                )
                raise StateError(msg)
            if not self._cleared:
                self.slices.collect(_files(found))
                self._cleared = True
            yield

    def _grown(self, before: Installed, bag: str, delta: pa.Table, schema: pa.Schema) -> tuple[SliceFile, ...]:
        """The files of a bag with one more, merged if there are too many."""
        files = before.bags.get(bag, ())
        if not len(delta) and files:
            return files
        self._check(files, delta, _key(schema, self.grouping if bag == GROUPS else None))
        files = (*files, self.slices.write(delta))
        first, later = files[0], files[1:]
        if later and sum(f.rows for f in later) > max(first.rows // 2, 1_000):
            return (self.slices.write(self.content(bag, Installed(bags={bag: files}))),)
        cut = len(files) - young(files)
        if cut < len(files) - 1:
            return (*files[:cut], self.slices.write(total([self.slices.table(f) for f in files[cut:]])))
        return files

    def _check(self, files: Sequence[SliceFile], delta: pa.Table, columns: Sequence[str]) -> None:
        """Report the deletion of a row that is not there."""
        removed = delta.filter(pc.less(delta.column(COUNT), 0))
        _refuse_negative(total([removed, *self._there(files, removed, columns)]))

    def _there(self, files: Sequence[SliceFile], rows: pa.Table, columns: Sequence[str]) -> list[pa.Table]:
        """The rows in the files that equal these."""
        if not len(rows):
            return []
        sought = np.unique(codes_of(rows, columns))
        return [self.slices.find(f, rows.column_names, columns, sought) for f in files]

    def _regrouped(self, before: Installed, rows: pa.Table) -> pa.Table:
        grouping = self.grouping
        assert grouping is not None

        def find(bag: str, schema: pa.Schema, wanted: pa.Table) -> pa.Table:
            files = before.bags.get(bag, ())
            if not grouping.groups:
                return pa.concat_tables([schema.empty_table(), *(self.slices.table(f) for f in files)])
            sought = np.unique(codes_of(wanted, grouping.groups))
            found = [self.slices.find(f, schema.names, grouping.groups, sought) for f in files]
            return pa.concat_tables([schema.empty_table(), *found])

        def held(touched: pa.Table) -> pa.Table:
            return total([find(ROWS, self.schema, touched), rows])

        return grouping.change(rows, consolidated(find(GROUPS, grouping.state, rows)), held)

    def _state(self) -> pa.Schema:
        assert self.grouping is not None
        return self.grouping.state

    def _commit(self, version: Installed) -> Installed:
        self.slices.sync()
        if not self.log.put(version):
            raise StateError(
                f"version {version.number} of {self.store.label(self.folder)} is there already; refresh again"
            )
        kept = set(_files(version))
        before, self.newest = self.newest, version
        self.slices.forget([f for f in _files(before) if f not in kept])
        self.log.delete(before.number - 1)
        return version


def identity_of(store: Store, folder: str) -> str | None:
    """The id in a view's definition; empty in an older form without ids, None if there is no definition."""
    name = f"{folder}/{DEFINITION}"
    try:
        return str(unseal(store.read(name), store.label(name)).get("id", ""))
    except FileNotFoundError:
        return None


def forget_versions(store: Store, folder: str) -> None:
    """Delete what an interrupted drop has left of a view; files of rows are collected by the next writer."""
    log = Log(store, folder, "number", plain, partial(exact, kind=Installed))
    left = log.numbers()
    for number in left:
        log.delete(number)
    if left:
        store.sync([f"{folder}/."])


def _files(version: Installed) -> list[SliceFile]:
    return [f for files in version.bags.values() for f in files]


def repeated(table: pa.Table) -> pa.Table:
    """Each row as often as its count says, without the count."""
    times = table.column(COUNT).to_numpy()
    plain = table.drop_columns(COUNT)
    if (times == 1).all():
        return plain
    return plain.take(pa.array(np.repeat(np.arange(len(times)), times)))


def _key(schema: pa.Schema, grouping: Grouping | None) -> list[str]:
    """The columns that identify rows of a bag: the groups, or all of them."""
    if grouping is not None and grouping.groups:
        return list(grouping.groups)
    return [n for n in schema.names if n != COUNT]


def _refuse_negative(rows: pa.Table) -> None:
    wrong = rows.filter(pc.less(rows.column(COUNT), 0))
    if len(wrong):
        row = wrong.slice(0, 1).to_pylist()[0]
        times = row.pop(COUNT)
        msg = (
            f"{row} would be in the view {times} times: a row was deleted that is not there; "
            "find out which source reports it, and recompute the view"
        )
        raise StepError(msg)
