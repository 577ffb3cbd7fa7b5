"""The stores on which scenarios run: in memory, as files or as objects with leases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.storage.lease import Times
from penstock.storage.memory import MemoryStore
from penstock.storage.object import ObjectFiles, ObjectStore
from penstock.storage.objects import Objects
from penstock.testing.source import Shared

MEMORY = "memory"


@dataclass(frozen=True)
class SharedObjects(ObjectStore):
    """A store in which other programs write too."""

    def written_elsewhere(self, name: str, data: bytes) -> None:
        """Another program (Spark) writes a file, replacing one if there is one; it asks no lease."""
        ObjectFiles(self.objects).replace(name, data)


@dataclass
class _Clock:
    """Time that passes only while somebody waits for a lease."""

    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def in_objects() -> SharedObjects:
    """A store over `obstore`'s own in memory."""
    from obstore.store import MemoryStore as Memory  # noqa: PLC0415  (an extra)

    clock = _Clock()
    return SharedObjects(
        Objects("memory:", client=Memory()), times=Times(clock=lambda: clock.now, sleep=clock.sleep)
    )  # fmt: skip


STORES: Mapping[str, Callable[[], Shared]] = {MEMORY: MemoryStore, "objects": in_objects}
