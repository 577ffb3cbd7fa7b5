"""Adaptive probe orders beside fixed ones, on streams whose selectivities swap half way, and on steady ones.

Four streams are joined on one key. One of them has many rows of each key, another nearly none, and in the second half
they swap. The best fixed order of each half is the worst of the other. Work is counted: rows looked up, composites
made.
"""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import command, harness
from benchmarks.command import CORES, PAIRS
from benchmarks.datasets import DataSet
from benchmarks.harness import EPOCH, Json, Report, median, say

NAMES = ("a", "b", "c", "d")
DELAY = 1  # seconds
# First steps, left out on every side: nothing has been counted yet, while fixed orders know all from the start. The
# ratios of work with these steps are reported beside.
SETTLED = 5
WARM_UP = 15  # seconds


@dataclass(frozen=True)
class Case:
    """Files of one step each; a window of `life` seconds, and a second of event time in each file."""

    rows: int  # per stream and file
    files: int
    life: int = 4
    many: float = 60.0  # rows of a key in the window of a stream that has many
    some: float = 4.0
    few: float = 0.02
    drifts: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES

    @property
    def keys(self) -> int:
        return max(1, round(self.rows * self.life / self.many))

    def share(self, name: str, number: int) -> float:
        """The share of a stream's keys that the other streams have too."""
        rare = "b" if self.swapped(number) else "c"
        rows = {rare: self.few, "d": self.some}
        return rows.get(name, self.many) / self.many

    def swapped(self, number: int) -> bool:
        return self.drifts and number >= self.files // 2

    def inputs(self, seed: int = 1, files: int | None = None) -> Path:
        count = files or self.files

        def make(folder: Path) -> None:
            for offset, name in enumerate(NAMES):
                draw = np.random.default_rng(seed + offset)
                (folder / name).mkdir(parents=True)
                for number in range(count):
                    shared = draw.random(self.rows) < self.share(name, number)
                    key = draw.integers(0, self.keys, self.rows)
                    own = self.keys * (2 + offset)
                    # The halves are a window apart: together they would make results by the million.
                    second = number + (self.life + DELAY + 1) * self.swapped(number)
                    micros = ((second + draw.random(self.rows)) * 1_000_000).astype(np.int64)
                    columns = {
                        "id": pa.array(np.arange(self.rows, dtype=np.int64) + number * self.rows),
                        "k": pa.array(np.where(shared, key, key + own)),
                        "ts": pa.array(EPOCH + micros).cast(pa.timestamp("us", tz="UTC")),
                        "v": pa.array(draw.random(self.rows)),
                        "n": pa.array(draw.integers(0, 1000, self.rows, dtype=np.int32)),
                    }
                    path = folder / name / f"{number:05d}.parquet"
                    pq.write_table(pa.table(columns), path)
                    os.utime(path, (1_700_000_000 + number,) * 2)

        return harness.cached("drift", {**self.__dict__, "seed": seed, "files": count}, make)

    @property
    def sql(self) -> str:
        select = ", ".join(f"{n}.id AS {n}_id" for n in NAMES)
        roles = ", ".join(f"{n} [RANGE {self.life} SECONDS]" for n in NAMES)
        return f"SELECT {select} FROM {roles} WHERE " + " AND ".join(f"a.k = {n}.k" for n in NAMES[1:])

    def answer(self) -> list[int | str]:
        """DuckDB's own, kept beside the files."""
        inputs = self.inputs()
        kept = inputs / f"answer-{self.life}.json"
        if not kept.is_file():
            select = ", ".join(f"{n}.id AS {n}_id" for n in NAMES)
            tables = ", ".join(f"'{inputs}/{n}/*.parquet' {n}" for n in NAMES)
            near = [
                f"epoch_us({y}.ts) - epoch_us({x}.ts) < {self.life * 1_000_000}" for x in NAMES for y in NAMES if x != y
            ]
            where = " AND ".join([*(f"a.k = {n}.k" for n in NAMES[1:]), *near])
            kept.write_text(json.dumps(self.fingerprint(f"SELECT {select} FROM {tables} WHERE {where}")))
        found: list[int | str] = json.loads(kept.read_text())
        return found

    def fingerprint(self, relation: str) -> list[int | str]:
        """The number of rows and an order-independent checksum."""
        values = ", ".join(f"{name}_id" for name in NAMES)
        sql = f"SELECT count(*), coalesce(sum((hash({values}) % 2305843009213693951)::HUGEINT), 0) FROM ({relation})"
        count, total = duckdb.connect().execute(sql).fetchone()
        return [int(count), str(total)]


# Positions are those of the streams' names. The stream that has few rows comes first, those that have many come last.
RARE_C = {0: (2, 3, 1), 1: (2, 3, 0), 2: (3, 0, 1), 3: (2, 0, 1)}
RARE_B = {0: (1, 3, 2), 1: (3, 0, 2), 2: (1, 3, 0), 3: (1, 0, 2)}
FIXED = {"rare_c_first": RARE_C, "rare_b_first": RARE_B}


def run(spark, folder: Path, inputs: Path, case: Case | DataSet, orders: str, period: int) -> tuple[Json, str]:
    from penstock import Engine
    from penstock.step.stepper import Stepper

    mode = "static" if orders in FIXED else orders
    options = {"period": 2**62 if orders in FIXED else period}
    engine = Engine(spark, folder / "state", durable=False, orders=mode, order_options=options)
    if orders in FIXED:
        harness.force_orders(engine, FIXED[orders])
    for name in case.names:
        engine.stream(name, harness.read_stream(spark, inputs / name), event_time="ts", delay=f"{DELAY} seconds")
    query = engine.query(case.sql, name="j")
    steps: list[Json] = []
    original = Stepper.run_batch

    def run_batch(self: Any, batch: Any, batch_id: int) -> None:
        started = time.perf_counter()
        original(self, batch, batch_id)
        probed = sum(t.probed for r in self.last_reports for t in r.counters.tables.values())
        made = sum(
            rows
            for report in self.last_reports
            for join in report.counters.joins.values()
            for found in join.flows.values()
            for positions, rows in found.items()
            if positions.bit_count() > 1
        )
        probing = max((r.phases.get("probe", 0.0) for r in self.last_reports), default=0.0)
        steps.append(
            {
                "seconds": time.perf_counter() - started,
                "work": probed + made,
                "planning": self.optimizer.planning,
                "probing": probing,
            }
        )

    Stepper.run_batch = run_batch  # type: ignore[method-assign]
    try:
        found = harness.run_engine(engine)
    finally:
        Stepper.run_batch = original  # type: ignore[method-assign]
    decisions = engine.decisions()
    changed = [d["step"] for d in decisions if any(o["order"] != o["previous"] for o in d["outcomes"])]
    query.results().write.parquet(str(folder / "results"))
    counters = [state.counters for state in engine.manifest().orders.values()]
    counted = {
        name: sum(getattr(c, name) for c in counters) for name in ("checks", "bypasses", "regenerations", "useful")
    }
    return {**found, "steps": steps, "counters": counted, "changes": changed}, str(folder / "results")


def worker(job: Json) -> Json:
    """One measured run. A new process warms up first; later only idle Python workers."""
    with harness.scratch() as folder:
        case = DataSet(**job["data"]) if "data" in job else Case(**job["case"])
        first, started = SparkSession.getActiveSession() is None, time.monotonic()
        spark = harness.session(job["cores"])
        go = partial(run, spark, case=case, orders=job["orders"], period=job["period"])
        warm = case.inputs(seed=101, files=6)
        if first or job["rewarm"]:
            go(folder / "warm-up", warm)
        while first and time.monotonic() - started < job["warm_seconds"]:
            go(folder / f"warm-up-{time.monotonic()}", warm)
        found, output = go(folder / "measured", case.inputs())
        half = len(found["steps"]) // 2
        whole = [found["steps"][:half], found["steps"][half:]]
        halves = [whole[0][SETTLED:], whole[1]]
        return {
            **found,
            "answer": case.fingerprint(f"SELECT * FROM '{output}/*.parquet'"),
            "work": [sum(s["work"] for s in of_half) for of_half in halves],
            "work_of_all_steps": [sum(s["work"] for s in of_half) for of_half in whole],
            "times": [sum(s["seconds"] for s in of_half) for of_half in halves],
            "planning": sum(s["planning"] for s in found["steps"]),
            "probing": sum(s["probing"] for s in found["steps"]),
            "says": f"{found['seconds']:6.1f} s, work {sum(s['work'] for s in found['steps']):>12,}, "
            f"changed at {found['changes']}",
        }


def compare(case: Case, sides: list[str], pairs: int, cores: int, peer: harness.Peer, period: int) -> tuple[bool, Json]:
    answer = case.answer()
    say(
        f"{'drifting' if case.drifts else 'steady'}: {case.files} steps of {4 * case.rows:,} rows, "
        f"{answer[0]:,} results"
    )
    job = {"case": case.__dict__, "cores": cores, "period": period, "rewarm": True, "warm_seconds": WARM_UP}
    found = harness.interleaved({side: partial(peer, {**job, "orders": side}) for side in sides}, pairs)
    shown = {
        side: {
            **{
                work: [round(median([r[work][half] for r in runs])) for half in (0, 1)]
                for work in ("work", "work_of_all_steps")
            },
            "seconds": [round(median([r["times"][half] for r in runs]), 2) for half in (0, 1)],
            "total_seconds": round(median([r["seconds"] for r in runs]), 2),
            "planning_seconds": round(median([r["planning"] for r in runs]), 4),
            "probing_seconds": round(median([r["probing"] for r in runs]), 4),
            "checks": runs[-1]["counters"]["checks"],
            "changed_at_steps": runs[-1]["changes"],
            "work_by_step": [s["work"] for s in runs[-1]["steps"]],
        }
        for side, runs in found.items()
    }
    return all(run["answer"] == answer for runs in found.values() for run in runs), shown


def work_ratios(moving: Json, still: Json, work: str = "work") -> Json:
    """The cost of adaptive orders beside the best fixed ones: in the worse drifting half, and on steady streams."""
    best = [min(moving[fixed][work][half] for fixed in FIXED) for half in (0, 1)]
    return {
        "best_work": max(moving["adaptive"][work][half] / best[half] for half in (0, 1)),
        "stationary_work": sum(still["adaptive"][work]) / sum(still["rare_c_first"][work]),
    }


DRIFT = Case(rows=8_000, files=40)
STEADY = Case(rows=8_000, files=20, drifts=False)
Figures = Callable[[harness.Peer, int, Json], Json]  # measures more, and draws it beside what was measured so far


def measure(
    drift: Case, steady: Case, pairs: int, cores: int, modes: list[str], figures: Figures | None = None
) -> Report:
    """The cases behind the ratios, and whatever `figures` measures."""
    load = harness.load()
    peer = harness.Peer("benchmarks.reoptimize")
    period = 4 * drift.rows
    equal, moving = compare(drift, [*FIXED, *modes], pairs, cores, peer, period)
    same, still = compare(steady, ["rare_c_first", "adaptive"], pairs, cores, peer, period)
    more = figures(peer, cores, {"drift": moving, "steady": still}) if figures else {}
    peer.close()
    ours = moving["adaptive"]
    best_time = [min(moving[f]["seconds"][half] for f in FIXED) for half in (0, 1)]
    ratios = {
        **work_ratios(moving, still),
        "best": max(ours["seconds"][half] / best_time[half] for half in (0, 1)),
        "worst": max(moving[f]["total_seconds"] for f in FIXED) / ours["total_seconds"],
        "stationary": sum(still["adaptive"]["seconds"]) / sum(still["rare_c_first"]["seconds"]),
    }
    alike = all(cell["equal"] for cells in more.values() for cell in cells.values())
    all_steps = work_ratios(moving, still, "work_of_all_steps")
    shown = {
        "drift": moving,
        "steady": still,
        "ratios_of_all_steps": all_steps,
        **more,
        "machine": harness.machine(load),
    }
    lower = [name for name in ratios if name != "worst"]
    return Report("reoptimize", equal and same and alike, ratios, shown, lower)


def measured(options: Namespace) -> Report:
    if not options.all:
        return measure(DRIFT, STEADY, options.pairs, options.cores, ["adaptive"])
    from benchmarks.reoptimize_figures import all_figures

    modes = ["adaptive", "pop", "card", "static", "oracle"]
    return measure(DRIFT, STEADY, options.pairs, options.cores, modes, all_figures)


def main(arguments: list[str] | None = None) -> int:
    more = "also the other modes, and the data sets Uni, pUni and Zipf, with charts in docs/figures: about 15 minutes"
    return command.run(
        "reoptimize", __doc__, measured, everything=more, sizes={**PAIRS, **CORES}, worker=worker, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
