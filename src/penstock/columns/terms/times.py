"""Parts of dates and times, truncation to a unit, and times as text, by the calendar of java.time.

All functions but `local` and `instant` take times without a zone. These two convert between an instant and the wall
clock of the session's zone; their option is the zone's offset from UTC in microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.terms.values import MICROS_PER_DAY, Flags, Ints, Values
from penstock.model import Call

Outcome = tuple[Any, Flags | None]

SECOND = 1_000_000
UNITS = {
    "microsecond": 1, "millisecond": 1_000, "second": SECOND, "minute": 60 * SECOND, "hour": 3600 * SECOND,
    "day": MICROS_PER_DAY, "dd": MICROS_PER_DAY,
}  # fmt: skip
CALENDAR_UNITS = {
    "week": "week", "month": "month", "mon": "month", "mm": "month", "quarter": "quarter", "year": "year",
    "yyyy": "year", "yy": "year",
}  # fmt: skip
PATTERN = re.compile(r"(yyyy|MM|dd|HH|mm|ss|[^A-Za-z'\[\]{}#\\])*")
_LETTERS = re.compile(r"yyyy|MM|dd|HH|mm|ss|.", re.DOTALL)


def civil(days: Ints) -> tuple[Ints, Ints, Ints]:
    """(year, month, day) of days since 1970."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    years = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    moon = (5 * of_year + 2) // 153  # months since March
    month = np.where(moon < 10, moon + 3, moon - 9)
    return years + era * 400 + (month <= 2), month, of_year - (153 * moon + 2) // 5 + 1


def days_of(year: Ints, month: Ints, day: Any) -> Ints:
    """The days since 1970 of a date."""
    early = year - (month <= 2)
    era = early // 400
    of_era = early - era * 400
    of_year = (153 * np.where(month > 2, month - 3, month + 9) + 2) // 5 + day - 1
    return np.asarray(era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468)


def _week(days: Ints) -> Ints:
    """The ISO week: that of the Thursday in it."""
    thursday = days - (days + 3) % 7 + 3
    year, _, _ = civil(thursday)
    return (thursday - days_of(year, np.ones_like(year), 1)) // 7 + 1


def _of_year(days: Ints) -> Ints:
    year, _, _ = civil(days)
    return days - days_of(year, np.ones_like(year), 1) + 1


DATE_PARTS: dict[str, Callable[[Ints], Ints]] = {
    "year": lambda days: civil(days)[0],
    "quarter": lambda days: (civil(days)[1] + 2) // 3,
    "month": lambda days: civil(days)[1],
    "day": lambda days: civil(days)[2],
    "dayofmonth": lambda days: civil(days)[2],
    "dayofweek": lambda days: (days + 4) % 7 + 1,
    "weekday": lambda days: (days + 3) % 7,
    "dayofyear": _of_year,
    "weekofyear": _week,
}
CLOCK_PARTS: dict[str, Callable[[Ints], Ints]] = {
    "hour": lambda time: time // (3600 * SECOND) % 24,
    "minute": lambda time: time // (60 * SECOND) % 60,
    "second": lambda time: time // SECOND % 60,
}


def date_part(call: Call, arguments: Sequence[Values]) -> Outcome:
    return DATE_PARTS[call.function](arguments[0].data), None


def clock_part(call: Call, arguments: Sequence[Values]) -> Outcome:
    return CLOCK_PARTS[call.function](arguments[0].data), None


def day_of(_call: Call, arguments: Sequence[Values]) -> Outcome:
    """The date of a time without a zone."""
    return arguments[0].data // MICROS_PER_DAY, None


def midnight(_call: Call, arguments: Sequence[Values]) -> Outcome:
    """The beginning of a day, as a time without a zone."""
    days = arguments[0].data
    return days * MICROS_PER_DAY, np.abs(days) > (2**63 - 1) // MICROS_PER_DAY


def local(call: Call, arguments: Sequence[Values]) -> Outcome:
    return arguments[0].data + _offset(call), None


def instant(call: Call, arguments: Sequence[Values]) -> Outcome:
    return arguments[0].data - _offset(call), None


def _offset(call: Call) -> int:
    return int(call.options[0]) if call.options else 0


def truncated(call: Call, arguments: Sequence[Values]) -> Outcome:
    """A time without a zone, truncated to a unit."""
    time, unit = arguments[0].data, str(call.options[0])
    if unit in UNITS:
        return time - time % UNITS[unit], None
    days = time // MICROS_PER_DAY
    if CALENDAR_UNITS[unit] == "week":
        return (days - (days + 3) % 7) * MICROS_PER_DAY, None
    year, month, _ = civil(days)
    if CALENDAR_UNITS[unit] == "year":
        month = np.ones_like(month)
    elif CALENDAR_UNITS[unit] == "quarter":
        month = (month - 1) // 3 * 3 + 1
    return days_of(year, month, 1) * MICROS_PER_DAY, None


def formatted(call: Call, arguments: Sequence[Values]) -> Outcome:
    """A time without a zone as text; each distinct time is formatted once."""
    pattern, time = str(call.options[0]), arguments[0].data
    pieces = _LETTERS.findall(pattern)
    unit = MICROS_PER_DAY
    for letters in pieces:
        unit = min(unit, {"HH": 3600 * SECOND, "mm": 60 * SECOND, "ss": SECOND}.get(letters, unit))
    numbers = time // unit
    if not {"yyyy", "MM", "dd"} & set(pieces):
        numbers %= MICROS_PER_DAY // unit
    encoded = pa.array(numbers).dictionary_encode()
    each = encoded.dictionary.to_numpy() * unit
    year, month, day = civil(each // MICROS_PER_DAY)
    columns = {
        "yyyy": year, "MM": month, "dd": day,
        "HH": CLOCK_PARTS["hour"](each), "mm": CLOCK_PARTS["minute"](each), "ss": CLOCK_PARTS["second"](each),
    }  # fmt: skip
    written: list[list[str]] = []
    for letters in pieces:
        if letters not in columns:
            written.append([letters] * len(each))
        elif letters == "yyyy":
            written.append([_year(y) for y in columns[letters].tolist()])
        else:
            written.append([f"{n:02d}" for n in columns[letters].tolist()])
    texts = ["".join(row) for row in zip(*written, strict=True)] if pieces else [""] * len(each)
    return pa.array(texts, pa.string()).take(encoded.indices), None


def _year(year: int) -> str:
    """The year with at least four digits, and a sign if there are more; the year before 1 is 0."""
    return f"-{-year:04d}" if year < 0 else f"{year:04d}" if year <= 9999 else f"+{year}"


FUNCTIONS = {
    **dict.fromkeys(DATE_PARTS, date_part), **dict.fromkeys(CLOCK_PARTS, clock_part), "day_of": day_of,
    "midnight": midnight, "local": local, "instant": instant, "date_trunc": truncated, "date_format": formatted,
}  # fmt: skip
