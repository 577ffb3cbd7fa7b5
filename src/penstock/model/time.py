"""Time as the engine counts it: signed 64-bit integers.

For TIMESTAMP, TIMESTAMP_NTZ and DATE event times the unit is one microsecond since the epoch (UTC); for
an integer event time it is whatever the integer counts, and lengths then carry no unit.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

# Event times outside this range are invalid: the sum of a time and a window must not overflow int64.
EARLIEST = -(2**61)
LATEST = 2**61
NEVER = -(2**62)  # progress of a stream of which nothing is known
FOREVER = 2**62  # progress of a stream that has ended; life of a row that never expires

UNITS = {
    "microsecond": MICROSECOND,
    "millisecond": MILLISECOND,
    "second": SECOND,
    "minute": MINUTE,
    "min": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "week": WEEK,
}
CALENDAR_UNITS = frozenset({"month", "quarter", "year"})

_DURATION = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def unit_length(unit: str) -> int | None:
    """Length of a unit in microseconds, plural or singular; None for an unknown or calendar unit."""
    name = unit.lower()
    return UNITS.get(name) or UNITS.get(name.removesuffix("s"))


def duration(text: str | int) -> int:
    """Parse '5 seconds' or '1 minute 30 seconds' to microseconds; an integer is returned as it is."""
    if isinstance(text, int):
        return text
    total, end = 0.0, 0
    for match in _DURATION.finditer(text):
        if match.start() != end:
            break
        length = unit_length(match[2])
        if length is None:
            msg = f"unknown time unit {match[2]!r} in {text!r}; use one of: {', '.join(UNITS)}"
            raise ValueError(msg)
        total, end = total + float(match[1]) * length, match.end()
    if not text.strip() or end != len(text):
        msg = f"cannot read {text!r} as a duration; write for example '5 seconds'"
        raise ValueError(msg)
    return round(total)


def instant(text: str) -> int:
    """Microseconds since the epoch of a time such as '2024-05-01 12:30:00'; without an offset it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        msg = f"cannot read {text!r} as a time; write for example '2024-05-01 12:30:00'"
        raise ValueError(msg) from None
    return instant_of(found)


def instant_of(time: datetime) -> int:
    """Microseconds since the epoch; a time without a zone is UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def format_duration(length: int) -> str:
    """The shortest exact text of a duration, for EXPLAIN and messages."""
    if length == 0:
        return "0 seconds"
    for name in ("week", "day", "hour", "minute", "second", "millisecond", "microsecond"):
        if length % UNITS[name] == 0:
            count = length // UNITS[name]
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{length} microseconds"


def format_length(length: int, *, integer: bool = False) -> str:
    """The text of a length in units of an event time."""
    if length >= FOREVER:
        return "for ever"
    return str(length) if integer else format_duration(length)
