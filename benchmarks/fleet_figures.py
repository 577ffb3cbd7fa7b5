"""Figures of a fleet: the time of a step by the number of queries and by its size, and its parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import charts, nexmark
from benchmarks.charts import Panel
from benchmarks.fleet import SECONDS_PER_STEP, Case
from benchmarks.harness import Json

NUMBERS = (1, 2, 5, 10, 21, 40)
NATIVE = (1, 5)  # numbers of queries that Spark runs side by side; 17 are in the ratios
EVENTS = (20_000, 100_000, 500_000)


def all_figures(
    step: int, few: int, many: int, cores: int, folder: Path | None = None, *, numbers: Sequence[int] = NUMBERS,
    native: Sequence[int] = NATIVE, events: Sequence[int] = EVENTS,
) -> Json:  # fmt: skip
    known = nexmark.queries()
    both = tuple(name for name, query in known.items() if query.native)
    found: Json = {"numbers": {}, "sizes": {}}
    for count in numbers:
        names = fleet_of(count)
        sides = {"penstock": names, "duckdb": names, **({"spark": both[:count]} if count in native else {})}
        cell = {side: Case(side, own, step, few, many, cores).measure() for side, own in sides.items()}
        found["numbers"][str(count)] = {"equal": all(side["equal"] for side in cell.values()), **cell}
    for size in events:
        seconds = max(1, SECONDS_PER_STEP * size // step)
        cell = {side: Case(side, both, size, few, many, cores, seconds).measure() for side in ("penstock", "duckdb")}
        found["sizes"][str(size)] = {"equal": all(side["equal"] for side in cell.values()), **cell}
    charts.write("fleet", found, folder)
    draw(found, folder)
    return found


def fleet_of(count: int) -> tuple[str, ...]:
    """So many queries: all there are, then the first ones again."""
    names = tuple(nexmark.queries())
    return tuple(
        name if turn == 0 else f"{name}_{turn + 1}" for turn in range(-(-count // len(names))) for name in names
    )[:count]


def draw(found: Json, folder: Path | None = None) -> None:
    panels = []
    for picture, title, x in (
        ("numbers", "By number", "queries"),
        ("sizes", "By size, 17 queries", "events of a step"),
    ):
        cells = found[picture]
        sides = [s for s in ("penstock", "duckdb", "spark") if any(s in cell for cell in cells.values())]
        series = {s: [cell[s]["step_seconds"] if s in cell else None for cell in cells.values()] for s in sides}
        panels.append(Panel(title, x, "seconds of a step", [int(at) for at in cells], series, log="xy"))
    charts.draw("fleet-steps", "Different queries: the time of a step", "measured", panels, folder)
    largest = list(found["numbers"].values())[-1]["penstock"]["phases"]
    bars = [
        Panel(f"{kind} (all processes)", "phase", "seconds", list(own), {"seconds": list(own.values())}, kind="bars")
        for kind, own in largest.items()
        if own
    ]
    charts.draw("fleet-phases", "Different queries: where the last step's time goes", "measured", bars, folder)
