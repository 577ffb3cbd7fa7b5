"""Checks of a stream's declaration, and the differences of two declarations of one name, in the user's words."""

from __future__ import annotations

import re

from penstock.errors import RegistrationError, did_you_mean
from penstock.model import Stream
from penstock.model.punctuation import IS, PATTERN_TYPES, part_of
from penstock.model.stream import INTEGER_TYPES, POLICIES, TIME_TYPES
from penstock.model.time import duration
from penstock.sql.alter_stream import alike_but_for_changes

_ROWS = re.compile(r"\s*(\d+)\s+rows?\s*", re.IGNORECASE)
MOST_DELAY_ROWS = 10_000  # every step reports the last rows of each task
_PROGRESS = ("delay_rows", "punctuation", "punctuated_by", "patterns")


def check_stream(stream: Stream) -> None:
    column = stream.column(stream.event_time)
    if column is None:
        hint = did_you_mean(stream.event_time, [c.name for c in stream.columns])
        raise RegistrationError(
            f"stream {stream.name!r} has no column {stream.event_time!r} for its event time; {hint}"
        )
    if column.type not in INTEGER_TYPES | TIME_TYPES:
        msg = (
            f"stream {stream.name!r}: event time {column.name!r} is {column.type}; it must be a timestamp, a "
            "date or an integer"
        )
        raise RegistrationError(msg)
    if stream.delay is not None and stream.delay < 0:
        raise RegistrationError(f"stream {stream.name!r}: delay must not be negative")
    if stream.delay is None and stream.delay_rows is None and stream.heartbeat is None and not stream.punctuated:
        raise RegistrationError(
            f"stream {stream.name!r} has no rule for its progress; give a delay, order, heartbeat or punctuation"
        )
    check_punctuation(stream)
    for rule, length in (("idle", stream.idle), ("heartbeat", stream.heartbeat)):
        if length is not None and stream.integer_time:
            raise RegistrationError(
                f"stream {stream.name!r}: {rule} needs an event time that follows the clock, not an integer"
            )
    if stream.heartbeat is not None and stream.idle is not None:
        msg = f"stream {stream.name!r} follows the clock by its heartbeat when it is silent too; leave out idle"
        raise RegistrationError(msg)
    if stream.heartbeat is not None and stream.heartbeat <= 0:
        raise RegistrationError(f"stream {stream.name!r}: heartbeat must be a length of time above zero")
    for what, policy in (("late", stream.late), ("bad", stream.bad)):
        if policy not in POLICIES:
            raise RegistrationError(
                f"stream {stream.name!r}: {what} must be one of {', '.join(POLICIES)}, not {policy!r}"
            )
    if stream.side_retain is not None and stream.side_retain <= 0:
        raise RegistrationError(
            f"stream {stream.name!r}: side_retain must be a length of time above zero, or 'forever'"
        )
    if stream.sequence is not None and stream.column(stream.sequence) is None:
        raise RegistrationError(f"stream {stream.name!r} has no column {stream.sequence!r} for its sequence")
    if stream.delay_rows is not None:
        _check_delay_rows(stream, stream.delay_rows)
    reserved = next((c.name for c in stream.columns if c.name.startswith("_")), None)
    if reserved:
        raise RegistrationError(
            f"stream {stream.name!r}: column names must not start with an underscore ({reserved!r}); rename it"
        )


def read_length(text: str, place: str) -> int:
    """A length of time in microseconds from a program's text; `place` names it."""
    try:
        return duration(text)
    except ValueError as error:
        raise RegistrationError(f"{place}: {error}") from None


def read_delay(
    name: str, delay: str | int | None, *, ordered: bool, told: bool, integer: bool
) -> tuple[int | None, int | None]:
    """(delay in time, delay in rows) of a stream; `told` if its progress is stated otherwise."""
    rows = _ROWS.fullmatch(delay) if isinstance(delay, str) else None
    if ordered and delay is not None:
        raise RegistrationError(f"stream {name!r} is ordered and has a delay; leave out one of them")
    if rows is not None:
        return None, int(rows[1])
    if isinstance(delay, str):
        if integer:
            msg = f"stream {name!r}: the delay of an integer event time is a whole number, such as 5, and not {delay!r}"
            raise RegistrationError(msg)
        return read_length(delay, f"stream {name!r}, delay"), None
    if delay is not None:
        return delay, None
    if not (ordered or told):
        msg = (
            f"stream {name!r} says nothing of how late its rows may come, so that no window could ever be "
            "closed; give delay='5 seconds', "
            "ordered=True, punctuation= or heartbeat="
        )
        raise RegistrationError(msg)
    return (0 if ordered else None), None


def _check_delay_rows(stream: Stream, rows: int) -> None:
    sequence = None if stream.sequence is None else stream.column(stream.sequence)
    if sequence is None:
        msg = (
            f"stream {stream.name!r}: a delay in rows needs an order of the rows; name the column that has it "
            "with sequence="
        )
        raise RegistrationError(msg)
    if sequence.type not in INTEGER_TYPES | TIME_TYPES:
        msg = (
            f"stream {stream.name!r}: a delay in rows needs a sequence that is an integer or a time; "
            f"{sequence.name!r} is {sequence.type}"
        )
        raise RegistrationError(msg)
    if not 1 <= rows <= MOST_DELAY_ROWS:
        msg = (
            f"stream {stream.name!r}: a delay of {rows} rows is not between 1 and {MOST_DELAY_ROWS}; give it as "
            "a length of time"
        )
        raise RegistrationError(msg)


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
        for f in (
            "event_time",
            "delay",
            "late",
            "bad",
            "idle",
            "idle_skew",
            "heartbeat",
            "sequence",
            "source",
            *_PROGRESS,
        )
        if getattr(old, f) != getattr(new, f)
    ]
    return ", ".join(f"{f} was {getattr(old, f)!r}, is {getattr(new, f)!r}" for f in changed)


def remedy(old: Stream, new: Stream) -> str:
    """The remedy for a declaration that differs from the registered one."""
    if not alike_but_for_changes(old, new):
        return "declare it as before, declare it under another name, or use a new state directory"
    delay = (old.delay, old.delay_rows) != (new.delay, new.delay_rows)
    words, named = ("DELAY ..", "delay=..") if delay else ("OPTIONS (path '..')", "path=..")
    return (
        f"declare it as before, or say that it changes: ALTER STREAM {new.name} SET {words} (in a script "
        "after its CREATE STREAM; "
        f"in Python engine.alter_stream({new.name!r}, {named}) before it is declared)"
    )


def check_punctuation(stream: Stream) -> None:
    """Refuse a punctuation that could not be read, with the reason and the remedy."""
    event_time = stream.column(stream.event_time)
    assert event_time is not None
    if stream.punctuation is not None:
        column = stream.column(stream.punctuation)
        if column is None or column.name == event_time.name:
            which = "has no column" if column is None else "has its event time in"
            msg = (
                f"stream {stream.name!r} {which} {stream.punctuation!r}; punctuation= takes another column, a "
                "stream or a DataFrame"
            )
            raise RegistrationError(msg)
        family = INTEGER_TYPES if event_time.type in INTEGER_TYPES else TIME_TYPES
        if column.type not in family | {"string"}:
            msg = (
                f"stream {stream.name!r}: punctuation {column.name!r} is {column.type} and bounds event time, which is "
                f"{event_time.type}; cast it to {event_time.type}"
            )
            raise RegistrationError(msg)
        narrowed = {c.name for c in stream.patterns}
        if not narrowed.isdisjoint((column.name, event_time.name)):
            msg = (
                f"stream {stream.name!r}: a punctuation in {column.name!r} bounds {event_time.name!r} by itself; "
                "narrow it by other columns"
            )
            raise RegistrationError(msg)
    for column in stream.patterns:
        part = part_of(stream, column.name)
        if part is None:
            msg = (
                f"stream {stream.name!r}: its punctuations have a column {column.name!r}, which is neither a "
                "column of the "
                "stream nor one followed by _from or _to; rename or drop it"
            )
            raise RegistrationError(msg)
        declared = stream.column(part[0])
        assert declared is not None
        bound = declared.name == event_time.name
        if column.type != declared.type or (bound and part[1] != IS):
            wanted = f"the bound {declared.name!r} alone" if bound and part[1] != IS else f"type {declared.type}"
            msg = (
                f"stream {stream.name!r}: column {column.name!r} of its punctuations is {column.type}; it must "
                f"be {wanted}"
            )
            raise RegistrationError(msg)
        if not bound and column.type not in PATTERN_TYPES:
            msg = (
                f"stream {stream.name!r}: punctuations cannot fix {column.name!r}, which is {column.type}; use "
                "an integer, a string or a boolean"
            )
            raise RegistrationError(msg)
