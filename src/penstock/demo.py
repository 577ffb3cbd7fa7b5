"""A minute of fire watch: generated sensors, seven queries over them, and a summary anyone can read.

`python -m penstock.demo` needs nothing but Java. The streams and queries are those of `demo.sql`; the readings are
made here, in this process, as small JSON files in a temporary folder. Values come from a fixed seed; times follow the clock.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.errors import PenstockError
from penstock.launch import SPARK_LOG, Interrupts, brief, busy, start_spark
from penstock.live import Status, console_for, follow, picture, size, streams_table
from penstock.model import Query, Stream
from penstock.planner.bounds import time_bounds
from penstock.reference.join import serves
from penstock.script import Script, load, register
from penstock.sql import CreateQuery, CreateStream, parse_query

if TYPE_CHECKING:
    from penstock.engine import Engine

LOCATIONS = 40
TICK_SECONDS = 0.5
DELAY_SECONDS = 2.0  # readings arrive up to so long after they were taken; the streams allow three seconds
LATE_SECONDS = 300.0
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Reading:
    """One generated row, the tick that wrote it, and what it is: '' for an ordinary row, 'late' or 'bad'."""

    stream: str
    tick: int
    row: dict[str, Any]
    kind: str = ""


class Sensors(threading.Thread):
    """Writes one file per stream and tick until told to stop. A fire breaks out every few seconds."""

    def __init__(self, folder: Path, seed: int = 2009) -> None:
        super().__init__(name="penstock-demo-sensors", daemon=True)
        self.folder = folder
        self.readings: list[Reading] = []
        self.read_once = threading.Event()  # only then can a row be late
        self._stop_asked = threading.Event()
        self._random = random.Random(seed)  # noqa: S311  (a story, not a secret)
        self._base = [(self._random.uniform(17, 25), self._random.uniform(38, 60)) for _ in range(LOCATIONS)]
        self._fires: list[tuple[int, int]] = []  # (tick it broke out, location)
        for stream in ("temperature", "humidity", "smoke"):
            (folder / stream).mkdir(parents=True)

    def run(self) -> None:
        oddities = iter(("late temperature", "late temperature", "bad humidity", "late humidity"))
        tick = 0
        while not self._stop_asked.wait(TICK_SECONDS if tick else 0):
            made = list(self._tick(tick))
            if self.read_once.is_set() and tick % 2 == 0:
                kind, _, stream = next(oddities, "").partition(" ")
                if kind:
                    made.append(self._odd(stream, tick, kind))
            for stream in ("temperature", "humidity", "smoke"):
                _write(self.folder / stream, tick, [r.row for r in made if r.stream == stream])
            self.readings += made
            tick += 1

    def finish(self) -> None:
        self._stop_asked.set()
        self.join()

    def _tick(self, tick: int) -> Iterable[Reading]:
        if tick % 14 == 2:
            self._fires.append((tick, self._random.randrange(LOCATIONS)))
        burning = {location: tick - start for start, location in self._fires if tick - start < 16}
        for location, (warmth, moisture) in enumerate(self._base):
            age = burning.get(location)
            heat = self._random.gauss(0, 0.8) + (0 if age is None else 12 + 4 * age)
            loss = self._random.gauss(0, 2) + (0 if age is None else 5 * age)
            yield self._reading("temperature", tick, location, value=round(warmth + heat, 1))
            yield self._reading("humidity", tick, location, value=round(max(moisture - loss, 5), 1))
        yield self._reading(
            "smoke", tick, self._random.randrange(LOCATIONS), density=round(self._random.uniform(0, 0.2), 2)
        )
        for location, age in burning.items():
            yield self._reading("smoke", tick, location, density=round(0.2 + 0.05 * age, 2))

    def _reading(self, stream: str, tick: int, location: int, **value: float) -> Reading:
        at = _text(time.time() - self._random.uniform(0, DELAY_SECONDS))
        return Reading(stream, tick, {"sensor": f"{stream[0]}-{location:02d}", "location": location, "at": at, **value})

    def _odd(self, stream: str, tick: int, kind: str) -> Reading:
        at = _text(time.time() - LATE_SECONDS) if kind == "late" else "yesterday, about noon"
        location = self._random.randrange(LOCATIONS)
        row = {"sensor": f"{stream[0]}-{location:02d}", "location": location, "at": at, "value": 20.0}
        return Reading(stream, tick, row, kind)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.demo", description="Watch Penstock at work for a minute.")
    parser.add_argument("--seconds", type=float, default=45.0, help="how long to watch after the first step (45)")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the input, the script and the state")
    options = parser.parse_args(arguments)
    console, folder = console_for(), Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        with Interrupts() as interrupts:
            _demo(folder, options.seconds, console, interrupts)
    except KeyboardInterrupt:
        console.print("Interrupted.")
        return 130
    except PenstockError as error:
        console_for(stderr=True).print(f"error: {error}", soft_wrap=True)
        return 1
    finally:
        if options.keep:
            console.print(f"Kept: {folder} (input/, sensors.sql, state/)", soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _demo(folder: Path, seconds: float, console: Console, interrupts: Interrupts) -> None:
    path = folder / "sensors.sql"
    text = resources.files("penstock").joinpath("demo.sql").read_text(encoding="utf-8")
    path.write_text(text.replace("'input/", f"'{folder}/input/"), encoding="utf-8")
    script = load(path)
    _greet(console, script)
    sensors = Sensors(folder / "input")
    engine = start_spark(folder / "state", None, console, folder / SPARK_LOG)
    try:
        with busy(console, "Registering streams and queries .."):
            list(register(engine, script))
        sensors.start()
        run = engine.start("1 second")
        interrupts.gentle()
        peak = _Peak()
        try:
            follow(run, console, seen=_until_read(sensors, seconds, interrupts.asked, peak))
            run.stop()
        except Exception as error:
            raise PenstockError(f"the run failed: {brief(error)}") from error
        _tell(engine, script, picture(run), sensors.readings, peak, console)
    finally:
        sensors.finish() if sensors.is_alive() else None
        engine.spark.stop()


@dataclass
class _Peak:
    """The most state that was seen during the run."""

    rows: int = 0
    bytes: int = 0

    def see(self, state: Mapping[str, int]) -> None:
        if state["rows"] >= self.rows:
            self.rows, self.bytes = state["rows"], state["bytes"]


def _until_read(sensors: Sensors, seconds: float, asked: threading.Event, peak: _Peak) -> Callable[[Status], bool]:
    """True once the time is over (or Ctrl-C was pressed), the sensors are silent, and all they wrote is read."""
    ends: list[float] = []  # when to silence the sensors, then when to lose patience

    def seen(status: Status) -> bool:
        now, read = time.monotonic(), sum(s["rows"] for s in status["streams"].values())
        peak.see(status["state"])
        if read and not ends:
            sensors.read_once.set()
            ends.append(now + seconds)
        if len(ends) < 2 and ((ends and now >= ends[0]) or asked.is_set()):
            sensors.finish()
            ends[:] = [now, now + PATIENCE_SECONDS]
        return len(ends) == 2 and (read >= len(sensors.readings) or now >= ends[1])

    return seen


# -- what one query alone would keep ----------------------------------------------------------------------------


def kept_alone(query: Query, streams: Mapping[str, Stream], readings: Sequence[Reading]) -> np.ndarray[Any, Any]:
    """Rows that the query alone would hold after each tick: those that pass its filters and may still find partners.

    Computed from the input, for an engine that takes in and purges everything at every tick.
    """
    ticks = 1 + max(r.tick for r in readings)
    accepted = [r for r in readings if not r.kind]
    progress = {}
    for name, stream in streams.items():
        newest = np.full(ticks, np.iinfo(np.int64).min // 4)
        for r in accepted:
            if r.stream == name:
                newest[r.tick] = max(newest[r.tick], _micros(r.row["at"]))
        progress[name] = np.maximum.accumulate(newest) - stream.delay
    held, bounds = np.zeros(ticks, np.int64), time_bounds(query)
    for i, role in enumerate(query.roles):
        rows = [r for r in accepted if r.stream == role.stream and serves(query, streams, i, r.row)]
        arrived = np.array([r.tick for r in rows], np.int64)
        times = np.array([_micros(r.row["at"]) for r in rows], np.int64)
        others = [j for j in range(len(query.roles)) if j != i]
        for tick in range(ticks if others else 0):
            needed = [progress[query.roles[j].stream][tick] <= times + bounds[i][j] for j in others]
            held[tick] += int(np.count_nonzero((arrived <= tick) & np.logical_or.reduce(needed)))
    return held


# -- words ------------------------------------------------------------------------------------------------------


def _greet(console: Console, script: Script) -> None:
    streams, queries = script.count(CreateStream), script.count(CreateQuery)
    console.print("Penstock demo: fire watch", style="bold")
    console.print(
        f"{LOCATIONS} locations report temperature, humidity and smoke, late and out of order. {queries} standing queries over these "
        f"{streams} streams are answered together, from one shared state.\n"
    )


def _tell(
    engine: Engine, script: Script, status: Status, readings: Sequence[Reading], peak: _Peak, console: Console
) -> None:
    """The summary: what was asked, what came out, what was late or bad, what was kept."""
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
        "A late row is older than its stream promised (three seconds behind the newest); a bad row has no readable time. "
        "They are kept aside, whole, and can be read with engine.late(name) and engine.bad(name):"
    )
    for name, stream in status["streams"].items():
        for word, read in (("late", engine.late), ("bad", engine.bad)):
            if stream[word]:
                console.print(f"\n   engine.{word}({name!r}): {stream[word]} rows")
                rows = read(name).drop("_step", "_progress").limit(2)
                console.print(Padding(_rows(rows), (0, 0, 0, 3)))


def _tell_state(
    streams: Mapping[str, Stream],
    queries: Sequence[CreateQuery],
    readings: Sequence[Reading],
    peak: _Peak,
    console: Console,
) -> None:
    alone = {q.name: kept_alone(parse_query(q.select, streams), streams, readings) for q in queries}
    together = int(np.sum(list(alone.values()), axis=0).max())
    console.print("\nWhat had to be kept in state, at its peak", style="bold")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, held in alone.items():
        table.add_row(f"{name} alone", f"{int(held.max()):,} rows")
    table.add_row("one engine for each query, together", f"{together:,} rows", style="bold")
    table.add_row(
        f"Penstock, all {len(queries)} queries", f"{peak.rows:,} rows ({size(peak.bytes)})", style="bold green"
    )
    console.print(Padding(table, (0, 0, 0, 3)))
    console.print(
        "The figures for single queries are computed from the input (rows that pass the query's filters and are still inside its "
        "windows); Penstock's own is measured, with rows it had not purged yet.\n"
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


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _micros(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)


def _write(folder: Path, tick: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """A file that appears whole: Spark does not look at names that begin with a dot."""
    hidden = folder / f".{tick:06d}.json"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    hidden.rename(folder / f"{tick:06d}.json")


if __name__ == "__main__":
    sys.exit(main())
