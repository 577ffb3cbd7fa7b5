"""Progress, lateness and reach: which rows take part, and which can still be needed.

Progress v of a stream says that no later row has a time below v. It is judged at step boundaries only: what a step
brings moves progress after the step, never within it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.model import Landmark, Query, Session, Sliding, Stream
from penstock.model.time import EARLIEST, FOREVER, LATEST, NEVER
from penstock.reference.join import Member, bounds, counts, members_of, serves
from penstock.reference.order import Row


@dataclass(frozen=True)
class Accepted:
    """What one step made of one stream's rows, and the stream's progress after it."""

    accepted: list[Row]
    late: list[Row]
    bad: list[Row]
    progress: int


def admit(stream: Stream, batches: Sequence[Sequence[Row]]) -> list[Accepted]:
    """Judge each step's rows by the progress that the step before it left; a row equal to progress is not late."""
    steps = []
    progress = NEVER
    for batch in batches:
        accepted: list[Row] = []
        late: list[Row] = []
        bad: list[Row] = []
        newest = NEVER
        for row in batch:
            time = row[stream.event_time]
            if not isinstance(time, int) or not EARLIEST <= time <= LATEST:
                bad.append(row)
                continue
            newest = max(newest, time)
            (late if time < progress else accepted).append(row)
        progress = max(progress, newest - stream.delay)
        steps.append(Accepted(accepted, late, bad, progress))
    return steps


def reachable(
    queries: Sequence[Query],
    streams: Mapping[str, Stream],
    accepted: Mapping[str, Sequence[Row]],
    progress: Mapping[str, int],
) -> dict[str, list[Row]]:
    """The rows of each stream that some query can still use in a result, each once.

    A row that serves a role is needed as long as one *other* role of that query may still get a row that is close
    enough in time, and, where its own window counts rows, as long as it is among the last of all times to come. A query
    over one stream needs no row twice. `accepted` are all rows of the streams, since also those out of use are counted.
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
                        n or _needed(query, streams, i, m, progress) for n, m in zip(needed, members, strict=True)
                    ]
        found[name] = [row for row, wanted in zip(timed, needed, strict=True) if wanted]
    return found


def output_progress(query: Query, streams: Mapping[str, Stream], progress: Mapping[str, int]) -> int:
    """The progress of a query's result time: no later result is older than the slowest of its streams.

    The result time of an aggregate is the end of its window, so that it is that of the first window still open. Windows of rows
    that the end of input cuts short do not keep to it.
    """
    reached = min(progress[name] for role in query.roles for name in (streams[role.stream].name, *role.union))
    match None if query.aggregation is None else query.aggregation.window:
        case Sliding() | Landmark() as window:
            return reached if abs(reached) >= FOREVER else window.extent(window.closed(reached))[1]
        case Session():
            return reached if abs(reached) >= FOREVER else reached + 1
    return reached


def _needed(
    query: Query, streams: Mapping[str, Stream], role: int, member: Member, progress: Mapping[str, int]
) -> bool:
    row, later = member
    time = row[streams[query.roles[role].stream].event_time]
    assert isinstance(time, int)
    return (
        any(
            # The next row of role j has a time of at least its progress; the last one that still matches has time + bound.
            progress[query.roles[j].stream] < min(time + bound + 1, FOREVER)
            for (i, j), bound in bounds(query).items()
            if i == role
        )
        # No result is yet to come that is older than the least progress.
        and counts(query.roles[role], later, output_progress(query, streams, progress))
        and serves(query, streams, role, row)
    )
