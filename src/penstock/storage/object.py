"""A store in an object store: S3, Google Cloud Storage, Azure, or anything that speaks as they do.

A put is durable once it is answered, and whole, so there is nothing to sync and no file in parts. Of several puts of
one name with `If-None-Match` exactly one succeeds; a put whose answer is lost, or that was repeated below, is settled
by reading back who has put the object. There are no folders, locks, links or renames. Files that are written once are
mapped from copies on a local disk (`cache`).

The one who owns the store has a lease with an epoch (`lease`). Without it nothing is changed any more; what that does
not cover, the log does (decision 0040).
"""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO
from urllib.parse import quote

import pyarrow as pa

from penstock.errors import StateError
from penstock.storage.cache import Cache
from penstock.storage.lease import Lease, Times, acquire, holder
from penstock.storage.objects import PIECE, Objects, ObjectStoreError

TRIES = 3  # to put an object whose put fails and that is not there afterwards
TOUCHED = "touched"  # a folder: objects cannot be touched, so that others beside them are put anew
OWNER = "owner"  # the folder of leases


@dataclass(frozen=True)
class ObjectFiles:
    """The files of a store, whoever owns it."""

    objects: Objects
    cache: Cache | None = None

    @property
    def root(self) -> str:
        return self.objects.url

    @property
    def has_paths(self) -> bool:
        return False

    def path(self, name: str) -> str:
        msg = f"{self.label(name)} lies in an object store, where it is read through Penstock and by no path"
        raise StateError(msg)

    def label(self, name: str) -> str:
        return self.objects.label(_plain(name))

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        with self.create(name) as file:
            file.write(data)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        if self.cache is None:
            buffer = io.BytesIO()
            yield buffer
            self._put_new(name, buffer.getvalue())
            return
        with self.cache.new() as (path, file):
            yield file
            file.flush()
            if path.stat().st_size <= PIECE:
                self._put_new(name, path.read_bytes())
            elif self.exists(name):
                raise _exists(self.label(name))
            else:
                self.objects.upload(name, path)  # names of such files are given once
            self.cache.keep(name, path)

    def make(self, folder: str) -> None:
        """A folder is there once a file is in it; no other program writes here."""

    def size(self, name: str) -> int:
        return self.objects.head(name).size

    def sizes(self, folder: str) -> dict[str, int]:
        return {name: found.size for name, found in self.objects.list(_plain(folder))[1].items()}

    def exists(self, name: str) -> bool:
        try:
            self.objects.head(name)
        except FileNotFoundError:
            return False
        return True

    def age(self, name: str) -> float:
        modified = self.objects.head(name).modified
        with suppress(FileNotFoundError):
            modified = max(modified, self.objects.head(f"{TOUCHED}/{name}").modified)
        return max(time.time() - modified, 0.0)

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        writer = uuid.uuid4().hex
        for left in reversed(range(TRIES)):
            try:
                self.objects.create(name, data, writer)
            except FileExistsError:  # perhaps since it was put, and put again as the answer was lost
                return self._writer(name) == writer
            except ObjectStoreError:  # it may have been put all the same, or will be
                found = self._writer(name)
                if found is not None or not left:
                    if found is None:
                        raise
                    return found == writer
            else:
                return True
        raise AssertionError("the last try returns or raises")

    def replace(self, name: str, data: bytes) -> None:
        self.objects.put(name, data)
        self._forget(name)

    def map(self, name: str) -> pa.Buffer:
        if self.cache is None:
            return pa.py_buffer(self.objects.get(name))
        return self.cache.map(name, lambda file: self.objects.download(name, file))

    def read(self, name: str) -> bytes:
        found: bytes = self.objects.get(name).to_bytes()
        return found

    def sync(self, names: list[str]) -> None:
        """What was put is durable."""

    def delete(self, name: str) -> None:
        self._forget(name)
        self.objects.delete([name, f"{TOUCHED}/{name}"])

    def delete_folder(self, folder: str) -> None:
        folder = _plain(folder)
        found = [*self.objects.below(folder), *self.objects.below(f"{TOUCHED}/{folder}")]
        for name in found:
            self._forget(name)
        if found:
            self.objects.delete(found)

    def touch(self, name: str) -> None:
        if self.exists(name):
            self.objects.put(f"{TOUCHED}/{name}", b"")

    def names(self, folder: str) -> list[str]:
        folders, found = self.objects.list(_plain(folder))
        return sorted({*folders, *found})

    def _put_new(self, name: str, data: bytes) -> None:
        if not self.put_if_absent(name, data):
            raise _exists(self.label(name))

    def _writer(self, name: str) -> str | None:
        """Who has put an object; None if it is not there."""
        try:
            return self.objects.writer(name) or ""
        except FileNotFoundError:
            return None

    def _forget(self, name: str) -> None:
        if self.cache is not None:
            self.cache.forget(name)


@dataclass(frozen=True)
class ObjectStore(ObjectFiles):
    """The same with owners. Who owns the whole store and has lost the lease changes nothing more."""

    times: Times = Times()  # noqa: RUF009  (frozen)
    _leases: dict[str, Lease] = field(default_factory=dict, compare=False)  # of this process, by folder

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[Objects, Cache | None]]:
        return ObjectStore, (self.objects, self.cache)  # tasks own nothing: they only put files that nobody names yet

    @property
    def epoch(self) -> int:
        return self._leases[""].epoch if "" in self._leases else 0

    def check_owner(self) -> None:
        if "" in self._leases:
            self._leases[""].check()

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        self.check_owner()
        done = super().put_if_absent(name, data)
        if not done and "" in self._leases:
            self._leases[""].renew()  # the other one may be a new owner
        self.check_owner()  # it may have been paused in between, while others have deleted an object of that name
        return done

    def replace(self, name: str, data: bytes) -> None:
        self.check_owner()
        super().replace(name, data)

    def delete(self, name: str) -> None:
        self.check_owner()
        super().delete(name)

    def delete_folder(self, folder: str) -> None:
        self.check_owner()
        super().delete_folder(folder)

    def touch(self, name: str) -> None:
        self.check_owner()
        super().touch(name)

    @contextmanager
    def owner_lock(self, folder: str = "") -> Iterator[None]:
        files = ObjectFiles(self.objects)  # its own puts ask no lease
        lease = acquire(files, _leases_of(folder), self.label(folder), self.times)
        lease.keep()
        self._leases[folder] = lease
        try:
            yield
        except Exception:
            self._release(folder, lease)
            raise
        except BaseException:  # the process is being ended, and leaves its lease as if it were killed
            lease.leave()
            del self._leases[folder]
            raise
        else:
            self._release(folder, lease)

    def owner(self, folder: str = "") -> str | None:
        files = ObjectFiles(self.objects)
        return holder(files, _leases_of(folder), files.age)

    def _release(self, folder: str, lease: Lease) -> None:
        del self._leases[folder]
        with suppress(ObjectStoreError):  # then it ends by itself
            lease.release(forget=folder != "")


def _leases_of(folder: str) -> str:
    return f"{OWNER}/{quote(folder, safe='')}" if folder else OWNER


def _plain(folder: str) -> str:
    return folder.removesuffix("/.").removeprefix("./").rstrip("/") if folder != "." else ""


def _exists(label: str) -> FileExistsError:
    return FileExistsError(17, "File exists", label)
