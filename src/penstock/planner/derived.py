"""Derived streams: the results of a query as a stream that others read, and aggregates over joins as such readers.

What a step commits for a query is a later step's delta of the derived stream (decision 0021). Its progress follows from
that of the query's own streams (`progress`), so that none of its rows is late. An aggregate over a join is split into
the join and an aggregate over the join's results (`take_apart`). `step.derived` reads rows from result files into a
step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from penstock.errors import RegistrationError
from penstock.model import (
    AggregateWindow,
    Aggregation,
    Column,
    Compare,
    Expression,
    Item,
    Landmark,
    Literal,
    Query,
    Ref,
    Role,
    Rows,
    Sliding,
    Stream,
    Top,
    Tumbling,
    Window,
)
from penstock.model.expression import PSEUDO_ROLE, RESULT_TIME, WINDOW_END, WINDOW_START
from penstock.model.limits import MOST_TICKS
from penstock.model.time import FOREVER, NEVER, format_length
from penstock.planner.bounds import Bounds, time_bounds
from penstock.planner.network import Network, TickColumn, output_progress
from penstock.planner.remap import rename_expression

TICK, LAST_TICK = "tick", "last tick"  # columns of the results of a join below an aggregate
_BY_ORDER = frozenset({"first", "last", "collect_list"})  # functions for which the order of rows matters


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

    def progress(self, reached: Mapping[str, int]) -> int:
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

    def box(self, reached: Mapping[str, int], streams: Mapping[str, Stream]) -> dict[str, int]:
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
            if column is None or not (stream.integer_time or _type(stream, stream.event_time).startswith("timestamp")):
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


def explain_derived(network: Network, names: Collection[str]) -> list[str]:
    """A line for each derived stream of these names."""
    called = {query.id: query.name for query in network.queries}
    lines = []
    for derived in network.derived_streams:
        if derived.name not in names:
            continue
        what = f"the join below {called[derived.query]}" if derived.joined else f"query {called[derived.query]}"
        text = f"derived stream {derived.name}: results of {what}, event time {derived.stream.event_time}"
        if derived.ticks is not None:
            slide = derived.ticks.slide
            every = format_length(slide, integer=derived.stream.integer_time)
            text += f", each counts at every tick ({every}) at which its rows are in their windows"
        lines.append(text)
    return lines


@dataclass(frozen=True)
class Apart:
    """An aggregate over a join as two queries: the join, and the aggregate over its results, the stream `stream`.

    `lag` is how much later than its rows a complete answer can begin, beyond the aggregate's own window.
    """

    join: Query
    aggregate: Query
    stream: Stream
    ticks: Ticks | None
    lag: int


def is_joined(query: Query) -> bool:
    """Whether a query aggregates over several roles."""
    return query.aggregation is not None and len(query.roles) > 1


def take_apart(query: Query, streams: Mapping[str, Stream], name: str) -> Apart:
    """The join below an aggregate, and the aggregate over the stream `name` of its results.

    The windows of the roles end at common ticks, and a result counts at those of all its rows. If all windows go back
    to the beginning, or groups are event times, it counts once, at its result time.
    """
    aggregation = query.aggregation
    assert aggregation is not None
    own = [streams[role.stream] for role in query.roles]
    columns = [_columns(aggregation, i, stream) for i, stream in enumerate(own)]
    names = {Ref(i, c): f"{query.roles[i].alias}.{c}" for i, used in enumerate(columns) for c in used}
    items = [Item(name, Expression((ref,), ref, total=True)) for ref, name in names.items()]
    kinds = [Column(n, _type(own[ref.role], ref.column)) for ref, n in names.items()]
    time = Column(TICK, "bigint" if own[0].integer_time else "timestamp")
    windows = [role.window for role in query.roles]
    ranges = [w.range if isinstance(w, Sliding) else None for w in windows]
    window, ticks, lag = aggregation.window, None, 0
    predicates = query.predicates
    if any(length is not None for length in ranges):
        assert isinstance(window, Sliding | Landmark)
        times = [names[Ref(i, stream.event_time)] for i, stream in enumerate(own)]
        ticks = Ticks(window.slide, window.origin, tuple(zip(times, ranges, strict=True)))
        if ticks.most > MOST_TICKS:
            msg = (
                f"each joined row would count in up to {ticks.most:,} windows; at most {MOST_TICKS:,} are "
                "possible: take a longer SLIDE or a "
                "shorter RANGE"
            )
            raise RegistrationError(msg)
        lag = max(length for length in ranges if length is not None) - window.slide
        window = Sliding(window.slide, window.slide, window.origin)
    else:
        result = Ref(PSEUDO_ROLE, RESULT_TIME)
        items.insert(0, Item(TICK, Expression((result,), result, total=True)))
        if isinstance(window, Landmark) and window.origin is not None:
            predicates = (*predicates, *(_since(i, s, window.origin) for i, s in enumerate(own)))
        if window is None:
            lag = max((b for row in time_bounds(query) for b in row if b < FOREVER), default=0)
    roles = tuple(replace(role, window=_joined(role)) for role in query.roles)
    join = replace(query, roles=roles, predicates=predicates, items=tuple(items), ordered=False, aggregation=None)

    def rename(ref: Ref) -> Ref:
        return Ref(0, names[ref]) if ref.role >= 0 else ref

    above = replace(
        aggregation,
        window=window,
        groups=tuple(Item(g.name, rename_expression(g.expression, rename)) for g in aggregation.groups),
        aggregates=tuple(
            a if a.argument is None else replace(a, argument=rename_expression(a.argument, rename))
            for a in aggregation.aggregates
        ),
        having=None if aggregation.having is None else _shown(aggregation.having, aggregation.window, window, own[0]),
        top=None if aggregation.top is None else _sorted(aggregation.top, aggregation.window, window, own[0]),
    )
    aggregate = replace(
        query, roles=(Role(" x ".join(r.alias for r in query.roles), name, window),), keys=(), bands=(), predicates=(),
        residuals=(),
        items=tuple(Item(i.name, _shown(i.expression, aggregation.window, window, own[0])) for i in query.items),
        aggregation=above,
    )  # fmt: skip
    last = () if ticks is None else (Column(LAST_TICK, "bigint"),)
    return Apart(join, aggregate, Stream(name, (time, *kinds, *last), TICK, delay=None), ticks, lag)


def _columns(aggregation: Aggregation, role: int, stream: Stream) -> list[str]:
    """The columns that an aggregate reads of a role: its time first, then in the order that orders rows."""
    if any(a.function in _BY_ORDER for a in aggregation.aggregates):
        return [*stream.order, *(c.name for c in stream.columns if c.name not in stream.order)]
    arguments = [a.argument for a in aggregation.aggregates if a.argument is not None]
    read = {ref for e in (*(g.expression for g in aggregation.groups), *arguments) for ref in e.refs}
    return [
        stream.event_time,
        *(c.name for c in stream.columns if Ref(role, c.name) in read and c.name != stream.event_time),
    ]


def _joined(role: Role) -> Window | Rows | Tumbling | None:
    """The window of a role in the join: rows that are in one window together lie within the range."""
    match role.window:
        case Sliding(length):
            return Window(length)
        case Landmark():
            return Window(None)
        case Window() | Rows() | Tumbling() | None as plain:
            return plain
    raise AssertionError(role.window)  # others are refused when parsed


def _since(role: int, stream: Stream, origin: int) -> Expression:
    """Time begins at the origin of a landmark."""
    time = Ref(role, stream.event_time)
    plain = _type(stream, stream.event_time) == "bigint"
    term = Compare(">=", time, Literal(origin, "bigint")) if plain else None
    return Expression((time, f" >= {_point(origin, stream)}"), term, total=True)


def _shown(
    expression: Expression, window: AggregateWindow | None, instead: AggregateWindow | None, stream: Stream
) -> Expression:
    """The pseudo-columns of the whole window, computed from the end of the aggregate's own window."""
    if window == instead:
        return expression
    end = Ref(PSEUDO_ROLE, WINDOW_END)
    parts: list[str | Ref] = []
    for part in expression.parts:
        match part, window:
            case Ref(role, column), Sliding(length, _, origin) if role == PSEUDO_ROLE and column == WINDOW_START:
                parts += _less(end, length, origin, stream)
            case Ref(role, column), Landmark(_, origin) if role == PSEUDO_ROLE and column == WINDOW_START:
                parts.append(_point(origin, stream))
            case _:
                parts.append(part)
    told = tuple(parts)
    return expression if told == expression.parts else Expression(told, None, expression.total)


def _sorted(top: Top, window: AggregateWindow | None, instead: AggregateWindow | None, stream: Stream) -> Top:
    keys = tuple(replace(key, expression=_shown(key.expression, window, instead, stream)) for key in top.keys)
    return replace(top, keys=keys)


def _less(end: Ref, length: int, origin: int | None, stream: Stream) -> list[str | Ref]:
    """A length before the end of a window, but not before the origin."""
    begin: list[str | Ref] = ["(", end, f" - {length}L)"]
    if not stream.integer_time:
        begin = ["timestamp_micros(unix_micros(", end, f") - {length}L)"]
    return begin if origin is None else ["greatest(", _point(origin, stream), ", ", *begin, ")"]


def _point(time: int | None, stream: Stream) -> str:
    kind = "BIGINT" if stream.integer_time else "TIMESTAMP"
    if time is None:
        return f"CAST(NULL AS {kind})"
    return f"{time}L" if stream.integer_time else f"timestamp_micros({time}L)"


def _type(stream: Stream, column: str) -> str:
    declared = stream.column(column)
    assert declared is not None
    return declared.type


def _reached(role: Role, progress: Mapping[str, int]) -> int:
    """No later row in a role has a time below this."""
    return min(progress.get(stream, NEVER) for stream in role.streams)


def _behind(progress: int, bound: int) -> int:
    """Progress less a bound, if both are known."""
    if abs(progress) >= FOREVER:
        return progress
    return NEVER if bound >= FOREVER else progress - bound
