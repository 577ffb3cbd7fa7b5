"""One key with 30 % of the rows of one stream: the time of a step beside that with uniform keys."""

from __future__ import annotations

from argparse import Namespace

from benchmarks import harness
from benchmarks.harness import Json, median, say
from benchmarks.pressure.balanced import EAGER, SIDES, TASKS, summary
from benchmarks.pressure.case import Case, Outcome
from benchmarks.pressure.skewed import Skewed, job, work

HOT = 0.3


def measure(options: Namespace) -> Outcome:
    """For 2 and 4 tasks; `hot_key` is the larger ratio."""
    uniform, hot = Skewed(), Skewed(hot=HOT)
    figures: Json = {}
    equal, ratios = True, []
    for tasks in TASKS:
        say(f"one key with {HOT:.0%} of a stream, {tasks} tasks")
        even = {"balance": "weighted", "balance_options": EAGER}
        jobs = {"uniform": job("hot_key", uniform, tasks, options.cores, **even)}
        jobs |= {side: job("hot_key", hot, tasks, options.cores, **asked) for side, asked in SIDES.items()}
        runs = harness.interleaved(jobs, options.pairs)
        answers = {"uniform": uniform.expected()}
        equal &= all(r["answer"] == answers.get(side, hot.expected()) for side, own in runs.items() for r in own)
        figures[f"{tasks} tasks"] = {side: summary(own) for side, own in runs.items()}
        ratios.append(
            harness.pair_ratio([r["step_seconds"] for r in runs["split"]], [r["step_seconds"] for r in runs["uniform"]])
        )
    figures["ratios"] = dict(zip(map(str, TASKS), ratios, strict=True))
    figures["median"] = median(ratios)
    return Outcome(equal, {"hot_key": max(ratios)}, figures, lower=("hot_key",))


CASE = Case(measure, work)
