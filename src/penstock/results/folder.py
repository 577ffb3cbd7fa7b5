"""A folder as a sink, which others list: it belongs to one state directory, and files appear there complete, once, under names that say their step.

Rows that lie in files of a query's own as its select list says are not read again: the folder gets these very files.
"""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import StateError
from penstock.results.layout import OWN
from penstock.results.sink import Line, Tables
from penstock.state.result_files import ResultFile
from penstock.storage.crash_points import kill_point
from penstock.storage.local import LocalStore
from penstock.storage.store import Store

OWNER = "_penstock"  # a file that Spark and other readers of the folder ignore


@dataclass
class FolderSink:
    """Parquet files in a folder, one for each query and step, or links to the files of the query. `owner` is the state directory that may write."""

    folder: str
    tables: Tables
    store: Store  # where result files lie
    owner: str
    _claimed: bool = field(default=False, init=False)

    def write(self, lines: Sequence[Line], step: int) -> None:
        linked = {q: own for line in lines for q, own in line.files.items() if all(f.kind == OWN for f in own)}
        for line in lines:
            queries = tuple(query for query in line.queries if query not in linked)
            tables = (table for table in (self.tables(queries, line.part) if queries else ()) if len(table))
            if (first := next(tables, None)) is not None:
                self._claim()
                publish(self.folder, f"part-{step:08d}-{queries[-1]}.parquet", chain([first], tables))
        if linked:
            self._link(linked, step)

    def _link(self, files: Mapping[int, Sequence[ResultFile]], step: int) -> None:
        """Publish the files of single queries. Their order, which numbers them, is the same at every attempt."""
        self._claim()
        for query, own in files.items():
            for number, name in enumerate(sorted(file.name for file in own)):
                link(self.store.path(name), self.folder, f"part-{step:08d}-{query}-{number}.parquet")
                kill_point("after_link", step)
        LocalStore(self.folder).sync(["."])

    def _claim(self) -> None:
        if not self._claimed:
            claim(self.folder, self.owner)
            LocalStore(self.folder).sync(["../."])  # the folder itself may be new
            self._claimed = True


def claim(folder: str, owner: str) -> None:
    """Ensure that nobody else writes to a folder: files of another state directory would have the same names."""
    place = LocalStore(folder, shared=True)
    place.put_if_absent(OWNER, owner.encode())
    if place.read(OWNER).decode() != owner:
        msg = f"{folder} has results of another state directory; choose another folder, or empty it (with {OWNER})"
        raise StateError(msg)


def publish(folder: str, name: str, tables: Iterator[pa.Table]) -> None:
    """Write tables of one schema as a file of a listed folder: it appears whole, once, with the umask's mode."""
    final = Path(folder) / name
    if final.exists():
        return
    temporary = final.parent / f".{name}.{uuid.uuid4().hex}"  # invisible to readers of the folder
    try:
        first = next(tables)
        with pq.ParquetWriter(temporary, first.schema) as file:
            for table in chain([first], tables):
                file.write_table(table)
        LocalStore(folder).sync([temporary.name])
        with suppress(FileExistsError):
            os.link(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)
    LocalStore(folder).sync(["."])


def link(file: str, folder: str, name: str) -> None:
    """Link an immutable file into a claimed folder under a name, once; copies it between different file systems.

    Its readers are those that the umask gave to the folder's mark.
    """
    final = Path(folder) / name
    if final.exists():
        return
    with suppress(FileExistsError):
        try:
            Path(file).chmod(stat.S_IMODE((Path(folder) / OWNER).stat().st_mode))
            os.link(file, final)
        except OSError as error:
            if isinstance(error, FileExistsError) or not Path(file).exists():
                raise
            temporary = final.parent / f".{name}.{uuid.uuid4().hex}"
            try:
                shutil.copyfile(file, temporary)
                LocalStore(folder).sync([temporary.name])
                temporary.rename(final)  # replaces an equal copy, if there is one
            finally:
                temporary.unlink(missing_ok=True)
