"""A script that is run again: which of its statements still have something to do where their names are registered.

A script may change what it has created, and drop it. Once it has been run, what counts of a name is how the script leaves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from penstock.model import Sink, Stream
from penstock.sql import AlterQuery, CreateQuery, CreateStream, DropQuery, DropStream, Statement
from penstock.state.registry import QueryRecord, Registry


def again(statements: Sequence[Statement], registry: Registry) -> dict[int, CreateQuery | None]:
    """What takes the place of statements about queries and streams that are registered already; None: nothing has to be done."""
    queries: dict[str, dict[int, CreateQuery | AlterQuery | DropQuery]] = {}
    streams: dict[str, dict[int, CreateStream | DropStream]] = {}
    for index, statement in enumerate(statements):
        match statement:
            case CreateQuery(name) | AlterQuery(name) | DropQuery(name):
                queries.setdefault(name, {})[index] = statement
            case CreateStream() | DropStream():
                name = statement.name if isinstance(statement, DropStream) else statement.stream.name
                streams.setdefault(name, {})[index] = statement
            case _:
                pass
    instead: dict[int, CreateQuery | None] = {}
    for name, found in queries.items():
        known = registry.find(name)
        if known is not None and len(found) > 1 and isinstance(next(iter(found.values())), CreateQuery):
            instead |= _query_again(found, known)
    for name, declared in streams.items():
        record = registry.streams.get(name)
        *earlier, last = declared
        if record is not None and not record.dropped and _declares(declared[last], record.stream):
            instead |= dict.fromkeys(earlier)
    return instead


def _query_again(
    found: Mapping[int, CreateQuery | AlterQuery | DropQuery], known: QueryRecord
) -> dict[int, CreateQuery | None]:
    """The same for the statements about one query, of which the first creates it, and which is registered as `known`."""
    *earlier, last = found
    if isinstance(found[last], DropQuery):
        return dict.fromkeys(earlier)
    wanted = reduce(_then, found.values(), None)
    dropped = max((index for index, s in found.items() if isinstance(s, DropQuery)), default=None)
    if wanted is None:
        return {}
    if dropped is None:
        new = all(isinstance(s, CreateQuery) and not s.replace for s in found.values())
        return {**dict.fromkeys(earlier), last: replace(wanted, replace=not new)}
    record = QueryRecord(
        0, wanted.name, wanted.select.strip(), wanted.on_error, wanted.retain, wanted.into, start=wanted.start
    )
    alike = replace(known, ordered=False).same_declaration(record)  # ORDER BY is part of the text
    if not alike:
        return dict.fromkeys(index for index in found if index < dropped)
    # Declared again all the same if the sink has secrets, which nobody else gives.
    return {**dict.fromkeys(found), **({last: wanted} if isinstance(wanted.into, Sink) else {})}


def _declares(statement: CreateStream | DropStream, stream: Stream) -> bool:
    return isinstance(statement, CreateStream) and stream.same(statement.stream)


def _then(query: CreateQuery | None, statement: CreateQuery | AlterQuery | DropQuery) -> CreateQuery | None:
    """A query after one more statement about it."""
    if isinstance(statement, CreateQuery):
        return statement
    if isinstance(statement, DropQuery) or query is None:
        return None
    return replace(
        query, select=statement.select, line=statement.line, column=statement.column, start=statement.start, at=statement.at,
        into=query.into if statement.into is None else statement.into, on_error=statement.on_error or query.on_error,
        retain=query.retain if statement.retain is None else statement.retain,
    )  # fmt: skip
