"""The command line of every measurement: its options, the other end of its worker processes, and the JSON line.

A benchmark declares its sizes and how it measures; it parses nothing itself.
"""

from __future__ import annotations

import argparse
import json
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence

from benchmarks import harness
from benchmarks.harness import Json, Report

PAIRS = {"pairs": (3, "interleaved pairs of runs")}
CORES = {"cores": (2, "cores of the Spark session")}
Sizes = Mapping[str, tuple[float, str]]  # name -> its default, and what it is


def run(
    name: str,
    text: str | None,
    measure: Callable[[Namespace], Report],
    *,
    everything: str,
    sizes: Sizes,
    worker: Callable[[Json], Json] | None = None,
    describe: Callable[[Report], str] | None = None,
    arguments: Sequence[str] | None = None,
) -> int:
    """`python -m benchmarks.<name>`: the exit code says whether all results were equal.

    `--json` prints only the line; `--all` also measures what `everything` says. With `--serve` and `--worker` the
    process is one that the benchmark itself has started.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=text)
    parser.add_argument("--json", action="store_true", help="only the JSON line, without tables")
    parser.add_argument("--all", action="store_true", help=everything)
    for size, (default, meaning) in sizes.items():
        shown = f"{meaning} (default: %(default)s)"
        parser.add_argument(f"--{size}", type=type(default), default=default, help=shown)
    if worker is not None:
        parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
        parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if worker is not None and options.serve:
        harness.serve(worker)
        return 0
    if worker is not None and options.worker is not None:
        print(json.dumps(worker(options.worker)))
        return 0
    report = measure(options)
    if describe is not None and not options.json:
        print(describe(report))
    return harness.finish(report)
