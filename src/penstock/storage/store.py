"""Where files are: what the engine and its views need of a file system, or of an object store in its place.

Everything durable goes through a `Store` (decision 0033). Names are relative and use `/`; a folder exists once a file
is in it. Readers never find data by listing a folder: names come from the manifest. Other programs (Spark) reach files
by `path`, which not every store has.
"""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

import pyarrow as pa

from penstock.errors import StateError


def file_name(folder: str, step: int, suffix: str) -> str:
    """A name that no other task, attempt, step or engine will ever use."""
    return f"{folder}/{step}-{uuid.uuid4().hex}.{suffix}"


class Store(Protocol):
    """What the engine needs of a file system.

    Operations are atomic, except that `create` and `write` may leave part of a file behind if the process dies: no
    manifest names it.

    The content of a file is durable once `create`, `write`, `put_if_absent` or `replace` has returned; its name, or its
    deletion, once `put_if_absent`, `replace` or `sync` in its folder has.
    """

    @property
    def root(self) -> str:
        """The place in messages."""

    @property
    def epoch(self) -> int:
        """The number of the lease by which this object owns the store; 0 where a lock ends with its process."""

    @property
    def has_paths(self) -> bool:
        """Whether other programs (Spark) reach files by `path`."""

    def path(self, name: str) -> str:
        """The full path or URL under which other programs (Spark) reach the file; StateError if there is none."""

    def label(self, name: str) -> str:
        """The file in messages."""

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        """Write a new file and make it durable; raises FileExistsError."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A new file to write in pieces; durable when the context ends, deleted on an error. Raises FileExistsError."""

    def make(self, folder: str) -> None:
        """Ensure that other programs can write to a folder, if they can reach it at all."""

    def size(self, name: str) -> int:
        """The file's length in bytes; raises FileNotFoundError."""

    def sizes(self, folder: str) -> dict[str, int]:
        """The lengths in bytes of the files in a folder, by their names in it: cheaper than one by one."""

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""

    def age(self, name: str) -> float:
        """Seconds since the file was written or touched; raises FileNotFoundError."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create a durable file; False, and nothing written, if the name exists already."""

    def replace(self, name: str, data: bytes) -> None:
        """Replace a file durably and atomically for all readers."""

    def map(self, name: str) -> pa.Buffer:
        """The file's bytes, mapped into memory where that is possible; raises FileNotFoundError."""

    def read(self, name: str) -> bytes:
        """The file's bytes; raises FileNotFoundError."""

    def sync(self, names: list[str]) -> None:
        """Make files written by others, and the folders that name them, durable."""

    def delete(self, name: str) -> None:
        """Delete the file if it is there."""

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all in it if it is there; if the process dies, some of it may be left."""

    def touch(self, name: str) -> None:
        """Reset the age of a dropped file: readers that have its name may still read it for a while."""

    def names(self, folder: str) -> list[str]:
        """Names in a folder, for collecting orphans and finding the log; never for reading data."""

    def check_owner(self) -> None:
        """Raise StateError if this object has owned the store, and another owner has taken over since."""

    def owner_lock(self, folder: str = "") -> AbstractContextManager[None]:
        """Own the store, or a folder of it, exclusively, in this process and across processes.

        Raises StateError if another one owns it; a process that dies owns nothing.
        """

    def owner(self, folder: str = "") -> str | None:
        """The present owner of the store, or of a folder of it. Looking excludes nobody."""


def refuse_beside_owner(store: Store) -> None:
    """Readers may read at any time; only the engine that runs on the store may change declarations."""
    if owner := store.owner():
        msg = (
            f"state directory {store.root} is in use by {owner}, and only the engine that runs there may "
            "change what is declared; use "
            "'penstock query add' or 'penstock query drop' to change its queries, or stop it first (results "
            "can be read meanwhile)"
        )
        raise StateError(msg)


def in_use(place: str, owner: str) -> StateError:
    """The error for a place that another process owns."""
    return StateError(f"state directory {place} is in use by {owner}; stop it first, or choose another directory")
