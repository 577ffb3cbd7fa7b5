"""The summary in words: what was asked, what was found, what was late or invalid, and the state needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.cli.monitor import Status, size, streams_table
from penstock.cli.script import Script
from penstock.demo.sensors import LOCATIONS, TICK_SECONDS, Reading, micros
from penstock.model import Query, Stream
from penstock.planner.bounds import time_bounds
from penstock.reference.join import serves
from penstock.sql import CreateQuery, CreateStream, parse_query

if TYPE_CHECKING:
    from penstock.engine import Engine


@dataclass
class Peak:
    """The largest state during the run."""

    rows: int = 0
    bytes: int = 0

    def see(self, state: Mapping[str, int]) -> None:
        if state["rows"] >= self.rows:
            self.rows, self.bytes = state["rows"], state["bytes"]


def greet(console: Console, script: Script) -> None:
    streams, queries = script.count(CreateStream), script.count(CreateQuery)
    console.print("Penstock demo: fire watch", style="bold")
    console.print(
        f"{LOCATIONS} locations report temperature, humidity and smoke, late and out of order. {queries} "
        "standing queries over these "
        f"{streams} streams are answered together, from one shared state.\n"
    )


def tell(
    engine: Engine, script: Script, status: Status, readings: Sequence[Reading], peak: Peak, console: Console
) -> None:
    """The summary: what was asked, what was found, what was late or invalid, and the state needed."""
    streams = {s.stream.name: s.stream for s in script.statements if isinstance(s, CreateStream)}
    queries = [s for s in script.statements if isinstance(s, CreateQuery)]
    console.print("What was asked, and what came out", style="bold")
    for number, query in enumerate(queries, 1):
        results = status["queries"][query.name]["results"]
        console.print(Text.assemble(f"\n{number}. ", (query.name, "bold cyan"), f": {results:,} results"))
        console.print(Padding(_sentence(script, query), (0, 0, 0, 3)))
        console.print(Padding(Text(query.select, style="dim"), (0, 0, 0, 6)))
        console.print(Padding(_rows(engine.results(query.name).limit(2)), (0, 0, 0, 3)))
    console.print("\nWhat came in", style="bold", end="")
    elapsed = max(max(r.tick for r in readings) * TICK_SECONDS, TICK_SECONDS) if readings else 1.0
    console.print(streams_table(status, lambda key: status["streams"][key.partition(":")[2]]["rows"] / elapsed))
    _tell_odd(engine, status, console)
    _tell_state(streams, queries, readings, peak, console)


def _tell_odd(engine: Engine, status: Status, console: Console) -> None:
    console.print("Rows that took no part", style="bold")
    console.print(
        "A late row is older than its stream promised (three seconds behind the newest); a bad row has no "
        "readable time. "
        "They are kept aside, as Spark read them, and can be seen with engine.late(name) and engine.bad(name):"
    )
    for name, stream in status["streams"].items():
        for word, read in (("late", engine.late), ("bad", engine.bad)):
            if stream[word]:
                console.print(f"\n   engine.{word}({name!r}): {stream[word]} row{'s' * (stream[word] > 1)}")
                rows = read(name).drop("_step", "_progress").limit(2)
                console.print(Padding(_rows(rows), (0, 0, 0, 3)))


def _tell_state(
    streams: Mapping[str, Stream],
    queries: Sequence[CreateQuery],
    readings: Sequence[Reading],
    peak: Peak,
    console: Console,
) -> None:
    alone = {q.name: kept_until(parse_query(q.select, streams), streams, readings) for q in queries}
    apart = most_kept(alone.values(), readings)
    shared = most_kept([np.max(list(alone.values()), axis=0)], readings)
    console.print("\nWhat had to be kept in state, at its peak", style="bold")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for name, until in alone.items():
        table.add_row(f"{name} alone", f"{most_kept([until], readings):,} rows")
    table.add_row("each query with a state of its own", f"{apart:,} rows", "computed", style="bold")
    table.add_row("one state, each row once", f"{shared:,} rows", "computed", style="bold")
    measured = f"measured: {size(peak.bytes)}, with rows not purged yet"
    table.add_row(f"Penstock, all {len(queries)} queries", f"{peak.rows:,} rows", measured, style="bold green")
    console.print(Padding(table, (0, 0, 0, 3)))
    console.print(
        "Computed means: counted in the input, as rows that pass a query's filters and are still inside its windows.\n"
    )


def _sentence(script: Script, query: CreateQuery) -> str:
    """The comment right above the statement."""
    lines = script.text.split("\n")[: query.at.line - 1]
    found: list[str] = []
    while lines and lines[-1].startswith("--"):
        found.insert(0, lines.pop().removeprefix("--").strip())
    return " ".join(found)


def _rows(frame: Any) -> Table | Text:
    rows = frame.collect()
    if not rows:
        return Text("(no rows)")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="italic")
    for name in frame.columns:
        table.add_column(name.removeprefix("_"), overflow="fold")
    for row in rows:
        table.add_row(*(_shown(value) for value in row))
    return table


def _shown(value: object) -> str:
    return value.strftime("%H:%M:%S.%f")[:-3] if isinstance(value, datetime) else str(value)


Ticks = np.ndarray[Any, Any]


def kept_until(query: Query, streams: Mapping[str, Stream], readings: Sequence[Reading]) -> Ticks:
    """The last tick after which the query alone would still store each row; -1 for rows it never needs.

    A row is needed if it passes the query's filters and later rows may still join it. Computed from the input, for an
    engine that accepts and expires everything at every tick.
    """
    ticks = 1 + max(r.tick for r in readings)
    progress = {}
    for name, stream in streams.items():
        newest = np.full(ticks, np.iinfo(np.int64).min // 4)
        for r in readings:
            if r.stream == name and not r.kind:
                newest[r.tick] = max(newest[r.tick], micros(r.row["at"]))
        progress[name] = np.maximum.accumulate(newest) - (stream.delay or 0)
    until, bounds = np.full(len(readings), -1), time_bounds(query)
    for i, role in enumerate(query.roles):
        others = [j for j in range(len(query.roles)) if j != i]
        for number, r in enumerate(readings):
            if others and r.stream == role.stream and not r.kind and serves(query, streams, i, r.row):
                ends = [micros(r.row["at"]) + bounds[i][j] for j in others]
                last = [
                    np.searchsorted(progress[query.roles[j].stream], end, "right") - 1
                    for j, end in zip(others, ends, strict=True)
                ]
                until[number] = max(until[number], *last)
    return until


def most_kept(untils: Iterable[Ticks], readings: Sequence[Reading]) -> int:
    """The most rows stored after any tick, with each query's rows counted separately."""
    arrived = np.array([r.tick for r in readings])
    held = np.zeros(2 + int(arrived.max()), np.int64)
    for until in untils:
        kept = until >= arrived
        np.add.at(held, arrived[kept], 1)
        np.subtract.at(held, until[kept] + 1, 1)
    return int(np.cumsum(held).max())
