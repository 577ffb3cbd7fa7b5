"""Derived streams: the results of a query as a stream that others read, among them aggregates over joins.

What a step commits for a query is a later step's delta of the derived stream (decision 0021). Its progress follows from
that of the query's own streams (`progress`), so that none of its rows is late. `step.derived` reads rows from result
files into a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.errors import RegistrationError
from penstock.model import (
    Query,
    Ref,
    Role,
    Rows,
    Stream,
    Tumbling,
)
from penstock.model.expression import PSEUDO_ROLE
from penstock.model.time import FOREVER, NEVER
from penstock.planner.bounds import Bounds, time_bounds
from penstock.planner.reached import Reached, output_progress
from penstock.planner.window_aggregate import TickColumn

TICK, LAST_TICK = "tick", "last tick"  # columns of the results of a join below an aggregate


@dataclass(frozen=True)
class Ticks:
    """When a joined row counts: at every tick after all its times and within the range of each.

    `ranges` = (column with the event time of a role, its RANGE; None for [RANGE ALL]).
    """

    slide: int
    origin: int | None
    ranges: tuple[tuple[str, int | None], ...]

    @property
    def start(self) -> int:
        return self.origin or 0

    @property
    def column(self) -> TickColumn:
        return TickColumn(LAST_TICK, self.slide)

    @property
    def most(self) -> int:
        """The most ticks at which a row counts."""
        return max(1, -(-min(length for _, length in self.ranges if length is not None) // self.slide))

    def of(self, times: Sequence[int]) -> range:
        """The ticks at which a row with these times of its roles counts."""
        if self.origin is not None and min(times) < self.origin:
            return range(0)
        first = max(times) - (max(times) - self.start) % self.slide + self.slide
        ends = [time + length for time, (_, length) in zip(times, self.ranges, strict=True) if length is not None]
        return range(first, min(ends) + 1, self.slide)


@dataclass(frozen=True)
class DerivedStream:
    """The results of query `query`, defined by `definition`, as `stream`.

    `role` is the one whose event time is the stream's; None: result time. With `ticks` each result counts at every tick
    of its rows: its time is just before the first, and the column `LAST_TICK` has the moment just before the last.
    `joined`: for the aggregate over a join, whose last window is the one that contains all rows of the join's own
    streams, whether they are in a result or not.
    """

    stream: Stream
    query: int
    definition: Query
    role: int | None = None
    ticks: Ticks | None = None
    joined: bool = False

    @property
    def name(self) -> str:
        return self.stream.name

    @cached_property
    def bounds(self) -> Bounds:
        return time_bounds(self.definition)

    def progress(self, reached: Reached) -> int:
        """No result of a later step has a time below this, if `reached` is the progress after the steps so far.

        A result is found by a row that is not late; the others' times lie within the bounds of its time.
        """
        if self.role is None:
            return output_progress(self.definition, reached)
        roles = self.definition.roles
        if any(isinstance(role.window, Rows) for role in roles):  # found when progress has closed it
            return _behind(output_progress(self.definition, reached), max(self.bounds[self.role]))
        found = []
        for other, role in enumerate(roles):
            known = _reached(role, reached)
            bound = _behind(known, self.bounds[self.role][other])
            if isinstance(role.window, Tumbling) and NEVER < known < FOREVER and other != self.role:
                bound = max(bound, role.window.start(known))
            found.append(bound)
        return min(found)

    def box(self, reached: Reached, streams: Mapping[str, Stream]) -> dict[str, int]:
        """No result of a later step has *all* these columns below these times; empty if nothing is known.

        The columns have the event time of each role of a join. A later row is not behind its own stream's progress, so
        results that are old by the progress of every stream are complete, even if another stream is far behind the
        newest of their times (Li 2008, 7.2).
        """
        roles = self.definition.roles
        if len(roles) < 2 or any(isinstance(role.window, Rows) for role in roles):
            return {}
        found = {}
        for number, role in enumerate(roles):
            stream = streams[role.stream]
            time = Ref(number, stream.event_time)
            column = next((i.name for i in self.definition.items if i.expression.parts == (time,)), None)
            if column is None or not (
                stream.integer_time or type_of(stream, stream.event_time).startswith("timestamp")
            ):
                return {}
            found[column] = _reached(role, reached)
        if NEVER in found.values():
            return {}
        return {column: time for column, time in found.items() if time < FOREVER}


def derived_stream(stream: Stream, query: int, definition: Query) -> DerivedStream:
    """The results of a query as a stream whose event time is one of the query's items."""
    item = next(i for i in definition.items if i.name is not None and i.name.lower() == stream.event_time.lower())
    ref = item.expression.parts[0]
    assert isinstance(ref, Ref)
    derived = DerivedStream(stream, query, definition, None if ref.role == PSEUDO_ROLE else ref.role)
    if derived.role is not None and max(derived.bounds[derived.role]) >= FOREVER:
        alias = definition.roles[derived.role].alias
        msg = (
            f"results with any older {stream.event_time!r} may come as long as there are rows, since nothing "
            f"bounds how long rows of {alias!r} "
            "count; let the window follow result_time"
        )
        raise RegistrationError(msg)
    return derived


def base_streams(derived: DerivedStream, others: Mapping[str, DerivedStream]) -> set[str]:
    """The underived streams on which a derived one depends."""
    found = set()
    for name in (name for role in derived.definition.roles for name in role.streams):
        found |= base_streams(others[name], others) if name in others else {name}
    return found


def type_of(stream: Stream, column: str) -> str:
    declared = stream.column(column)
    assert declared is not None
    return declared.type


def _reached(role: Role, progress: Reached) -> int:
    """No later row in a role has a time below this."""
    return min(progress.get(stream, NEVER) for stream in role.streams)


def _behind(progress: int, bound: int) -> int:
    """Progress less a bound, if both are known."""
    if abs(progress) >= FOREVER:
        return progress
    return NEVER if bound >= FOREVER else progress - bound
