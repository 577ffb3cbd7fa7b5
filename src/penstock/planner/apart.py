"""An aggregate over a join, taken apart into the join and an aggregate over the derived stream of its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
from penstock.model.time import FOREVER
from penstock.planner.bounds import time_bounds
from penstock.planner.derived import LAST_TICK, TICK, Ticks, type_of
from penstock.planner.remap import rename_expression

_BY_ORDER = frozenset({"first", "last", "collect_list"})  # functions for which the order of rows matters


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
    kinds = [Column(n, type_of(own[ref.role], ref.column)) for ref, n in names.items()]
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
    plain = type_of(stream, stream.event_time) == "bigint"
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
