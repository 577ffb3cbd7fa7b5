"""Progress, lateness and expiry: which rows are accepted, and which ones can still be needed.

Progress v of a stream means that no later row has a time below v. It advances at step boundaries only: the rows of a
step advance it after the step, never within it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from penstock.model import Landmark, Punctuation, Query, Ref, Role, Session, Sliding, Stream, Tumbling
from penstock.model.punctuation import punctuation_of
from penstock.model.time import EARLIEST, FOREVER, LATEST, NEVER
from penstock.reference.join import Member, bounds, counts, members_of, serves
from penstock.reference.order import Row


@dataclass(frozen=True)
class Accepted:
    """The verdict of one step on one stream's rows, and the stream's progress after it.

    `closed` are the punctuations of groups so far: no later row matches one of them.
    """

    accepted: list[Row]
    late: list[Row]
    bad: list[Row]
    progress: int
    punctuations: list[Row] = field(default_factory=list)
    closed: tuple[Punctuation, ...] = ()


def admit(
    stream: Stream,
    batches: Sequence[Sequence[Row]],
    elsewhere: Sequence[Sequence[Punctuation]] = (),
    origin: int = NEVER,
) -> list[Accepted]:
    """Judge each step's rows by the progress after the previous step; a row equal to progress is not late.

    `elsewhere` are the well-formed punctuations that each step brings beside the rows. A row that matches a punctuation
    of an earlier step is late, like one behind progress. `origin` is the earliest ORIGIN of the queries over the
    stream, if all have one: rows before it are invalid.
    """
    steps = []
    progress = NEVER
    closed: tuple[Punctuation, ...] = ()
    placed: list[int] = []  # the times of all rows so far by step and sequence
    for number, batch in enumerate(batches):
        step = Accepted([], [], [], progress)
        said = list(elsewhere[number]) if number < len(elsewhere) else []
        for row in batch:
            if stream.punctuation is not None and row[stream.punctuation] is not None:
                until = row[stream.punctuation]
                if _usable(until):
                    step.punctuations.append(row)
                    given = ((c.name, row[c.name]) for c in stream.patterns)
                    said.append(punctuation_of(stream, until, {n: v for n, v in given if isinstance(v, int | str)}))
                else:
                    step.bad.append(row)
                continue
            time = row[stream.event_time]
            if (
                not _usable(time)
                or time < origin
                or (stream.delay_rows is not None and row[str(stream.sequence)] is None)
            ):
                step.bad.append(row)
            elif time < progress or any(p.matches(time, row) for p in closed):
                step.late.append(row)
            else:
                step.accepted.append(row)
        known = [*step.accepted, *step.late]
        placed += _by_sequence(stream, known)
        bounds = [progress, *(FOREVER if p.until is None else p.until for p in said if p.linear)]
        if stream.delay is not None:
            bounds += [_time(stream, row) - stream.delay for row in known]
        if stream.delay_rows is not None:
            bounds += placed[: max(0, len(placed) - stream.delay_rows)]
        progress = max(bounds)
        closed = (*closed, *(p for p in said if not p.linear))
        steps.append(replace(step, progress=progress, closed=closed))
    return steps


def group_progress(step: Accepted, values: Mapping[str, object]) -> int:
    """No later row with these values has a time below this: the stream's progress and punctuations of groups."""
    covering = [p for p in step.closed if p.covers(values)]
    return max([step.progress, *(FOREVER if p.until is None else p.until for p in covering)])


def reachable(
    queries: Sequence[Query],
    streams: Mapping[str, Stream],
    accepted: Mapping[str, Sequence[Row]],
    progress: Mapping[str, int],
    closed: Mapping[str, Sequence[Punctuation]] | None = None,
) -> dict[str, list[Row]]:
    """The rows of each stream that some query can still use in a result, each once.

    A row that serves a role is needed as long as one *other* role of that query may still get a row that is close
    enough in time and, if its own window counts rows, as long as it may be among the last ones at some later time. A
    query over one stream needs no row twice. `accepted` are all rows of the streams, since expired ones are counted
    too. `closed` are punctuations of groups: if a query's keys determine which group a row joins, it waits only for
    that group.
    """
    found: dict[str, list[Row]] = {}
    for name, rows in accepted.items():
        timed = [row for row in rows if isinstance(row[streams[name].event_time], int)]
        needed = [False] * len(timed)
        for query in queries:
            for i, role in enumerate(query.roles):
                if role.stream == name:
                    members = members_of(role, streams[name], timed)
                    needed = [
                        n or _needed(query, streams, i, m, progress, closed or {})
                        for n, m in zip(needed, members, strict=True)
                    ]
        found[name] = [row for row, wanted in zip(timed, needed, strict=True) if wanted]
    return found


def output_progress(query: Query, streams: Mapping[str, Stream], progress: Mapping[str, int]) -> int:
    """The progress of a query's result time: no later result is older than the slowest of its streams.

    For a tumbling join it is the start of the current piece: all rows of a later result lie there or later. The result
    time of an aggregate is the end of its window, so its progress is the end of the first open window; windows of rows
    that the end of the streams closes early are an exception.
    """
    least = min(progress[name] for role in query.roles for name in (streams[role.stream].name, *role.union))
    if abs(least) >= FOREVER:
        return least
    match query.roles[0].window if query.aggregation is None else query.aggregation.window:
        case Tumbling() as window if len(query.roles) > 1:
            return window.start(least)
        case Sliding() | Landmark() as window:
            return window.extent(window.closed(least))[1]
        case Session():
            return least + 1
    return least


def _end(role: Role, time: int) -> int:
    """The end of the piece of a tumbling window that contains a time."""
    return role.window.start(time) + role.window.length if isinstance(role.window, Tumbling) else FOREVER


def _met(query: Query, role: int, row: Row, other: int, closed: Mapping[str, Sequence[Punctuation]]) -> int:
    """The progress of the group of another role that this row can join: the one with its values in shared keys."""
    values = {}
    for key in query.keys:
        own, there = key[role], key[other]
        if own is not None and there is not None and len(own.parts) == len(there.parts) == 1:
            mine, theirs = own.parts[0], there.parts[0]
            if isinstance(mine, Ref) and isinstance(theirs, Ref):
                values[theirs.column] = row[mine.column]
    said = [p for p in closed.get(query.roles[other].stream, ()) if p.covers(values)]
    return max((FOREVER if p.until is None else p.until for p in said), default=NEVER)


def _usable(time: object) -> TypeGuard[int]:
    return isinstance(time, int) and EARLIEST <= time <= LATEST


def _time(stream: Stream, row: Row) -> int:
    time = row[stream.event_time]
    assert isinstance(time, int)
    return time


def _by_sequence(stream: Stream, rows: Sequence[Row]) -> list[int]:
    """The times of a step's rows by the stream's sequence; among equal sequences the greatest time is last."""
    if stream.delay_rows is None:
        return []

    def place(row: Row) -> tuple[int, int]:
        sequence = row[str(stream.sequence)]
        assert isinstance(sequence, int)
        return sequence, _time(stream, row)

    return [time for _, time in sorted(map(place, rows))]


def _needed(
    query: Query,
    streams: Mapping[str, Stream],
    role: int,
    member: Member,
    progress: Mapping[str, int],
    closed: Mapping[str, Sequence[Punctuation]],
) -> bool:
    row, later = member
    time = row[streams[query.roles[role].stream].event_time]
    assert isinstance(time, int)
    return (
        any(
            # The next row of role j has a time of at least its progress; the last one to join has time + bound.
            max(progress[query.roles[j].stream], _met(query, role, row, j, closed))
            < min(time + bound + 1, _end(query.roles[role], time))
            for (i, j), bound in bounds(query).items()
            if i == role
        )
        # No later result is older than the least progress.
        and counts(query.roles[role], later, output_progress(query, streams, progress))
        and serves(query, streams, role, row)
    )
