"""The cost of a nearly empty step: 200 rows per stream and step, two streams, eight queries.

Every trigger pays the fixed cost of a step: planning, one Spark job, the exchange with the Python workers, the commit.
It is measured with and without syncs to disk, over steps after a warm-up.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import command, harness
from benchmarks.command import CORES
from benchmarks.harness import Json, Report, median, medians

BUDGET_MS = 300  # maximal time of a step without work
QUERIES = 8
SIDES = {"unsynced": False, "synced": True}  # name -> durable
WARM_UP = 60  # steps that are not counted: the JVM compiles hot code for that long


def data(rows: int, steps: int) -> Path:
    return harness.two_streams(rows * steps, steps, keys=100, seconds=1.0, disorder=0.5)


def worker(job: Json) -> Json:
    """One run of all steps in this process, with the number of results of every query."""
    from penstock import Engine

    with harness.scratch() as folder:
        spark = harness.session(job["cores"])
        engine = Engine(spark, folder / "state", durable=job["durable"])
        for name in "ab":
            frame = harness.read_stream(spark, Path(job["inputs"]) / name)
            engine.stream(name, frame, event_time="ts", delay="1 second")
        queries = [engine.query(sql(number), name=f"q{number}") for number in range(QUERIES)]
        found = harness.run_engine(engine)
        counts = [query.stats()["results"] for query in queries]
        spark.stop()
        steps = [b["triggerExecution"] for b in found["batches"][WARM_UP:]]
        return {**found, "counts": counts, "says": f"{median(steps):.0f} ms a step"}


def sql(number: int) -> str:
    """Queries that differ in windows and selections."""
    return (
        f"SELECT a.id AS a_id, b.id AS b_id "
        f"FROM a [RANGE {number + 1} SECONDS] JOIN b [RANGE {2 * number + 1} SECONDS] "
        f"ON a.k = b.k WHERE a.n >= {100 * number} AND b.v < {1 - number / 16}"
    )


def expected(inputs: Path) -> list[int]:
    """The number of results of every query, by DuckDB."""
    import duckdb

    base = duckdb.connect()
    for name in "ab":
        base.execute(f"CREATE TABLE {name} AS SELECT * FROM '{inputs}/{name}/*.parquet'")
    counts = []
    for number in range(QUERIES):
        gap = "(epoch_us(b.ts) - epoch_us(a.ts))"
        condition = f"a.k = b.k AND {gap} < {(number + 1) * 1_000_000} AND -{gap} < {(2 * number + 1) * 1_000_000}"
        chosen = f"a.n >= {100 * number} AND b.v < {1 - number / 16}"
        counts.append(base.execute(f"SELECT count(*) FROM a JOIN b ON {condition} WHERE {chosen}").fetchone()[0])
    return counts


def summary(run: Json) -> Json:
    """Milliseconds per step after the warm-up, and their parts."""
    batches, steps = run["batches"][WARM_UP:], run["steps"][WARM_UP:]
    total = [b["triggerExecution"] for b in batches]
    return {
        "median": median(total),
        "p90": round(float(np.percentile(total, 90)), 1) if total else 0.0,
        "spark": medians(batches),
        "step": medians([s["timings"] for s in steps], 1000),
        "task": medians([s["phases"] for s in steps], 1000),
    }


def measure(sizes: Sequence[int], steps: int, cores: int, sides: Mapping[str, bool]) -> Report:
    """All sides for every number of rows per stream and step; the first size and side are compared with the budget."""
    load = harness.load()
    equal, found = True, {}
    for rows in sizes:
        inputs = data(rows, steps + WARM_UP)
        answer = expected(inputs)
        jobs = {side: {"inputs": str(inputs), "cores": cores, "durable": durable} for side, durable in sides.items()}
        runs = harness.interleaved(
            {side: partial(harness.in_fresh_process, "benchmarks.step", job) for side, job in jobs.items()}, 1
        )
        equal &= all(run["counts"] == answer for (run,) in runs.values())
        found[f"{rows} rows"] = {side: summary(run) for side, (run,) in runs.items()}
    first = next(iter(next(iter(found.values())).values()))
    figures = {
        "ms": found,
        "queries": QUERIES,
        "steps": steps,
        "budget_ms": BUDGET_MS,
        "machine": harness.machine(load),
    }
    return Report("step", equal, {"budget": BUDGET_MS / max(first["median"], 1)}, figures)


def describe(report: Report) -> str:
    lines = []
    for size, sides in report.figures["ms"].items():
        for name, found in sides.items():
            lines.append(f"{size}, {name}: median {found['median']:.0f} ms, p90 {found['p90']:.0f} ms a step")
            for kind in ("spark", "step", "task"):
                parts = ", ".join(f"{part} {ms:g}" for part, ms in found[kind].items())
                lines.append(f"  {kind}: {parts}")
    return "\n".join(lines)


SIZES = {"rows": (200, "rows per stream and step"), "steps": (40, "steps that count"), **CORES}


def measured(options: Namespace) -> Report:
    return measure([options.rows, *([20, 2_000] if options.all else [])], options.steps, options.cores, SIDES)


def main(arguments: list[str] | None = None) -> int:
    more = "also 20 and 2,000 rows per stream and step"
    return command.run(
        "step", __doc__, measured, everything=more, sizes=SIZES, worker=worker, describe=describe, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
