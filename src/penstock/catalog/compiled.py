"""A registered query, compiled once (decision 0035): the query over streams, including derived ones.

Where a query reads the results of others, a derived stream replaces each; an aggregate over a join becomes two queries,
and a query over unions one per combination of streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.errors import RegistrationError
from penstock.model import Column, Emit, Query, Stream, UserAggregate
from penstock.planner.apart import Apart, is_joined, take_apart
from penstock.planner.derived import TICK
from penstock.planner.group_order import in_one_order
from penstock.planner.unions import distribute, reunited
from penstock.sql import Results, parse_query
from penstock.state.registry import QueryRecord, Reading


def stream_name(reading: Reading, column: str) -> str:
    """The name of a query's results with that column as their time; a later query of the same name has another one."""
    return f"{reading.query}#{reading.id} by {column}"


def over_streams(query: Query, readings: Sequence[Reading]) -> tuple[Query, dict[str, Stream]]:
    """The query with derived streams replacing the queries that it reads, and these streams."""
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
class ParsedSelect:
    """A parsed SELECT with the meaning of its names then: where they mean the same it is not parsed again."""

    query: Query
    over: Mapping[str, Stream | Results | None]


def meant(
    query: Query, streams: Mapping[str, Stream], queries: Mapping[str, Results]
) -> dict[str, Stream | Results | None]:
    """The meaning of the names in FROM, as far as the SELECT depends on it, without the sources of streams."""
    names = dict.fromkeys(name for role in query.roles for name in role.streams)
    return {
        name: replace(streams[name], source=None, patterns=()) if name in streams else queries.get(name)
        for name in names
    }


@dataclass(frozen=True)
class CompiledQuery:
    """A registered query over streams. `parsed` is its text; `derived` are streams of other queries' results.

    For an aggregate over a join, which becomes two queries, `apart` has both; `below` are the derived streams of the
    join. For a query over unions, `query` is the combination of streams that the record answers, `combinations` are all
    (for an aggregate, those of the join below it), and `whole` determines progress.
    """

    parsed: Query
    query: Query
    derived: Mapping[str, Stream]
    whole: Query
    combinations: tuple[Query, ...] = ()
    apart: Apart | None = None
    below: Mapping[str, Stream] = field(default_factory=dict)


def compile_query(
    record: QueryRecord,
    streams: Mapping[str, Stream],
    own: Mapping[str, UserAggregate],
    parsed: Query | None = None,
) -> CompiledQuery:
    """Compile a record with what it read at its registration; `own` are the users' aggregates.

    `parsed` is its text if that has been parsed already.
    """
    readings = {r.query: r for r in record.reads}
    # A later stream does not replace a query of the same name that is read.
    declared = {name: stream for name, stream in streams.items() if name not in readings}
    if parsed is None:
        parsed = with_emit(record, parse_query(record.sql, declared, queries=results(readings), own=own))
    query, derived = over_streams(in_one_order(parsed), record.reads)
    whole = {**declared, **derived}
    if is_joined(query) and record.owner is None:
        below = readings.get(join_name(record.name), Reading(join_name(record.name), 0, ()))
        apart = take_apart(query, whole, stream_name(below, TICK))
        parts = distribute(apart.join, whole)
        return CompiledQuery(
            parsed, apart.aggregate, {apart.stream.name: apart.stream}, apart.aggregate, parts, apart, derived
        )
    if is_joined(query):
        query = take_apart(query, whole, "").join
    parts = distribute(query, whole)
    return CompiledQuery(parsed, parts[record.combination], derived, reunited(query, whole), parts)


def with_emit(record: QueryRecord, query: Query) -> Query:
    """The query with the early results that are requested beside its text."""
    if record.emit is None:
        return query
    if query.aggregation is None:
        msg = f"query {record.name!r}: emit= is for aggregates: results of a join are final as they come"
        raise RegistrationError(msg)
    if query.aggregation.emit is not None:
        raise RegistrationError(f"query {record.name!r} says EMIT EARLY itself; leave out emit=")
    return replace(query, aggregation=replace(query.aggregation, emit=Emit(record.emit)))


def lead_of(record: QueryRecord) -> int:
    """The number of a statement's first record; aggregates over joins, and queries over unions, have several."""
    if record.united is not None:
        return record.united
    below = next((r for r in record.reads if r.query == join_name(record.name)), None)
    return record.id if below is None else below.id


def results(readings: Mapping[str, Reading]) -> dict[str, Results]:
    """The results of queries for their readers, in the form that SQL needs."""
    return {n: Results(tuple(Column(c, t) for c, t in r.columns), r.times, r.usual) for n, r in readings.items()}


def join_name(query: str) -> str:
    """The name of the join below an aggregate, and of the parts of a query; users cannot choose such names."""
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
        item_types=tuple(t for _, t in own.columns), key_types=record.key_types, reads=record.reads[:-1],
        owner=record.name,
    )  # fmt: skip
