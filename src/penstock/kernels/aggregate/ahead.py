"""Windows of single groups: closed, and given up, as soon as a punctuation has ended the group, whatever the stream waits for.

Groups that are as far as their stream are closed together by `close`; those that are ahead of it go through the same kernels apart, once
for each bound that occurs. Windows that compare groups, count rows or never end follow the progress of the stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate.close import Closed, close_tables, merge
from penstock.kernels.aggregate.keep import settle
from penstock.kernels.groups import group_bounds
from penstock.model import Stream
from penstock.model.time import NEVER
from penstock.model.windows import Session, Sliding
from penstock.planner.aggregates import AggregatePlan, Windowed
from penstock.planner.network import WindowAggregate, closing
from penstock.state.manifest import Patterns, Progress
from penstock.state.run import Ints


@dataclass(frozen=True)
class Ahead:
    """The punctuations of groups by stream: those by which the step before closed windows, and those by which this one does."""

    before: Mapping[str, Patterns] = field(default_factory=dict)
    now: Mapping[str, Patterns] = field(default_factory=dict)

    def concerns(self, aggregate: WindowAggregate) -> bool:
        """Whether windows of some group may be closed, or have been, before those of the others."""
        known = any(self.before.get(name) or self.now.get(name) for name in aggregate.streams)
        return known and any(_by_itself(query) for query in aggregate.plan.queries)

    def moves(self, aggregate: WindowAggregate) -> bool:
        """Whether this step may close windows that only a punctuation of their group has ended."""
        return self.concerns(aggregate) and any(map(self.tells, aggregate.streams))

    def tells(self, stream: str) -> bool:
        """Whether groups of a stream have come further since the step before.

        One that is no longer remembered says nothing new: the progress of the stream has passed it.
        """
        before = dict(self.before.get(stream, ()))
        return any(until > before.get(pattern, NEVER) for pattern, until in self.now.get(stream, ()))


def close_groups(
    aggregate: WindowAggregate,
    streams: Mapping[str, Stream],
    tables: Sequence[pa.Table],
    progress: Mapping[str, int],
    ahead: Ahead,
    newest: int,
    runs: Collection[int] = (),
) -> list[Closed]:
    """The results of every query for the windows that this step closes, of each group by how far it has come itself.

    `runs` are the queries whose windows of equal content are put together.
    """
    plan, (before, now) = aggregate.plan, aggregate.closed(progress)
    if not ahead.concerns(aggregate):
        return close_tables(plan, tables, before, now, newest, runs)
    alone, others = _parted(plan)
    found = close_tables(others, tables, before, now, newest, runs) if others.queries else []
    done = {stream: progress.get(closing(stream), NEVER) for stream in aggregate.streams}
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


def settle_groups(
    aggregate: WindowAggregate,
    streams: Mapping[str, Stream],
    tables: Sequence[pa.Table],
    progress: Mapping[str, int],
    ahead: Ahead,
    until: int,
) -> pa.Table | None:
    """All tables as one that holds only what windows need that end after `until`; nothing of a group that has ended."""
    plan = aggregate.plan
    if not ahead.concerns(aggregate) or _parted(plan)[1].queries:
        return settle(plan, tables, until)
    bounds = [_bounds(aggregate, streams, table, progress, ahead.now) for table in tables]
    kept = [settle(plan, parts, bound) for (bound, _), parts in _split(tables, bounds, bounds, all_bounds=True)]
    held = [table for table in kept if table is not None and len(table)]
    return merge(plan, held) if held else None


def _by_itself(query: Windowed) -> bool:
    """Whether a group's windows are over when no further row of the group comes, whatever comes of others."""
    return query.top is None and (query.window is None or isinstance(query.window, Sliding | Session))


def _parted(plan: AggregatePlan) -> tuple[AggregatePlan, AggregatePlan]:
    alone = tuple(query for query in plan.queries if _by_itself(query))
    others = tuple(query for query in plan.queries if not _by_itself(query))
    return replace(plan, queries=alone), replace(plan, queries=others)


def _bounds(
    aggregate: WindowAggregate,
    streams: Mapping[str, Stream],
    table: pa.Table,
    progress: Mapping[str, int],
    patterns: Mapping[str, Patterns],
) -> Ints:
    """For each entry of a table: no later row of its group, from whichever stream, has a time below this."""
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
    """The entries of all tables by their two bounds, unless `all_bounds` only those whose second one is the greater."""
    pairs = [np.stack(two) for two in zip(begins, ends, strict=True)]
    if not pairs:
        return
    distinct, number = np.unique(np.concatenate(pairs, axis=1), axis=1, return_inverse=True)
    numbers = np.split(number.ravel(), np.cumsum([pair.shape[1] for pair in pairs])[:-1])
    # Rows of one table keep their order; every row is looked at once, however many bounds there are.
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
