"""Figures of re-optimization: the gain of each mode over orders that are planned once, by data set, window and streams.

They repeat the experiments of Wang 2013, chapter 6, on the engine. Gains are in work, which is counted, and in seconds;
the cost of checks and plans is shown beside that of the join. No mode sees sets that no order passes through, not even
the engine's `oracle`, which plans at every check from those it has seen: the bound is that of the best fixed orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from benchmarks import charts, harness
from benchmarks.charts import Panel
from benchmarks.datasets import ZIPF, DataSet
from benchmarks.harness import Json, say
from benchmarks.reoptimize import WARM_UP

BASE = "static"
MODES = ("pop", "card", "adaptive")
WINDOWS = (5_000, 10_000, 15_000)  # rows
STREAMS = (4, 5, 6)
USUAL = 10_000  # the window where the number of streams varies
MOST = 6  # the streams where the window varies
SKEWED = 0.8  # the exponent of Zipf's law where the window varies


def cells(rows: int = 5_000, files: int = 20, scale: float = 1.0) -> dict[str, DataSet]:
    """All that is run, by name: windows at the most streams, streams at the usual window, and all exponents."""
    found = {}
    for kind in ("uni", "puni"):
        sized = {(MOST, window) for window in WINDOWS} | {(streams, USUAL) for streams in STREAMS}
        for streams, window in sorted(sized):
            found[name_of(kind, streams, window)] = DataSet(kind, streams, window, rows, files)
    for exponent, window in [(SKEWED, window) for window in WINDOWS] + [(e, USUAL) for e in ZIPF]:
        name = name_of(f"zipf {exponent}", MOST, window)
        found[name] = DataSet("zipf", MOST, window, rows, files, exponent)
    return {
        name: replace(data, window=round(data.window * scale), rows=round(rows * scale), scale=scale)
        for name, data in found.items()
    }


def name_of(kind: str, streams: int, window: int) -> str:
    return f"{kind}, {streams} streams, {window} rows"


def all_figures(
    peer: harness.Peer,
    cores: int,
    found: Json,
    asked: dict[str, DataSet] | None = None,
    modes: Sequence[str] = MODES,
    folder: Path | None = None,
) -> Json:
    """Measure every cell with every mode and draw the results; `found` is what the benchmark has measured before."""
    chosen = cells() if asked is None else asked
    shown = {name: compare(peer, cores, name, data, (BASE, *modes)) for name, data in chosen.items()}
    charts.write("reoptimize", {**found, "sets": shown}, folder)
    draw(found, shown, folder)
    return {"sets": shown}


def compare(peer: harness.Peer, cores: int, name: str, data: DataSet, modes: Sequence[str]) -> Json:
    """One data set under every mode: work, seconds, and the gain over the first mode in percent."""
    answer = data.answer()
    say(f"{name}: {data.files} steps of {data.streams * data.rows:,} rows, {answer[0]:,} results")
    job = {
        "data": asdict(data), "cores": cores, "period": data.streams * data.rows // 2, "rewarm": False,
        "warm_seconds": WARM_UP,
    }  # fmt: skip
    runs = harness.interleaved({mode: partial(peer, {**job, "orders": mode}) for mode in modes}, 1)
    shown: Json = {"equal": all(run["answer"] == answer for (run,) in runs.values()), "results": answer[0]}
    for mode, (run,) in runs.items():
        shown[mode] = {
            "work": sum(step["work"] for step in run["steps"]),
            "seconds": round(run["seconds"], 3),
            "probing_seconds": round(run["probing"], 4),
            "planning_seconds": round(run["planning"], 4),
            **run["counters"],
        }
    base = shown[modes[0]]
    for mode in modes[1:]:
        for measure in ("work", "seconds", "probing_seconds"):
            shown[mode][f"{measure}_gain"] = round(100 * (1 - shown[mode][measure] / base[measure]), 1)
    return shown


def draw(found: Json, sets: Json, folder: Path | None = None) -> None:
    draw_drift(found["drift"], folder)
    kinds = {"Uni": "uni", "pUni": "puni", f"Zipf, s = {SKEWED}": f"zipf {SKEWED}"}

    def gains(names: Sequence[str], measure: str) -> dict[str, list[float | None]]:
        return {mode: [sets.get(name, {}).get(mode, {}).get(f"{measure}_gain") for name in names] for mode in MODES}

    for measure, what in (("work", "rows looked up and composites"), ("seconds", "seconds")):
        by_window = [
            Panel(
                f"{kind}, {MOST} streams",
                "rows of a window",
                "less than planned once, %",
                [f"{w:,}" for w in WINDOWS],
                gains([name_of(prefix, MOST, w) for w in WINDOWS], measure),
                "bars",
            )
            for kind, prefix in kinds.items()
        ]
        title = f"Orders that change: gain in {what}, by window"
        charts.draw(f"reoptimize-windows-{measure}", title, "measured", by_window, folder, level=True)
        others = [
            Panel(
                f"{kind}, windows of {USUAL:,} rows",
                "streams",
                "less than planned once, %",
                [str(k) for k in STREAMS],
                gains([name_of(prefix, k, USUAL) for k in STREAMS], measure),
                "bars",
            )
            for kind, prefix in (("Uni", "uni"), ("pUni", "puni"))
        ]
        names = [name_of(f"zipf {e}", MOST, USUAL) for e in ZIPF]
        others.append(Panel(f"Zipf, {MOST} streams, {USUAL:,} rows", "exponent s", "less than planned once, %",
                            [str(e) for e in ZIPF], gains(names, measure), "bars"))  # fmt: skip
        title = f"Orders that change: gain in {what}, by streams and skew"
        charts.draw(f"reoptimize-streams-{measure}", title, "measured", others, folder, level=True)
    draw_overhead(sets, folder)


def draw_drift(drift: Json, folder: Path | None = None) -> None:
    """The work of every step while selectivities swap half way."""
    labels = {
        "rare_c_first": "fixed, best before",
        "rare_b_first": "fixed, best after",
        "adaptive": "adaptive",
        "pop": "pop",
        "card": "card",
        "static": "planned once",
        "oracle": "oracle (plans from what was seen)",
    }
    steps = len(drift["adaptive"]["work_by_step"])
    every = max(1, steps // 40)
    at = list(range(0, steps, every))
    series = {label: [drift[side]["work_by_step"][n] for n in at] for side, label in labels.items() if side in drift}
    panel = Panel(
        "Four streams; two swap their selectivity half way",
        "step",
        "rows looked up and composites",
        at,
        series,
        log="y",
    )
    charts.draw("reoptimize-drift", "Work of a step", "measured", [panel], folder)


def draw_overhead(sets: Json, folder: Path | None = None) -> None:
    """The cost of checking the orders, beside that of the join, with each mode on average."""
    modes = [mode for mode in (BASE, *MODES) if all(mode in cell for cell in sets.values())]

    def mean(mode: str, measure: str) -> float:
        return sum(cell[mode][measure] for cell in sets.values()) / len(sets)

    charts.draw(
        "reoptimize-overhead",
        "What checks and plans cost, mean of all sets",
        "measured",
        [
            Panel("Time of a run", "mode", "seconds", modes,
                  {"probing": [mean(m, "probing_seconds") for m in modes],
                   "checks and plans": [mean(m, "planning_seconds") for m in modes]}, "bars", log="y"),
            Panel("What was done", "mode", "times in a run", modes,
                  {what: [mean(m, what) for m in modes] for what in ("checks", "bypasses", "regenerations", "useful")},
                  "bars"),
        ],
        folder,
    )  # fmt: skip
