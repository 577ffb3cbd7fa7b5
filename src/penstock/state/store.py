"""Where files live. Everything durable goes through a `Store`, so that object stores can stand in for a local disk.

Paths are relative and use `/`. A store never lists directories for readers: names come from the manifest.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from penstock.errors import StateError


def file_name(folder: str, step: int, suffix: str) -> str:
    """A name that no other task, attempt, step or engine will ever use."""
    return f"{folder}/{step}-{uuid.uuid4().hex}.{suffix}"


class Store(Protocol):
    """What the engine needs of a file system."""

    def path(self, name: str) -> str:
        """The full path or URL under which other programs (Spark) reach the file."""

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        """Write a new file and make it durable."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A new file to write to in pieces; durable when the context ends."""

    def size(self, name: str) -> int:
        """The file's length in bytes; raises FileNotFoundError."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create a durable file; False, and nothing written, if the name exists already."""

    def map(self, name: str) -> pa.Buffer:
        """The file's bytes, mapped into memory where that is possible."""

    def read(self, name: str) -> bytes:
        """The file's bytes; raises FileNotFoundError."""

    def sync(self, names: list[str]) -> None:
        """Make files written by others, and the folders that name them, durable."""

    def delete(self, name: str) -> None:
        """Delete the file if it is there."""

    def touch(self, name: str) -> None:
        """Let a file that is given up count as young: who has its name may still read it for a while."""

    def names(self, folder: str) -> list[str]:
        """Names in a folder, for collecting orphans and finding the log; never for reading data."""


@dataclass(frozen=True)
class LocalStore:
    """A folder on a local or shared POSIX file system. `durable=False` skips all syncs (for comparisons)."""

    root: str
    durable: bool = True

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        path = self._make_folder(name)
        with path.open("xb") as file:
            file.write(data)
            self._sync_file(file.fileno())

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        with self._make_folder(name).open("xb") as file:
            yield file
            file.flush()
            self._sync_file(file.fileno())

    def size(self, name: str) -> int:
        return Path(self.path(name)).stat().st_size

    def put_if_absent(self, name: str, data: bytes) -> bool:
        # A link refuses an existing name, a rename would silently win over it.
        temporary = f"{name}.{uuid.uuid4().hex}.tmp"
        self.write(temporary, data)
        source, target = Path(self.path(temporary)), Path(self.path(name))
        try:
            os.link(source, target)
        except FileExistsError:
            return False
        finally:
            source.unlink()
        self._sync_folder(target.parent)
        return True

    def map(self, name: str) -> pa.Buffer:
        with pa.memory_map(self.path(name)) as file:
            return file.read_buffer()

    def read(self, name: str) -> bytes:
        return Path(self.path(name)).read_bytes()

    def sync(self, names: list[str]) -> None:
        if not self.durable:
            return
        folders = set()
        for name in names:
            path = Path(self.path(name))
            folders.add(path if path.is_dir() else path.parent)
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        for folder in folders:
            if folder.is_dir():
                self._sync_folder(folder)

    def delete(self, name: str) -> None:
        Path(self.path(name)).unlink(missing_ok=True)

    def touch(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.utime(self.path(name))

    def names(self, folder: str) -> list[str]:
        path = Path(self.path(folder))
        return sorted(p.name for p in path.iterdir()) if path.is_dir() else []

    @contextmanager
    def owner_lock(self) -> Iterator[None]:
        """Hold the state directory for one engine at a time, in this process and across processes."""
        path = self._make_folder("owner.lock")
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                owner = file.read().strip() or "another engine"
                msg = f"state directory {self.root} is in use by {owner}; stop it first, or choose another directory"
                raise StateError(msg) from None
            mine = f"process {os.getpid()}"
            file.seek(0)
            if file.read() != mine:  # a lock that is taken for every commit is not worth a write each time
                file.truncate(0)
                file.write(mine)
                file.flush()
            yield

    def owned(self) -> bool:
        """True while an engine holds the state directory. Shares the lock for an instant: those who look do not see one another."""
        try:
            with Path(self.path("owner.lock")).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def _make_folder(self, name: str) -> Path:
        path = Path(self.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _sync_file(self, descriptor: int) -> None:
        if self.durable:
            os.fsync(descriptor)

    def _sync_folder(self, folder: Path) -> None:
        if self.durable:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
