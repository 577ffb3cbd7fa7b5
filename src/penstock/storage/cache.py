"""Files of an object store on a local disk, by name: they never change, so a copy is never out of date.

All processes of a machine share the folder, without locks: a copy appears whole, under its name, by a rename, and one
that is deleted can still be read by those that have mapped it. Beyond the limit the copies that were not used for
longest are deleted, the oldest first; how much a file has contributed to results is not known here.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import pyarrow as pa

from penstock.errors import StateError

LIMIT = 10 << 30  # bytes
FOLDER_VARIABLE, LIMIT_VARIABLE = "PENSTOCK_CACHE", "PENSTOCK_CACHE_BYTES"
ABANDONED_SECONDS = 3600.0  # after that, a file that is being written has lost its writer
_TEMPORARY = ".tmp"


@dataclass(frozen=True)
class Cache:
    """A folder of this machine with copies of at most so many bytes; the file that was used last always stays."""

    folder: str
    limit: int = LIMIT

    def map(self, name: str, fetch: Callable[[BinaryIO], None]) -> pa.Buffer:
        """The bytes of a file, mapped; `fetch` writes them if there is no copy."""
        path = self._path(name)
        with suppress(FileNotFoundError):
            os.utime(path)
            return _mapped(path)
        with self.new() as (temporary, file):
            fetch(file)
            file.flush()
            found = _mapped(temporary)  # another process may delete the copy as soon as it has its name
            self.keep(name, temporary)
        return found

    @contextmanager
    def new(self) -> Iterator[tuple[Path, BinaryIO]]:
        """A new file without a name; deleted in the end if it was not kept."""
        folder = Path(self.folder)
        folder.mkdir(0o700, parents=True, exist_ok=True)  # state contains rows
        if folder.stat().st_uid != os.getuid():
            msg = (
                f"{folder}, for copies of state, belongs to another user; set {FOLDER_VARIABLE} to a folder of your own"
            )
            raise StateError(msg)
        path = folder / f"{uuid.uuid4().hex}{_TEMPORARY}"
        try:
            with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w+b") as file:
                yield path, file
        finally:
            path.unlink(missing_ok=True)

    def keep(self, name: str, temporary: Path) -> None:
        """Make a new file the copy of this name."""
        temporary.replace(self._path(name))
        self._shrink(self._path(name))

    def forget(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return Path(self.folder, quote(name, safe=""))

    def _shrink(self, used: Path) -> None:
        """Delete what was not used for longest until the rest is within the limit."""
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    known = entry.stat()
                    if not entry.name.endswith(_TEMPORARY):
                        found.append((known.st_mtime_ns, known.st_size, entry.path))
                    elif time.time() - known.st_mtime > ABANDONED_SECONDS:
                        Path(entry.path).unlink()
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.limit:
                break
            if path != str(used):
                Path(path).unlink(missing_ok=True)
                total -= size


def cache_of(url: str) -> Cache:
    """The cache of a place in an object store, on this machine and for this user."""
    base = os.environ.get(FOLDER_VARIABLE) or str(Path(tempfile.gettempdir(), f"penstock-cache-{os.getuid()}"))
    folder = Path(base, hashlib.sha256(url.encode()).hexdigest()[:16])
    return Cache(str(folder), int(os.environ.get(LIMIT_VARIABLE) or LIMIT))


def _mapped(path: Path) -> pa.Buffer:
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()
