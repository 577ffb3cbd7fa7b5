"""Collects unneeded files: of crashed or repeated tasks, of expiry and compaction, and old versions of the registry."""

from __future__ import annotations

from penstock.state.manifest import Manifest
from penstock.state.registry import RegistryLog
from penstock.storage.store import Store

FOLDERS = ("runs", "results", "sides")
GRACE_SECONDS = 600.0  # readers may still use file names from an older manifest


def collect_orphans(store: Store, manifest: Manifest, grace: float = GRACE_SECONDS) -> list[str]:
    """Delete files of committed steps that the manifest does not name and that are older than the grace time."""
    named = {*manifest.runs, *manifest.results, *(s.name for s in manifest.sides)}
    deleted = []
    for folder in FOLDERS:
        for file in store.names(folder):
            name = f"{folder}/{file}"
            step = file.partition("-")[0]
            if name in named or not step.isdigit() or int(step) > manifest.step:
                continue
            if store.age(name) >= grace:
                store.delete(name)
                deleted.append(name)
    return deleted


def collect_versions(store: Store, manifest: Manifest, grace: float = GRACE_SECONDS) -> list[str]:
    """Delete versions of the registry that are neither the newest nor used by the manifest or by a result file's bits.

    A used one counts as young, so that a reader with an older manifest can still use it for the grace time.
    """
    log = RegistryLog(store).versions
    versions = {version: log.name(version) for version in log.numbers()}
    used = {max(versions, default=0), manifest.version, *(f.version for f in manifest.results.values())}
    deleted = []
    for version, name in versions.items():
        if version in used:
            store.touch(name)
        elif store.age(name) >= grace:
            store.delete(name)
            deleted.append(name)
    return deleted
