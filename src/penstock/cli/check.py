"""Checks the statements of a script one by one, in order, so that a refused one does not hide errors in the others.

Statements that read a refused stream, source or query are not checked: their errors would be unknown.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.catalog.analysis import analyze
from penstock.catalog.compiled import ParsedSelect, meant
from penstock.catalog.terms_analysis import TermsAnalysis
from penstock.cli.rerun import again
from penstock.cli.script import Script, placed, register_one
from penstock.errors import PenstockError, SqlError
from penstock.model import Column, Query, Source, Stream
from penstock.planner.bounds import check_bounded, time_bounds
from penstock.sql import (
    AlterQuery,
    AlterStream,
    CreateQuery,
    CreateSource,
    CreateStream,
    CreateView,
    DropQuery,
    DropSource,
    DropStream,
    Explain,
    Refused,
    Results,
    Statement,
    altered,
    check_sources,
    named_in_from,
    parse_query,
    parse_view,
    placed_bounds,
    results_of,
)
from penstock.sql.position import Position, Text

if TYPE_CHECKING:
    from penstock.engine import Engine


@dataclass(frozen=True)
class NotChecked:
    """A statement that reads or names something that was refused."""

    name: str

    def __str__(self) -> str:
        return f"it reads {self.name}, which was refused"


_WORDS = re.compile(r"\w+")

Verdict = SqlError | NotChecked | None  # None: no error


def check_sql(script: Script) -> None:
    """All checks without Spark: syntax, names, windows, and that state stays bounded. Raises the first error."""
    for _, verdict in verdicts(script):
        if isinstance(verdict, SqlError):
            raise verdict


def verdicts(script: Script) -> Iterator[tuple[Statement | Refused, Verdict]]:
    """The verdict on each statement without Spark."""
    known, refused = _Known(), Consequences()
    for statement in sorted((*script.statements, *script.refused), key=lambda s: (s.at.line, s.at.column)):
        yield statement, refused.judge(script, statement, partial(known.add, script, statement))


def verdicts_of(engine: Engine, script: Script) -> Iterator[tuple[Statement, Verdict]]:
    """The verdicts of an engine with Spark on the statements of a script without errors in `verdicts`."""
    refused = Consequences()
    instead = again(script.statements, engine.catalog.registry)
    for index, statement in enumerate(script.statements):
        register = partial(register_one, engine, script, index, instead, compute=False)
        yield statement, refused.judge(script, statement, register)


@dataclass
class Consequences:
    """The names whose statements were refused so far."""

    names: dict[str, str] = field(default_factory=dict)  # in lower case -> as written

    def judge(self, script: Script, statement: Statement | Refused, check: Callable[[], object]) -> Verdict:
        """Check a statement, unless it reads something refused; record it if it is refused itself."""
        name = defined(statement)
        verdict = self._verdict(script, statement, check)
        if name is not None and verdict is not None:
            self.names[name.lower()] = name
        elif name is not None:
            self.names.pop(name.lower(), None)
        return verdict

    def _verdict(self, script: Script, statement: Statement | Refused, check: Callable[[], object]) -> Verdict:
        if isinstance(statement, Refused):
            return statement.error
        read = next((self.names[n.lower()] for n in _named(statement) if n.lower() in self.names), None)
        try:
            with placed(script, statement):
                check()
        except SqlError as error:
            return error if read is None else NotChecked(read)
        return None if read is None else NotChecked(read)


def defined(statement: Statement | Refused) -> str | None:
    """The name by which others read what a statement declares."""
    match statement:
        case CreateStream(stream):
            return stream.name
        case CreateSource(source):
            return source.name
        case CreateQuery(name) | AlterQuery(name) | CreateView(name):
            return name
        case Refused():
            return statement.name
        case _:
            return None


def _named(statement: Statement) -> tuple[str, ...]:
    """The names that a statement reads or mentions without declaring them."""
    match statement:
        case CreateQuery(_, select) | AlterQuery(_, select) | CreateView(_, select) | Explain(_, str() as select):
            return named_in_from(select)
        case CreateStream() | CreateSource():
            return ()
        case _:
            name = getattr(statement, "name", None)
            return () if name is None else (name,)


@dataclass
class _Known:
    """The declarations of the statements so far."""

    streams: dict[str, Stream] = field(default_factory=dict)
    selects: dict[str, str] = field(default_factory=dict)
    queries: dict[str, Results] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    untyped: dict[str, Query] = field(default_factory=dict)  # with columns of types that their text does not say

    def add(self, script: Script, statement: Statement | Refused) -> None:
        """Check one statement against the earlier ones."""
        match statement:
            case CreateStream(stream):
                if stream.name in self.streams:
                    raise PenstockError(f"stream {stream.name!r} is declared twice; choose another name")
                self.streams[stream.name] = stream
            case CreateQuery(name, select, line, column) | AlterQuery(name, select, line, column):
                new = isinstance(statement, CreateQuery) and not statement.replace
                if new and self.selects.get(name, select) != select:
                    raise PenstockError(f"query {name!r} is defined twice; choose another name")
                self._type_those_in(select)
                query = parse_query(
                    select, self.streams, script=script.text, line=line, column=column, queries=self.queries
                )
                with placed_bounds(Text(select, script.text, Position(line, column)), query, self.streams):
                    check_bounded(query, time_bounds(query))
                script.parsed[line, column] = ParsedSelect(query, meant(query, self.streams, self.queries))
                self.selects[name] = select
                found = self.queries[name] = results_of(query, self.streams, self.queries)
                self.untyped.pop(name, None)
                if not all(c.type for c in found.columns):
                    self.untyped[name] = query
            case AlterStream(name) if name in self.streams:  # others may be registered already
                self.streams[name] = altered(self.streams[name], statement)
            case DropQuery(name):
                self.selects.pop(name, None)
                self.queries.pop(name, None)
                self.untyped.pop(name, None)
            case DropStream(name):
                self.streams.pop(name, None)  # others may be registered already
            case CreateSource(source):
                if self.sources.get(source.name, source) != source:
                    raise PenstockError(f"source {source.name!r} is declared twice; choose another name")
                self.sources[source.name] = source
            case DropSource(name):
                self.sources.pop(name, None)
            case CreateView(name, select, line, column) if all(s.columns for s in self.sources.values()):
                parse_view(select, self.sources, name=name, script=script.text, line=line, column=column)
            case CreateView(_, select, line, column):  # only the systems know the columns
                check_sources(select, self.sources, script=script.text, line=line, column=column)
            case Explain(_, str() as select, line, column):
                parse_query(select, self.streams, script=script.text, line=line, column=column, queries=self.queries)
            case _:
                pass

    def _type_those_in(self, select: str) -> None:
        """Add the types of queries that a SELECT may read, as far as our own terms know them, to save another parse."""
        for name in self.untyped.keys() & set(_WORDS.findall(select)):
            query, found = self.untyped.pop(name), self.queries[name]
            read = {n: r for role in query.roles for n in role.streams if (r := self.queries.get(n)) is not None}
            streams = {n: Stream(n, r.columns, r.usual or r.times[0], delay=None) for n, r in read.items()}
            with contextlib.suppress(PenstockError):  # what is known to Spark alone
                facts = analyze(TermsAnalysis(), name, query, streams | self.streams)
                kinds = dict(zip(facts.names, facts.types, strict=True))
                columns = tuple(Column(c.name, kinds.get(c.name, c.type)) for c in found.columns)
                self.queries[name] = replace(found, columns=columns)
