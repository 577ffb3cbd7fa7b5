"""Owed probes: stored rows that have not looked for their partners yet, although others find them (decision 0039).

A step under pressure puts off the probes of some buckets; a clean-up runs them later, as of their own step. While they
are owed, nothing that they may still find is purged, and results behind them are not complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from penstock.model.time import NEVER
from penstock.planner.reached import Clock, Reached

Ranges = tuple[tuple[int, int], ...]  # of buckets or of steps: from, to below


class Owed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Probes of the rows that a state table stored in the steps from `first` to `last`, in these buckets.

    `starts` = (join, position) whose probes started from the table. `since` is the clock of the first step, `held` the
    progress of streams before it; `without` are the queries that were suspended.
    """

    table: str
    starts: tuple[tuple[str, int], ...]
    buckets: Ranges
    first: int
    last: int
    since: float = 0.0
    held: tuple[tuple[str, int], ...] = ()
    without: tuple[int, ...] = ()

    @property
    def alike(self) -> tuple[object, ...]:
        """What two entries have in common that one can continue."""
        return self.table, self.starts, self.buckets, self.without


def with_more(owed: Sequence[Owed], more: Iterable[Owed]) -> tuple[Owed, ...]:
    """All of them; an entry is continued if the next step puts off the same."""
    found = list(owed)
    for new in more:
        place = next((i for i, own in enumerate(found) if own.alike == new.alike and own.last + 1 == new.first), None)
        if place is None:
            found.append(new)
        else:
            found[place] = replace(found[place], last=new.last)
    return tuple(found)


def without_paid(owed: Iterable[Owed], paid: Collection[Owed]) -> tuple[Owed, ...]:
    """What is still owed after these, which are parts of it, have been paid."""
    left = list(owed)
    for done in paid:
        left = [rest for own in left for rest in _less(own, done)]
    return tuple(left)


def _less(own: Owed, done: Owed) -> list[Owed]:
    first, last = max(own.first, done.first), min(own.last, done.last)
    if (own.table, own.starts, own.without) != (done.table, done.starts, done.without) or first > last:
        return [own]
    rest = ranges_of(numbers_in(own.buckets) - numbers_in(done.buckets))
    pieces = [
        replace(own, last=first - 1),
        replace(own, first=first, last=last, buckets=rest),
        replace(own, first=last + 1),
    ]
    return [piece for piece in pieces if piece.first <= piece.last and piece.buckets]


def numbers_in(ranges: Ranges) -> set[int]:
    return {number for low, high in ranges for number in range(low, high)}


def ranges_of(numbers: Collection[int]) -> Ranges:
    """The fewest ranges with exactly these numbers."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number:
            found[-1] = found[-1][0], number + 1
        else:
            found.append((number, number + 1))
    return tuple(found)


def oldest_step(owed: Collection[Owed]) -> int | None:
    """The first step with owed probes."""
    return min((own.first for own in owed), default=None)


def of_joins(owed: Iterable[Owed], joins: Collection[str]) -> list[Owed]:
    """What these joins owe."""
    return [own for own in owed if any(join in joins for join, _ in own.starts)]


def before(reached: Reached, owed: Collection[Owed]) -> Reached:
    """How far streams had come before the oldest of these steps: what expires by it, no owed probe needs.

    A stream that had no progress then has none here.
    """
    if not owed:
        return reached
    known = [dict(own.held) for own in owed]

    def held(clock: Clock, value: int) -> int:
        return min(value, *(then.get(clock, NEVER) for then in known)) if isinstance(clock, str) else value

    return {clock: held(clock, value) for clock, value in reached.items()}
