"""Running a script again: which of its statements still have an effect where their names are registered.

A script may change what it has created, and drop it. After a run, the last definition of each name in the script
counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from penstock.model import Sink, Stream
from penstock.sql import AlterQuery, AlterStream, CreateQuery, CreateStream, DropQuery, DropStream, Statement, altered
from penstock.state.registry import QueryRecord, Registry

Instead = CreateQuery | CreateStream | None


def again(statements: Sequence[Statement], registry: Registry) -> dict[int, Instead]:
    """Replacements of statements about queries and streams; None: nothing to do.

    A stream is declared as later ALTER STREAM statements leave it, registered or not: its first path may be gone.
    """
    queries: dict[str, dict[int, CreateQuery | AlterQuery | DropQuery]] = {}
    streams: dict[str, dict[int, CreateStream | AlterStream | DropStream]] = {}
    for index, statement in enumerate(statements):
        match statement:
            case CreateQuery(name) | AlterQuery(name) | DropQuery(name):
                queries.setdefault(name, {})[index] = statement
            case AlterStream(name) | DropStream(name):
                streams.setdefault(name, {})[index] = statement
            case CreateStream(stream):
                streams.setdefault(stream.name, {})[index] = statement
            case _:
                pass
    instead: dict[int, Instead] = {}
    for name, found in queries.items():
        known = registry.find(name)
        if known is not None and len(found) > 1 and isinstance(next(iter(found.values())), CreateQuery):
            instead |= _query_again(found, known)
    for name, declared in streams.items():
        record = registry.streams.get(name)
        instead |= _stream_again(declared, None if record is None or record.dropped else record.stream)
    return instead


def _stream_again(
    found: Mapping[int, CreateStream | AlterStream | DropStream], known: Stream | None
) -> dict[int, Instead]:
    """The same for the statements about one stream, which may be registered as `known`."""
    instead: dict[int, Instead] = {}
    created: int | None = None
    left: CreateStream | None = None
    for index, statement in found.items():
        if isinstance(statement, AlterStream) and created is not None and left is not None:
            left = replace(left, stream=altered(left.stream, statement), altered=True)
            instead |= {created: left, index: None}
        elif isinstance(statement, CreateStream):
            created, left = index, statement
        elif isinstance(statement, DropStream):
            created = left = None
    if created is not None and left is not None and known is not None and known.same(left.stream):
        instead |= dict.fromkeys(index for index in found if index < created)
    return instead


def _query_again(
    found: Mapping[int, CreateQuery | AlterQuery | DropQuery], known: QueryRecord
) -> dict[int, CreateQuery | None]:
    """The same for the statements about one query, which the first one creates, and which is registered as `known`."""
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
    # A sink with secrets is declared again nevertheless: only the declaration has them.
    return {**dict.fromkeys(found), **({last: wanted} if isinstance(wanted.into, Sink) else {})}


def _then(query: CreateQuery | None, statement: CreateQuery | AlterQuery | DropQuery) -> CreateQuery | None:
    """A query after one more statement about it."""
    if isinstance(statement, CreateQuery):
        return statement
    if isinstance(statement, DropQuery) or query is None:
        return None
    return replace(
        query, select=statement.select, line=statement.line, column=statement.column, start=statement.start,
        at=statement.at,
        into=query.into if statement.into is None else statement.into, on_error=statement.on_error or query.on_error,
        retain=query.retain if statement.retain is None else statement.retain,
    )  # fmt: skip
