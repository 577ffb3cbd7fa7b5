"""The first record of a new owner, behind which no former owner can commit (decision 0040).

A former owner knows the state up to some step and would commit the next one. That number is taken: by a record of its
own whose answer it did not get, or by an empty step of the new owner, which is never deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.errors import StateError
from penstock.state.manifest import Entry, Manifest, ManifestLog

TRIES = 100  # a former owner that still runs may commit a few steps meanwhile


def fenced(log: ManifestLog, check: Callable[[Manifest], None] = lambda _: None) -> Manifest:
    """The state that an owner continues; with an empty step more, unless locks of the system keep others out.

    `check` raises if it cannot be continued, before anything is written.
    """
    for _ in range(TRIES):
        manifest = log.load()
        check(manifest)
        if log.store.epoch <= manifest.epoch:
            return manifest
        if fence := log.put(_empty(manifest)):
            return manifest.apply(fence)
    msg = (
        f"another engine goes on committing steps to {log.store.root}, although it has not renewed its lease; stop "
        "that one first"
    )
    raise StateError(msg)


def _empty(manifest: Manifest) -> Entry:
    """The record of the next step, which changes nothing."""
    step = manifest.step + 1
    return Entry(
        step=step, last_batch=manifest.last_batch, identity=manifest.identity, version=manifest.version,
        clock=max(manifest.clock, time.time()), progress=manifest.progress, derived=manifest.derived, fences=(step,),
    )  # fmt: skip
