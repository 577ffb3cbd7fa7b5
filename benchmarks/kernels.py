"""The compiled probe beside NumPy, Polars and DuckDB: the same pairs from the same sorted arrays, one thread each.

Every side returns the indices of all matching pairs (the probe also their bits). What a side can prepare once on the
state is not timed: NumPy's combined sort key, the data frames, the tables.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # read when Polars is imported

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass

import duckdb
import numpy as np
import polars as pl

from benchmarks import command, harness
from benchmarks.harness import Report, median, pair_ratio, say
from penstock.kernels.probe import Counts, Reach, probe
from penstock.state.run import Rows

Pairs = tuple[np.ndarray, np.ndarray]
MOST_CANDIDATES = 300_000_000  # rows that a side may build before its filter: more does not fit in memory


@dataclass(frozen=True)
class Case:
    """Sorted rows on both sides; a pair matches if keys are equal and -before <= state time - delta time <= after."""

    name: str
    delta: Pairs  # key, time
    state: Pairs
    before: int
    after: int

    def candidates(self) -> int:
        """Pairs with equal keys, whatever their times."""
        keys, counts = np.unique(self.state[0], return_counts=True)
        place = np.minimum(np.searchsorted(keys, self.delta[0]), len(keys) - 1)
        return int(counts[place][keys[place] == self.delta[0]].sum())


def even_case(name: str, delta: int, state: int, matches: float = 1.0) -> Case:
    """Random keys, hashed as the engine's; as many keys as give about `matches` per delta row."""
    draw = np.random.default_rng(7)
    span, reach = 100_000_000, 10_000_000
    keys = max(1, round(state * 2 * reach / span / matches))
    hashed = draw.integers(-(2**63), 2**63 - 1, keys)
    sides = [_sorted(hashed[draw.integers(0, keys, n)], draw.integers(0, span, n)) for n in (delta, state)]
    return Case(name, sides[0], sides[1], reach, reach - 1)


def hot_case(name: str, delta: int, state: int) -> Case:
    """All rows have one key; the window is narrow: about one match per row among `state` candidates."""
    draw = np.random.default_rng(11)
    span = 1_000_000_000
    sides = [_sorted(np.full(n, 42, dtype=np.int64), draw.integers(0, span, n)) for n in (delta, state)]
    half = span // state // 2
    return Case(name, sides[0], sides[1], half, half)


def _sorted(keys: np.ndarray, times: np.ndarray) -> Pairs:
    order = np.lexsort((times, keys))
    return keys[order], times[order]


# -- the sides: each prepares its state, and returns the work to be timed ---------------------------------------------


def by_probe(case: Case) -> Callable[[], Pairs]:
    bits = np.ones((len(case.delta[0]), 1), dtype=np.uint64)
    rows = Rows(*case.state, np.zeros(len(case.state[0]), dtype=np.int32), ((1,),), {})
    served = np.ones((1, 1), dtype=np.uint64)
    bounds = np.array([case.after, case.before], dtype=np.int64)
    reach = Reach(case.before, case.after, np.arange(3), bounds, np.ones((2, 1), dtype=np.uint64))

    def work() -> Pairs:
        found = list(probe(case.delta[0], case.delta[1][:, None], bits, rows, served, reach, Counts()))
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    return work


def by_numpy(case: Case) -> Callable[[], Pairs]:
    keys, times = case.state
    unique, rank = np.unique(keys, return_inverse=True)
    stride = int(max(times.max(), case.delta[1].max())) + case.before + case.after + 1
    combined = rank * stride + times

    def work() -> Pairs:
        place = np.searchsorted(unique, case.delta[0])
        known = np.flatnonzero(unique[np.minimum(place, len(unique) - 1)] == case.delta[0])
        base, time = place[known] * stride, case.delta[1][known]
        low = np.searchsorted(combined, base + np.maximum(time - case.before, 0))
        high = np.searchsorted(combined, base + time + case.after, side="right")
        counts = high - low
        total = np.cumsum(counts)
        right = np.arange(total[-1]) + np.repeat(low - (total - counts), counts)
        return np.repeat(known, counts), right

    return work


def by_polars(case: Case) -> Callable[[], Pairs]:
    delta = pl.DataFrame({"k": case.delta[0], "t": case.delta[1]}).with_row_index("i")
    state = pl.DataFrame({"k": case.state[0], "u": case.state[1]}).with_row_index("j")
    gap = pl.col("u") - pl.col("t")

    def work() -> Pairs:
        joined = delta.lazy().join(state.lazy(), on="k").filter((gap >= -case.before) & (gap <= case.after))
        found = joined.select("i", "j").collect()
        return found["i"].to_numpy(), found["j"].to_numpy()

    return work


def by_duckdb(case: Case) -> Callable[[], Pairs]:
    base = duckdb.connect(config={"threads": 1})
    for name, (key, moment) in (("delta", case.delta), ("state", case.state)):
        columns = {"i": np.arange(len(key)), "k": key, "t": moment}
        base.register("source", pl.DataFrame(columns).to_arrow())
        base.execute(f"CREATE TABLE {name} AS SELECT * FROM source")
    sql = (
        "SELECT d.i AS i, s.i AS j FROM delta d JOIN state s ON d.k = s.k "
        f"AND s.t >= d.t - {case.before} AND s.t <= d.t + {case.after}"
    )

    def work() -> Pairs:
        found = base.execute(sql).fetchnumpy()
        return found["i"], found["j"]

    return work


SIDES = {"probe": by_probe, "numpy": by_numpy, "polars": by_polars, "duckdb": by_duckdb}


# -- the benchmark ----------------------------------------------------------------------------------------------------


def fingerprint(pairs: Pairs) -> tuple[int, int]:
    """The number of pairs and an order-independent checksum."""
    left, right = (np.asarray(side).astype(np.uint64) for side in pairs)
    mixed = (left * np.uint64(0x9E3779B97F4A7C15)) ^ (right * np.uint64(0xC2B2AE3D27D4EB4F))
    return len(left), int(mixed.sum(dtype=np.uint64))


def measure(case: Case, repeats: int) -> tuple[bool, int, dict[str, list[float]]]:
    """Milliseconds of every side, taken in turns after one run that is not counted."""
    sides = {name: make for name, make in SIDES.items() if name != "polars" or case.candidates() <= MOST_CANDIDATES}
    works = {name: make(case) for name, make in sides.items()}
    prints = {name: fingerprint(work()) for name, work in works.items()}
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            started = time.perf_counter()
            work()
            times[name].append(1000 * (time.perf_counter() - started))
    say(f"  {case.name}: " + ", ".join(f"{name} {median(ms):.1f} ms" for name, ms in times.items()))
    return len(set(prints.values())) == 1, prints["probe"][0], times


def cases(scale: float, everything: bool) -> list[Case]:
    def size(rows: int) -> int:
        return max(50, round(rows * scale))

    chosen = [
        even_case("even keys", size(100_000), size(1_000_000)),
        hot_case("one hot key", size(20_000), size(50_000)),
        even_case("small delta", size(1_000), size(5_000_000)),
    ]
    if everything:
        chosen += [
            even_case("many matches", size(100_000), size(1_000_000), 20.0),
            even_case("large delta", size(1_000_000), size(1_000_000)),
            even_case("tiny delta", size(100), size(10_000_000)),
        ]
    return chosen


def measured(options: Namespace) -> Report:
    load = harness.load()
    equal, ratios, figures = True, {}, {}
    for case in cases(options.scale, options.all):
        same, matches, times = measure(case, options.repeats)
        equal &= same
        figures[case.name] = {
            "delta": len(case.delta[0]),
            "state": len(case.state[0]),
            "candidates": case.candidates(),
            "matches": matches,
            "ms": {name: round(median(ms), 3) for name, ms in times.items()},
        }
        if not ratios:  # the first case stands for the ordinary step
            ratios = {name: pair_ratio(ms, times["probe"]) for name, ms in times.items() if name != "probe"}
    return Report("kernels", equal, ratios, {**figures, "machine": harness.machine(load)})


def describe(report: Report) -> str:
    rows = []
    for name, case in report.figures.items():
        if name != "machine":
            shown = [f"{case['ms'][side]:.2f}" if side in case["ms"] else "not run" for side in SIDES]
            rows.append([name, *(f"{case[part]:,}" for part in ("delta", "state", "matches")), *shown])
    return harness.table(["case", "delta rows", "state rows", "matches", *[f"{s}, ms" for s in SIDES]], rows)


SIZES = {"scale": (1.0, "factor on all sizes"), "repeats": (7, "runs of each side")}


def main(arguments: list[str] | None = None) -> int:
    return command.run(
        "kernels", __doc__, measured, everything="more cases", sizes=SIZES, describe=describe, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
