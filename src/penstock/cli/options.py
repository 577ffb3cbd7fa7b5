"""The options of `penstock` on the command line, and their help."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from penstock import __version__
from penstock.errors import RegistrationError
from penstock.model.memory import read_size
from penstock.model.time import UNITS, duration
from penstock.storage.objects import is_url
from penstock.storage.place import local_path, state_path

Command = Callable[[argparse.Namespace], int]

_EXAMPLES = """\
examples:
  penstock check app.sql                            find mistakes, start nothing
  penstock run app.sql                              answer the queries until Ctrl-C; run it again to go on
  penstock run app.sql --for 60s --state /data/app  for a minute, with the state in a folder of your choice
  penstock run app.sql --available-now --final      all input that is there now, then the streams have ended
  penstock explain app.sql --query q1               how q1 shares state and work with the others
  penstock query add q2 "SELECT .." --state DIR     one more query for the engine that runs on DIR
  penstock query list --state DIR                   its queries

exit codes: 0 all is well, 1 the script, the request or the state is at fault, 2 wrong usage, 3 the run failed,
4 a request waits and has no answer yet, 5 the run ended with a query that is suspended, 130 interrupted \
before the end"""

_QUERY = """\
Add, drop, resume and list the queries of a state directory. An engine that runs on it takes a request between two steps
and answers; 'list' needs no engine."""

_QUERY_CODES = """\
examples:
  penstock query add hot "SELECT t.v FROM t WHERE t.v > 90" --state DIR --into hot
  penstock query drop hot --state DIR --purge
  penstock query list --state DIR --json

exit codes: 0 the engine has done it, 1 it was refused (the message says why), 2 wrong usage, 4 the request waits:
no engine runs on DIR and the next one takes it when it starts, or the running one did not answer in time"""

_RUN = "Answer the queries of a script until Ctrl-C. The next start goes on where this one stopped."


def parse(arguments: Sequence[str] | None, commands: Mapping[str, Command]) -> argparse.Namespace:
    """The options of one command; `commands` maps names to commands, and the chosen one is the option `command`."""
    parser = argparse.ArgumentParser(
        prog="penstock",
        description="Many standing window queries over the same live streams, answered from one shared state.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")

    run = parsers.add_parser("run", help="answer the queries of a script", description=_RUN)
    run.add_argument("script", type=Path)
    run.add_argument("--for", dest="seconds", type=_seconds, metavar="TIME", help="stop after this time, e.g. 60s, 5m")
    run.add_argument(
        "--state",
        type=_state,
        metavar="DIR",
        help="where state is kept: a folder, or s3://bucket/.. (default: penstock-state/<script>)",
    )
    run.add_argument("--available-now", action="store_true", help="stop when all input that is there now is read")
    run.add_argument("--final", action="store_true", help="then the streams have ended (with --available-now)")
    run.add_argument(
        "--trigger",
        type=_trigger,
        default="1 second",
        metavar="TIME",
        help="a step at most this often; auto: as rarely as --latency allows",
    )
    run.add_argument(
        "--latency",
        type=_length,
        default="5 seconds",
        metavar="TIME",
        help="with --trigger auto: how long a row may wait for its results",
    )
    run.add_argument("--cores", type=_positive, metavar="N", help="cores to use (default: all)")
    run.add_argument(
        "--memory",
        type=_memory,
        metavar="SIZE",
        help="what Java and the Python workers may use, e.g. 4GB (default: what a step needs)",
    )
    run.set_defaults(command=commands["run"])

    check = parsers.add_parser("check", help="find mistakes in a script, start nothing")
    check.add_argument("script", type=Path)
    check.add_argument("--no-spark", action="store_true", help="only the SQL; do not ask Spark about sources and types")
    check.set_defaults(command=commands["check"])

    explain = parsers.add_parser(
        "explain", help="show the plan that all queries of a script share, and how its views are computed"
    )
    explain.add_argument("script", type=Path)
    explain.add_argument("--query", metavar="NAME", help="only what concerns this query")
    explain.add_argument("--state", type=_state, metavar="DIR", help="with what was counted in this state so far")
    explain.set_defaults(command=commands["explain"])

    _query_options(parsers, commands)

    options = parser.parse_args(arguments)
    if getattr(options, "final", False) and not options.available_now:
        run.error("--final needs --available-now: only then is it known when the streams end")
    return options


def _query_options(
    parsers: argparse._SubParsersAction[argparse.ArgumentParser], commands: Mapping[str, Command]
) -> None:
    query = parsers.add_parser(
        "query",
        help="add, drop, resume or list queries, also while an engine runs",
        description=_QUERY,
        epilog=_QUERY_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = query.add_subparsers(required=True, metavar="ACTION")

    def action(name: str, text: str) -> argparse.ArgumentParser:
        found = actions.add_parser(
            name, help=text, epilog=_QUERY_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        found.add_argument(
            "--state", type=_state, metavar="DIR", required=True, help="where the engine keeps its state"
        )
        found.set_defaults(command=commands[f"query {name}"])
        return found

    add = action("add", "answer one more query")
    add.add_argument("name", metavar="NAME")
    add.add_argument("select", metavar="SELECT", help="the query, as one argument")
    add.add_argument(
        "--from-state", action="store_true", help="begin with the rows that are held (default: with new rows)"
    )
    add.add_argument("--replace", action="store_true", help="take the place of a query of that name")
    add.add_argument("--into", type=_into, metavar="PATH", help="a folder that gets the results as Parquet files")
    drop = action("drop", "stop answering a query")
    drop.add_argument("name", metavar="NAME")
    drop.add_argument("--purge", action="store_true", help="give up its results too")
    resume = action("resume", "let a query go on that was suspended")
    resume.add_argument("name", metavar="NAME")
    for waits in (add, drop, resume):
        waits.add_argument(
            "--timeout",
            type=_seconds,
            default=30.0,
            metavar="TIME",
            help="how long to wait for the answer (default: 30s)",
        )
    shown = action("list", "show the queries of the state directory")
    shown.add_argument("--json", action="store_true", help="one JSON object a line, for programs")


def _seconds(text: str) -> float:
    """'60s', '5m', '1 minute 30 seconds' or plain seconds."""
    short = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    words = re.sub(r"(?<=[\d\s])(ms|s|m|h|d)(?![a-z])", lambda found: f" {short[found[1]]}", text.strip().lower())
    try:
        length = duration(f"{words} seconds" if re.fullmatch(r"\d+(\.\d+)?", words) else words)
    except ValueError:
        length = -1
    if length <= 0:
        raise argparse.ArgumentTypeError(f"cannot read {text!r} as a time; write for example 60s or '5 minutes'")
    return length / UNITS["second"]


def _trigger(text: str) -> str:
    return text if text == "auto" else _length(text)


def _length(text: str) -> str:
    return f"{max(round(_seconds(text) * 1000), 1)} milliseconds"


def _state(text: str) -> Path | str:
    return text.rstrip("/") if is_url(text) else _here(state_path, text)


def _into(text: str) -> Path | str:
    if is_url(text):
        return text.rstrip("/")
    remedy = "let Spark write it, with INTO parquet OPTIONS (path '..') in a script"
    return _here(partial(local_path, what="--into", remedy=remedy), text)


def _here(place: Callable[[str], str], text: str) -> Path:
    try:
        return Path(place(text))
    except RegistrationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _memory(text: str) -> int:
    try:
        return read_size(text)
    except RegistrationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return int(text)
