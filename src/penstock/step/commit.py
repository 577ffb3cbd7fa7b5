"""The order of durable writes (decision 0004): a step exists with its record, and nothing that it names is lost."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import StateError
from penstock.state.cursors import SinkCursor
from penstock.state.manifest import Entry, Manifest, ManifestLog
from penstock.step.ports import Sinks, Source
from penstock.storage.crash_points import kill_point
from penstock.storage.store import Store


class Committed:
    """What is committed: the manifest, and how far sinks have come. Nothing but `commit` changes the one."""

    def __init__(self, store: Store, source: Source, sinks: Sinks, manifest: Manifest) -> None:
        self.store, self.source, self.sinks = store, source, sinks
        self.log = ManifestLog(store)
        self.manifest = manifest
        self.cursors: Mapping[str, SinkCursor] = {}

    def commit(self, record: Entry) -> None:
        """Commit the record of the next step.

        A crash before the record leaves files without a name, which are collected as orphans; the step is repeated. A
        crash after it leaves rows to deliver, which the next start does, and orphans.
        """
        store, step = self.store, record.step
        # The source's files for the batch, since it does not sync them: the record must not outlive them.
        if record.batch is not None:
            self.source.make_durable(record.batch)
        # Their writers sync the files; here the folders that name them.
        written = (("runs", record.runs_added), ("results", record.results), ("sides", record.sides))
        store.sync([f"{folder}/." for folder, files in written if files])
        kill_point("before_manifest", step)
        # Put if absent: of two engines on the directory only one commits this step.
        record = self.log.append(record)
        self.manifest = self.manifest.apply(record)
        kill_point("after_manifest", step)
        # How far sinks have come is in the record of the next step: a delivery may be repeated, with the same rows.
        self.deliver()
        kill_point("after_delivery", step)
        # Old runs are not needed; readers with an older manifest may still read results and rejected rows for a while.
        for name in record.runs_removed:
            store.delete(name)
        for name in (*record.results_removed, *record.sides_removed):
            store.touch(name)
        # Only a faster way to open the state.
        self.log.snapshot_if_due(self.manifest)

    def deliver(self) -> None:
        """Deliver to sinks up to what is committed."""
        self.cursors = self.sinks.deliver(self.manifest)


def check_runs(store: Store, manifest: Manifest) -> None:
    """Missing or truncated state is found before anything starts; damaged bytes when a run is first opened."""
    sizes = store.sizes("runs") if manifest.runs else {}
    for run in manifest.runs.values():
        size = sizes.get(run.name.removeprefix("runs/"))
        if size != run.bytes:
            state = "is missing" if size is None else f"has {size} bytes instead of {run.bytes}"
            msg = (
                f"state file {store.label(run.name)} {state}; restore it from a backup, or remove the state directory "
                "and replay the sources"
            )
            raise StateError(msg)
