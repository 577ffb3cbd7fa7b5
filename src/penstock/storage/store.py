"""Where files live. Everything durable goes through a `Store`, so that object stores can stand in for a local disk.

Paths are relative and use `/`. A store never lists directories for readers: names come from the manifest.
Rows of streams lie in state files, so these and their folders are their owner's alone, from the moment they are made. What a folder that
others read gets (a sink's) is made as the umask says. A file of results that is linked there is opened to others then, and not before; the
folder in which it lies here is its owner's.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

import pyarrow as pa

from penstock.errors import StateError

LOOKING_SECONDS = 0.005  # for which somebody who looks for an owner has the lock, about


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

    def make(self, folder: str) -> None:
        """See that a folder is there, for other programs to write to."""

    def size(self, name: str) -> int:
        """The file's length in bytes; raises FileNotFoundError."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create a durable file; False, and nothing written, if the name exists already."""

    def replace(self, name: str, data: bytes) -> None:
        """Put a durable file in the place of one, at once for all who read it."""

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
    """A folder on a local or shared POSIX file system. `durable=False` skips all syncs (for comparisons).

    Only its owner reads what is made in it, unless it is `shared`. Folders that are there already stay as they are.
    """

    root: str
    durable: bool = True
    shared: bool = False

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        with self.create(name) as file:
            file.write(data)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        path = Path(self.path(name))
        try:
            with os.fdopen(self._open(name, os.O_WRONLY | os.O_EXCL), "wb") as file:
                try:
                    yield file
                    file.flush()
                    self._sync_file(file.fileno())
                except BaseException:
                    path.unlink(missing_ok=True)  # half a file takes up room that may be what is wanting
                    raise
        except OSError as error:
            if error.filename is None:
                error.filename = str(path)  # the system does not name the file that it cannot write on
            raise

    def make(self, folder: str) -> None:
        path, root = Path(self.path(folder)), Path(self.root)
        if path.is_dir():
            return
        mode = 0o777 if self.shared else 0o700
        try:
            root.mkdir(mode, exist_ok=True)
        except FileNotFoundError:
            root.parent.mkdir(parents=True, exist_ok=True)  # where others may have something too
            root.mkdir(mode, exist_ok=True)
        for each in reversed([p for p in (path, *path.parents) if root in p.parents]):
            each.mkdir(mode, exist_ok=True)

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

    def replace(self, name: str, data: bytes) -> None:
        temporary = f"{name}.{uuid.uuid4().hex}.tmp"
        self.write(temporary, data)
        target = Path(self.path(name))
        Path(self.path(temporary)).replace(target)
        self._sync_folder(target.parent)

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
        try:
            return sorted(path.name for path in Path(self.path(folder)).iterdir())
        except FileNotFoundError:
            return []

    @contextmanager
    def owner_lock(self) -> Iterator[None]:
        """Hold the state directory for one engine at a time, in this process and across processes."""
        with os.fdopen(self._open("owner.lock", os.O_RDWR | os.O_APPEND), "a+") as file:
            if not _lock_alone(file):
                file.seek(0)
                owner = file.read().strip() or "another engine"
                msg = f"state directory {self.root} is in use by {owner}; stop it first, or choose another directory"
                raise StateError(msg)
            mine = f"process {os.getpid()}"
            file.seek(0)
            if file.read() != mine:  # a lock that is taken for every commit is not worth a write each time
                file.truncate(0)
                file.write(mine)
                file.flush()
            yield

    def owner(self) -> str | None:
        """Who holds the state directory now. Shares the lock for an instant: those who look do not see one another."""
        try:
            with Path(self.path("owner.lock")).open() as file:
                if not _lock(file, fcntl.LOCK_SH):
                    return file.read().strip() or "another engine"
        except FileNotFoundError:
            pass
        return None

    def refuse_beside_owner(self) -> None:
        """Who only reads may do so at any time; to change what is declared is for the engine that runs on the directory."""
        if owner := self.owner():
            msg = (
                f"state directory {self.root} is in use by {owner}, and only the engine that runs there may change what is declared; use "
                "'penstock query add' or 'penstock query drop' to change its queries, or stop it first (results can be read meanwhile)"
            )
            raise StateError(msg)

    def _open(self, name: str, flags: int) -> int:
        """A file that is made with its final mode, so that nobody can open it before."""
        self.make(name.rpartition("/")[0] or ".")
        return os.open(self.path(name), flags | os.O_CREAT | os.O_CLOEXEC, 0o666 if self.shared else 0o600)

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


def _lock_alone(file: IO[Any]) -> bool:
    """Hold the file alone; False if somebody else does. Those who only look share it for an instant, and are waited for."""
    while not _lock(file, fcntl.LOCK_EX):
        if not _lock(file, fcntl.LOCK_SH):
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
        time.sleep(LOOKING_SECONDS)
    return True


def _lock(file: IO[Any], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
