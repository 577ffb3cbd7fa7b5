"""Figures of multi-way joins: orders, an index or none, intervals of steps and of expiration, more tasks.

They repeat the experiments of Golab & Ozsu 2003, chapter 6, twice: measured on the engine, and tuple at a time in the
lab, where comparisons are counted and the charts say 'simulated'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import charts, harness
from benchmarks.charts import Panel
from benchmarks.harness import Json, say
from benchmarks.multiway import Case, Sides, expected
from lab.multijoin.algorithms import Operator, effective_orders
from lab.multijoin.query import Within, equal_values
from lab.multijoin.workload import mixed
from penstock.model.time import SECOND

# Table 5: rows a second, seconds of window and distinct values of four streams, and its best and worst order.
RATES, LENGTHS, VALUES = (10, 1, 1, 3), (100, 100, 200, 100), (500, 50, 40, 5)
BEST, WORST = (0, 1, 2, 3), (3, 2, 1, 0)
MODES = ("adaptive", "static", "random", "oracle", "worst")
INTERVALS = (1.25, 2.5, 5.0, 10.0, 20.0)  # seconds of event time in a step
EXPIRATIONS = (1, 2, 4, 8, 16)  # steps
LOOPED = (5_000, 10_000, 20_000)  # rows of each stream, for the join without an index
TAUS = (1, 2, 4, 8, 16, 32, 64)  # seconds: the intervals of the lab
BUCKETS = {"no index": 1, "2 buckets": 2, "10 buckets": 10, "30 buckets": 30}


def all_figures(sides: Sides, found: Json, scale: float = 1.0, folder: Path | None = None) -> Json:
    """Measure and draw; `found` is what the benchmark has measured before, `scale` a factor on all numbers of rows."""
    say("orders, indexes and intervals")
    measured = {
        "orders": orders(sides, scale),
        "indexes": indexes(sides, scale),
        "intervals": intervals(sides, scale),
        "expirations": expirations(sides, scale),
    }
    counted = {
        "lab_orders": lab_orders(max(1.0, 20 * scale)),
        "lab_intervals": lab_intervals(max(70.0, 256 * scale)),
    }
    draw({**found, **measured}, counted, folder)
    charts.write("multiway", {**found, **measured, **counted}, folder)
    return {**measured, **counted}


# -- measured ---------------------------------------------------------------------------------------------------------


def orders(sides: Sides, scale: float) -> Json:
    """The query of Table 5 with its best and its worst order, and as each mode chooses."""
    size, files, seconds = 30 * scale, 12, 20.0
    case = Case(
        rows=tuple(max(files, round(rate * size * files * seconds)) for rate in RATES),
        keys=tuple(max(1, round(count * size)) for count in VALUES),
        lives=LENGTHS,
        files=files,
        seconds=seconds,
    )
    period = {"period": max(1, sum(case.rows) // files)}
    asked: dict[str, Json] = {
        name: {"orders": "static", "fixed": {start: order[1:] for start, order in enumerate(effective_orders(loops))}}
        for name, loops in (("best order", BEST), ("worst order", WORST))
    }
    asked |= {mode: {"orders": mode, "order_options": period} for mode in MODES}
    return {name: _run(sides, case, **options) for name, options in asked.items()}


def indexes(sides: Sides, scale: float) -> Json:
    """Equal keys found by the index, and the same pairs found by looking at all of them."""
    shown = {}
    for rows in LOOPED:
        case = Case.even(2, rows=max(40, round(rows * scale)), files=4, life=20, seconds=20.0)
        shown[f"index, {rows}"] = _run(sides, case)
        shown[f"loop, {rows}"] = _run(sides, replace(case, tie="loop"), answer=expected(case))
    return shown


def intervals(sides: Sides, scale: float) -> Json:
    """The same rows in fewer and larger steps."""
    rows, whole = max(120, round(120_000 * scale)), 80
    return {
        f"{seconds:g}": _run(sides, Case.even(3, rows=rows, files=round(whole / seconds), life=20, seconds=seconds))
        for seconds in INTERVALS
    }


def expirations(sides: Sides, scale: float) -> Json:
    """State expired at every step, or rarely."""
    case = Case.even(3, rows=max(120, round(120_000 * scale)), files=32, life=5, seconds=2.5)
    return {str(steps): _run(sides, case, expire_every=steps) for steps in EXPIRATIONS}


def _run(sides: Sides, case: Case, *, answer: list[int | str] | None = None, **options: Any) -> Json:
    answer = answer or expected(case)
    (found,) = harness.interleaved({"penstock": sides.job(case, "penstock", rewarm=False, **options)}, 1)["penstock"]
    return {
        "equal": found["answer"] == answer,
        "rows": sum(case.rows),
        "results": answer[0],
        "rows_per_second": round(found["rate"]),
        "step_ms": round(found["step_ms"]),
        "most_state_rows": max(step["state_rows"] for step in found["steps"]),
        "work": found["work"],
    }


# -- simulated --------------------------------------------------------------------------------------------------------


def lab_orders(seconds: float) -> Json:
    """Comparisons for each arrival of Table 5's query: each kind of join, with and without an index, in both orders."""
    shown: Json = {}
    for kind, every in (("eager", 0), ("every 5 s", 5), ("every 10 s", 10)):
        for index, buckets in (("no index", 1), ("5 buckets", 5)):
            runs = {
                name: simulate(RATES, LENGTHS, VALUES, loops, every, buckets, seconds)
                for name, loops in (("best", BEST), ("worst", WORST))
            }
            same = runs["best"].pop("results") == runs["worst"].pop("results")
            shown[f"{kind}, {index}"] = {"equal": same, **runs}
    return shown


def lab_intervals(seconds: float) -> Json:
    """Comparisons for each arrival of four streams alike, by interval and number of buckets (Figure 4a)."""
    alike = (1,) * 4, (100,) * 4, (50,) * 4
    shown: Json = {}
    for tau in TAUS:
        runs = {name: simulate(*alike, (0, 1, 2, 3), tau, count, seconds) for name, count in BUCKETS.items()}
        results = {run.pop("results") for run in runs.values()}
        shown[str(tau)] = {"equal": len(results) == 1, **runs}
    return shown


def simulate(
    rates: Sequence[int],
    lengths: Sequence[int],
    values: Sequence[int],
    loops: tuple[int, ...],
    every: int,
    buckets: int,
    seconds: float,
) -> Json:
    """One join of the lab on full windows: what it compared for each arrival, and how many results it found."""
    query = equal_values(*(Within(length * SECOND) for length in lengths))
    interval = every * SECOND
    join = Operator(
        query, effective_orders(loops), every=interval, expire_every=interval, buckets=(buckets,) * len(rates)
    )
    arrivals = mixed(rates, values, max(lengths) + seconds, seed=1)
    filling = [x for x in arrivals if x.time <= max(lengths) * SECOND]
    join.fill(filling)
    results = len(join.run(arrivals[len(filling) :]))
    arrived = len(arrivals) - len(filling)
    return {"comparisons_per_row": round(join.counts.comparisons / arrived, 2), "results": results}


# -- the charts -------------------------------------------------------------------------------------------------------


def draw(found: Json, counted: Json, folder: Path | None = None) -> None:
    draw_ways(found, folder)
    of_modes = found["orders"]
    names = list(of_modes)
    charts.draw(
        "multiway-orders",
        "Probe orders of four unlike streams",
        "measured",
        [
            Panel("Work", "order, or mode (oracle: by what was seen)", "candidates compared a row", names,
                  {"work": [of_modes[n]["work"]["candidates"] / of_modes[n]["rows"] for n in names]}, "bars"),
            Panel("Rate", "order, or mode that chooses it", "input rows per second", names,
                  {"rate": [of_modes[n]["rows_per_second"] for n in names]}, "bars"),
        ],
        folder,
    )  # fmt: skip
    looped = {side: [found["indexes"][f"{side}, {rows}"] for rows in LOOPED] for side in ("index", "loop")}
    tasks = found["theta"]["seconds_by_tasks"]
    charts.draw(
        "multiway-loops",
        "Joins of two streams with and without an index",
        "measured",
        [
            Panel(
                "Equal keys",
                "rows of each stream",
                "input rows per second",
                [r["rows"] // 2 for r in looped["index"]],
                {
                    "by index": [r["rows_per_second"] for r in looped["index"]],
                    "by looking at all pairs": [r["rows_per_second"] for r in looped["loop"]],
                },
                log="xy",
            ),
            Panel("No equality, all pairs", "tasks", "seconds", list(tasks), {"seconds": list(tasks.values())}, "bars"),
        ],
        folder,
    )
    steps, rare = found["intervals"], found["expirations"]
    charts.draw(
        "multiway-intervals",
        "Intervals of steps and of expiration, three streams",
        "measured",
        [
            Panel("Rate", "event time in a step, s", "input rows per second", INTERVALS,
                  {"rate": [steps[f"{s:g}"]["rows_per_second"] for s in INTERVALS]}, log="x"),
            Panel("Time of a step", "event time in a step, s", "ms", INTERVALS,
                  {"step": [steps[f"{s:g}"]["step_ms"] for s in INTERVALS]}, log="x"),
            Panel("State, dropped every n steps", "steps between expirations", "most rows held", EXPIRATIONS,
                  {"rows": [rare[str(s)]["most_state_rows"] for s in EXPIRATIONS]}, log="x"),
            Panel("Rate, dropped every n steps", "steps between expirations", "input rows per second", EXPIRATIONS,
                  {"rate": [rare[str(s)]["rows_per_second"] for s in EXPIRATIONS]}, log="x"),
        ],
        folder,
    )  # fmt: skip
    draw_lab(counted, folder)


def draw_ways(found: Json, folder: Path | None = None) -> None:
    ways = [way for way in found if way.endswith("way")]
    sides = {"Penstock": "penstock", "Spark's chained joins": "native"}
    held = {name: [found[way][side]["state_rows"] for way in ways] for name, side in sides.items()}
    labels = [way.removesuffix("way") for way in ways]
    charts.draw(
        "multiway-beside-spark",
        "Joins of several streams on one key",
        "measured",
        [
            Panel("Rate", "streams", "input rows per second", labels,
                  {name: [found[way][side]["rows_per_second"] for way in ways] for name, side in sides.items()},
                  "bars"),
            Panel("State at the end", "streams", "rows", labels, held, "bars"),
        ],
        folder,
    )  # fmt: skip


def draw_lab(counted: Json, folder: Path | None = None) -> None:
    kinds, by_tau = counted["lab_orders"], counted["lab_intervals"]
    when = list(dict.fromkeys(name.split(", ")[0] for name in kinds))
    charts.draw(
        "multiway-lab",
        "Joins of four streams, tuple at a time",
        "simulated",
        [
            Panel("Four unlike streams", "evaluation", "comparisons per arrival", when,
                  {f"{order}, {index}": [kinds[f"{kind}, {index}"][order]["comparisons_per_row"] for kind in when]
                   for index in ("no index", "5 buckets") for order in ("worst", "best")}, "bars", log="y"),
            Panel("Four streams alike", "interval of evaluation, s", "comparisons per arrival", TAUS,
                  {name: [by_tau[str(tau)][name]["comparisons_per_row"] for tau in TAUS] for name in BUCKETS},
                  log="xy"),
        ],
        folder,
    )  # fmt: skip
