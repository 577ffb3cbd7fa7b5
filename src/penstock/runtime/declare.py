"""What a stream's declaration must satisfy, and how two declarations of one name differ, in the user's words."""

from __future__ import annotations

from penstock.errors import RegistrationError, did_you_mean
from penstock.model import Stream
from penstock.model.stream import INTEGER_TYPES, POLICIES, TIME_TYPES


def check_stream(stream: Stream) -> None:
    column = stream.column(stream.event_time)
    if column is None:
        hint = did_you_mean(stream.event_time, [c.name for c in stream.columns])
        raise RegistrationError(
            f"stream {stream.name!r} has no column {stream.event_time!r} for its event time; {hint}"
        )
    if column.type not in INTEGER_TYPES | TIME_TYPES:
        msg = f"stream {stream.name!r}: event time {column.name!r} is {column.type}; it must be a timestamp, a date or an integer"
        raise RegistrationError(msg)
    if stream.delay < 0:
        raise RegistrationError(f"stream {stream.name!r}: delay must not be negative")
    if stream.idle is not None and stream.integer_time:
        raise RegistrationError(
            f"stream {stream.name!r}: idle needs an event time that follows the clock, not an integer"
        )
    for what, policy in (("late", stream.late), ("bad", stream.bad)):
        if policy not in POLICIES:
            raise RegistrationError(
                f"stream {stream.name!r}: {what} must be one of {', '.join(POLICIES)}, not {policy!r}"
            )
    if stream.sequence is not None and stream.column(stream.sequence) is None:
        raise RegistrationError(f"stream {stream.name!r} has no column {stream.sequence!r} for its sequence")
    reserved = next((c.name for c in stream.columns if c.name.startswith("_")), None)
    if reserved:
        raise RegistrationError(
            f"stream {stream.name!r}: column names must not start with an underscore ({reserved!r}); rename it"
        )


def difference(old: Stream, new: Stream) -> str:
    before, after = {c.name: c.type for c in old.columns}, {c.name: c.type for c in new.columns}
    if before != after:
        changes = [
            f"column {n!r} was {before.get(n, 'absent')}, is {after.get(n, 'absent')}"
            for n in {**before, **after}
            if before.get(n) != after.get(n)
        ]
        return changes[0] if changes else "the order of its columns"
    changed = [
        f
        for f in ("event_time", "delay", "late", "bad", "idle", "idle_skew", "sequence", "source")
        if getattr(old, f) != getattr(new, f)
    ]
    return ", ".join(f"{f} was {getattr(old, f)!r}, is {getattr(new, f)!r}" for f in changed)
