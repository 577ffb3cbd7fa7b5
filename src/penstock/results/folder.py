"""A folder that others list: it belongs to one state directory, and files appear there complete, once, under names that say their step."""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import StateError
from penstock.storage.local import LocalStore

OWNER = "_penstock"  # a file that Spark and others who list the folder pass over


def claim(folder: str, owner: str) -> None:
    """See that nobody else writes to a folder: files of another state directory would have the same names."""
    place = LocalStore(folder, shared=True)
    place.put_if_absent(OWNER, owner.encode())
    if place.read(OWNER).decode() != owner:
        msg = f"{folder} has results of another state directory; choose another folder, or empty it (with {OWNER})"
        raise StateError(msg)


def publish(folder: str, name: str, tables: Iterator[pa.Table]) -> None:
    """Put a whole file of tables of one schema into a folder that others list: it appears complete, under its name, once, with the mode that the
    umask says.
    """
    final = Path(folder) / name
    if final.exists():
        return
    temporary = final.parent / f".{name}.{uuid.uuid4().hex}"  # hidden from those who list the folder
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
    """Let a file, which never changes, appear in a claimed folder under a name, once; as a copy where the two are on different file systems.

    Who may read it is what the umask said of the folder's mark.
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
                temporary.rename(final)  # over a copy of the same, if there is one
            finally:
                temporary.unlink(missing_ok=True)
