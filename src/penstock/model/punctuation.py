"""Punctuations: no later row of the stream matches one (Li 2008, 2.1).

A punctuation bounds event time from above and may fix other columns to a constant or a range; columns that it does not
name match anything. It does not concern earlier rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.stream import INTEGER_TYPES, Stream

Value = int | str | bool
PATTERN_TYPES = INTEGER_TYPES | {"string", "boolean"}  # types that a pattern may fix: each value has one text
IS, FROM, TO = "is", "from", "to"


@dataclass(frozen=True)
class Range:
    """Values from `lower` on and below `upper`; None where the range is open."""

    lower: Value | None = None
    upper: Value | None = None

    def holds(self, value: object) -> bool:
        """Whether a value lies in the range. Strings are ordered by code points, as their UTF-8 bytes are."""
        above = self.lower is None or self.lower <= value  # type: ignore[operator]
        return above and (self.upper is None or value < self.upper)  # type: ignore[operator]


@dataclass(frozen=True)
class Punctuation:
    """No later row that matches `patterns` has a time below `until`; `until` None excludes every time."""

    until: int | None
    patterns: tuple[tuple[str, Value | Range], ...] = ()

    @property
    def linear(self) -> bool:
        """Whether it concerns all rows, so that it advances the progress of the stream."""
        return not self.patterns

    def covers(self, values: Mapping[str, object]) -> bool:
        """Whether every row with these values matches, apart from its time; a NULL matches no pattern."""
        return all(column in values and _matches(pattern, values[column]) for column, pattern in self.patterns)

    def matches(self, time: int, values: Mapping[str, object]) -> bool:
        """Whether a later row of that time would violate the punctuation."""
        return (self.until is None or time < self.until) and self.covers(values)


def _matches(pattern: Value | Range, value: object) -> bool:
    if value is None:
        return False
    return pattern.holds(value) if isinstance(pattern, Range) else value == pattern


def part_of(stream: Stream, name: str) -> tuple[str, str] | None:
    """(column of the stream, part): a column named `k` gives a constant, `k_from` and `k_to` give a range of `k`.

    None if the stream has no such column. An exact name precedes a suffix.
    """
    exact = stream.column(name)
    if exact is not None:
        return exact.name, IS
    for ending in (FROM, TO):
        base = stream.column(name[: -len(ending) - 1]) if name.lower().endswith(f"_{ending}") else None
        if base is not None:
            return base.name, ending
    return None


def punctuation_of(stream: Stream, until: int | None, fields: Mapping[str, Value | None]) -> Punctuation:
    """A punctuation from the named fields of a row; NULL fields match anything."""
    constants: dict[str, Value] = {}
    ends: dict[str, dict[str, Value]] = {}
    for name, value in fields.items():
        part = part_of(stream, name)
        if value is None or part is None:
            continue
        if part[1] == IS:
            constants[part[0]] = value
        else:
            ends.setdefault(part[0], {})[part[1]] = value
    ranges = [(column, Range(own.get(FROM), own.get(TO))) for column, own in ends.items()]
    return Punctuation(until, (*constants.items(), *ranges))
