"""A place in an object store that others list: owned by one state directory; objects appear whole, once, by their name.

There are no links: files are copied. A name is put only if it is not there, so that whoever repeats a delivery, or
delivers beside another engine, changes nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import StateError
from penstock.storage.listed_folder import OWNER
from penstock.storage.object import ObjectFiles
from penstock.storage.objects import Objects
from penstock.storage.store import Store


@dataclass(frozen=True)
class ListedObjects:
    """A place, with the credentials of the environment unless files are given."""

    files: ObjectFiles

    def claim(self, owner: str) -> None:
        """Ensure that nobody else writes here: objects of another state directory would have the same names."""
        self.files.put_if_absent(OWNER, owner.encode())
        if self.files.read(OWNER).decode() != owner:
            msg = (
                f"{self.files.root} has results of another state directory; choose another place, or empty it (with "
                f"{OWNER})"
            )
            raise StateError(msg)

    def publish(self, name: str, tables: Iterator[pa.Table]) -> None:
        """Put tables of one schema as an object, once."""
        if self.files.exists(name):
            return
        with tempfile.NamedTemporaryFile(prefix="penstock-") as file:
            first = next(tables)
            with pq.ParquetWriter(file.name, first.schema) as writer:
                for table in chain([first], tables):
                    writer.write_table(table)
            with pa.memory_map(file.name) as mapped:
                self.files.put_if_absent(name, mapped.read_buffer())

    def give(self, store: Store, file: str, name: str) -> None:
        """Put a file of a store, which never changes, as an object, once."""
        if not self.files.exists(name):
            self.files.put_if_absent(name, store.map(file))

    def settle(self) -> None:
        """What was put is durable."""


def listed_objects(url: str) -> ListedObjects:
    return ListedObjects(ObjectFiles(Objects(url.rstrip("/"))))
