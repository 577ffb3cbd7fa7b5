"""Counters of steps: of streams, state tables, queries and joins, and of the engine itself.

A task adds to these objects; the counts of tasks, of steps and of all steps so far add up.
"""

from __future__ import annotations

from typing import Any, Self

import msgspec


class Counts(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Fields that add up one by one: numbers, other counts, or either of them by key."""

    def add(self, more: Self) -> None:
        """Add other counts of the same."""
        for name in self.__struct_fields__:
            other = getattr(more, name)
            if not other:  # most counts of a task are zero
                continue
            mine = getattr(self, name)
            if isinstance(other, int):
                setattr(self, name, mine + other)
            else:
                _add(mine, other)

    def plus(self, more: Self) -> Self:
        """The sum of both; it shares unchanged parts with this one."""
        return type(self)(*(_sum(getattr(self, name), getattr(more, name)) for name in self.__struct_fields__))

    def shown(self) -> dict[str, int]:
        """The numbers that are not zero, by name."""
        found = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in found if isinstance(value, int) and value}


class StreamCounters(Counts):
    """Rows of a stream by verdict; `expired` are late and invalid ones that are no longer kept."""

    rows: int = 0
    accepted: int = 0
    punctuations: int = 0
    late: int = 0
    bad: int = 0
    expired: int = 0


class PaneCounters(Counts):
    """Groups of the new rows of a step, and the partials of these rows by the width of panes."""

    groups: int = 0
    partials: dict[int, int] = {}


class TableCounters(Counts):
    """Rows of a state table, and the work with them; or the state of an aggregate, under its name.

    `deferred` are rows whose probes were put off, `cleaned` those whose probes a clean-up has run, both by the start of
    each join. `lives` and `roles` are rows by their own life and by role among those that were `sampled`, `probes` and
    `results` the work of the links of a chain, by begin and end. `ages` are matches by the class of a stored row's
    age, counted only where memory is limited; `blocks` of cold runs were read, and `skipped` without reading them.
    """

    unwanted: int = 0
    sampled: int = 0
    exchanged: int = 0
    mappers: int = 0
    shipped: int = 0
    keys: int = 0
    aggregated: int = 0
    folded: int = 0
    partials: int = 0
    rolled: int = 0
    out_of_reach: int = 0
    stored: int = 0
    files: int = 0
    bytes_written: int = 0
    probed: int = 0
    candidates: int = 0
    compared: int = 0
    dropped: int = 0
    blocks: int = 0
    skipped: int = 0
    ages: dict[int, int] = {}
    deferred: int = 0
    cleaned: int = 0
    lives: dict[int, int] = {}
    roles: dict[int, int] = {}
    probes: dict[int, dict[int, int]] = {}
    results: dict[int, dict[int, int]] = {}
    panes: PaneCounters = msgspec.field(default_factory=PaneCounters)


class QueryCounters(Counts):
    """Results of a query, rows on which it raised, rows in no window, and stored rows that are judged on read."""

    results: int = 0
    errors: int = 0
    outside: int = 0
    undecided: int = 0


class JoinCounters(Counts):
    """Composites of a join by start position and their positions, as a set of bits; zero is counted too."""

    flows: dict[int, dict[int, int]] = {}


class EngineCounters(Counts):
    """Steps with a job, steps without a batch, what crossed the exchange, and what was put aside for lack of memory.

    `pieces` are sorted pieces of new rows, `aside_bytes` all that tasks have put into files of their own.
    """

    steps: int = 0
    ticks: int = 0
    sent_rows: int = 0
    sent_bytes: int = 0
    pieces: int = 0
    aside_bytes: int = 0


class Counters(Counts):
    """All counters. What was never counted reads as zero, see `table` and the others."""

    engine: EngineCounters = msgspec.field(default_factory=EngineCounters)
    streams: dict[str, StreamCounters] = {}
    tables: dict[str, TableCounters] = {}
    queries: dict[int, QueryCounters] = {}
    joins: dict[str, JoinCounters] = {}

    def stream(self, name: str) -> StreamCounters:
        return self.streams.get(name) or StreamCounters()

    def table(self, name: str) -> TableCounters:
        return self.tables.get(name) or TableCounters()

    def query(self, number: int) -> QueryCounters:
        return self.queries.get(number) or QueryCounters()

    def join(self, name: str) -> JoinCounters:
        return self.joins.get(name) or JoinCounters()


TICK = Counters(EngineCounters(ticks=1))  # the counters of a step without a batch


def bits_of(positions: tuple[int, ...]) -> int:
    """Positions of a join as a set of bits."""
    return sum(1 << position for position in positions)


def positions_of(bits: int) -> frozenset[int]:
    return frozenset(position for position in range(bits.bit_length()) if bits >> position & 1)


def _add(mine: Any, more: Any) -> None:
    if isinstance(more, Counts):
        mine.add(more)
        return
    for key, value in more.items():
        if isinstance(value, int):
            mine[key] = mine.get(key, 0) + value
        else:
            _add(mine.setdefault(key, type(value)()), value)


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, int):
        return one + other
    if isinstance(one, Counts):
        return one.plus(other)
    return (
        {**one, **{key: _sum(one[key], value) if key in one else value for key, value in other.items()}}
        if other
        else one
    )
