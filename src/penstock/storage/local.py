"""A store in a folder of a local or mounted file system.

State files contain rows of streams, so these and their folders are readable only by their owner, from their creation
on. Files for a folder that others read (a sink's) get the mode of the umask. A linked file of results becomes readable
for others at that moment, not before; its folder here stays private.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import pyarrow as pa

from penstock.storage.store import in_use

LOOKING_SECONDS = 0.005  # for which a process that looks for an owner has the lock, approximately


@dataclass(frozen=True)
class LocalStore:
    """A folder on a local or shared POSIX file system. `durable=False` skips all syncs (for comparisons).

    Only its owner can read what is made in it, unless it is `shared`. Existing folders keep their modes.
    """

    root: str
    durable: bool = True
    shared: bool = False

    @property
    def epoch(self) -> int:
        return 0

    @property
    def has_paths(self) -> bool:
        return True

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def label(self, name: str) -> str:
        return self.path(name)

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
                    path.unlink(missing_ok=True)  # a partial file takes up space that may be missing
                    raise
        except OSError as error:
            if error.filename is None:
                error.filename = str(path)  # the system's error does not name the file
            raise

    def make(self, folder: str) -> None:
        path, root = Path(self.path(folder)), Path(self.root)
        if path.is_dir():
            return
        mode = 0o777 if self.shared else 0o700
        try:
            root.mkdir(mode, exist_ok=True)
        except FileNotFoundError:
            root.parent.mkdir(parents=True, exist_ok=True)  # others may use it too
            root.mkdir(mode, exist_ok=True)
        for each in reversed([p for p in (path, *path.parents) if root in p.parents]):
            if not each.is_dir():
                each.mkdir(mode, exist_ok=True)
                self._sync_folder(each.parent)  # a file in it is durable only if the folder is

    def size(self, name: str) -> int:
        return Path(self.path(name)).stat().st_size

    def sizes(self, folder: str) -> dict[str, int]:
        try:
            with os.scandir(self.path(folder)) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def exists(self, name: str) -> bool:
        return Path(self.path(name)).is_file()

    def age(self, name: str) -> float:
        return time.time() - Path(self.path(name)).stat().st_mtime

    def put_if_absent(self, name: str, data: bytes) -> bool:
        # A link refuses an existing name; a rename would silently replace it.
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

    def delete_folder(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self.path(folder))

    def touch(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.utime(self.path(name))

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(path.name for path in Path(self.path(folder)).iterdir())
        except FileNotFoundError:
            return []

    def check_owner(self) -> None:
        """A lock ends with its process."""

    @contextmanager
    def owner_lock(self, folder: str = "") -> Iterator[None]:
        name = _lock_name(folder)
        while True:
            with os.fdopen(self._open(name, os.O_RDWR | os.O_APPEND), "a+") as file:
                if not _lock_alone(file):
                    file.seek(0)
                    raise in_use(self.path(folder).rstrip("/"), file.read().strip() or "another engine")
                if not self._is_at(name, file):
                    continue  # the previous owner deleted the folder
                mine = f"process {os.getpid()}"
                file.seek(0)
                if file.read() != mine:  # a lock that every commit takes is not worth a write each time
                    file.truncate(0)
                    file.write(mine)
                    file.flush()
                yield
                return

    def owner(self, folder: str = "") -> str | None:
        """Shares the lock for an instant: processes that look do not exclude each other."""
        try:
            with Path(self.path(_lock_name(folder))).open() as file:
                if not _lock(file, fcntl.LOCK_SH):
                    return file.read().strip() or "another engine"
        except FileNotFoundError:
            pass
        return None

    def _is_at(self, name: str, file: IO[Any]) -> bool:
        """Whether a name still refers to an open file."""
        try:
            return os.path.samestat(os.stat(self.path(name)), os.fstat(file.fileno()))  # noqa: PTH116
        except FileNotFoundError:
            return False

    def _open(self, name: str, flags: int) -> int:
        """A file created with its final mode, so that nobody can open it before."""
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


def _lock_name(folder: str) -> str:
    return f"{folder}/owner.lock" if folder else "owner.lock"


def _lock_alone(file: IO[Any]) -> bool:
    """Lock the file exclusively; False if another process owns it. Processes that only look share it briefly: wait."""
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
