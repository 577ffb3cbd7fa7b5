"""Named points of a step, where a test may end the process as a crash would."""

from __future__ import annotations

import os
import signal

POINTS = ("before_job", "after_job", "before_manifest", "after_manifest", "after_link", "after_delivery")


def kill_point(point: str, step: int) -> None:
    """Die here silently if `PENSTOCK_KILL_AT=point:step` requests it."""
    if os.environ.get("PENSTOCK_KILL_AT") == f"{point}:{step}":
        os.kill(os.getpid(), signal.SIGKILL)
