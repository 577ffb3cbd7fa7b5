"""Input of the lab's algorithms: Poisson arrivals of two streams, join conditions, selections and queries.

Everything is deterministic: arrivals follow from a seed, and whether a pair matches from the pair alone, so that
different plans can be compared result by result (Wang 2008, 8.1).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.model.time import FOREVER, SECOND

A, B = 0, 1

Lengths = tuple[int, int]  # one length for each stream
Selection = Callable[[float | None], bool | None]  # of a tuple's value, never of its time; NULL counts as false


class LabError(PenstockError):
    """An algorithm of the lab got invalid input; its state is unchanged."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A tuple of stream A or B; `number` counts the arrivals of both, `value` is the input of selections.

    A chain tags it at its entrance: in a state it can serve a query up to the age `life`, and as a probe it can find
    partners of less than the age `reach`.
    """

    stream: int
    time: int
    number: int
    value: float | None = None
    life: int = field(default=FOREVER, compare=False)
    reach: int = field(default=FOREVER, compare=False)


class Match(NamedTuple):
    """A result of the join of A and B."""

    a: Arrival
    b: Arrival

    @property
    def time(self) -> int:
        return max(self.a.time, self.b.time)


Theta = Callable[[Arrival, Arrival], bool]  # the join condition, of a tuple of A and one of B


@dataclass(frozen=True)
class JoinQuery:
    """`A[windows[0]] JOIN B[windows[1]]` with at most one selection on each stream."""

    name: str
    windows: Lengths
    selections: tuple[Selection | None, Selection | None] = (None, None)

    def __post_init__(self) -> None:
        if min(self.windows) <= 0:
            raise LabError(f"query {self.name!r} has a window of {min(self.windows)}; a window is longer than 0")

    def close(self, x: Arrival, y: Arrival) -> bool:
        """Whether the older of two tuples lies in its stream's window at the time of the younger."""
        older = x if x.time <= y.time else y
        return abs(x.time - y.time) < self.windows[older.stream]

    def selects(self, x: Arrival) -> bool:
        """Whether this query's selection on the tuple's stream is TRUE."""
        selection = self.selections[x.stream]
        return selection is None or selection(x.value) is True


@dataclass(frozen=True)
class Below:
    """The selection `value < limit`; of uniform values it passes the share `limit`."""

    limit: float

    def __call__(self, value: float | None) -> bool | None:
        return None if value is None else value < self.limit


def both(length: int) -> Lengths:
    """The same length for both streams."""
    return length, length


def checked(queries: Sequence[JoinQuery]) -> tuple[JoinQuery, ...]:
    """The queries, if they can be answered together."""
    if not queries:
        raise LabError("there is no query to answer; give at least one")
    names = [query.name for query in queries]
    for name in names:
        if names.count(name) > 1:
            raise LabError(f"two queries are named {name!r}; give each its own name")
    return tuple(queries)


def longest(queries: Sequence[JoinQuery]) -> Lengths:
    """The longest window on each stream."""
    return max(query.windows[A] for query in queries), max(query.windows[B] for query in queries)


def hashed(selectivity: float) -> Theta:
    """A join condition that holds for this share of all pairs, decided by a hash of the pair."""
    threshold = round(selectivity * 2**32)

    def theta(a: Arrival, b: Arrival) -> bool:
        mixed = (a.number * 0x9E3779B97F4A7C15 + b.number * 0xC2B2AE3D27D4EB4F) & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 & 0xFFFFFFFFFFFFFFFF
        return mixed >> 32 < threshold

    return theta


def poisson(rates: tuple[float, float], seconds: float, seed: int) -> list[Arrival]:
    """Arrivals of both streams in order of time, at these rates per second; values are uniform in [0, 1)."""
    drawn: list[tuple[int, int, float]] = []
    for stream, rate in enumerate(rates):
        if rate < 0:
            raise LabError(f"stream {'AB'[stream]} has a rate of {rate}; a rate is 0 or more")
        source = random.Random(f"{seed}/{stream}")  # noqa: S311  (a repeatable workload, no secret)
        at = source.expovariate(rate) if rate else seconds
        while at < seconds:
            drawn.append((int(at * SECOND), stream, source.random()))
            at += source.expovariate(rate)
    return [Arrival(stream, time, number, value) for number, (time, stream, value) in enumerate(sorted(drawn))]
