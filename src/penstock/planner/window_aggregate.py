"""A window aggregate of the network: aggregated queries over the same rows and groups, answered together."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model import Expression, Landmark, Sliding
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import AggregatePlan
from penstock.planner.reached import Closing, Reached


@dataclass(frozen=True)
class AggregateMember:
    """A query as part of an aggregate; `bit` is its bit in result rows. It did not see windows before `first` whole.

    The results of a `paned` member are stored as closed panes, from which its windows are assembled on read. With
    `every`, open windows are shown too, again after that many microseconds of the clock. `share` is the query whose
    entry selects its rows. With `repeats`, consecutive windows of equal content are one row of its results. `listed` is
    the select list of a member whose results are written in that form, to files of its own.
    """

    id: int
    name: str
    bit: int
    first: int = NEVER
    paned: bool = False
    every: int | None = None
    share: int = 0
    repeats: bool = False
    listed: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class TickColumn:
    """For a stream whose rows count at several ticks, a `slide` apart: the column `last` has the last moment."""

    last: str
    slide: int


@dataclass(frozen=True)
class AggregateSource:
    """A state table that passes rows of a stream to an aggregate, and its columns of groups and arguments in order.

    `ticks` of rows that count at several of them, of which their time is only the first.
    """

    table: int
    stream: str
    groups: tuple[str, ...]
    arguments: tuple[str, ...]
    ticks: TickColumn | None = None


@dataclass(frozen=True)
class WindowAggregate:
    """Aggregated queries over one stream (or one union of streams) with the same groups, answered together.

    The state of all `sources` is in runs of the aggregate's own name. `order` are the columns that order rows of one
    time, with their types, if the plan needs them. With `flush` it has one query with at most so many results per step.
    """

    index: int
    name: str
    sources: tuple[AggregateSource, ...]
    plan: AggregatePlan
    members: tuple[AggregateMember, ...]
    group_types: tuple[str, ...]
    order: tuple[tuple[str, str], ...] = ()
    flush: tuple[int, int] | None = None

    @property
    def closings(self) -> tuple[Closing, ...]:
        """The names for the progress of its windows: an aggregate with capped results has its own."""
        return tuple(Closing(s, None if self.flush is None else self.members[0].id) for s in self.streams)

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(source.stream for source in self.sources)

    @property
    def home(self) -> int:
        """The state table that represents all of them where there can be only one."""
        return self.sources[0].table

    def closed(self, progress: Reached) -> tuple[int, int]:
        """The step closes windows that end after the first of these times and not after the second."""
        before = min(progress.get(closing, NEVER) for closing in self.closings)
        return before, min(progress.get(stream, NEVER) for stream in self.streams)

    def closes(self, before: int, now: int) -> bool:
        """Whether a window may end after the first time and not after the second."""
        windows = [query.window for query in self.plan.queries]
        if now >= FOREVER or not all(isinstance(w, Sliding | Landmark) for w in windows):
            return now > before
        return any(w.closed(now) > w.closed(before) for w in windows if isinstance(w, Sliding | Landmark))
