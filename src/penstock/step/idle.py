"""Progress by the clock: of streams that have been idle for a while, and of those with a heartbeat.

The caller knows which streams have nothing left to read. Every value is committed before it is used, so that a replay
repeats it and does not ask the clock again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from penstock.model import Stream
from penstock.model.time import NEVER, SECOND
from penstock.state.manifest import Progress


def follow_clock(
    streams: Iterable[Stream],
    progress: Mapping[str, Progress],
    now: float,
    last_rows: Mapping[str, float],
    started: float,
) -> tuple[dict[str, Progress], list[str]]:
    """(progress, with that of the streams that follow the clock, warnings). `last_rows` is when streams last had rows.

    These streams must have no unread rows. One whose last rows were old follows the other streams instead: its event
    time is not that of the clock.
    """
    moved, warnings = dict(progress), []
    for stream in streams:
        length = stream.idle if stream.heartbeat is None else stream.heartbeat
        if length is None:
            continue
        old = progress.get(stream.name, Progress(NEVER, NEVER))
        clock, last = int(now * SECOND), last_rows.get(stream.name)
        kept = stream.heartbeat is not None and last is not None and last * SECOND - old.newest <= stream.heartbeat
        if not kept and (now - (started if last is None else last)) * SECOND < length:
            continue
        value = clock - length
        if not kept and old.newest > NEVER and clock - old.newest > stream.idle_skew:
            value = min((p.value for name, p in progress.items() if name != stream.name), default=NEVER)
            warnings.append(
                f"stream {stream.name!r} is idle and its newest row lags the clock by more than idle_skew; "
                "it follows the other streams instead"
            )
        # A step per tick would be a manifest per tick: advance by whole seconds.
        if value >= old.value + SECOND:
            moved[stream.name] = replace(old, value=value, kind="idle" if stream.heartbeat is None else "heartbeat")
    return moved, warnings
