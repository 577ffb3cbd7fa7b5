"""Generated readings as small JSON files: out of order, a few of them late, one of them invalid.

Values come from a fixed seed; times follow the clock.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

STREAMS = ("temperature", "humidity", "smoke")
LOCATIONS = 40
TICK_SECONDS = 0.5
DELAY_SECONDS = 2.0  # readings arrive up to this long after they were taken; the streams allow three seconds
LATE_SECONDS = 300.0


@dataclass(frozen=True)
class Reading:
    """One generated row, the tick that wrote it, and what it is: '' for an ordinary row, 'late' or 'bad'."""

    stream: str
    tick: int
    row: dict[str, Any]
    kind: str = ""


class Sensors(threading.Thread):
    """Writes one file per stream and tick until stopped. A fire breaks out every few seconds."""

    def __init__(self, folder: Path, seed: int = 2009) -> None:
        super().__init__(name="penstock-demo-sensors", daemon=True)
        self.folder = folder
        self.readings: list[Reading] = []
        self.read_once = threading.Event()  # only then can a row be late
        self._stop_asked = threading.Event()
        self._random = random.Random(seed)  # noqa: S311  (a story, not a secret)
        self._base = [(self._random.uniform(17, 25), self._random.uniform(38, 60)) for _ in range(LOCATIONS)]
        self._fires: list[tuple[int, int]] = []  # (tick it broke out, location)
        for stream in STREAMS:
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
            for stream in STREAMS:
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


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def micros(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)


def _write(folder: Path, tick: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """A file that appears atomically: Spark ignores names that begin with a dot."""
    hidden = folder / f".{tick:06d}.json"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    hidden.rename(folder / f"{tick:06d}.json")
