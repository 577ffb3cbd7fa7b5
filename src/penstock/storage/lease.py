"""The lease on a place in an object store, where no lock ends with its process: numbered, renewed, and taken over.

Each owner puts a record of its own number, the *epoch*, if there is none, so that of several only one gets it. It
renews the record, which nobody else writes. Who finds a record that has not changed for the time it states, on a clock
of his own, puts the next number: the former owner has lost the lease, whatever it still believes. A lease keeps engines
from disturbing each other; that none commits what it must not is up to the log (decision 0040).
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.errors import StateError
from penstock.storage.store import in_use

SECONDS = 30.0  # without a renewal after which another engine may take over
RENEWALS = 3  # in that time
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine sleeps
LOOKS = 30  # at a lease that may have been left, in that time

_held: set[str] = set()  # the ids of the leases of this process


class LeaseLostError(StateError):
    """Another engine has taken over."""


class Records(Protocol):
    """Where leases are."""

    def label(self, name: str) -> str: ...

    def read(self, name: str) -> bytes: ...

    def put_if_absent(self, name: str, data: bytes) -> bool: ...

    def replace(self, name: str, data: bytes) -> None: ...

    def delete(self, name: str) -> None: ...

    def names(self, folder: str) -> list[str]: ...


@dataclass(frozen=True)
class Times:
    """How long a lease lasts without a renewal, and clocks, which tests replace."""

    seconds: float = SECONDS
    clock: Callable[[], float] = lambda: time.clock_gettime(_CLOCK)
    sleep: Callable[[float], None] = time.sleep


@dataclass(eq=False)
class Lease:
    """A lease that this process holds."""

    records: Records
    folder: str  # of the records
    place: str  # what is owned, in messages
    epoch: int
    times: Times
    lost: str = ""  # who has taken over
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _renewals: int = 0
    _renewed: float = 0.0  # when the last renewal that succeeded was begun
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def check(self) -> None:
        """Raise if another engine may have taken over; asks only if the last renewal is too long ago to know."""
        if self.times.clock() - self._renewed >= self.times.seconds and not self.lost:
            self.renew()
        if self.lost:
            msg = (
                f"this engine has lost the lease on {self.place} to {self.lost}, which has taken over after "
                f"{self.times.seconds:g} seconds without a renewal (this one was paused, or could not reach the object "
                "store); nothing of its unfinished step was committed. Leave the other one running, or stop it and "
                "start this one again"
            )
            raise LeaseLostError(msg)

    def renew(self) -> None:
        """Say that the owner is alive, unless another one has taken over."""
        with self._lock:
            began = self.times.clock()
            if newer := [epoch for epoch in epochs(self.records, self.folder) if epoch > self.epoch]:
                self.lost = _owner_of(self.records, self.folder, newer[-1])
                return
            self._renewals += 1
            self.records.replace(_name(self.folder, self.epoch), self._body())
            self._renewed = began

    def keep(self) -> None:
        """Renew from time to time, until it ends."""
        _held.add(self._id)
        threading.Thread(target=self._keep, name="penstock-lease", daemon=True).start()

    def _keep(self) -> None:
        while not self._ended.wait(self.times.seconds / RENEWALS) and not self.lost:
            try:
                self.renew()
            except Exception:  # noqa: BLE001, S112  (the next renewal may succeed, and `check` raises)
                continue

    def leave(self) -> None:
        """Renew no more; others may take over later."""
        self._ended.set()
        _held.discard(self._id)

    def release(self, *, forget: bool) -> None:
        """Let others take over now. `forget`: with its number, which may be given again."""
        self.leave()
        with self._lock:
            if forget:
                self.records.delete(_name(self.folder, self.epoch))
            elif not self.lost:
                self.records.replace(_name(self.folder, self.epoch), self._body(released=True))

    def _body(self, *, released: bool = False) -> bytes:
        told = {
            "owner": f"process {os.getpid()}", "host": socket.gethostname(), "id": self._id,
            "seconds": self.times.seconds, "renewals": self._renewals, "released": released,
        }  # fmt: skip
        return json.dumps(told).encode()


def acquire(records: Records, folder: str, place: str, times: Times) -> Lease:
    """The lease, once nobody else holds it; raises StateError as soon as an owner shows that it is alive."""
    while True:
        known = epochs(records, folder)
        if known:
            _wait_for(records, folder, known[-1], place, times)
        lease = Lease(records, folder, place, known[-1] + 1 if known else 1, times)
        lease._renewed = times.clock()  # noqa: SLF001
        if not records.put_if_absent(_name(folder, lease.epoch), lease._body()):  # noqa: SLF001
            continue  # another one was faster
        if epochs(records, folder)[-1:] != [lease.epoch]:  # its number was given and deleted before
            records.delete(_name(folder, lease.epoch))
            continue
        for epoch in known:
            records.delete(_name(folder, epoch))
        return lease


def holder(records: Records, folder: str, age: Callable[[str], float]) -> str | None:
    """The present owner, as far as the clocks of this machine and of the object store agree."""
    for epoch in reversed(epochs(records, folder)[-1:]):
        try:
            told = _read(records, folder, epoch)
            alive = not told["released"] and age(_name(folder, epoch)) < told["seconds"]
        except FileNotFoundError:
            return None
        return _told(told) if alive else None
    return None


def epochs(records: Records, folder: str) -> list[int]:
    """The numbers of the records, in order."""
    found = (re.fullmatch(r"(\d+)\.json", name, re.ASCII) for name in records.names(folder))
    return sorted(int(each[1]) for each in found if each)


def _wait_for(records: Records, folder: str, epoch: int, place: str, times: Times) -> None:
    """Return once this record states that its owner has let go, or has not changed for its time."""
    first: dict[str, Any] | None = None
    began = times.clock()
    while True:
        try:
            told = _read(records, folder, epoch)
        except FileNotFoundError:
            return
        if told["released"]:
            return
        if told["id"] in _held or (first is not None and told != first):
            raise in_use(place, _told(told))
        if first is None:
            first, began = told, times.clock()
        if times.clock() - began >= told["seconds"]:
            return
        times.sleep(told["seconds"] / LOOKS)


def _owner_of(records: Records, folder: str, epoch: int) -> str:
    try:
        return _told(_read(records, folder, epoch))
    except FileNotFoundError:
        return "another engine"


def _read(records: Records, folder: str, epoch: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(records.read(_name(folder, epoch)))
    return found


def _told(told: dict[str, Any]) -> str:
    same = told["host"] == socket.gethostname()
    return str(told["owner"]) if same else f"{told['owner']} on {told['host']}"


def _name(folder: str, epoch: int) -> str:
    return f"{folder}/{epoch:012d}.json"
