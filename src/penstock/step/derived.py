"""Results of queries on their way into steps, as rows of the derived streams that other queries read.

A step takes in what the steps before it committed and no step has taken in yet; up to where that is, is committed with it, so that a step that
is repeated takes in the same. What derived streams are, and how far they have come, is said in `planner/derived.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.model import Column, Query, Stream, UserAggregate
from penstock.model.limits import MOST_TAKEN
from penstock.model.punctuation import TO, part_of
from penstock.model.time import FOREVER, NEVER
from penstock.planner.derived import TICK, Apart, DerivedStream, is_joined, take_apart
from penstock.planner.group_order import in_one_order
from penstock.planner.network import Network, WindowAggregate, as_answered
from penstock.planner.unions import distribute, reunited
from penstock.results.part import Part
from penstock.results.read import ResultView
from penstock.sql import Results, parse_query
from penstock.state.manifest import Manifest, Patterns, Progress
from penstock.state.registry import QueryRecord, Reading
from penstock.step.taken import Taken

KIND = "derived"  # of progress that follows from that of other streams
Views = Callable[[int], Sequence[ResultView]]  # what holds the results of a query, and of those that it continues


def stream_name(reading: Reading, column: str) -> str:
    """The name of a query's results with that column as their time; a query that comes later under the same name has another."""
    return f"{reading.query}#{reading.id} by {column}"


def over_streams(query: Query, readings: Sequence[Reading]) -> tuple[Query, dict[str, Stream]]:
    """The query with derived streams in place of the queries that it reads, and these streams."""
    known = {reading.query: reading for reading in readings}
    roles, streams = [], {}
    for role in query.roles:
        names = []
        for name in role.streams:
            reading = known.get(name)
            column = None if reading is None else role.on or reading.usual
            if reading is None or column is None:
                names.append(name)
                continue
            names.append(stream_name(reading, column))
            columns = tuple(Column(n, t) for n, t in reading.columns)
            streams[names[-1]] = Stream(names[-1], columns, column, delay=None)
        on = role.on if names == list(role.streams) else None
        roles.append(replace(role, stream=names[0], union=tuple(names[1:]), on=on))
    return replace(query, roles=tuple(roles)), streams


@dataclass(frozen=True)
class Parsed:
    """A registered query over streams. `derived` are those of them that are results of other queries.

    Of an aggregate over a join, which is answered by two queries, `apart` is both; `below` are the derived streams of the join. Of a query over
    unions, `query` is the combination of streams that the record answers, `combinations` are all (of an aggregate those of the join below it), and
    `whole` says what progress follows from.
    """

    query: Query
    derived: Mapping[str, Stream]
    whole: Query
    combinations: tuple[Query, ...] = ()
    apart: Apart | None = None
    below: Mapping[str, Stream] = field(default_factory=dict)


def parse(
    record: QueryRecord,
    streams: Mapping[str, Stream],
    own: Mapping[str, UserAggregate],
    query: Query | None = None,
) -> Parsed:
    """What a record says, with what it reads as it was when the query was registered; `own` are the users' aggregates.

    `query` is its text if that has been parsed already.
    """
    readings = {r.query: r for r in record.reads}
    # A stream that has come later under the name of a query that is read does not take its place.
    declared = {name: stream for name, stream in streams.items() if name not in readings}
    if query is None:
        query = parse_query(record.sql, declared, queries=results(readings), own=own)
    if record.any_order:
        query = in_one_order(query)
    query, derived = over_streams(query, record.reads)
    whole = {**declared, **derived}
    if is_joined(query) and record.owner is None:
        below = readings.get(join_name(record.name), Reading(join_name(record.name), 0, ()))
        apart = take_apart(query, whole, stream_name(below, TICK))
        parts = distribute(apart.join, whole)
        return Parsed(apart.aggregate, {apart.stream.name: apart.stream}, apart.aggregate, parts, apart, derived)
    if is_joined(query):
        query = take_apart(query, whole, "").join
    parts = distribute(query, whole)
    return Parsed(parts[record.combination], derived, reunited(query, whole), parts)


def results(readings: Mapping[str, Reading]) -> dict[str, Results]:
    """What queries give to those that read them, as SQL needs to know it."""
    return {n: Results(tuple(Column(c, t) for c, t in r.columns), r.times, r.usual) for n, r in readings.items()}


def join_name(query: str) -> str:
    """The name of the join below an aggregate, and of the parts of a query; people cannot give such names."""
    return f"_{query}"


def parts_of(record: QueryRecord, combinations: Sequence[Query]) -> list[QueryRecord]:
    """The records of all combinations of a query's streams but the first, which is the record itself."""
    owner = record.owner or record.name
    part = replace(record, name=join_name(owner), owner=owner, united=record.id, replaces=None)
    return [replace(part, id=record.id + number) for number in range(1, len(combinations))]


def join_below(record: QueryRecord, number: int) -> QueryRecord | None:
    """The record of the join below a query, if it is an aggregate over one that was checked."""
    own = next((r for r in record.reads if r.query == join_name(record.name)), None)
    if own is None:
        return None
    return QueryRecord(
        number, own.query, record.sql, record.on_error, item_names=tuple(n for n, _ in own.columns),
        item_types=tuple(t for _, t in own.columns), key_types=record.key_types, reads=record.reads[:-1], owner=record.name,
    )  # fmt: skip


def cursors(network: Network, manifest: Manifest) -> dict[str, int]:
    """Up to which step each derived stream has been taken in; one that is new begins with the next."""
    return {d.name: manifest.derived.get(d.name, manifest.step) for d in network.derived_streams}


def waiting(network: Network, manifest: Manifest, views: Views) -> list[DerivedStream]:
    """The derived streams with results that no step has taken in yet."""
    taken = cursors(network, manifest)
    if not taken:
        return []
    fresh = [f for f in manifest.results.values() if f.step > min(taken.values(), default=manifest.step)]
    found = []
    for derived in network.derived_streams if fresh else ():
        own = [view.record.id for view in views(derived.query)]
        if any(f.step > taken[derived.name] and any(map(f.count, own)) for f in fresh):
            found.append(derived)
    return found


def moved(network: Network, manifest: Manifest, progress: Mapping[str, Progress]) -> dict[str, Progress]:
    """Progress of the derived streams after a step that has taken in all results so far; `progress` holds what it saw of them."""
    reached = manifest.reached()
    found = {}
    for derived in network.derived_streams:
        old = progress.get(derived.name, Progress(NEVER, NEVER, KIND))
        value = max(old.value, derived.progress(as_answered(reached, derived.query)))
        if value > NEVER or old.newest > NEVER:
            new = replace(old, value=value, kind=KIND, closed=_boxes(network, derived, reached))
            found[derived.name] = old if new == old else replace(new, grown=None)
    return found


def _boxes(network: Network, derived: DerivedStream, reached: Mapping[str, int]) -> Patterns:
    """What is complete of a join, though its progress has not passed it, as a punctuation: if all its readers group by the times of its streams.

    Their groups are single moments. Windows of some length go by progress: they may be kept as panes, be shown early or let out slowly,
    for all groups alike.
    """
    box = derived.box(as_answered(reached, derived.query), network.streams)
    told = {f"{column}_{TO}": time for column, time in box.items()}
    readers = [(a, s) for a in network.aggregates for s in a.sources if s.stream == derived.name]
    if not box or not readers or not all(box.keys() <= set(s.groups) and _momentary(a) for a, s in readers):
        return ()
    if any(part_of(derived.stream, name) != (column, TO) for name, column in zip(told, box, strict=True)):
        return ()  # a column of the join happens to have that name
    return ((json.dumps(told), FOREVER),)


def _momentary(aggregate: WindowAggregate) -> bool:
    slowly = aggregate.flush is not None or any(m.paned or m.every is not None for m in aggregate.members)
    return not slowly and all(query.window is None for query in aggregate.plan.queries)


def unread_since(network: Network, manifest: Manifest) -> int:
    """Result files of this step and earlier ones have been taken in by everybody."""
    return min(cursors(network, manifest).values(), default=manifest.step)


def taken_in(network: Network, manifest: Manifest, views: Views) -> list[Taken]:
    """What derived streams have for the next step."""
    taken = cursors(network, manifest)
    left = too_many(network, manifest, views)
    found = []
    for derived in waiting(network, manifest, views):
        if derived.name in left or all(str(query) in manifest.suspended for query in _readers(network, derived)):
            continue
        part = Part(since=taken[derived.name], until=manifest.step)
        found.append(Taken(derived, views(derived.query), manifest, part))
    return found


def too_many(network: Network, manifest: Manifest, views: Views) -> dict[str, str]:
    """The derived streams that have more rows for the next step than it can take in, and what there is of each."""
    taken, found = cursors(network, manifest), {}
    for derived in waiting(network, manifest, views):
        part = Part(since=taken[derived.name], until=manifest.step)
        own = views(derived.query)
        ticks = 1 if derived.ticks is None or _spread(network, derived) else derived.ticks.most
        count = ticks * sum(view.count(manifest, part) for view in own)
        if count > MOST_TAKEN:
            what = "the join below it" if derived.joined else f"query {own[-1].record.name!r}, which it reads,"
            found[derived.name] = f"{what} has up to {count:,} rows for one step, which can take in {MOST_TAKEN:,}"
    return found


def _spread(network: Network, derived: DerivedStream) -> bool:
    """Whether no reader makes a row of every tick at which a result counts."""
    return all(a.plan.spreads for a in network.aggregates if derived.name in a.streams)


def suspended_by(network: Network, manifest: Manifest, views: Views) -> dict[str, str]:
    """Queries that can no longer be answered, since the next step does not take in what they read; and why."""
    found: dict[str, str] = {}
    left = too_many(network, manifest, views)
    for derived in network.derived_streams:
        if derived.name in left:
            why = f"{left[derived.name]}; there, give windows a longer SLIDE or a shorter RANGE"
            found |= {str(q): why for q in _readers(network, derived) if str(q) not in manifest.suspended}
    return found


def _readers(network: Network, derived: DerivedStream) -> list[int]:
    """The queries that read a derived stream, all parts of each."""
    reading = [q for q in network.queries if any(derived.name in role.streams for role in q.query.roles)]
    return list(dict.fromkeys(part.id for query in reading for part in network.parts_of(query)))
