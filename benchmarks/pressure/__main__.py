"""What the engine does under pressure, case by case: `python -m benchmarks.pressure --json`, `--only` some of them."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from benchmarks import command, harness
from benchmarks.command import CORES
from benchmarks.harness import Report
from benchmarks.pressure.cases import CASES, work

SIZES = {
    "only": ("", "names of cases, separated by commas; all of them if empty"),
    "pairs": (1, "interleaved runs of each side"),
    **CORES,
}


def measured(options: Namespace) -> Report:
    load = harness.load()
    names = [name for name in options.only.split(",") if name] or list(CASES)
    if unknown := set(names) - CASES.keys():
        raise SystemExit(f"there is no case {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    found = {name: CASES[name].measure(options) for name in names}
    ratios = {ratio: value for outcome in found.values() for ratio, value in outcome.ratios.items()}
    lower = {ratio for outcome in found.values() for ratio in outcome.lower}
    figures = {name: {"equal": outcome.equal, **outcome.figures} for name, outcome in found.items()}
    equal = all(outcome.equal for outcome in found.values())
    return Report("pressure", equal, ratios, {**figures, "machine": harness.machine(load)}, lower)


def describe(report: Report) -> str:
    return json.dumps({name: own for name, own in report.figures.items() if name != "machine"}, indent=1)


def main(arguments: list[str] | None = None) -> int:
    return command.run(
        "pressure", __doc__, measured, everything="also the larger sizes of each case", sizes=SIZES, worker=work,
        describe=describe, arguments=arguments,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
