"""Collect files that no manifest names: left by crashed or repeated tasks, or given up by purge and compaction."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.state.manifest import Manifest
from penstock.state.store import LocalStore

FOLDERS = ("runs", "results", "sides")
GRACE_SECONDS = 600.0  # somebody may still read a file whose name he got from an older manifest


def collect_orphans(store: LocalStore, manifest: Manifest, grace: float = GRACE_SECONDS) -> list[str]:
    """Delete files of committed steps that the manifest does not name and that are older than the grace time."""
    named = {*manifest.runs, *manifest.results, *(s.name for s in manifest.sides)}
    now, deleted = time.time(), []
    for folder in FOLDERS:
        for file in store.names(folder):
            name = f"{folder}/{file}"
            step = file.partition("-")[0]
            if name in named or not step.isdigit() or int(step) > manifest.step:
                continue
            if now - Path(store.path(name)).stat().st_mtime >= grace:
                store.delete(name)
                deleted.append(name)
    return deleted
