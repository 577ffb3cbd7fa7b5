"""Rows from a test, as a source with a log of planned and completed batches, written in Spark's order.

The rows themselves survive whatever happens to the engine, as in a broker; the log is in the store, and as durable as
Spark's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.errors import StateError
from penstock.reference import Row
from penstock.state.manifest import Manifest
from penstock.storage.store import Store

OFFSETS, COMMITS = "checkpoint/offsets", "checkpoint/commits"
END = "\n"  # marks a whole entry

Rows = Mapping[str, Sequence[Row]]


class Shared(Store, Protocol):
    """A store in which other programs write too."""

    def written_elsewhere(self, name: str, data: bytes) -> None: ...


@dataclass
class HandedOver:
    """All rows so far, in the order in which they were handed over; see `step.ports.Source`."""

    given: list[Rows] = field(default_factory=list)

    def on(self, store: Shared) -> Log:
        """The log of an engine on this store."""
        return Log(self.given, store)


@dataclass(frozen=True)
class Log:
    """The batches that an engine has planned and completed."""

    given: list[Rows]
    store: Shared

    def planned(self) -> int | None:
        """The next batch: a planned one that is not completed, or a new one with all waiting rows; or None."""
        last = self._last(OFFSETS)
        while last > self._last(COMMITS) and not self.store.read(f"{OFFSETS}/{last}").endswith(END.encode()):
            self.store.delete(f"{OFFSETS}/{last}")  # the power failed during its write
            last -= 1
        if last > self._last(COMMITS):
            return last
        if self._upto(last) >= len(self.given):
            return None
        self.store.written_elsewhere(f"{OFFSETS}/{last + 1}", f"{len(self.given)}{END}".encode())
        return last + 1

    def rows(self, batch: int) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for rows in self.given[self._upto(batch - 1) : self._upto(batch)]:
            for name, own in rows.items():
                found.setdefault(name, []).extend(own)
        return found

    def done(self, batch: int) -> None:
        self.store.written_elsewhere(f"{COMMITS}/{batch}", b"{}")

    def check_start(self, manifest: Manifest) -> None:
        """Check that the log is at the manifest's batch or one behind it; anything else would lose or repeat rows."""
        last, last_batch = self._last(COMMITS), manifest.last_batch
        if last not in (last_batch, last_batch - 1):
            raise StateError(
                f"the source is done with batch {last}, and the manifest of {self.store.root} with batch {last_batch}"
            )

    # -- called by steps ----------------------------------------------------------------------------------------

    def identity(self, batch: int) -> str:
        return hashlib.sha256(f"{self._upto(batch - 1)} {self._upto(batch)}".encode()).hexdigest()[:32]

    def check_replay(self, manifest: Manifest, batch: int, identity: str) -> None:
        if (batch, identity) != (manifest.last_batch, manifest.identity):
            raise StateError(
                f"batch {batch} comes again with other rows than step {manifest.step} of {self.store.root} has taken"
            )

    def make_durable(self, batch: int) -> None:
        self.store.sync([f"{OFFSETS}/{batch}", *([f"{COMMITS}/{batch - 1}"] if batch else [])])

    def _last(self, folder: str) -> int:
        return max(map(int, self.store.names(folder)), default=-1)

    def _upto(self, batch: int) -> int:
        return int(self.store.read(f"{OFFSETS}/{batch}")) if batch >= 0 else 0
