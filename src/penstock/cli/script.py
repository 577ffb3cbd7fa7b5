"""A script in a file: read, and executed by an engine statement by statement. `check` needs no engine.

Every error and warning gets its place in the file, including those of Spark or the engine about a whole statement.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.catalog.compiled import ParsedSelect
from penstock.cli.rerun import Instead, again
from penstock.errors import PenstockError, SqlError, did_you_mean
from penstock.sql import (
    AlterQuery,
    CreateQuery,
    CreateSource,
    CreateStream,
    CreateView,
    DropQuery,
    DropSource,
    DropStream,
    Refused,
    Statement,
    parse_script,
    parse_view,
    read_script,
)
from penstock.sql.view_statements import ViewStatement

if TYPE_CHECKING:
    from penstock.engine import Engine
    from penstock.views.catalog import ViewCatalog


@dataclass(frozen=True)
class Script:
    """A script and its statements; unreadable ones separately."""

    path: Path
    text: str
    statements: tuple[Statement, ...]
    refused: tuple[Refused, ...] = ()
    parsed: dict[tuple[int, int], ParsedSelect] = field(default_factory=dict)  # by line and column, once it is checked

    def count(self, kind: type[CreateStream | CreateQuery | CreateView]) -> int:
        return sum(isinstance(s, kind) for s in self.statements)


def load(path: Path, *, keep: bool = False) -> Script:
    """Read and split a script; it must have a query or a view. With `keep`, unreadable statements are `refused`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PenstockError(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise PenstockError("is not text in UTF-8") from None
    found = read_script(text) if keep else parse_script(text)
    refused = tuple(s for s in found if isinstance(s, Refused))
    script = Script(path, text, tuple(s for s in found if not isinstance(s, Refused)), refused)
    if not found:
        raise PenstockError("the script is empty; write CREATE STREAM .. and CREATE QUERY .. statements")
    if not refused and not script.count(CreateQuery) and not script.count(CreateView):
        raise PenstockError(
            "the script has no query, so there is nothing to answer; add CREATE QUERY name AS SELECT .."
        )
    return script


def register(engine: Engine, script: Script, *, compute: bool = True) -> Iterator[str]:
    """Execute the statements one by one, so that every error has a place; yields the output of SHOW and EXPLAIN.

    Of what is registered already only the last definition in the script counts: the script is run again to continue.
    Without `compute`, sources and views are only checked: no change is captured and no view created.
    """
    instead = again(script.statements, engine.catalog.registry)
    for index, statement in enumerate(script.statements):
        with placed(script, statement):
            shown = register_one(engine, script, index, instead, compute=compute)
        for one in shown:
            yield one if isinstance(one, str) else "\n".join(_entry(e) for e in one) or "(none)"


def register_one(
    engine: Engine, script: Script, index: int, instead: Mapping[int, Instead], *, compute: bool = True
) -> list[Any]:
    """Execute one statement, or its replacement (`instead`) if already registered; the output of SHOW and EXPLAIN."""
    statement = script.statements[index]
    with plain_warnings(f"{script.path}:{statement.at.line}"):
        if isinstance(statement, ViewStatement) and not compute:
            _look(engine, script, statement)
        elif index not in instead:
            return _execute(engine, script, index)
        elif (other := instead[index]) is not None:
            engine.execute_statement(other, script.text, _parsed(script, other))
    return []


def _execute(engine: Engine, script: Script, index: int) -> list[Any]:
    """One statement. What it drops may be gone since the last run of the script."""
    match script.statements[index]:
        case DropQuery(name) if engine.catalog.registry.find(name) is None:
            kind, known = "query", engine.catalog.names()
        case DropStream(name) if name not in engine.catalog.streams:
            kind, known = "stream", list(engine.catalog.streams)
        case _:
            statement = script.statements[index]
            return engine.execute_statement(statement, script.text, _parsed(script, statement))
    if not getattr(script.statements[index], "if_exists", False):
        warnings.warn(f"there is no {kind} {name!r} to drop; {did_you_mean(name, known)}".rstrip("; "), stacklevel=1)
    return []


def _parsed(script: Script, statement: Statement) -> ParsedSelect | None:
    """The SELECT of a statement as it was parsed when the script was checked."""
    if not isinstance(statement, CreateQuery | AlterQuery):
        return None
    return script.parsed.get((statement.line, statement.column))


def explain_views(catalog: ViewCatalog, script: Script) -> Iterator[str]:
    """How each view of a script would be computed, by its sources' estimates; undeclared sources are declared."""
    for statement in script.statements:
        with placed(script, statement):
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
    """Whether anything in the script needs Spark."""
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
    """Warnings inside, of other threads too, become one line each, without places in the package."""

    def show(message: Warning | str, *_: object) -> None:
        sys.stderr.write(f"{place}: warning: {message}\n")

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextlib.contextmanager
def placed(script: Script, statement: Statement | Refused) -> Iterator[None]:
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
