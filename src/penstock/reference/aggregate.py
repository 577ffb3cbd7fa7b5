"""Window aggregates by definition: the rows of each window, the groups among them, the functions over each group.

A window without rows of a group gives no result for it. Windows that count rows, or end with rows, count every row of
the stream, before any predicate; sessions consist of the rows of a group. An aggregate over several roles takes, for
the windows of one number on each, all combinations of rows that satisfy keys, bands and predicates, however far apart
their times are. Arrival plays no part; progress only decides which windows are closed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.model import (
    Aggregate,
    Aggregation,
    Expression,
    Landmark,
    PerRow,
    Query,
    Ref,
    Session,
    Sliding,
    SlidingRows,
    Stream,
    UserAggregate,
)
from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE, RESULT_TIME, WINDOW_END, WINDOW_START
from penstock.model.time import FOREVER
from penstock.reference.evaluate import Unspecified, holds, value_of
from penstock.reference.functions import aggregate_value, identity
from penstock.reference.join import combinations, one_stream_a_role
from penstock.reference.order import Row, by_sequence, ranks
from penstock.reference.top import first_rows

Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class Answer:
    """One group in one window. `start` and `end` are the window's pseudo-columns; a landmark may have no start.

    `window` is the id. Ids of windows of rows begin with their partition, and so do those of windows that end with a
    row; these also end with a number, since two may end at the same time.
    """

    window: Hashable
    start: int | None
    end: int
    group: tuple[object, ...]
    values: tuple[object, ...]


@dataclass(frozen=True)
class _Member:
    """One row per role, their times, the rank of the combination, and its group."""

    rows: tuple[Row, ...]
    times: tuple[int, ...]
    place: tuple[int, ...]
    group: tuple[object, ...]

    @property
    def key(self) -> Key:
        return tuple(identity(value) for value in self.group)


@dataclass(frozen=True)
class _Content:
    """A window with its members and the pseudo-columns that it shows."""

    window: Hashable
    start: int | None
    end: int
    members: list[_Member]


def answers(
    query: Query,
    streams: Mapping[str, Stream],
    rows: Mapping[str, Sequence[Row]],
    progress: Mapping[str, int] | None = None,
    own: Mapping[str, UserAggregate] | None = None,
) -> list[Answer]:
    """Every group of every closed window, before HAVING. No `progress` means that the streams have ended.

    `rows` are the accepted rows of each stream; `own` are the users' aggregates by name.
    """
    aggregation = _aggregation(query)
    flat, flat_streams, flat_rows = one_stream_a_role(query, streams, rows)
    reached = FOREVER if progress is None else min(progress[name] for r in query.roles for name in r.streams)
    members = _members(flat, flat_streams, flat_rows)
    known = [_digits(a, flat, flat_streams) for a in aggregation.aggregates]
    found = []
    for content in _contents(flat, flat_streams, flat_rows, members, reached):
        for same in _by_group(content.members).values():
            inside = sorted(same, key=lambda m: m.place)
            values = tuple(
                aggregate_value(a, _arguments(a, inside), own or {}, digits)
                for a, digits in zip(aggregation.aggregates, known, strict=True)
            )
            found.append(Answer(content.window, content.start, content.end, inside[0].group, values))
    return found


def aggregate_results(
    query: Query,
    streams: Mapping[str, Stream],
    rows: Mapping[str, Sequence[Row]],
    progress: Mapping[str, int] | None = None,
    own: Mapping[str, UserAggregate] | None = None,
) -> list[tuple[object, ...]]:
    """The bag of an aggregated query's answer: the select list over the groups that satisfy HAVING."""
    having, top = _aggregation(query).having, _aggregation(query).top
    found = answers(query, streams, rows, progress, own)
    passed = [answer for answer in found if having is None or holds(having, partial(_column, answer))]
    if top is not None:
        windows: dict[Hashable, list[Answer]] = {}
        for answer in passed:
            windows.setdefault(answer.window, []).append(answer)
        passed = [answer for same in windows.values() for answer in first_rows(top, same, _column, lambda a: a.group)]
    return [tuple(value_of(item.expression, partial(_column, a)) for item in query.items) for a in passed]


def _aggregation(query: Query) -> Aggregation:
    if query.aggregation is None:
        msg = "this query has no aggregates; its answer is that of a join"
        raise Unspecified(msg)
    return query.aggregation


def _column(answer: Answer, ref: Ref) -> object:
    match ref:
        case Ref(role, name) if role == GROUP_ROLE:
            return answer.group[int(name[1:])]
        case Ref(role, name) if role == AGGREGATE_ROLE:
            return answer.values[int(name[1:])]
        case Ref(_, name) if name in (WINDOW_END, RESULT_TIME):
            return answer.end
        case Ref(_, name) if name == WINDOW_START:
            return answer.start
    msg = f"an aggregate has no column {ref}"
    raise Unspecified(msg)


def _members(query: Query, streams: Mapping[str, Stream], rows: Mapping[str, Sequence[Row]]) -> list[_Member]:
    """All that the query's windows may hold: rows that serve their roles, combined as the conditions allow."""
    places: dict[str, dict[int, int]] = {}
    for name, stream in streams.items():
        timed = _timed(stream, rows[name])
        places[name] = {id(row): rank for row, rank in zip(timed, ranks(stream, timed), strict=True)}
    found = []
    for combination in combinations(query, streams, rows):
        times = tuple(_time(streams[r.stream], row) for r, row in zip(query.roles, combination, strict=True))
        place = tuple(places[r.stream][id(row)] for r, row in zip(query.roles, combination, strict=True))
        group = tuple(_shown(_value(item.expression, combination)) for item in _aggregation(query).groups)
        found.append(_Member(combination, times, place, group))
    return found


def _contents(
    query: Query,
    streams: Mapping[str, Stream],
    rows: Mapping[str, Sequence[Row]],
    members: Sequence[_Member],
    progress: int,
) -> Iterator[_Content]:
    """The closed windows, each with its members."""
    window = _aggregation(query).window
    first = query.roles[0].stream
    timed = _timed(streams[first], rows[first])
    match window:
        case Sliding():
            yield from _sliding(query, window, members, range(window.closed(-FOREVER), window.closed(progress)))
        case Landmark() if any(isinstance(role.window, Sliding) for role in query.roles):
            # Drop the rows of other roles, so that the windows that hold anything are known.
            yield from _sliding(query, window, members, range(window.closed(-FOREVER), window.closed(progress)))
        case Landmark():
            times = [
                _time(streams[r.stream], row) for r in query.roles for row in _timed(streams[r.stream], rows[r.stream])
            ]
            ended = window.windows(times)[-1:] if progress == FOREVER else ()
            last = ended[0] + 1 if ended else window.closed(progress)
            yield from _sliding(query, window, members, range(window.closed(-FOREVER), last))
        case SlidingRows():
            for partition, inside in _partitions(streams[first], timed, window.partition).items():
                yield from _sliding_rows(streams[first], window, partition, inside, members, progress)
        case PerRow():
            for partition, inside in _partitions(streams[first], timed, window.partition).items():
                arrived = by_sequence(streams[first], inside) if window.arrival else inside
                yield from _per_row(streams[first], window, partition, arrived, members, progress)
        case Session():
            for same in _by_group(members).values():
                sessions = window.windows(m.times[0] for m in same)
                for session in sessions:
                    if window.closed(session, progress):
                        own = [m for m in same if session in window.wids(m.times[0], sessions)]
                        yield _Content(session, *session, own)
        case None:
            # The groups contain the event times of all roles, so all members of a group have the same.
            for same in _by_group(members).values():
                if max(same[0].times) < progress:
                    yield _Content(max(same[0].times), None, max(same[0].times), list(same))


def _sliding(query: Query, window: Sliding | Landmark, members: Sequence[_Member], over: range) -> Iterator[_Content]:
    """A member is in the windows that hold all its rows, each by the window of its role: their ends coincide."""
    inside: dict[int, list[_Member]] = {}
    for member in members:
        low, high = over.start, over.stop
        for role, time in zip(query.roles, member.times, strict=True):
            assert isinstance(role.window, Sliding | Landmark)
            ids = role.window.wids(time)
            low, high = (max(low, ids[0]), min(high, ids[-1] + 1)) if ids else (low, low)
        for n in range(low, high):
            inside.setdefault(n, []).append(member)
    for n, own in sorted(inside.items()):
        start, end = window.extent(n)
        endless = isinstance(window, Landmark) and window.origin is None
        yield _Content(n, None if endless else start, end, own)


def _sliding_rows(
    stream: Stream, window: SlidingRows, partition: Key, rows: Sequence[Row], members: Sequence[_Member], progress: int
) -> Iterator[_Content]:
    """Windows of ranks in one partition, whose rows are in order; they show the times of their first and last row."""
    final = sum(_time(stream, row) < progress for row in rows)
    over = window.ended(len(rows)) if progress == FOREVER else window.closed(final)
    for n in window.windows(range(len(rows))):
        if n < over:
            start, end = window.extent(n)
            own = rows[start:end]
            first, last = _time(stream, own[0]), _time(stream, own[-1])
            yield _Content((partition, n), first, last, _of_rows(members, own))


def _per_row(
    stream: Stream, window: PerRow, partition: Key, rows: Sequence[Row], members: Sequence[_Member], progress: int
) -> Iterator[_Content]:
    """A window per row, or per n-th row, of one partition."""
    for number, w in enumerate(window.windows(_time(stream, row) for row in rows)):
        if w < window.closed(progress):
            start, end = window.extent(w)
            own = [row for row in rows if start <= _time(stream, row) < end]
            yield _Content((partition, w, number), w - window.range, w, _of_rows(members, own))


def _of_rows(members: Sequence[_Member], rows: Iterable[Row]) -> list[_Member]:
    """The members of a query over one role for these rows."""
    wanted = {id(row) for row in rows}
    return [m for m in members if id(m.rows[0]) in wanted]


def _by_group(members: Iterable[_Member]) -> dict[Key, list[_Member]]:
    found: dict[Key, list[_Member]] = {}
    for member in members:
        found.setdefault(member.key, []).append(member)
    return found


def _partitions(stream: Stream, rows: Sequence[Row], columns: Sequence[str]) -> dict[Key, list[Row]]:
    """The rows of each partition, in stream order."""
    found: dict[Key, list[Row]] = {}
    for _, row in sorted(zip(ranks(stream, rows), rows, strict=True), key=lambda pair: pair[0]):
        found.setdefault(tuple(identity(row[c]) for c in columns), []).append(row)
    return found


def _arguments(aggregate: Aggregate, members: Sequence[_Member]) -> list[object]:
    if aggregate.argument is None:
        return [None] * len(members)
    return [_value(aggregate.argument, member.rows) for member in members]


def _digits(aggregate: Aggregate, query: Query, streams: Mapping[str, Stream]) -> tuple[int, int] | None:
    """Precision and scale of the aggregated column; None unless it is a declared decimal."""
    ref = aggregate.argument.term if aggregate.argument is not None else None
    column = streams[query.roles[ref.role].stream].column(ref.column) if isinstance(ref, Ref) else None
    if column is None or not column.type.startswith("decimal("):
        return None
    precision, scale = column.type[8:-1].split(",")
    return int(precision), int(scale)


def _value(expression: Expression, rows: Sequence[Row]) -> object:
    return value_of(expression, lambda ref: rows[ref.role][ref.column])


def _shown(value: object) -> object:
    """A group of -0.0 and 0.0 is shown as 0.0."""
    return value + 0.0 if isinstance(value, float) else value


def _timed(stream: Stream, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row[stream.event_time] is not None]


def _time(stream: Stream, row: Row) -> int:
    time = row[stream.event_time]
    assert isinstance(time, int)
    return time
