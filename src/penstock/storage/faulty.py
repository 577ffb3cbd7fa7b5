"""A store that fails as disks, networks and machines do: for tests, reproducible from its seed.

It wraps another store and keeps the promises of `Store`, no more: without a sync, a write may be lost in a power cut. A
process that has died on it can do nothing more; the next one continues with `restarted`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from random import Random
from threading import RLock
from time import sleep
from typing import BinaryIO, TypeVar

import pyarrow as pa

from penstock.storage.store import Store

Found = TypeVar("Found")


class Died(BaseException):
    """The process has died at this operation; no program handles that."""


@dataclass(frozen=True)
class Faults:
    """Probabilities (0 to 1) that an operation fails without effect, that a put succeeds but fails, and of delays.

    The process dies instead of change number `dies_at`, counted from 1: a part of a file being written may remain.
    """

    fails: float = 0.0
    unclear: float = 0.0
    slow: float = 0.0
    dies_at: int | None = None


NONE = Faults()


@dataclass(eq=False)
class FaultyStore:
    """`changes` are those that were started: (operation, name). `delay` is called for slow operations."""

    inner: Store
    random: Random
    faults: Faults = NONE
    delay: Callable[[], None] = lambda: sleep(0.001)
    changes: list[tuple[str, str]] = field(default_factory=list)
    dead: bool = False
    _before: dict[str, bytes | None] = field(default_factory=dict)  # what a power cut may restore; None: no file
    _loose: set[str] = field(default_factory=set)  # files without even durable content
    _held: list[ExitStack] = field(default_factory=list)
    _lock: RLock = field(default_factory=RLock)

    # -- what tests do ----------------------------------------------------------------------------------------------

    def written_elsewhere(self, name: str, data: bytes) -> None:
        """Another program (Spark) writes a file, replacing one if there is one, without a sync."""
        self._change("other", name, lambda: self.inner.replace(name, data), data)
        self._loose.add(name)

    def die(self) -> None:
        """Let the process die: whoever still holds this store can do nothing with it, and it owns nothing any more."""
        with self._lock:
            self.dead = True
            while self._held:
                with suppress(Died):
                    self._held.pop().__exit__(Died, Died(), None)

    def restarted(self, faults: Faults = NONE, *, power_cut: bool = False) -> FaultyStore:
        """The store for the next process. After a power cut, what was not durable may be as before, or partial."""
        self.die()
        if power_cut:
            for name in sorted(self._loose):
                if self.inner.exists(name):
                    self.inner.replace(name, self._part(self.inner.read(name)))
            for name, data in sorted(self._before.items()):
                if self._happens(0.5):
                    self._put_back(name, data)
            self._before.clear()
            self._loose.clear()
        return FaultyStore(self.inner, self.random, faults, self.delay, _before=self._before, _loose=self._loose)

    # -- Store ------------------------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        return self.inner.root

    @property
    def epoch(self) -> int:
        return self.inner.epoch

    @property
    def has_paths(self) -> bool:
        return self.inner.has_paths

    def path(self, name: str) -> str:
        return self.inner.path(name)

    def label(self, name: str) -> str:
        return self.inner.label(name)

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        self._change("write", name, lambda: self.inner.write(name, data), data)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        if self._look("create", name, self.inner.exists):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.label(name))
        file = BytesIO()
        yield file
        self.write(name, file.getvalue())

    def make(self, folder: str) -> None:
        self._look("make", folder, self.inner.make)

    def size(self, name: str) -> int:
        return self._look("size", name, self.inner.size)

    def sizes(self, folder: str) -> dict[str, int]:
        return self._look("sizes", folder, self.inner.sizes)

    def exists(self, name: str) -> bool:
        return self._look("exists", name, self.inner.exists)

    def age(self, name: str) -> float:
        return self._look("age", name, self.inner.age)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        done = self._change("put", name, lambda: self.inner.put_if_absent(name, data))
        if done and self._happens(self.faults.unclear):
            raise _fault(self.label(name))
        if done:
            self._durable([name])
        return done

    def replace(self, name: str, data: bytes) -> None:
        self._change("replace", name, lambda: self.inner.replace(name, data))
        if self._happens(self.faults.unclear):
            raise _fault(self.label(name))
        self._durable([name])

    def map(self, name: str) -> pa.Buffer:
        return self._look("map", name, self.inner.map)

    def read(self, name: str) -> bytes:
        return self._look("read", name, self.inner.read)

    def sync(self, names: list[str]) -> None:
        self._begin("sync", ", ".join(names))
        with self._lock:
            self.inner.sync(names)
            self._loose.difference_update(names)
            self._durable(names)

    def delete(self, name: str) -> None:
        self._change("delete", name, lambda: self.inner.delete(name))

    def delete_folder(self, folder: str) -> None:
        """One file after the other: a process may die in between."""
        for name in list(_below(self.inner, folder)):
            self.delete(name)
        self._begin("delete folder", folder)
        self.inner.delete_folder(folder)

    def touch(self, name: str) -> None:
        self._look("touch", name, self.inner.touch)

    def names(self, folder: str) -> list[str]:
        return self._look("names", folder, self.inner.names)

    def check_owner(self) -> None:
        self.inner.check_owner()

    @contextmanager
    def owner_lock(self, folder: str = "") -> Iterator[None]:
        self._begin("lock", folder, change=False)
        with ExitStack() as held:
            held.enter_context(self.inner.owner_lock(folder))
            self._held.append(held)
            try:
                yield
            finally:
                with suppress(ValueError):
                    self._held.remove(held)

    def owner(self, folder: str = "") -> str | None:
        return self._look("owner", folder, self.inner.owner)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _look(self, operation: str, name: str, act: Callable[[str], Found]) -> Found:
        self._begin(operation, name, change=False)
        return act(name)

    def _change(
        self, operation: str, name: str, act: Callable[[], Found], data: pa.Buffer | bytes | None = None
    ) -> Found:
        self._begin(operation, name, data)
        with self._lock:
            before = self.inner.read(name) if self.inner.exists(name) else None
            found = act()
            self._before.setdefault(name, before)
            return found

    def _begin(self, operation: str, name: str, data: pa.Buffer | bytes | None = None, *, change: bool = True) -> None:
        """Fail, wait or die, by chance. A process that dies during a write leaves at most a part of the file."""
        if self.dead:
            raise Died
        if self._happens(self.faults.slow):
            self.delay()
        if self._happens(self.faults.fails):
            raise _fault(self.label(name))
        if not change:
            return
        with self._lock:
            self.changes.append((operation, name))
            if len(self.changes) != self.faults.dies_at:
                return
            if data is not None and not self.inner.exists(name) and self._happens(0.5):
                self.inner.write(name, self._part(bytes(memoryview(data))))
                self._before.setdefault(name, None)
            self.die()
            raise Died

    def _part(self, data: bytes) -> bytes:
        return data[: self.random.randrange(len(data) + 1)]

    def _happens(self, share: float) -> bool:
        return share > 0 and self.random.random() < share

    def _durable(self, names: list[str]) -> None:
        """The names in the folders of these files are durable as they are now."""
        with self._lock:
            for folder in {name.rpartition("/")[0] for name in names}:
                for name in [n for n in self._before if n.rpartition("/")[0] == folder]:
                    del self._before[name]

    def _put_back(self, name: str, data: bytes | None) -> None:
        if data is None:
            self.inner.delete(name)
        else:
            self.inner.replace(name, data)


def _fault(place: str) -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO), place)


def _below(store: Store, folder: str) -> Iterator[str]:
    for base in store.names(folder):
        name = f"{folder}/{base}" if folder else base
        if store.exists(name):
            yield name
        else:
            yield from _below(store, name)
