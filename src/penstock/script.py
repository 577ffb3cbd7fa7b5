"""A script in a file: read, checked without Spark, and given to an engine statement by statement.

Every error and warning leaves here with its place in the file, also those that Spark or the engine raise about a whole statement.
"""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, SqlError, did_you_mean
from penstock.model import Source, Stream
from penstock.planner.bounds import check_bounded, time_bounds
from penstock.resume import again
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
    Results,
    Statement,
    altered,
    check_sources,
    parse_query,
    parse_script,
    parse_view,
    results_of,
)
from penstock.sql.view_statements import ViewStatement

if TYPE_CHECKING:
    from penstock.engine import Engine
    from penstock.views.catalog import ViewCatalog


@dataclass(frozen=True)
class Script:
    """A script and its statements."""

    path: Path
    text: str
    statements: tuple[Statement, ...]

    def count(self, kind: type[CreateStream | CreateQuery | CreateView]) -> int:
        return sum(isinstance(s, kind) for s in self.statements)

    def alone(self, index: int) -> str:
        """The text of one statement at its own place, with everything around it left blank."""
        start = self._offset(self.statements[index])
        later = self.statements[index + 1 : index + 2]
        end = self._offset(later[0]) if later else len(self.text)
        return re.sub(r"[^\n]", " ", self.text[:start]) + self.text[start:end]

    def _offset(self, statement: Statement) -> int:
        before = self.text.split("\n")[: statement.at.line - 1]
        return sum(len(line) + 1 for line in before) + statement.at.column - 1


def load(path: Path) -> Script:
    """Read and split a script; it must have a query or a view."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PenstockError(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise PenstockError("is not text in UTF-8") from None
    script = Script(path, text, tuple(parse_script(text)))
    if not script.statements:
        raise PenstockError("the script is empty; write CREATE STREAM .. and CREATE QUERY .. statements")
    if not script.count(CreateQuery) and not script.count(CreateView):
        raise PenstockError(
            "the script has no query, so there is nothing to answer; add CREATE QUERY name AS SELECT .."
        )
    return script


def check_sql(script: Script) -> None:
    """All that can be checked without Spark: syntax, names, windows, and that state stays bounded."""
    streams: dict[str, Stream] = {}
    selects: dict[str, str] = {}
    queries: dict[str, Results] = {}
    sources: dict[str, Source] = {}
    for statement in script.statements:
        with _placed(script, statement):
            match statement:
                case CreateStream(stream):
                    if stream.name in streams:
                        raise PenstockError(f"stream {stream.name!r} is declared twice; choose another name")
                    streams[stream.name] = stream
                case CreateQuery(name, select, line, column) | AlterQuery(name, select, line, column):
                    new = isinstance(statement, CreateQuery) and not statement.replace
                    if new and selects.get(name, select) != select:
                        raise PenstockError(f"query {name!r} is defined twice; choose another name")
                    selects[name] = select
                    query = parse_query(select, streams, script=script.text, line=line, column=column, queries=queries)
                    check_bounded(query, time_bounds(query))
                    queries[name] = results_of(query, streams, queries)
                case AlterStream(name) if name in streams:  # one that is not here may be registered already
                    with _placed(script, statement):
                        streams[name] = altered(streams[name], statement)
                case DropQuery(name):
                    selects.pop(name, None)
                    queries.pop(name, None)
                case DropStream(name):
                    streams.pop(name, None)  # one that is not here may be registered already
                case CreateSource(source):
                    if sources.get(source.name, source) != source:
                        raise PenstockError(f"source {source.name!r} is declared twice; choose another name")
                    sources[source.name] = source
                case DropSource(name):
                    sources.pop(name, None)
                case CreateView(name, select, line, column) if all(s.columns for s in sources.values()):
                    parse_view(select, sources, name=name, script=script.text, line=line, column=column)
                case CreateView(_, select, line, column):  # columns are known to some system alone
                    check_sources(select, sources, script=script.text, line=line, column=column)
                case Explain(_, str() as select, line, column):
                    parse_query(select, streams, script=script.text, line=line, column=column, queries=queries)
                case _:
                    pass


def register(engine: Engine, script: Script, *, compute: bool = True) -> Iterator[str]:
    """Execute the statements one by one, so that every error has a place; yields what SHOW and EXPLAIN say.

    Of what is registered already only the last definition in the script counts: the script is run again to go on.
    Without `compute`, sources and views are looked at only: no change is captured and no view made.
    """
    instead = again(script.statements, engine.catalog.registry)
    for index, statement in enumerate(script.statements):
        shown: list[Any] = []
        with plain_warnings(f"{script.path}:{statement.at.line}"), _placed(script, statement):
            if isinstance(statement, ViewStatement) and not compute:
                _look(engine, script, statement)
            elif index not in instead:
                shown = _execute(engine, script, index)
            elif (other := instead[index]) is not None:
                engine.perform(other, script.text)
        for one in shown:
            yield one if isinstance(one, str) else "\n".join(_entry(e) for e in one) or "(none)"


def _execute(engine: Engine, script: Script, index: int) -> list[Any]:
    """One statement. What is to be dropped may be gone since the last time the script was run."""
    match script.statements[index]:
        case DropQuery(name) if engine.catalog.registry.find(name) is None:
            kind, known = "query", engine.catalog.names()
        case DropStream(name) if name not in engine.catalog.streams:
            kind, known = "stream", list(engine.catalog.streams)
        case _:
            return engine.execute(script.alone(index))
    if not getattr(script.statements[index], "if_exists", False):
        warnings.warn(f"there is no {kind} {name!r} to drop; {did_you_mean(name, known)}".rstrip("; "), stacklevel=1)
    return []


def explain_views(catalog: ViewCatalog, script: Script) -> Iterator[str]:
    """How each view of a script would be computed, from what its sources say; sources are declared where they are not yet."""
    for statement in script.statements:
        with _placed(script, statement):
            match statement:
                case CreateSource(source):
                    catalog.add_source(source)
                case DropSource(name):
                    catalog.sources.pop(name, None)
                case CreateView(name, select, line, column):
                    yield catalog.explain_view(select, name, script=script.text, line=line, column=column)
                case _:
                    pass


def needs_spark(script: Script) -> bool:
    """Whether anything in the script is known to Spark alone."""
    known = ("postgres", "parquet")
    return any(
        not isinstance(s, ViewStatement) or (isinstance(s, CreateSource) and s.source.system not in known)
        for s in script.statements
    )


def _look(engine: Engine, script: Script, statement: ViewStatement) -> None:
    match statement:
        case CreateSource(source):
            engine.view_catalog.add_source(source)
        case DropSource(name):
            engine.view_catalog.sources.pop(name, None)
        case CreateView(name, select, line, column):
            sources = engine.view_catalog.sources
            parse_view(select, sources, name=name, script=script.text, line=line, column=column)
        case _:
            pass


@contextlib.contextmanager
def plain_warnings(place: object) -> Iterator[None]:
    """Warnings inside, of other threads too, are a line each, that says nothing of places in the package."""

    def show(message: Warning | str, *_: object) -> None:
        sys.stderr.write(f"{place}: warning: {message}\n")

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextlib.contextmanager
def _placed(script: Script, statement: Statement) -> Iterator[None]:
    """Errors inside point into the whole script: to their own place, or to the start of the statement."""
    try:
        yield
    except SqlError as error:
        raise SqlError(
            error.message, text=script.text, line=error.line, column=error.column, hint=error.hint
        ) from error
    except PenstockError as error:
        at = statement.at
        hint = f"relative paths begin in {Path.cwd()}" if "Path does not exist" in str(error) else ""
        raise SqlError(str(error), text=script.text, line=at.line, column=at.column, hint=hint) from error


def _entry(entry: Any) -> str:
    return "  ".join(f"{key}: {value}" for key, value in entry.items()) if isinstance(entry, dict) else str(entry)
