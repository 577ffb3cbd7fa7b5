"""A folder that others list: owned by one state directory; files appear whole, once, named by their step."""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import StateError
from penstock.storage.local import LocalStore
from penstock.storage.store import Store

OWNER = "_penstock"  # a file that Spark and other readers of the folder ignore


@dataclass(frozen=True)
class ListedFolder:
    """A folder of this machine."""

    folder: str

    def claim(self, owner: str) -> None:
        claim(self.folder, owner)

    def publish(self, name: str, tables: Iterator[pa.Table]) -> None:
        publish(self.folder, name, tables)

    def give(self, store: Store, file: str, name: str) -> None:
        """Let a file of a store, which never changes, be one of the folder: by a link, if both are on a disk."""
        if store.has_paths:
            link(store.path(file), self.folder, name)
        else:
            save(store.map(file), self.folder, name)

    def settle(self) -> None:
        settle(self.folder)


def claim(folder: str, owner: str) -> None:
    """Ensure that nobody else writes to a folder: files of another state directory would have the same names."""
    place = LocalStore(folder, shared=True)
    place.put_if_absent(OWNER, owner.encode())
    if place.read(OWNER).decode() != owner:
        msg = f"{folder} has results of another state directory; choose another folder, or empty it (with {OWNER})"
        raise StateError(msg)
    place.sync(["../."])  # the folder itself may be new


def settle(folder: str) -> None:
    """Make what was linked there durable."""
    LocalStore(folder).sync(["."])


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
    settle(folder)


def save(data: pa.Buffer, folder: str, name: str) -> None:
    """Write the bytes of an immutable file into a claimed folder under a name, once."""
    final = Path(folder) / name
    if final.exists():
        return
    temporary = final.parent / f".{name}.{uuid.uuid4().hex}"
    try:
        temporary.write_bytes(data)
        LocalStore(folder).sync([temporary.name])
        temporary.rename(final)  # replaces an equal copy, if there is one
    finally:
        temporary.unlink(missing_ok=True)


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
