"""Spark's own log: what a batch reads, what of it must be durable before the manifest names the batch, start checks."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from penstock.errors import StateError
from penstock.state.manifest import Manifest
from penstock.storage.store import Store

CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class OffsetLog:
    """The log of Spark's query under a state directory, as the source of a run's batches."""

    store: Store

    @property
    def location(self) -> str:
        """Where Spark writes it."""
        return self.store.path(CHECKPOINT)

    def last_commit(self) -> int:
        """The last batch that Spark's own log marks as done, or -1."""
        return max((int(n) for n in self.store.names(f"{CHECKPOINT}/commits") if n.isdecimal()), default=-1)

    def check_start(self, manifest: Manifest) -> None:
        """Check that Spark is at the manifest's batch or one behind it; anything else would lose or repeat rows."""
        spark, last_batch = self.last_commit(), manifest.last_batch
        if spark in (last_batch, last_batch - 1):
            return
        if spark > last_batch:
            cause = (
                f"Spark's log holds batch {spark} as done, but the manifest ends at batch {last_batch}: rows "
                "would be lost"
            )
        else:
            cause = (
                f"the manifest holds batch {last_batch}, but Spark's log ends at batch {spark}: rows would be repeated"
            )
        msg = (
            f"state directory {self.store.root}: {cause}. Restore manifest/ and checkpoint/ from the same backup, "
            "or start with a new state directory and replay the sources"
        )
        raise StateError(msg)

    def identity(self, batch: int) -> str:
        """A hash of what the batch reads, from Spark's log: offsets, and for file sources the very files.

        The offset of a file source does not depend on its files, so its log is read too.
        """
        lines = self.store.read(f"{CHECKPOINT}/offsets/{batch}").decode().splitlines()[2:]
        digest = hashlib.sha256("\n".join(lines).encode())
        for name in self._source_logs(batch):
            digest.update(self.store.read(name))
        return digest.hexdigest()[:32]

    def check_replay(self, manifest: Manifest, batch: int, identity: str) -> None:
        """Refuse a committed batch if Spark offers it with other rows."""
        if batch == manifest.last_batch and identity == manifest.identity:
            return
        msg = (
            f"Spark offers batch {batch} again with other rows than the manifest's step {manifest.step} consumed "
            f"(state directory {self.store.root}): Spark's log has lost entries. Restore checkpoint/ and "
            "manifest/ from the "
            "same backup, or start with a new state directory and replay the sources"
        )
        raise StateError(msg)

    def make_durable(self, batch: int) -> None:
        """Sync what Spark's log says of a batch, which Spark does not."""
        self.store.sync(self.names_of(batch))

    def names_of(self, batch: int) -> list[str]:
        """Files of Spark's log without which it could not go on behind a batch."""
        names = [f"{CHECKPOINT}/offsets/{batch}", f"{CHECKPOINT}/metadata", *self._source_logs(batch)]
        if batch > 0:
            names.append(f"{CHECKPOINT}/commits/{batch - 1}")
        return names

    def planned_at(self, batch: int) -> float:
        """When Spark had polled its sources and planned the batch, in seconds of the clock, from its log."""
        settings = self.store.read(f"{CHECKPOINT}/offsets/{batch}").decode().splitlines()[1]
        return float(json.loads(settings)["batchTimestampMs"]) / 1000

    def last_offsets(self, batch: int) -> dict[str, int]:
        """How far each file source was read as of a batch: the number of the last entry of its log."""
        try:
            lines = self.store.read(f"{CHECKPOINT}/offsets/{batch}").decode().splitlines()[2:]
        except FileNotFoundError:
            return {}
        found = {}
        for line in lines:
            source, _, text = line.partition(":")
            try:
                offset = json.loads(text).get("logOffset")
            except (ValueError, AttributeError):
                continue
            if isinstance(offset, int):
                found[source] = offset
        return found

    def _source_logs(self, batch: int) -> list[str]:
        """Entries of file source logs of this batch: those between its offsets and those of the batch before."""
        now, old = self.last_offsets(batch), self.last_offsets(batch - 1)
        names: list[str] = []
        for source, offset in now.items():
            folder = f"{CHECKPOINT}/sources/{source}"
            for number in range(old.get(source, -1) + 1, offset + 1):
                names.extend(
                    name for name in (f"{folder}/{number}", f"{folder}/{number}.compact") if self.store.exists(name)
                )
        return names
