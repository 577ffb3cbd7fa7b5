"""What is committed is there: checked before anything starts."""

from __future__ import annotations

from penstock.errors import StateError
from penstock.state.manifest import Manifest
from penstock.storage.store import Store


def check_runs(store: Store, manifest: Manifest) -> None:
    """Missing or truncated state is found before anything starts; damaged bytes when a run is first opened."""
    for run in manifest.runs.values():
        try:
            size = store.size(run.name)
        except (FileNotFoundError, NotADirectoryError):
            size = None
        if size != run.bytes:
            state = "is missing" if size is None else f"has {size} bytes instead of {run.bytes}"
            msg = (
                f"state file {store.label(run.name)} {state}; restore it from a backup, or remove the state directory "
                "and replay the sources"
            )
            raise StateError(msg)
