"""Close and expire windows of single groups once a punctuation has ended the group, ahead of the stream's progress.

Groups at their stream's progress are closed together by `close`. Groups ahead of it are split by bound and go through
the same kernels, once per bound. Windows that compare groups, count rows or never end follow the stream's progress.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate.close import Closed, close_tables, merge
from penstock.kernels.aggregate.keep import expire
from penstock.kernels.groups import group_bounds
from penstock.model import Stream
from penstock.model.time import NEVER
from penstock.model.windows import Session, Sliding
from penstock.planner.aggregates import AggregatePlan, Windowed
from penstock.planner.reached import Closing, Reached
from penstock.planner.window_aggregate import WindowAggregate
from penstock.state.manifest import Patterns, Progress
from penstock.state.run import Ints


@dataclass(frozen=True)
class Ahead:
    """Group punctuations by stream: those that the previous step closed windows by, and those of this step."""

    before: Mapping[str, Patterns] = field(default_factory=dict)
    now: Mapping[str, Patterns] = field(default_factory=dict)

    def concerns(self, aggregate: WindowAggregate) -> bool:
        """Whether windows of some group close, or have closed, before those of the other groups."""
        known = any(self.before.get(name) or self.now.get(name) for name in aggregate.streams)
        return known and any(_by_itself(query) for query in aggregate.plan.queries)

    def moves(self, aggregate: WindowAggregate) -> bool:
        """Whether this step may close windows that only a punctuation of their group ends."""
        return self.concerns(aggregate) and any(map(self.tells, aggregate.streams))

    def closes(self, aggregate: WindowAggregate, progress: Reached) -> bool:
        """Whether this step may close windows of single groups, by a punctuation or by another stream of a union."""
        further = (
            progress.get(stream, NEVER) > progress.get(closing, NEVER)
            for stream, closing in zip(aggregate.streams, aggregate.closings, strict=True)
        )
        return self.moves(aggregate) or (len(aggregate.streams) > 1 and self.concerns(aggregate) and any(further))

    def tells(self, stream: str) -> bool:
        """Whether a punctuation has advanced some group of a stream since the previous step.

        A punctuation that was dropped since does not count: the progress of the stream has passed it.
        """
        before = dict(self.before.get(stream, ()))
        return any(until > before.get(pattern, NEVER) for pattern, until in self.now.get(stream, ()))


def close_groups(
    aggregate: WindowAggregate,
    streams: Mapping[str, Stream],
    tables: Sequence[pa.Table],
    progress: Reached,
    ahead: Ahead,
    newest: int,
    runs: Collection[int] = (),
) -> list[Closed]:
    """The results of every query for the windows that this step closes, by the progress of each group.

    `runs` are the queries whose windows of equal content are combined.
    """
    plan, (before, now) = aggregate.plan, aggregate.closed(progress)
    if not ahead.concerns(aggregate):
        return close_tables(plan, tables, before, now, newest, runs)
    alone, others = _parted(plan)
    found = close_tables(others, tables, before, now, newest, runs) if others.queries else []
    done: Reached = {stream: progress.get(Closing(stream), NEVER) for stream in aggregate.streams}
    from_bounds = [_bounds(aggregate, streams, table, done, ahead.before) for table in tables]
    to_bounds = [_bounds(aggregate, streams, table, progress, ahead.now) for table in tables]
    pieces: dict[int, list[Closed]] = {}
    for (begin, end), parts in _split(tables, from_bounds, to_bounds, all_bounds=False):
        for closed in close_tables(alone, parts, begin, end, newest, runs):
            pieces.setdefault(closed.query, []).append(closed)
    for query, own in pieces.items():
        why = next((c.refused for c in own if c.refused), None)
        if why is not None:
            found.append(Closed(query, pa.table({}), refused=why))
            continue
        found.append(Closed(query, pa.concat_tables([c.table for c in own]), errors=sum(c.errors for c in own)))
    return found


def expire_groups(
    aggregate: WindowAggregate,
    streams: Mapping[str, Stream],
    tables: Sequence[pa.Table],
    progress: Reached,
    ahead: Ahead,
    until: int,
) -> pa.Table | None:
    """One table of what windows that end after `until` need, without groups that have ended."""
    plan = aggregate.plan
    if not ahead.concerns(aggregate) or _parted(plan)[1].queries:
        return expire(plan, tables, until)
    bounds = [_bounds(aggregate, streams, table, progress, ahead.now) for table in tables]
    kept = [expire(plan, parts, bound) for (bound, _), parts in _split(tables, bounds, bounds, all_bounds=True)]
    held = [table for table in kept if table is not None and len(table)]
    return merge(plan, held) if held else None


def _by_itself(query: Windowed) -> bool:
    """Whether a group's windows close when the group ends, regardless of other groups."""
    return query.top is None and (query.window is None or isinstance(query.window, Sliding | Session))


def _parted(plan: AggregatePlan) -> tuple[AggregatePlan, AggregatePlan]:
    alone = tuple(query for query in plan.queries if _by_itself(query))
    others = tuple(query for query in plan.queries if not _by_itself(query))
    return replace(plan, queries=alone), replace(plan, queries=others)


def _bounds(
    aggregate: WindowAggregate,
    streams: Mapping[str, Stream],
    table: pa.Table,
    progress: Reached,
    patterns: Mapping[str, Patterns],
) -> Ints:
    """For each entry of a table: the time below which no later row of its group comes, from any stream."""
    groups = [table.column(f"g{n}").combine_chunks() for n in range(aggregate.plan.groups)]
    found = []
    for source in aggregate.sources:
        known = Progress(progress.get(source.stream, NEVER), NEVER, closed=patterns.get(source.stream, ()))
        columns = dict(zip(source.groups, groups, strict=True))
        found.append(group_bounds(streams[source.stream], known, columns, len(table)))
    return np.asarray(np.minimum.reduce(found), dtype=np.int64)


def _split(
    tables: Sequence[pa.Table], begins: Sequence[Ints], ends: Sequence[Ints], *, all_bounds: bool
) -> Iterator[tuple[tuple[int, int], list[pa.Table]]]:
    """The entries of all tables by their two bounds; unless `all_bounds`, only those whose second bound is greater."""
    pairs = [np.stack(two) for two in zip(begins, ends, strict=True)]
    if not pairs:
        return
    distinct, number = np.unique(np.concatenate(pairs, axis=1), axis=1, return_inverse=True)
    numbers = np.split(number.ravel(), np.cumsum([pair.shape[1] for pair in pairs])[:-1])
    # Rows of one table keep their order; each row is visited once, however many bounds there are.
    orders = [np.argsort(own, kind="stable") for own in numbers]
    edges = [
        np.searchsorted(own[order], np.arange(distinct.shape[1] + 1))
        for own, order in zip(numbers, orders, strict=True)
    ]
    for place, (begin, end) in enumerate(distinct.T.tolist()):
        if not all_bounds and end <= begin:
            continue
        chosen = [order[edge[place] : edge[place + 1]] for order, edge in zip(orders, edges, strict=True)]
        parts = [t if len(own) == len(t) else t.take(pa.array(own)) for t, own in zip(tables, chosen, strict=True)]
        yield (begin, end), [part for part in parts if len(part)]
