"""The network: all standing queries compiled into one plan of state tables and joins.

This one object is what runs, what EXPLAIN prints and what the tests check. Queries over the same streams and key share
a *join*: its state tables are probed once for all of them, and a result row carries one bit per query. A state table
(stream x key class) is shared by all joins that use it; a stored row carries one bit per query role it serves
(decision 0003).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.model import Landmark, Query, Sliding, Stream, UserAggregate
from penstock.model.limits import TOO_LARGE
from penstock.planner.derived import DerivedStream
from penstock.planner.join import Join
from penstock.planner.state_table import ComputedColumn, StateTable
from penstock.planner.window_aggregate import WindowAggregate


@dataclass(frozen=True)
class StandingQuery:
    """A query with its permanent id. `key_types` (per key part and role) is needed for keys that are not plain columns.

    Queries that began together and differ only in select list and sink have the same `share`: the id whose bits they
    read. Aggregated queries need only select the same rows for that; `types` are the types of their groups, and of the
    argument of each aggregate. They began with step `since`, and see all rows from the times `complete_from` on. Each
    result of a `delivered` query goes to a sink or a reader, so that it must exist as a row. `flush` = (maximal results
    per step, windows by which this may delay a result); `own` are the users' aggregates. `listed` are the names and
    types of the select list of a query with a folder as sink.
    """

    id: int
    name: str
    query: Query
    on_error: str = "skip"
    key_types: tuple[tuple[str, ...], ...] = ()
    share: int | None = None
    types: tuple[tuple[str, ...], ...] = ()
    since: int = 0
    complete_from: tuple[tuple[str, int], ...] = ()
    delivered: bool = False
    flush: tuple[int, int] | None = None
    own: Mapping[str, UserAggregate] = field(default_factory=dict, compare=False)
    listed: tuple[tuple[str, str], ...] = ()

    @property
    def bits_of(self) -> int:
        return self.id if self.share is None else self.share


@dataclass(frozen=True)
class Network:
    """The whole plan. `version` is the registry version it was built from, `strategy` how it shares.

    `chosen` is why it has that strategy: 'auto', 'asked' for, or 'kept' since the state was written by it; '' without a
    choice. `plan` is the requested plan of all window aggregates, if any.
    """

    version: int
    streams: Mapping[str, Stream]
    tables: tuple[StateTable, ...]
    joins: tuple[Join, ...]
    derived: tuple[ComputedColumn, ...]
    queries: tuple[StandingQuery, ...] = field(default=())
    strategy: str = "state_slice"
    aggregates: tuple[WindowAggregate, ...] = ()
    derived_streams: tuple[DerivedStream, ...] = ()  # their streams are among `streams` too
    chosen: str = ""
    plan: str = ""

    @cached_property
    def closes(self) -> tuple[str, ...]:
        """The streams of windows that are answered once progress has passed them: row counts and aggregates."""
        counted = (stream for join in self.joins for stream in join.closes)
        return tuple(dict.fromkeys([*counted, *(stream for a in self.aggregates for stream in a.streams)]))

    @cached_property
    def origins(self) -> dict[str, int]:
        """The streams of which every query has an ORIGIN, with the earliest one: no answer contains earlier rows."""
        ticks = {d.query: d.ticks.origin for d in self.derived_streams if d.ticks is not None}
        found: dict[str, list[int | None]] = {}
        for standing in self.queries:
            for role in standing.query.roles:
                origin = ticks.get(standing.id)
                if standing.query.aggregation is not None:
                    origin = role.window.origin if isinstance(role.window, Sliding | Landmark) else None
                for name in role.streams:
                    found.setdefault(name, []).append(origin)
        derived = {d.name for d in self.derived_streams}
        known = {name: [o for o in origins if o is not None] for name, origins in found.items() if name not in derived}
        return {name: min(given) for name, given in known.items() if len(given) == len(found[name])}

    @cached_property
    def grows(self) -> bool:
        """Whether values that Spark computes may be large although the rows are not."""
        items = [e.parts for join in self.joins for m in join.members for _, e in m.computed]
        return any(
            TOO_LARGE in part
            for parts in (*(d.parts for d in self.derived), *items)
            for part in parts
            if isinstance(part, str)
        )

    def parts_of(self, query: StandingQuery) -> list[StandingQuery]:
        """The queries that together answer one user's query: the combinations of the streams of its unions."""
        joined = query.query.aggregation is None  # the join below an aggregate has its name too
        return [q for q in self.queries if q.name == query.name and (q.query.aggregation is None) == joined]

    def tables_of(self, stream: str) -> tuple[StateTable, ...]:
        """The state tables of a stream; its first one also has late and invalid rows and all counts."""
        return tuple(t for t in self.tables if t.stream == stream)

    @cached_property
    def bits(self) -> dict[int, tuple[str, int]]:
        """Query id -> (name of its join or aggregate, bit in its result rows)."""
        joined = {m.id: (join.name, m.bit) for join in self.joins for m in join.members}
        return joined | {m.id: (a.name, m.bit) for a in self.aggregates for m in a.members}
