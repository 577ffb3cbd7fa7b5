"""The display of a running engine: a live table in a terminal, plain lines elsewhere, a summary at the end.

Everything is drawn from `Run.status()`. Spark is not imported.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.model.time import FOREVER

if TYPE_CHECKING:
    from penstock.run import Run

Status = Mapping[str, Any]

REFRESH_SECONDS = 0.5
PLAIN_SECONDS = 5.0
RATE_SECONDS = 5.0
PLAIN_WIDTH = 100  # if the width of the output is unknown


class Rates:
    """Counts per second, from the totals so far: over the last seconds, or on average since the beginning."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, int]]] = deque()
        self._first: tuple[float, dict[str, int]] | None = None

    def add(self, status: Status, now: float) -> None:
        """Add one status; drop an old one when a newer one reaches back far enough."""
        totals = {f"stream:{name}": int(s["rows"]) for name, s in status["streams"].items()}
        totals |= {f"query:{name}": int(q["results"] or 0) for name, q in status["queries"].items()}
        self._first = self._first or (now, totals)
        self._seen.append((now, totals))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_SECONDS:
            self._seen.popleft()

    def recent(self, key: str) -> float:
        return _rate(self._seen[0], self._seen[-1], key) if self._seen else 0.0

    def average(self, key: str) -> float:
        return _rate(self._first, self._seen[-1], key) if self._first else 0.0


Rate = Callable[[str], float]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # instead of an immediate exit: a run must be stopped first


def console_for(*, stderr: bool = False) -> Console:
    """A console that prints text unchanged; outside a terminal it has a fixed width and no colours."""
    console = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and console.width == 80:
        console.width = PLAIN_WIDTH
    return console


def picture(run: Run) -> Status:
    """The run's status, with the state of each query's sink and the kind of each stream's time."""
    status, seen = run.status(), run.seen
    for name, stream in status["streams"].items():
        stream["integer"] = name in seen.streams and seen.streams[name].integer_time
    sinks = {query: sink for sink in seen.sinks for _, query in sink.queries}
    for name, query in status["queries"].items():
        sink = sinks.get(name)
        behind = status["step"] - sink.delivered if sink else 0
        if sink is None:
            query["sink"] = "-"
        elif sink.error is not None:
            query["sink"] = f"failing: {sink.error} ({_number(behind)} step{'' if behind == 1 else 's'} owed)"
        else:
            query["sink"] = "up to date" if behind <= 1 else f"{_number(behind)} steps behind"
    return status


def follow(
    run: Run,
    console: Console,
    *,
    seconds: float | None = None,
    stop: threading.Event | None = None,
    seen: Callable[[Status], object] | None = None,
    live: bool | None = None,
) -> Rates:
    """Show the run until it ends, `stop` is set, `seconds` have passed or `seen(status)` returns True.

    Raises what ended the run, if it failed. `live=False` prints plain lines in a terminal too.
    """
    rates, started = Rates(), time.monotonic()
    display = console.is_terminal if live is None else live
    spoken = started
    with Live(console=console, auto_refresh=False, transient=True) if display else _Nothing() as screen:
        while True:
            status, now = picture(run), time.monotonic()
            rates.add(status, now)
            if display:
                screen.update(screen_of(status, rates.recent, console.height), refresh=True)
            elif now - spoken >= PLAIN_SECONDS:
                spoken = now
                console.print(plain_line(status, rates.recent), soft_wrap=True)
            over = seconds is not None and now - started >= seconds
            if (seen is not None and seen(status)) or over or (stop is not None and stop.is_set()):
                return rates
            if run.await_termination(REFRESH_SECONDS):
                rates.add(picture(run), time.monotonic())
                return rates


class _Nothing:
    """Replaces the live display where there is none."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def screen_of(status: Status, rate: Rate, height: int) -> RenderableType:
    """The live picture, cut to the terminal's height."""
    room = height - len(status["streams"]) - len(status["warnings"]) - 12
    parts: list[RenderableType] = [
        streams_table(status, rate),
        queries_table(status, rate, max(room, 3)),
        Text(state_line(status)),
        *(Text(f"warning: {w}", style="yellow") for w in status["warnings"]),
    ]
    return Group(*parts)


def summary_of(status: Status, rate: Rate) -> RenderableType:
    """The same at the end, complete, with average rates."""
    return Group(
        streams_table(status, rate),
        queries_table(status, rate, len(status["queries"])),
        Text(state_line(status)),
        *(Text(f"{name}: {trouble(q)}", style="red") for name, q in status["queries"].items() if _troubled(q)),
        *(Text(f"warning: {w}", style="yellow") for w in status["warnings"]),
    )


def streams_table(status: Status, rate: Rate) -> Table:
    table = _table("stream", "rows in", "rows/s", "lag", "late", "bad", last="progress")
    for name, s in status["streams"].items():
        table.add_row(
            Text(name),
            _number(s["rows"]),
            _number(rate(f"stream:{name}")),
            age(s["lag_seconds"]),
            _warned(s["late"]),
            _warned(s["bad"]),
            Text(moment(s["progress"], integer=s["integer"]), no_wrap=True),
        )
    return table


def queries_table(status: Status, rate: Rate, limit: int) -> Table:
    """The queries as registered; if there are too many, failing ones first and then the busiest."""
    table = _table("query", "results", "results/s", "errors", last="sink")
    queries = list(status["queries"].items())
    if len(queries) > limit:
        queries.sort(key=lambda item: (not _troubled(item[1]), -(item[1]["results"] or 0)))
    for name, q in queries[:limit]:
        table.add_row(
            Text(name),
            "when read" if q["results"] is None else _number(q["results"]),
            _number(rate(f"query:{name}")),
            _warned(q["errors"]),
            Text(trouble(q), style="red" if _troubled(q) else "", no_wrap=True),
        )
    if len(queries) > limit:
        rest = queries[limit:]
        total = sum(q["results"] or 0 for _, q in rest)
        table.add_row(Text(f".. {_number(len(rest))} more", style="dim"), Text(_number(total), style="dim"))
    return table


def state_line(status: Status) -> str:
    """One line about state and the speed of steps."""
    if status["step"] < 0:
        return "waiting for the first step"
    state, spent = status["state"], sum(status["timings"].values())
    parts = [
        f"state {_number(state['rows'])} rows, {size(state['bytes'])}, {_number(state['runs'])} runs",
        f"step {_number(status['step'])}",
    ]
    if spent:
        parts.append(f"{spent * 1000:,.0f} ms per step")
    if owed := status["owed"]["rows"]:
        parts.append(f"{_number(owed)} rows owe probes, for {age(status['owed']['seconds'])}")
    return "   ".join(parts)


def plain_line(status: Status, rate: Rate) -> str:
    """The whole picture in one line, for logs."""
    streams, queries = status["streams"], status["queries"]
    rows, results = (sum(s["rows"] for s in streams.values()), sum(q["results"] or 0 for q in queries.values()))
    in_rate, out_rate = (sum(rate(f"stream:{n}") for n in streams), sum(rate(f"query:{n}") for n in queries))
    lags = [s["lag_seconds"] for s in streams.values() if s["lag_seconds"] is not None]
    parts = [
        datetime.now(UTC).strftime("%H:%M:%S"),
        f"{_number(rows)} rows in ({_number(in_rate)}/s)",
        f"{_number(results)} results ({_number(out_rate)}/s)",
        f"lag {age(max(lags, default=None))}",
        state_line(status).replace("   ", ", "),
    ]
    for word, items in (("late", streams), ("bad", streams), ("errors", queries)):
        if total := sum(item[word] for item in items.values()):
            parts.append(f"{_number(total)} {word}")
    if failing := [name for name, q in queries.items() if _troubled(q)]:
        parts.append(f"in trouble: {', '.join(failing)}")
    return "  ".join(parts)


def age(seconds: float | None) -> str:
    """A lag in readable units."""
    if seconds is None:
        return "-"
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if abs(seconds) >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.1f} s"


def size(count: int) -> str:
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}" if unit == "bytes" or amount >= 100 else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"


def moment(value: int | None, *, integer: bool) -> str:
    """A stream's progress: a time of today without its date, an integer unchanged."""
    if value is None:
        return "-"
    if value >= FOREVER:
        return "ended"
    if integer:
        return _number(value)
    try:
        at = datetime.fromtimestamp(value / 1e6, UTC)
    except (OverflowError, OSError, ValueError):
        return str(value)
    return at.strftime("%H:%M:%S" if at.date() == datetime.now(UTC).date() else "%Y-%m-%d %H:%M:%S")


def _table(first: str, *numbers: str, last: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", expand=False)
    table.add_column(first, no_wrap=True, min_width=12)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True, min_width=max(7, len(name)))
    table.add_column(last, overflow="ellipsis")  # the column that is cut if not all fit
    return table


def trouble(query: Mapping[str, Any]) -> str:
    """Why a query is suspended, or the state of its sink."""
    return f"stopped: {query['suspended']}" if query["suspended"] else str(query["sink"])


def _troubled(query: Mapping[str, Any]) -> bool:
    return bool(query["suspended"]) or str(query["sink"]).startswith("failing")


def _warned(count: int) -> Text:
    return Text(_number(count), style="yellow" if count else "")


def _number(value: float) -> str:
    return f"{value:,.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def _rate(before: tuple[float, dict[str, int]], after: tuple[float, dict[str, int]], key: str) -> float:
    seconds = after[0] - before[0]
    return (after[1].get(key, 0) - before[1].get(key, 0)) / seconds if seconds > 0 else 0.0
