"""Keys by Zipf's law: by how much the slowest task exceeds the mean, with moving buckets and without."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.harness import Json, median, say
from benchmarks.pressure.case import Case, Outcome
from benchmarks.pressure.skewed import Skewed, job, work

EAGER = {"theta_r": 0.95, "tau_m": 1.0}  # as soon as it pays; runs are short
SIDES: dict[str, dict[str, Any]] = {
    "off": {"balance": "off"},
    "moved": {"balance": "weighted", "balance_options": {**EAGER, "split": False}},
    "split": {"balance": "weighted", "balance_options": EAGER},
}
TASKS = (2, 4)
ZIPF = 1.2


def measure(options: Namespace) -> Outcome:
    """For 2 and 4 tasks, and with `--all` for steeper distributions too."""
    figures: Json = {}
    equal = True
    for zipf in (ZIPF, *((1.0, 1.5) if options.all else ())):
        data = Skewed(zipf=zipf)
        answer = data.expected()
        for tasks in TASKS:
            say(f"Zipf {zipf}, {tasks} tasks")
            jobs = {side: job("balanced", data, tasks, options.cores, **asked) for side, asked in SIDES.items()}
            runs = harness.interleaved(jobs, options.pairs)
            equal &= all(run["answer"] == answer for own in runs.values() for run in own)
            figures[f"zipf {zipf}, {tasks} tasks"] = {side: summary(own) for side, own in runs.items()}
    of = partial(_excess, figures)
    ratio = max(of(tasks, "split") / of(tasks, "off") for tasks in TASKS)
    return Outcome(equal, {"balanced": ratio}, figures, lower=("balanced",))


def summary(runs: list[Json]) -> Json:
    """Medians of runs, and the decisions of the last one."""
    names = ("excess", "excess_of_sums", "excess_by_the_clock", "step_seconds", "task_seconds", "results")
    found = {name: round(median([run[name] for run in runs]), 4) for name in names}
    return {**found, "decisions": [d["reason"] for d in runs[-1]["decisions"]]}


def _excess(figures: Json, tasks: int, side: str) -> float:
    return float(figures[f"zipf {ZIPF}, {tasks} tasks"][side]["excess"])


CASE = Case(measure, work)
