"""The command line: `penstock run`, `check` and `explain` a script, and `penstock query` for the queries of an engine.

It reads, starts, shows and stops; `sql` and `engine` define what a statement means. An error in the input ends with one
message at its place in the script, never with a traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from penstock.cli.check import NotChecked, Verdict, check_sql, verdicts, verdicts_of
from penstock.cli.monitor import console_for, follow, picture, summary_of
from penstock.cli.monitor_views import follow_views, refresh_once
from penstock.cli.options import Command, parse
from penstock.cli.query import (
    UnansweredError,
    add_statement,
    ask,
    drop_statement,
    queries,
    queries_table,
    resume_statement,
)
from penstock.cli.script import Script, explain_views, load, needs_spark, plain_warnings, register
from penstock.cli.session import (
    SPARK_LOG,
    Interrupts,
    beside,
    brief,
    busy,
    end_spark,
    is_foreign,
    logged,
    start_spark,
    unusable,
)
from penstock.errors import PenstockError, SqlError
from penstock.model import Sink
from penstock.sql import CreateQuery, CreateSource, CreateStream, CreateView, Refused, Statement
from penstock.storage.open_store import open_store

if TYPE_CHECKING:
    from penstock.engine import Engine
    from penstock.run import Run
    from penstock.views.catalog import ViewCatalog

OK, FAULT, FAILED, WAITS, SUSPENDED, INTERRUPTED = 0, 1, 3, 4, 5, 130  # argparse uses 2 for wrong usage


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = parse(arguments, _COMMANDS)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
    except SqlError as error:
        return _complain(f"{options.script}:{error.line}:{error.column}", error.message, *error.marked)
    except PenstockError as error:
        return _complain(str(getattr(options, "script", None) or options.state), str(error))
    except BrokenPipeError:
        # The reader of the output has gone; the rest of the buffer must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        place = getattr(options, "script", None) or options.state
        return _complain(str(place), str(unusable(error, getattr(options, "state", None))))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if not is_foreign(error):
            raise  # a bug of ours: a report needs the stack
        state = getattr(options, "state", None)
        log = logged(error, beside(state) / SPARK_LOG) if state is not None and beside(state).is_dir() else ""
        return _complain(str(getattr(options, "script", None) or options.state), brief(error), log)
    return code


# -- commands ---------------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    script = load(options.script)
    check_sql(script)
    options.state = state = options.state or Path("penstock-state", script.path.stem)
    console, began = console_for(), time.time()
    with Interrupts() as interrupts, plain_warnings(script.path):
        try:
            with interrupts.held():
                engine = start_spark(state, options.cores, console, beside(state) / SPARK_LOG, options.memory)
            with busy(console, "Registering streams and queries .."):
                for shown in register(engine, script):
                    console.print(shown)
            resumed = engine.manifest().step
            run = _start(engine, options) if script.count(CreateStream) else None
        except KeyboardInterrupt:
            console.print("Interrupted before the first step; what the script declares may be registered already.")
            return INTERRUPTED
        interrupts.gentle()
        try:
            if run is None:
                return _keep_views(engine, console, options, interrupts.asked, began)
            console.print(_opening(script, engine, state, resumed), soft_wrap=True)
            code = _watch(run, console, options.seconds, interrupts.asked, script, beside(state) / SPARK_LOG)
            if code in (OK, SUSPENDED) and options.available_now and script.count(CreateView):
                return _keep_views(engine, console, options, interrupts.asked, time.time()) or code
            return code
        finally:
            if script.count(CreateView):
                engine.view_catalog.close()
            end_spark(engine)


def _start(engine: Engine, options: argparse.Namespace) -> Run:
    return engine.start(
        options.trigger, latency=options.latency, available_now=options.available_now, final=options.final
    )


def _watch(
    run: Run, console: Console, seconds: float | None, asked: threading.Event, script: Script, log_file: Path
) -> int:
    """Show the run until its end and stop it; 3 if it failed by itself."""
    chatty = any(isinstance(s, CreateQuery) and _is_console(s.into) for s in script.statements)
    try:
        rates = follow(run, console, seconds=seconds, stop=asked, live=False if chatty else None)
        if run.active:
            console.print("Stopping after the running step ..")
        run.stop()
    except KeyboardInterrupt:
        console.print("Interrupted again: left without waiting. The next start goes on from the last committed step.")
        console.file.flush()
        os._exit(INTERRUPTED)  # threads of the running step would delay an ordinary exit
    except BrokenPipeError:
        run.stop()
        raise
    except Exception as error:  # noqa: BLE001  (whatever stopped the run; it is shown, and logged in full)
        log = logged(error, log_file)
        _complain(str(script.path), f"the run failed: {brief(error)}", log)
        return FAILED
    status = picture(run)
    rates.add(status, time.monotonic())
    console.print(summary_of(status, rates.average))
    ended = "The streams have ended." if run.final else "Run the same command again to go on from here."
    console.print(f"Stopped after step {status['step']}. {ended}")
    return SUSPENDED if any(query["suspended"] for query in status["queries"].values()) else OK


def _keep_views(
    engine: Engine, console: Console, options: argparse.Namespace, asked: threading.Event, since: float
) -> int:
    """Maintain views, or with --available-now refresh each once, and print what each refresh has changed."""
    views, code = engine.view_catalog.views, OK
    if options.available_now:
        for trouble in refresh_once(views, since=since, stop=asked):
            _complain(str(options.script), trouble)
            code = FAILED
    follow_views(views, console, since=since, seconds=0 if options.available_now else options.seconds, stop=asked)
    return code


def _check(options: argparse.Namespace) -> int:
    script = load(options.script, keep=True)
    found: list[tuple[Statement | Refused, Verdict]] = list(verdicts(script))
    if not options.no_spark and all(verdict is None for _, verdict in found):
        with _scratch_engine() as engine:
            found = list(verdicts_of(engine, script))
    wrong = any(verdict is not None for _, verdict in found)
    for statement, verdict in found:
        place = f"{options.script}:{statement.at.line}"
        if isinstance(verdict, SqlError):
            _complain(f"{options.script}:{verdict.line}:{verdict.column}", verdict.message, *verdict.marked)
        elif isinstance(verdict, NotChecked):
            console_for(stderr=True).print(f"{place}:{statement.at.column}: not checked: {verdict}", soft_wrap=True)
        elif not wrong and not isinstance(statement, Refused):
            print(f"{place}: ok: {_title(statement)}")
    return FAULT if wrong else OK


def _explain(options: argparse.Namespace) -> int:
    script = load(options.script)
    check_sql(script)
    if not needs_spark(script):
        with _scratch_catalog(options.state) as catalog:
            print("\n".join(explain_views(catalog, script)))
        return OK
    with _scratch_engine(options.state) as engine:
        list(register(engine, script, compute=False))
        if script.count(CreateQuery):
            print(engine.explain(options.query))
        if options.query is None:
            for text in explain_views(engine.view_catalog, script):
                print(text)
    return OK


def _query_add(options: argparse.Namespace) -> int:
    statement = add_statement(
        options.name, options.select, into=options.into, from_state=options.from_state, replace=options.replace
    )
    return _ask(options, statement)


def _query_drop(options: argparse.Namespace) -> int:
    return _ask(options, drop_statement(options.name, purge=options.purge))


def _query_resume(options: argparse.Namespace) -> int:
    return _ask(options, resume_statement(options.name))


def _ask(options: argparse.Namespace, statement: str) -> int:
    try:
        answer = ask(options.state, statement, options.timeout)
    except UnansweredError as error:
        console_for(stderr=True).print(f"{options.state}: {error}", soft_wrap=True)
        return WAITS
    if not answer.ok:
        raise PenstockError(answer.text)
    print(answer.text)
    return OK


def _query_list(options: argparse.Namespace) -> int:
    found = queries(options.state)
    if options.json:
        for query in found:
            print(json.dumps(query, ensure_ascii=False))
    elif found:
        console_for().print(queries_table(found))
    else:
        print(f"{options.state}: no query is registered")
    return OK


@contextlib.contextmanager
def _scratch_catalog(state: Path | str | None) -> Iterator[ViewCatalog]:
    """Sources and views of a state, or of none, without Spark."""
    from penstock.views.catalog import ViewCatalog  # noqa: PLC0415  (only EXPLAIN of views needs it)

    if isinstance(state, Path) and not state.is_dir():
        raise PenstockError(f"there is no state in {state}")
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        catalog = ViewCatalog(None, open_store(state or folder))
        try:
            yield catalog
        finally:
            catalog.close()


@contextlib.contextmanager
def _scratch_engine(state: Path | str | None = None) -> Iterator[Engine]:
    """An engine that runs nothing: on an existing state, to read its counts, or on none."""
    if isinstance(state, Path) and not state.is_dir():
        raise PenstockError(f"there is no state in {state}")
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        engine = start_spark(state or Path(folder, "state"), None, console_for(stderr=True), Path(folder, SPARK_LOG))
        try:
            yield engine
        finally:
            engine.view_catalog.close()
            end_spark(engine)


# -- words ------------------------------------------------------------------------------------------------------


def _complain(place: str, message: str, *more: str) -> int:
    sys.stdout.flush()
    console = console_for(stderr=True)
    console.print(f"{place}: ", end="", soft_wrap=True)
    console.print("error: ", end="", style="bold red")
    console.print("\n".join([message, *(m for m in more if m)]), soft_wrap=True)
    return FAULT


def _opening(script: Script, engine: Engine, state: Path | str, resumed: int) -> str:
    names = {s.name for s in script.statements if isinstance(s, CreateQuery)}
    live = [q["name"] for q in engine.queries()]
    lines = [
        (
            f"{script.path}: {_count(script.count(CreateStream), 'stream')}, "
            f"{_count(len(live), 'query', 'queries')}; state in {state}"
        )
    ]
    if resumed >= 0:
        lines.append(f"Going on after step {resumed}.")
    if others := [n for n in live if n not in names]:
        what = (
            "is in the state but not in the script, and goes on" if len(others) == 1 else "are in the state, and go on"
        )
        lines.append(f"{', '.join(others)} {what}; DROP QUERY ends a query.")
    return "\n".join(lines)


def _title(statement: Statement) -> str:
    match statement:
        case CreateStream(stream):
            return f"stream {stream.name}"
        case CreateQuery():
            return f"query {statement.name}"
        case CreateSource(source):
            return f"source {source.name}"
        case CreateView():
            return f"view {statement.name}"
        case _:
            words = re.sub(r"(?<!^)([A-Z])", r" \1", type(statement).__name__).lower()
            return f"{words} {getattr(statement, 'name', None) or ''}".strip()


def _count(number: int, word: str, plural: str | None = None) -> str:
    return f"{number} {word if number == 1 else plural or word + 's'}"


def _is_console(into: object) -> bool:
    return isinstance(into, Sink) and into.format == "console"


_COMMANDS: Mapping[str, Command] = {
    "run": _run, "check": _check, "explain": _explain,
    "query add": _query_add, "query drop": _query_drop, "query resume": _query_resume, "query list": _query_list,
}  # fmt: skip
