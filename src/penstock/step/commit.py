"""How a step and Spark's own log stay together: batch identity, what is made durable before the manifest, the checks at start."""

from __future__ import annotations

import hashlib
import json

from penstock.errors import StateError
from penstock.state.manifest import Manifest
from penstock.storage.store import Store

CHECKPOINT = "checkpoint"


def last_commit(store: Store) -> int:
    """The last batch that Spark's own log holds as done, or -1."""
    return max((int(n) for n in store.names(f"{CHECKPOINT}/commits") if n.isdecimal()), default=-1)


def check_start(store: Store, last_batch: int) -> None:
    """Spark must be at the manifest's batch or one behind it; anything else would lose or repeat rows."""
    spark = last_commit(store)
    if spark in (last_batch, last_batch - 1):
        return
    if spark > last_batch:
        cause = (
            f"Spark's log holds batch {spark} as done, but the manifest ends at batch {last_batch}: rows would be lost"
        )
    else:
        cause = f"the manifest holds batch {last_batch}, but Spark's log ends at batch {spark}: rows would be repeated"
    msg = (
        f"state directory {store.root}: {cause}. Restore manifest/ and checkpoint/ from the same backup, "
        "or start with a new state directory and replay the sources"
    )
    raise StateError(msg)


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


def check_replay(store: Store, manifest: Manifest, batch_id: int, identity: str) -> None:
    """Refuse a batch that was committed, if Spark offers it with other rows."""
    if batch_id == manifest.last_batch and identity == manifest.identity:
        return
    msg = (
        f"Spark offers batch {batch_id} again with other rows than the manifest's step {manifest.step} consumed "
        f"(state directory {store.root}): Spark's log has lost entries. Restore checkpoint/ and manifest/ from the "
        "same backup, or start with a new state directory and replay the sources"
    )
    raise StateError(msg)


def batch_identity(store: Store, batch: int, before: int) -> str:
    """A hash of what Spark says the batch reads: offsets, and for file sources the very files.

    The offset of a file source looks the same whatever files it stands for, so its log is read too.
    """
    lines = store.read(f"{CHECKPOINT}/offsets/{batch}").decode().splitlines()[2:]
    digest = hashlib.sha256("\n".join(lines).encode())
    for name in _source_logs(store, batch, before):
        digest.update(store.read(name))
    return digest.hexdigest()[:32]


def planned_at(store: Store, batch: int) -> float:
    """The clock when Spark had looked at its sources and planned the batch, in seconds; as its log says."""
    settings = store.read(f"{CHECKPOINT}/offsets/{batch}").decode().splitlines()[1]
    return float(json.loads(settings)["batchTimestampMs"]) / 1000


def durable_names(store: Store, batch: int) -> list[str]:
    """Files of Spark's log that must not be lost once the manifest names the batch; Spark does not sync them."""
    names = [f"{CHECKPOINT}/offsets/{batch}", f"{CHECKPOINT}/metadata", *_source_logs(store, batch, batch - 1)]
    if batch > 0:
        names.append(f"{CHECKPOINT}/commits/{batch - 1}")
    return names


def _source_logs(store: Store, batch: int, before: int) -> list[str]:
    """Entries of file source logs that belong to this batch: those between the offsets of the two batches."""
    now, old = last_offsets(store, batch), last_offsets(store, before)
    names: list[str] = []
    for source, offset in now.items():
        folder = f"{CHECKPOINT}/sources/{source}"
        for number in range(old.get(source, -1) + 1, offset + 1):
            names.extend(n for n in (f"{folder}/{number}", f"{folder}/{number}.compact") if store.exists(n))
    return names


def last_offsets(store: Store, batch: int) -> dict[str, int]:
    """How far each file source has been read as of a batch: the number of the last entry of its log."""
    try:
        lines = store.read(f"{CHECKPOINT}/offsets/{batch}").decode().splitlines()[2:]
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
