"""What a punctuation says: no later row of its stream matches it (Li 2008, 2.1).

A punctuation bounds event time from above and may fix other columns to a constant or a range; a column that it does not
name matches anything. It says nothing about rows that came before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.stream import INTEGER_TYPES, Stream

Value = int | str | bool
PATTERN_TYPES = INTEGER_TYPES | {"string", "boolean"}  # of columns that a pattern may fix: one text for each value
IS, FROM, TO = "is", "from", "to"


@dataclass(frozen=True)
class Range:
    """Values from `lower` on and below `upper`; None where the range has no end."""

    lower: Value | None = None
    upper: Value | None = None

    def holds(self, value: object) -> bool:
        """Whether a value lies in the range. Strings go by code points, which is the order of their UTF-8 bytes."""
        above = self.lower is None or self.lower <= value  # type: ignore[operator]
        return above and (self.upper is None or value < self.upper)  # type: ignore[operator]


@dataclass(frozen=True)
class Punctuation:
    """No later row that matches `patterns` has a time below `until`; with None none at all comes, whatever its time."""

    until: int | None
    patterns: tuple[tuple[str, Value | Range], ...] = ()

    @property
    def linear(self) -> bool:
        """True if it speaks of all rows alike, so that it moves the progress of the stream."""
        return not self.patterns

    @property
    def malformed(self) -> bool:
        """True if it would say that no row ever comes, or if one of its ranges is empty: surely not what was meant."""
        empty = [r for _, r in self.patterns if isinstance(r, Range) and None not in (r.lower, r.upper) and r.lower >= r.upper]  # type: ignore[operator]  # fmt: skip
        return bool(empty) or (self.until is None and not self.patterns)

    def covers(self, values: Mapping[str, object]) -> bool:
        """True if every row with these values matches, as far as time allows; a NULL matches no pattern."""
        return all(column in values and _matches(pattern, values[column]) for column, pattern in self.patterns)

    def matches(self, time: int, values: Mapping[str, object]) -> bool:
        """Whether a row of that time would break the punctuation if it came later."""
        return (self.until is None or time < self.until) and self.covers(values)


def _matches(pattern: Value | Range, value: object) -> bool:
    if value is None:
        return False
    return pattern.holds(value) if isinstance(pattern, Range) else value == pattern


def part_of(stream: Stream, name: str) -> tuple[str, str] | None:
    """(column of the stream, what a column of that name says of it): `k` is a constant, `k_from` and `k_to` a range.

    None if the stream has no such column. A column's own name wins over an ending.
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
    """A punctuation from the named fields of a row; those that are NULL match anything."""
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
