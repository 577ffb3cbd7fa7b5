"""Spark's own log where state is in an object store: on a disk of the driver, and copied for each step.

Spark has no conditional put, and would let an engine that has lost its lease write beside the present owner. So it
writes to a folder of its own process, which a start fills and the end deletes. What the log says of a batch is one more
object of the step, put before its record; these objects are in a folder of the owner's epoch, so that a former owner
writes where nobody reads any more. Once in a while, and first, such an object has all that a start needs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import StateError
from penstock.spark.offset_log import CHECKPOINT, OffsetLog
from penstock.spark.spark_log import REMEDY
from penstock.state.manifest import Manifest
from penstock.storage.local import LocalStore
from penstock.storage.log import Log
from penstock.storage.store import Store

WHOLE_EVERY = 64  # batches
COMPACT = ".compact"  # an entry of a source's log with all before it

SOURCES = f"{CHECKPOINT}/sources"


@dataclass(frozen=True)
class Copied:
    """Files of Spark's log as of a batch, by name; `whole`: all that it needs to go on."""

    batch: int
    whole: bool
    files: dict[str, str]


@contextmanager
def opened_log(store: Store) -> Iterator[OffsetLog]:
    """Spark's log for the owner of a store."""
    if not store.epoch:
        yield OffsetLog(store)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-spark-log-") as folder:
        yield MirroredLog(LocalStore(folder, durable=False), store)


@dataclass(frozen=True)
class MirroredLog(OffsetLog):
    """The log in a folder of this process, with copies in `state`."""

    state: Store = field(kw_only=False)
    _copied: set[str] = field(default_factory=set)  # files of sources

    @property
    def location(self) -> str:
        return Path(self.store.path(CHECKPOINT)).as_uri()

    def check_start(self, manifest: Manifest) -> None:
        """Fill the folder with what Spark goes on from, and copy it for this owner."""
        self.store.delete_folder(CHECKPOINT)
        self._copied.clear()
        if manifest.last_batch >= 0:
            self._restore(manifest)
            self._copy(manifest.last_batch, whole=True)
        super().check_start(manifest)

    def make_durable(self, batch: int) -> None:
        whole = batch % WHOLE_EVERY == WHOLE_EVERY - 1
        self._copy(batch, whole=whole)
        if whole:
            own = _copies(self.state, self.state.epoch)
            for older in [n for n in own.numbers() if n < batch]:
                own.delete(older)
            for folder in self.state.names(CHECKPOINT):
                if folder.isdecimal() and int(folder) < self.state.epoch:
                    self.state.delete_folder(f"{CHECKPOINT}/{folder}")

    def _restore(self, manifest: Manifest) -> None:
        copies = self._copies_of(manifest)
        for batch in range(manifest.last_batch, -1, -1):
            try:
                found = copies.read(batch)
            except FileNotFoundError:
                msg = f"{copies.label(batch)}, a copy of Spark's own log, is missing. {REMEDY}"
                raise StateError(msg) from None
            for name, text in found.files.items():
                if not self.store.exists(name):
                    self.store.write(name, text.encode())
            if found.whole:
                return

    def _copies_of(self, manifest: Manifest) -> Log[Copied]:
        """The newest copies of the last committed batch: an owner that has read nothing may have made none.

        An earlier owner may have copied another plan of that batch, which it did not commit.
        """
        folders = (int(name) for name in self.state.names(CHECKPOINT) if name.isdecimal())
        known = [_copies(self.state, epoch) for epoch in sorted(folders, reverse=True)]
        own = (copies for copies in known if manifest.last_batch in copies.numbers())
        return next(own, _copies(self.state, manifest.epoch))

    def _copy(self, batch: int, *, whole: bool) -> None:
        """Put what the log says of a batch; all of it after a whole copy had to be put."""
        copies, sources = _copies(self.state, self.state.epoch), set(self._files_of_sources())
        names = {*self.names_of(batch), *(sources if whole else sources - self._copied)}
        if whole and batch > 0:
            names.add(f"{CHECKPOINT}/offsets/{batch - 1}")
        files = {name: self.store.read(name).decode() for name in sorted(names) if self.store.exists(name)}
        self.state.replace(copies.name(batch), copies.sealed(Copied(batch, whole, files)))
        self._copied.update(sources)

    def _files_of_sources(self) -> Iterator[str]:
        """The files of the logs of all sources, without those that their last compacted one contains."""
        for source in self.store.names(SOURCES):
            names = [name for name in self.store.names(f"{SOURCES}/{source}") if not name.startswith(".")]
            numbers = {name: int(text) for name in names if (text := name.removesuffix(COMPACT)).isdecimal()}
            last = max((number for name, number in numbers.items() if name.endswith(COMPACT)), default=-1)
            for name in names:
                number = numbers.get(name)
                if number is None or number > last or name == f"{last}{COMPACT}":
                    yield f"{SOURCES}/{source}/{name}"


def _copies(state: Store, epoch: int) -> Log[Copied]:
    """The copies of an owner, by batch."""
    return Log(
        state, f"{CHECKPOINT}/{epoch:012d}", "batch",
        lambda copied: {"batch": copied.batch, "whole": copied.whole, "files": copied.files},
        lambda body: Copied(body["batch"], body["whole"], body["files"]), 12,
    )  # fmt: skip
