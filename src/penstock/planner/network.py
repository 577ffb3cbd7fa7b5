"""The network: all standing queries compiled into one plan of state tables and joins.

This one object is what runs, what EXPLAIN prints and what the tests check. Queries over the same streams and key share
a *join*: its state tables are probed once for all of them, and a result row carries one bit per query. A state table
(stream x key class) is shared by all joins that use it; a stored row carries one bit per query role it serves
(decision 0003).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

from penstock.model import (
    Expression,
    Landmark,
    Query,
    Ref,
    Rows,
    Session,
    Sliding,
    Stream,
    Term,
    Tumbling,
    UserAggregate,
)
from penstock.model.limits import TOO_LARGE
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import AggregatePlan
from penstock.planner.bounds import Bounds
from penstock.planner.index import ColumnIndex

if TYPE_CHECKING:
    from penstock.planner.derived import DerivedStream

MAX_ROLES = 16
COUNTING = 1 << 48  # added to the id of a role for the bit of all rows that its window counts


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
class ComputedColumn:
    """A column computed for each row of a stream before the exchange: by the mapper if it has a term, else by Spark.

    It is `risky` if it may raise.
    """

    name: str
    stream: str
    parts: tuple[str | Ref, ...]
    risky: bool
    term: Term | None = None


@dataclass(frozen=True)
class Entry:
    """One bit of a state table: a query (or those that share its bits) in a role.

    `lives[s]` = how long past its time a row can join stream s. Its predicates are `terms` (column, term), which the
    index decides, and `truths`, which Spark computes. `needs` are the columns that the queries read of a stored row. A
    role with a window that counts rows (`counts`) has a second entry, `counting`, which every row of the stream serves
    as long as it can push another one out. Rows of a window that `tumbles` live at most to the end of their piece of
    time.
    """

    query: int
    role: int
    join: int
    position: int
    lives: tuple[tuple[str, int], ...]
    truths: tuple[str, ...]
    terms: tuple[tuple[str, Term], ...] = ()
    needs: frozenset[str] = frozenset()
    counts: Rows | None = None
    counting: bool = False
    tumbles: Tumbling | None = None

    @property
    def id(self) -> int:
        """The permanent id of the query role, as stored with state."""
        return self.query * MAX_ROLES + self.role + (COUNTING if self.counting else 0)

    @property
    def out(self) -> str:
        """The column, never stored, with the time at which each row leaves the role's window."""
        return out_column(self.query, self.position)

    @property
    def life(self) -> int:
        """How long past its time a row can join any other."""
        return max((length for _, length in self.lives), default=0)


@dataclass(frozen=True)
class StateTable:
    """Rows of one stream, sorted by one key; with `timed`, by time alone. With neither it is stateless.

    A stream that is joined by several keys has a table for each; `others` = (column with a row's key in another table,
    its name). `chain` are the ends of its links, ascending: a stored row stays until the end of the link in which its
    own life ends. A `grouped` table serves window aggregates: it has partials (or rows) by group, NULL being a group,
    and without a key all is one group. Rows of a `mapped` table are results where they are read, and go to no task.
    """

    index: int
    name: str
    stream: str
    key: tuple[tuple[str | Ref, ...], ...]
    key_types: tuple[str, ...]
    guards: tuple[str, ...]  # per key part: the computed column that replaces it because it may raise, or ""
    verify: tuple[str, ...]
    entries: tuple[Entry, ...]
    columns: tuple[str, ...]
    indexes: tuple[ColumnIndex, ...]
    sequence: str | None = None  # the declared column that orders rows of equal time
    chain: tuple[int, ...] = ()
    by_cell: bool = False  # rows of different bits never share a run
    timed: bool = False
    others: tuple[tuple[str, str], ...] = ()
    order: tuple[str, ...] = ()  # the columns that order rows, time first, if windows count rows
    grouped: bool = False
    watched: frozenset[str] = frozenset()  # computed predicates that only report whether something raised
    hashed: tuple[str, ...] | None = None  # the columns with the parts of the key; None if Spark hashes it
    mapped: bool = False

    @property
    def counted(self) -> tuple[Entry, ...]:
        """The entries of all rows that the windows of its roles count."""
        return tuple(e for e in self.entries if e.counting)

    @cached_property
    def pieces(self) -> dict[int, Tumbling]:
        """The windows that cut time into pieces, by the id of their role."""
        return {e.id: e.tumbles for e in self.entries if e.tumbles is not None}

    @property
    def stateless(self) -> bool:
        return not self.key and not self.timed and not self.grouped

    @cached_property
    def truths(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Each computed predicate with the entries that require it."""
        wanted: dict[str, list[int]] = {}
        for bit, entry in enumerate(self.entries):
            for truth in entry.truths:
                wanted.setdefault(truth, []).append(bit)
        return tuple((name, tuple(bits)) for name, bits in wanted.items())

    @property
    def plain_key(self) -> str | None:
        """The BIGINT column that is the whole key and is stored as it is: its hash can be computed anywhere."""
        bare = self.key[0][0] if len(self.key) == 1 and len(self.key[0]) == 1 else None
        if not isinstance(bare, Ref) or self.key_types != ("bigint",) or bare.column not in self.needed:
            return None
        return bare.column

    @cached_property
    def needed(self) -> frozenset[str]:
        """The columns that a task needs of each row: to store, to decide predicates, to verify keys."""
        return frozenset({*self.columns, *(i.column for i in self.indexes), *self.verify})

    def horizon(self, entry: Entry, progress: Mapping[str, int]) -> int:
        """Rows serving `entry` with a time at or before this can join no later row."""
        found = [_horizon(life, progress.get(stream, NEVER), entry.tumbles) for stream, life in entry.lives]
        return min(found, default=FOREVER)


def _horizon(life: int, progress: int, tumbles: Tumbling | None) -> int:
    if progress >= FOREVER:
        return FOREVER  # the stream has ended: not even [RANGE ALL] joins a row of it any more
    if life >= FOREVER or progress <= NEVER:
        return NEVER
    return progress - life if tumbles is None else max(progress - life, tumbles.start(progress) - 1)


@dataclass(frozen=True)
class KeyClass:
    """Positions of a join whose rows share a key, each with its state table sorted by it: (position, table)."""

    tables: tuple[tuple[int, int], ...]

    @cached_property
    def positions(self) -> dict[int, int]:
        return dict(self.tables)


@dataclass(frozen=True)
class Member:
    """A query as part of a join; `bit` is its bit in result rows, `roles[p]` its role at join position p.

    Members of one `share` have one bit. `reads[p]` = the columns that it reads of rows at position p. `outs` =
    (position, column with the time when a row there leaves its window) for windows that count rows. `bands` = pairs of
    positions with a time condition in WHERE. `listed` is the select list of a member whose rows are written in that
    form, to files of its own; empty for rows in the result table.
    """

    id: int
    name: str
    bit: int
    roles: tuple[int, ...]
    bounds: Bounds
    residuals: tuple[Expression, ...]
    computed: tuple[tuple[int, Expression], ...]
    on_error: str
    share: int
    reads: tuple[frozenset[str], ...]
    outs: tuple[tuple[int, str], ...] = ()
    bands: tuple[tuple[int, int], ...] = ()
    listed: tuple[Expression, ...] = ()

    @property
    def finished_by_spark(self) -> bool:
        """Whether Spark must evaluate a residual or a select item between the probe and the write."""
        return any(r.term is None for r in self.residuals) or any(e.term is None for _, e in self.computed)


@dataclass(frozen=True)
class Join:
    """Queries over the same state tables and keys: probed together, stored in one result table.

    `tables[p]` is the first state table of position p; one with several keys has more, in `classes`. `closes` are the
    streams of windows that count rows: rows take part only once the progress of all of these has passed them.
    """

    index: int
    name: str
    tables: tuple[int, ...]
    members: tuple[Member, ...]
    classes: tuple[KeyClass, ...]
    columns: tuple[tuple[str, ...], ...]
    kind: str = "join"
    closes: tuple[str, ...] = ()

    @cached_property
    def leads(self) -> tuple[Member, ...]:
        """One member for each bit of a result row, in the order of bits."""
        by_bit = {m.bit: m for m in self.members}
        return tuple(by_bit[bit] for bit in range(len(by_bit)))

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """All pairs of a position and one of its state tables."""
        keyed = [pair for key_class in self.classes for pair in key_class.tables]
        return tuple(dict.fromkeys([*enumerate(self.tables), *keyed]))

    @cached_property
    def ties(self) -> frozenset[frozenset[int]]:
        """The pairs of positions that a condition or a band of any query connects, besides keys."""
        conditions = [pair for m in self.leads for r in m.residuals for pair in combinations(r.roles, 2)]
        return frozenset(map(frozenset, [*conditions, *(band for m in self.leads for band in m.bands)]))

    def closed(self, progress: Mapping[str, int]) -> tuple[int, int]:
        """The times below which rows took part in the previous step, and do so in this one."""
        before = min(progress.get(closing(stream), NEVER) for stream in self.closes)
        return before, min(progress.get(stream, NEVER) for stream in self.closes)

    @property
    def finished_by_spark(self) -> bool:
        return any(m.finished_by_spark for m in self.members)


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
    def closings(self) -> tuple[str, ...]:
        """The names for the progress of its windows: an aggregate with capped results has its own."""
        return self.streams if self.flush is None else tuple(held(s, self.members[0].id) for s in self.streams)

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(source.stream for source in self.sources)

    @property
    def home(self) -> int:
        """The state table that represents all of them where there can be only one."""
        return self.sources[0].table

    def closed(self, progress: Mapping[str, int]) -> tuple[int, int]:
        """The step closes windows that end after the first of these times and not after the second."""
        before = min(progress.get(closing(name), NEVER) for name in self.closings)
        return before, min(progress.get(stream, NEVER) for stream in self.streams)

    def closes(self, before: int, now: int) -> bool:
        """Whether a window may end after the first time and not after the second."""
        windows = [query.window for query in self.plan.queries]
        if now >= FOREVER or not all(isinstance(w, Sliding | Landmark) for w in windows):
            return now > before
        return any(w.closed(now) > w.closed(before) for w in windows if isinstance(w, Sliding | Landmark))


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


_HELD = " held for query "


def held(stream: str, query: int) -> str:
    """The name, instead of a stream's, for the progress of a query whose results are capped per step."""
    return f"{stream}{_HELD}{query}"


def stream_of(name: str) -> str:
    """The stream of a name of closed windows."""
    return name.partition(_HELD)[0]


def as_answered(progress: Mapping[str, int], query: int) -> dict[str, int]:
    """Progress of one query's answers: that of a query with capped results is behind."""
    own = {name: value for name, value in progress.items() if name.endswith(f"{_HELD}{query}")}
    return {**progress, **{stream_of(name): value for name, value in own.items()}}


def closing(stream: str) -> str:
    """The name, beside streams' own, for the progress by which the previous step closed windows."""
    return f"closed:{stream}"


def output_progress(query: Query, progress: Mapping[str, int]) -> int:
    """No later result has a time below this; windows that count rows delay results until a step has closed them.

    The result time of an aggregate is the end of its window, so this is the end of the first open window.
    """
    if query.aggregation is not None:
        sources = (query.roles[0].stream, *query.roles[0].union)
        reached = min(progress.get(closing(stream), NEVER) for stream in sources)
        if abs(reached) >= FOREVER:
            return reached
        match query.aggregation.window:
            case Sliding() | Landmark() as sliding:
                return sliding.extent(sliding.closed(reached))[1]
            case Session():
                return reached + 1
        return reached
    counted = [closing(role.stream) for role in query.roles if isinstance(role.window, Rows)]
    least = min(progress.get(name, NEVER) for name in [*counted, *(s for role in query.roles for s in role.streams)])
    window = query.roles[0].window
    if isinstance(window, Tumbling) and len(query.roles) > 1 and NEVER < least < FOREVER:
        return window.start(least)
    return least


def decided_early(residual: Expression) -> bool:
    """Whether a condition filters as soon as its positions are joined; conditions for Spark wait for whole results."""
    return residual.term is not None and len(residual.roles) > 1


def out_column(share: int, position: int) -> str:
    return f"_out{share}:{position}"


def key_column(table: str) -> str:
    """The name of the column with a row's key in this table, in other state tables of the stream."""
    return "_k" + hashlib.sha256(table.encode()).hexdigest()[:12]


def result_column(position: int, stream: Stream, column: str) -> str:
    """The name of a position's column in a result table."""
    ordinal = next(i for i, c in enumerate(stream.columns) if c.name == column)
    return f"r{position}_c{ordinal}"
