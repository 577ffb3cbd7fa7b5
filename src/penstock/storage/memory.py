"""A store in the memory of one process: for tests and simulations, which need no files and can inspect everything.

Ages of files follow its clock, and files have no paths: what another program would have to read is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from threading import RLock
from typing import BinaryIO, NoReturn

import pyarrow as pa

from penstock.errors import StateError
from penstock.storage.store import in_use


@dataclass(eq=False)
class MemoryStore:
    """Folders of immutable bytes. Objects that share it share the files; it cannot be sent to another process."""

    root: str = "memory:"
    clock: Callable[[], float] = time.time
    _folders: dict[str, dict[str, _File | None]] = field(default_factory=lambda: {"": {}})  # None: a folder
    _owners: dict[str, str] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)

    @property
    def epoch(self) -> int:
        return 0

    @property
    def has_paths(self) -> bool:
        return False

    def path(self, name: str) -> str:
        msg = f"{self.label(name)} lies in memory, where no other program can read it; use a state directory on disk"
        raise StateError(msg)

    def label(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        content = data if isinstance(data, bytes) else data.to_pybytes()
        with self._lock:
            if self._find(name) is not None:
                raise FileExistsError(17, "File exists", self.label(name))
            self._set(name, content)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        self.write(name, b"")
        file = BytesIO()
        try:
            yield file
        except BaseException:
            self.delete(name)
            raise
        self.replace(name, file.getvalue())

    def make(self, folder: str) -> None:
        with self._lock:
            self._folder(_plain(folder))

    def size(self, name: str) -> int:
        return len(self._get(name).data)

    def sizes(self, folder: str) -> dict[str, int]:
        with self._lock:
            found = self._folders.get(_plain(folder), {})
            return {name: len(file.data) for name, file in found.items() if file is not None}

    def exists(self, name: str) -> bool:
        return self._find(name) is not None

    def age(self, name: str) -> float:
        return self.clock() - self._get(name).time

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with self._lock:
            if self._find(name) is not None:
                return False
            self._set(name, data)
            return True

    def replace(self, name: str, data: bytes) -> None:
        with self._lock:
            self._set(name, data)

    def map(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self._get(name).data)

    def read(self, name: str) -> bytes:
        return self._get(name).data

    def sync(self, names: list[str]) -> None:
        """Nothing here outlives the process."""

    def delete(self, name: str) -> None:
        folder, _, base = name.rpartition("/")
        with self._lock:
            if self._find(name) is not None:
                del self._folders[folder][base]

    def delete_folder(self, folder: str) -> None:
        folder = _plain(folder)
        with self._lock:
            for each in [f for f in self._folders if f == folder or f.startswith(f"{folder}/")]:
                del self._folders[each]
            above, _, base = folder.rpartition("/")
            self._folders.setdefault("", {})
            self._folders.get(above, {}).pop(base, None)

    def touch(self, name: str) -> None:
        with self._lock, suppress(FileNotFoundError):
            self._get(name).time = self.clock()

    def names(self, folder: str) -> list[str]:
        with self._lock:
            return sorted(self._folders.get(_plain(folder), ()))

    def check_owner(self) -> None:
        """A lock ends with its process."""

    @contextmanager
    def owner_lock(self, folder: str = "") -> Iterator[None]:
        mine = f"process {os.getpid()}"
        with self._lock:
            if owner := self._owners.get(folder):
                raise in_use(self.label(folder).rstrip("/"), owner)
            self._owners[folder] = mine
        try:
            yield
        finally:
            del self._owners[folder]

    def owner(self, folder: str = "") -> str | None:
        return self._owners.get(folder)

    def files(self) -> dict[str, bytes]:
        """All files, by name."""
        with self._lock:
            return {
                f"{folder}/{base}" if folder else base: file.data
                for folder, entries in sorted(self._folders.items())
                for base, file in sorted(entries.items())
                if file is not None
            }

    def written_elsewhere(self, name: str, data: bytes) -> None:
        """Another program (Spark) writes a file, replacing one if there is one."""
        self.replace(name, data)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store in memory cannot be sent to another process")

    def _find(self, name: str) -> _File | None:
        folder, _, base = name.rpartition("/")
        return self._folders.get(folder, {}).get(base)

    def _get(self, name: str) -> _File:
        found = self._find(name)
        if found is None:
            raise FileNotFoundError(2, "No such file or directory", self.label(name))
        return found

    def _set(self, name: str, data: bytes) -> None:
        folder, _, base = name.rpartition("/")
        self._folder(folder)[base] = _File(data, self.clock())

    def _folder(self, folder: str) -> dict[str, _File | None]:
        if folder not in self._folders:
            above, _, base = folder.rpartition("/")
            self._folder(above)[base] = None
            self._folders[folder] = {}
        return self._folders[folder]


@dataclass
class _File:
    data: bytes
    time: float


def _plain(folder: str) -> str:
    return folder.removesuffix("/.").removeprefix("./") if folder != "." else ""
