"""The state tables of window aggregates: which queries share one, what it is keyed by, and what it stores of each row.

Queries over one stream with the same groups share partials, whatever their windows; queries that need single rows share
rows. Where windows count rows, queries that began together and count the same rows share a table, since a rank has a
meaning only among these. `aggregates` and `panes` decide how windows are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import RegistrationError
from penstock.model import (
    Aggregation,
    And,
    Compare,
    Expression,
    IsNull,
    Landmark,
    Literal,
    Or,
    PerRow,
    Ref,
    Session,
    Sliding,
    SlidingRows,
    Stream,
    Term,
)
from penstock.model.expression import AGGREGATE_ROLE, FLIPPED
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import AggregatePlan, is_cut_by_kernels, plan_aggregates
from penstock.planner.computed import ComputedColumns
from penstock.planner.index import build_index
from penstock.planner.keys import common_type, normalized, normalized_term
from penstock.planner.listed import listed_windows
from penstock.planner.network import StandingQuery
from penstock.planner.reached import Clock, Closing
from penstock.planner.state_table import MAX_ROLES, Entry, StateTable
from penstock.planner.window_aggregate import AggregateMember, AggregateSource, TickColumn, WindowAggregate

NO_TICKS: Mapping[str, TickColumn] = {}


@dataclass(frozen=True)
class _Set:
    """Queries that may share a table: the same stream, groups, and rows to count."""

    streams: tuple[str, ...]
    groups: tuple[Expression, ...]
    partition: tuple[str, ...] | None  # None: windows of time
    own: str


def grouped_tables(
    queries: Sequence[StandingQuery],
    streams: Mapping[str, Stream],
    strategy: str,
    first: int,
    columns: ComputedColumns,
    wanted: str | None = None,
    ticks: Mapping[str, TickColumn] = NO_TICKS,
) -> Iterator[tuple[tuple[StateTable, ...], WindowAggregate]]:
    """The state tables of aggregated queries, numbered from `first`, and the aggregates on them.

    `wanted` is a plan by name; `ticks` are those of streams whose rows count at several ticks.
    """
    sets: dict[_Set, list[StandingQuery]] = {}
    for standing in queries:
        sets.setdefault(_set_of(standing, strategy), []).append(standing)
    number = 0
    for key, members in sets.items():
        for plan in _plans(members, streams, wanted):
            made = _aggregate(
                key, plan, members, [streams[name] for name in key.streams], first, number, columns, ticks
            )
            first += len(made[0])
            number += 1
            yield made


def check_aggregated(standing: StandingQuery) -> None:
    """Refuse aggregates that SQL can express and no plan supports yet."""
    query = standing.query
    assert query.aggregation is not None
    assert len(query.roles) == 1 and query.roles[0].on is None, (  # noqa: PT018
        "one over a join is taken apart first, see `derived`"
    )
    refusal = None
    by_time = query.aggregation.window is None or isinstance(query.aggregation.window, Sliding | Landmark)
    if query.aggregation.emit is not None and not by_time:
        refusal = (
            "EMIT EARLY is for windows that slide by time: a session that was shown may grow, or become part of "
            "another, and would never be final; leave it out, and each window is shown once it is over"
        )
    elif standing.flush is not None and not by_time:
        refusal = "flush= is for windows that slide by time, of which many groups end at once; leave it out"
    elif query.aggregation.emit is not None and not _stays_true(query.aggregation):
        refusal = (
            "a window that EMIT EARLY has shown may fail HAVING in the end, and would never be final; take a "
            "condition that stays true, as count(*) > 10 does, or filter the final results"
        )
    elif standing.flush is not None and query.aggregation.emit is not None:
        refusal = "flush= holds results back and EMIT EARLY shows them before their time; leave out one of both"
    elif query.aggregation.top is not None:
        refusal = _refused_top(standing, query.aggregation)
    if refusal is not None:
        raise RegistrationError(f"query {standing.name!r}: {refusal}")


def _refused_top(standing: StandingQuery, aggregation: Aggregation) -> str | None:
    """What cannot be combined with ORDER BY .. LIMIT."""
    if aggregation.emit is not None:
        return (
            "a row that EMIT EARLY has shown may not be among the first ones in the end; leave out EMIT EARLY, or LIMIT"
        )
    if standing.flush is not None:
        return (
            "flush= lets rows of a window out before all are known, and LIMIT takes the first of all; leave out "
            "one of both"
        )
    if isinstance(aggregation.window, SlidingRows | PerRow) and not is_cut_by_kernels(aggregation, standing.own):
        return (
            "windows of rows are cut to their first rows where they are put together, and this HAVING or "
            "ORDER BY can only be computed"
            " afterwards; compare groups and aggregates as they stand, or sums of them"
        )
    return None


def _stays_true(aggregation: Aggregation) -> bool:
    """Whether HAVING, once true for a window, stays true whatever rows are added."""

    def stays(term: Term) -> bool:
        match term:
            case And(terms) | Or(terms):
                return all(map(stays, terms))
            case Compare(op, Ref(role, name), Literal()) if role == AGGREGATE_ROLE:
                function = aggregation.aggregates[int(name[1:])].function
                return (op in (">", ">=") and function in ("count", "max")) or (op in ("<", "<=") and function == "min")
            case Compare(op, Literal() as value, Ref() as ref):
                return stays(Compare(FLIPPED[op], ref, value))
        return False

    having = aggregation.having
    return having is None or (having.term is not None and stays(having.term))


def reach(aggregation: Aggregation) -> int:
    """How long past its time a row can be part of a result: until the last window that holds it ends."""
    match aggregation.window:
        case Sliding(length) | PerRow(length):
            return length + 1
        case None:
            return 1
    return FOREVER  # rows may extend a session without end


def _set_of(standing: StandingQuery, strategy: str) -> _Set:
    aggregation = _aggregation(standing)
    alone = strategy == "isolated" or standing.flush is not None
    own = f" of query {standing.id}" if alone else ""
    partition = None
    if isinstance(aggregation.window, SlidingRows | PerRow):
        partition = aggregation.window.partition
        own += f" since step {standing.since}"
        own += " by arrival" if isinstance(aggregation.window, PerRow) and aggregation.window.arrival else ""
    groups = tuple(item.expression for item in aggregation.groups)
    role = standing.query.roles[0]
    return _Set(role.streams, groups, partition, own)


def _plans(members: Sequence[StandingQuery], streams: Mapping[str, Stream], wanted: str | None) -> list[AggregatePlan]:
    types: dict[Expression, str] = {}
    for standing in members:
        known = argument_types(standing, streams)
        for aggregate, kind in zip(_aggregation(standing).aggregates, known, strict=True):
            if aggregate.argument is not None:
                types[aggregate.argument] = kind
    aggregations = {standing.id: _aggregation(standing) for standing in members}
    # Where windows count rows, a selection is identified by its entry of the state table.
    selections = {
        q.id: (q.bits_of if isinstance(_aggregation(q).window, SlidingRows | PerRow) else q.id) * MAX_ROLES
        for q in members
    }
    own = {name: function for standing in members for name, function in standing.own.items()}
    try:
        return plan_aggregates(aggregations, types, selections=selections, own=own, wanted=wanted)
    except ValueError as error:
        names = ", ".join(repr(standing.name) for standing in members)
        raise RegistrationError(f"queries over the groups of {names}: {error}") from None


def group_types(standing: StandingQuery, streams: Mapping[str, Stream]) -> tuple[str, ...]:
    if standing.types:
        return standing.types[0]
    stream = streams[standing.query.roles[0].stream]
    return tuple(_declared(item.expression, stream) for item in _aggregation(standing).groups)


def argument_types(standing: StandingQuery, streams: Mapping[str, Stream]) -> tuple[str, ...]:
    """The type of each aggregate's argument; none for count(*)."""
    if standing.types:
        return standing.types[1]
    stream = streams[standing.query.roles[0].stream]
    return tuple("" if a.argument is None else _declared(a.argument, stream) for a in _aggregation(standing).aggregates)


def _declared(expression: Expression, stream: Stream) -> str:
    ref = expression.parts[0] if len(expression.parts) == 1 else None
    column = stream.column(ref.column) if isinstance(ref, Ref) else None
    return column.type if column else "unknown"


def _aggregate(
    key: _Set,
    plan: AggregatePlan,
    members: Sequence[StandingQuery],
    streams: Sequence[Stream],
    first: int,
    number: int,
    columns: ComputedColumns,
    ticks: Mapping[str, TickColumn],
) -> tuple[tuple[StateTable, ...], WindowAggregate]:
    standing = {q.id: q for q in members}
    mine = [standing[query.query] for query in plan.queries]
    types = group_types(mine[0], {s.name: s for s in streams})
    lasts = {ticks[s.name].last for s in streams if s.name in ticks}
    others = [c for c in streams[0].order[1:] if c not in lasts]
    order = tuple((c, str(_type(streams[0], c))) for c in others) if plan.ordered else ()
    by = ", ".join(_text(e) for e in key.groups) or "nothing"
    name = f"{' + '.join(key.streams)} by {by} in {'rows' if plan.buffered else 'panes'}{key.own}"
    if key.partition is not None:
        name += f" counted by {', '.join(key.partition) or 'nothing'}"
    tables, sources = [], []
    for place, stream in enumerate(streams):
        called = name if len(streams) == 1 else f"{name} from {stream.name}"
        source = AggregateSource(
            first + place,
            stream.name,
            tuple(_column(e, stream, columns) for e in key.groups),
            tuple(_column(e, stream, columns) for e in plan.arguments),
            ticks.get(stream.name),
        )
        tables.append(_table(key, plan, mine, types, stream, called, source, [c for c, _ in order], columns))
        sources.append(source)
    # Windows of single groups that punctuations end are closed one by one.
    by_groups = any(stream.patterns for stream in streams)
    slowly = next((q for q in mine if q.flush is not None or _every(q) is not None), None)
    if by_groups and slowly is not None:
        msg = (
            "punctuations of its stream end single groups, so that windows are over at different times; leave "
            "out flush= and EMIT EARLY"
        )
        raise RegistrationError(f"query {slowly.name!r}: {msg}")
    shown = tuple(
        AggregateMember(
            q.id,
            q.name,
            bit,
            first_start(q),
            not (plan.buffered or by_groups) and is_paned(q),
            _every(q),
            q.bits_of,
            has_repeats(q),
            listed_windows(q),
        )
        for bit, q in enumerate(mine)
    )
    return tuple(tables), WindowAggregate(number, name, tuple(sources), plan, shown, types, order, mine[0].flush)


def _table(
    key: _Set,
    plan: AggregatePlan,
    mine: Sequence[StandingQuery],
    types: Sequence[str],
    stream: Stream,
    name: str,
    source: AggregateSource,
    order: Sequence[str],
    columns: ComputedColumns,
) -> StateTable:
    """The state table that receives the rows of one stream."""
    # Rows are counted per partition, so that a partition must be at one task; it is the last of the groups.
    parts = len(key.partition) if key.partition is not None else len(key.groups)
    keyed = list(zip(key.groups, types, strict=True))[len(key.groups) - parts :]
    common = [common_type([kind]) or kind for _, kind in keyed]
    texts = tuple(normalized(e, kind, to) for (e, kind), to in zip(keyed, common, strict=True))
    known = tuple(normalized_term(e, kind, to) for (e, kind), to in zip(keyed, common, strict=True))
    guards = tuple(
        "" if e.total else columns.derive(stream.name, text, risky=True, term=term)
        for (e, _), text, term in zip(keyed, texts, known, strict=True)
    )
    watched = {
        e: columns.derive(
            stream.name, ("(", *e.parts, ") IS NULL"), risky=True, term=None if e.term is None else IsNull(e.term)
        )
        for e in (*key.groups, *plan.arguments)
        if not e.total
    }
    entries: list[Entry] = []
    indexed: dict[str, list[tuple[int, Term]]] = {}
    for share in dict.fromkeys(q.bits_of for q in mine):
        asked = [q for q in mine if q.bits_of == share]
        terms, truths = columns.predicates(asked[0].query, 0, stream)
        for column, term in terms:
            indexed.setdefault(column, []).append((len(entries), term))
        used = {e for q in asked for e in _expressions(q)}
        truths = (*truths, *(watch for e, watch in watched.items() if e in used))
        entries.append(Entry(share, 0, -1, 0, _lives(stream), truths, tuple(terms)))
    if key.partition is not None:  # all rows count, before any predicate
        entries.append(Entry(mine[0].bits_of, 0, -1, 0, _lives(stream), (), counting=True))
    last = () if source.ticks is None else (source.ticks.last,)
    stored = dict.fromkeys([*source.groups, *source.arguments, *order, *last])
    return StateTable(
        source.table, name, stream.name, texts, tuple(common), guards, (), tuple(entries), tuple(stored),
        tuple(build_index(c, pairs, len(entries)) for c, pairs in sorted(indexed.items())),
        order=(stream.event_time, *order) if key.partition is not None else (), grouped=True,
        watched=frozenset(watched.values()),
        hashed=columns.hashed(stream, texts, common, known, [e.total for e, _ in keyed]),
    )  # fmt: skip


def first_start(standing: StandingQuery) -> int:
    """Windows of time that start earlier contain rows from before the query began."""
    known, role = dict(standing.complete_from), standing.query.roles[0]
    first = max(known.get(stream, NEVER) for stream in role.streams)
    match _aggregation(standing).window:
        case Session(gap) if first > NEVER:
            return first + gap - 1  # a row just before the first one seen would extend into earlier sessions
        case Sliding() | PerRow() | None:
            return first
    return NEVER


def is_paned(standing: StandingQuery) -> bool:
    """Whether panes store fewer results than windows: overlapping windows of panes as wide as a slide, all delivered.

    Each pane of a group is the last pane of some window, and windows without new rows need no pane. A query that stops
    on an overflowing sum must evaluate it when the window closes.
    """
    aggregation = _aggregation(standing)
    if standing.on_error == "stop" and any(a.function in {"sum", "avg"} for a in aggregation.aggregates):
        return False
    shown = aggregation.emit is None and (aggregation.having is None or aggregation.having.term is None)
    shown = shown and aggregation.top is None
    match aggregation.window:
        case Sliding(length, slide):
            rows = standing.delivered or standing.flush is not None
            return shown and not rows and length > slide and length % slide == 0
    return False


def has_repeats(standing: StandingQuery) -> bool:
    """Whether windows of equal content share one row: they are expanded on read, in bounded pieces."""
    return standing.flush is None and isinstance(_aggregation(standing).window, Sliding | Landmark)


def _every(standing: StandingQuery) -> int | None:
    emit = _aggregation(standing).emit
    return None if emit is None else emit.every


def _lives(stream: Stream) -> tuple[tuple[Clock, int], ...]:
    return ((Closing(stream.name), FOREVER),)


def _column(expression: Expression, stream: Stream, columns: ComputedColumns) -> str:
    """The column of an expression: a declared one, or one that Spark computes."""
    bare = expression.parts[0] if len(expression.parts) == 1 else None
    if isinstance(bare, Ref):
        return bare.column
    return columns.derive(stream.name, expression.parts, risky=not expression.total, term=expression.term)


def _type(stream: Stream, column: str) -> str | None:
    found = stream.column(column)
    return found.type if found else None


def _expressions(standing: StandingQuery) -> set[Expression]:
    aggregation = _aggregation(standing)
    arguments = {a.argument for a in aggregation.aggregates if a.argument is not None}
    return arguments | {item.expression for item in aggregation.groups}


def _text(expression: Expression) -> str:
    return expression.shown(lambda ref: ref.column)


def _aggregation(standing: StandingQuery) -> Aggregation:
    assert standing.query.aggregation is not None
    return standing.query.aggregation
