"""Named points of a step, where a test may end the process as a crash would."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POINTS = ("before_job", "after_job", "before_manifest", "after_manifest", "after_link", "after_delivery")


_watchers: list[Callable[[str, int], None]] = []


@contextmanager
def watched(watcher: Callable[[str, int], None]) -> Iterator[None]:
    """Ask at every point inside, which may raise instead of going on."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def kill_point(point: str, step: int) -> None:
    """Die here silently if `PENSTOCK_KILL_AT=point:step` requests it, or as a watcher decides."""
    for watcher in _watchers:
        watcher(point, step)
    if os.environ.get("PENSTOCK_KILL_AT") == f"{point}:{step}":
        os.kill(os.getpid(), signal.SIGKILL)
