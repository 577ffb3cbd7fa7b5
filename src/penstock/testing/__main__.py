"""Runs scenarios: `python -m penstock.testing --seed 0 --count 200 --jobs 2` prints coverage and shrunk failures."""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

from penstock.planner.build import STRATEGIES
from penstock.testing.generate import FAULTS, scenario
from penstock.testing.queries import KINDS, OVER
from penstock.testing.runner import Story
from penstock.testing.scenario import Scenario
from penstock.testing.shrink import failure, shrunk
from penstock.testing.stores import STORES

Cells = Counter[tuple[str, str, str]]
AT_ONCE = 20  # scenarios per process at a time
MOST_SECONDS = 30  # for one scenario, which takes less than one


def on(seed: int, store: str) -> Scenario:
    """The scenario of a seed, with the state in a store of this kind."""
    found = scenario(seed)
    return replace(found, options=replace(found.options, store=store))


def tried(seeds: Iterable[int], store: str = "memory") -> tuple[Cells, dict[int, str]]:
    """The coverage of the scenarios of these seeds, and the failures by seed."""
    cells, wrong = Cells(), dict[int, str]()
    gc.collect()
    gc.freeze()  # what is imported stays, and need not be searched for garbage over and over
    for seed in seeds:
        story = Story(on(seed, store))
        try:
            story.tell()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is what is looked for)
            wrong[seed] = f"{type(error).__name__}: {error}"
        cells.update(story.cells)
    return cells, wrong


def _bounded(seed: int, store: str) -> dict[int, str]:
    """What is wrong with a scenario, which may also never end."""

    def too_long(_signal: int, _frame: object) -> None:
        raise RuntimeError(f"it takes more than {MOST_SECONDS} seconds")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(MOST_SECONDS)
    try:
        return tried([seed], store)[1]
    finally:
        signal.alarm(0)


def all_tried(seeds: Iterable[int], jobs: int, store: str = "memory") -> tuple[Cells, dict[int, str]]:
    """The same by several processes."""
    if jobs == 1:
        return tried(seeds, store)
    cells, wrong = Cells(), dict[int, str]()
    with ProcessPoolExecutor(jobs) as pool:
        known = list(seeds)
        parts = [known[start : start + AT_ONCE] for start in range(0, len(known), AT_ONCE)]
        for more, failed in pool.map(partial(tried, store=store), parts):
            cells.update(more)
            wrong |= failed
    return cells, wrong


def table(cells: Cells) -> list[str]:
    """Kind of query x fault, with the number of runs under each strategy."""
    width = max(map(len, (*KINDS, OVER)))
    lines = [f"under {', '.join(STRATEGIES)}:", f"{'':{width}} {' '.join(f'{fault:>16}' for fault in FAULTS)}"]
    for kind in (*KINDS, OVER):
        shown = ("/".join(str(cells[kind, fault, strategy]) for strategy in STRATEGIES) for fault in FAULTS)
        lines.append(f"{kind:{width}} {' '.join(f'{text:>16}' for text in shown)}")
    return lines


def empty(cells: Cells) -> list[tuple[str, str, str]]:
    """The cells that were never tried."""
    return [(k, f, s) for k in (*KINDS, OVER) for f in FAULTS for s in STRATEGIES if not cells[k, f, s]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--show", action="store_true", help="print the scenarios instead of running them")
    parser.add_argument(
        "--first", action="store_true", help="stop at the first one that is wrong, and say no more than its seed"
    )
    parser.add_argument("--store", choices=tuple(STORES), default="memory", help="where state is")
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.count)
    if asked.show:
        print(*(on(seed, asked.store) for seed in seeds), sep="\n")
        return 0
    if asked.first:
        found = next((wrong for seed in seeds if (wrong := _bounded(seed, asked.store))), None)
        print(found or f"{len(seeds)} scenarios, none is wrong")
        return 1 if found else 0
    started = time.perf_counter()
    cells, wrong = all_tried(seeds, asked.jobs, asked.store)
    print(*table(cells), sep="\n")
    print(f"{len(seeds)} scenarios in {time.perf_counter() - started:.1f} s, {len(wrong)} wrong: {list(wrong)}")
    for seed in wrong:
        small = shrunk(on(seed, asked.store))
        print(f"\n{failure(small) or wrong[seed]}\n{small}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
