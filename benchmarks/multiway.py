"""Window joins of three, five and seven streams on one key: Penstock beside a chain of Spark's own stream-stream joins.

Spark joins two streams at a time, so it keeps what the first ones made in the state of the next. Penstock keeps windows only. Results are
compared with DuckDB. A join by an inequality, which Spark refuses, runs with one task and with two.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from benchmarks import harness
from benchmarks.harness import Json, Report, median, pair_ratio, say
from benchmarks.sharing import DELAY, HDFS

SETTLED = 1  # batches before the steady state
WARM_UP = 20  # seconds before the first measured run of a process


@dataclass(frozen=True)
class Case:
    """A join of several streams: the input, and the window of every stream in seconds."""

    streams: int
    rows: int  # per stream
    files: int
    life: int
    seconds: float = 20.0  # of event time in a file
    matches: float = 1.0  # rows of another stream that a row finds
    theta: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple("abcdefg"[: self.streams])

    def inputs(self, seed: int = 1, part: float = 1.0) -> Path:
        files = max(2, round(self.files * part))
        rate = self.rows / self.files / self.seconds
        keys = max(1, round(rate * 2 * self.life / self.matches))
        rows = self.rows * files // self.files
        return harness.streams(self.names, rows, files, keys, seed, seconds=self.seconds)

    @property
    def select(self) -> str:
        return ", ".join(f"{name}.id AS {name}_id" for name in self.names)

    @property
    def tied(self) -> str:
        """The conditions but for time: equal keys, or one row in a thousand by an inequality."""
        if self.theta:
            return " AND ".join(f"{x}.v < {y}.v - 0.955" for x, y in zip(self.names, self.names[1:], strict=False))
        return " AND ".join(f"{self.names[0]}.k = {name}.k" for name in self.names[1:])

    def penstock(self) -> str:
        roles = ", ".join(f"{name} [RANGE {self.life} SECONDS]" for name in self.names)
        return f"SELECT {self.select} FROM {roles} WHERE {self.tied}"

    def duckdb(self, inputs: Path) -> str:
        tables = ", ".join(f"'{inputs}/{name}/*.parquet' {name}" for name in self.names)
        near = [
            f"epoch_us({y}.ts) - epoch_us({x}.ts) < {self.life * 1_000_000}"
            for x in self.names
            for y in self.names
            if x != y
        ]
        return f"SELECT {self.select} FROM {tables} WHERE {' AND '.join([self.tied, *near])}"


# -- the sides, each in its own process -------------------------------------------------------------------------------------


def penstock_run(spark, folder: Path, inputs: Path, case: Case, tasks: int | None) -> tuple[Json, str]:
    from penstock import Engine

    engine = Engine(spark, folder / "state", durable=False, tasks=tasks)
    for name in case.names:
        engine.stream(name, harness.read_stream(spark, inputs / name), event_time="ts", delay=f"{DELAY} seconds")
    query = engine.query(case.penstock(), name="j")
    found = harness.run_engine(engine)
    counters = engine.manifest().counters
    late = sum(counters[f"stream:{name}"]["late"] for name in case.names)
    if late:
        raise RuntimeError(f"{late} rows are late; the sides cannot be compared")
    tables = [c for name, c in counters.items() if name.startswith("table:")]
    work = {
        key: sum(c.get(key, 0) for c in tables) for key in ("probed", "candidates", "compared", "stored", "shipped")
    }
    query.results().write.parquet(str(folder / "results"))
    return {**found, "work": work}, str(folder / "results")


def native_run(spark, folder: Path, inputs: Path, case: Case) -> tuple[Json, str]:
    """Two at a time. A joined row keeps one event time; the others go on as plain numbers, tested in the next condition."""
    from pyspark.sql import functions as F  # noqa: N812

    first, *others = case.names
    life = case.life * 1_000_000

    def read(name: str):
        frame = harness.read_stream(spark, inputs / name).withWatermark("ts", f"{DELAY} seconds")
        return frame.selectExpr(f"id AS {name}_id", f"k AS {name}_k", f"ts AS {name}_ts")

    joined, known = read(first), [first]
    for name in others:
        near = [
            f"{first}_ts > {name}_ts - INTERVAL {case.life} SECONDS",
            f"{name}_ts > {first}_ts - INTERVAL {case.life} SECONDS",
        ]
        near += [f"abs(unix_micros({name}_ts) - {other}_us) < {life}" for other in known[1:]]
        condition = " AND ".join([f"{first}_k = {name}_k", *near])
        known.append(name)
        kept = [f"{n}_id" for n in known] + [f"{n}_us" for n in known[1:-1]]
        joined = joined.join(read(name), F.expr(condition)).selectExpr(
            *kept, f"{first}_k", f"{first}_ts", f"unix_micros({name}_ts) AS {name}_us"
        )
    writer = joined.select(*[f"{n}_id" for n in known]).writeStream.format("parquet")
    writer = writer.option("path", str(folder / "results")).option("checkpointLocation", str(folder / "checkpoint"))
    return harness.run_query(writer.trigger(availableNow=True).start), str(folder / "results")


def worker(job: Json) -> Json:
    """One measured run. A new process warms up for the same time on every side; later only Python workers, which die when idle."""
    with harness.scratch() as folder:
        case, native = Case(**job["case"]), job["side"] == "native"
        first, started = SparkSession.getActiveSession() is None, time.monotonic()
        spark = harness.session(job["cores"], **(HDFS if native else {}))
        run = partial(native_run, case=case) if native else partial(penstock_run, case=case, tasks=job["tasks"])
        if first or not native:
            run(spark, folder / "warm-up", Path(job["warm_up"]))
        while first and time.monotonic() - started < WARM_UP:
            run(spark, folder / f"warm-up-{time.monotonic()}", Path(job["warm_up"]))
        found, output = run(spark, folder / "measured", Path(job["inputs"]))
        rate = job["rows"] / found["seconds"]
        print_ms = median([b["triggerExecution"] for b in found["batches"][SETTLED:]])
        return {
            **found,
            "answer": fingerprint(f"SELECT * FROM '{output}/*.parquet'", case),
            "rate": rate,
            "says": f"{found['seconds']:6.1f} s {rate:10,.0f} rows/s, {print_ms:5.0f} ms a batch, {found['state_rows']:,} rows of state",
        }


# -- the check ----------------------------------------------------------------------------------------------------------------


def fingerprint(relation: str, case: Case) -> list[int | str]:
    """The number of rows and a checksum that does not depend on their order."""
    values = ", ".join(f"{name}_id" for name in case.names)
    sql = f"SELECT count(*), coalesce(sum((hash({values}) % 2305843009213693951)::HUGEINT), 0) FROM ({relation})"
    count, total = duckdb.connect().execute(sql).fetchone()
    return [int(count), str(total)]


def expected(case: Case) -> list[int | str]:
    """DuckDB's own answer over the same files, kept beside them."""
    inputs = case.inputs()
    digest = hashlib.sha256(repr(case).encode()).hexdigest()[:16]
    kept = inputs / f"answer-{digest}.json"
    if not kept.is_file():
        kept.write_text(json.dumps(fingerprint(case.duckdb(inputs), case)))
    found: list[int | str] = json.loads(kept.read_text())
    return found


def window_rows(case: Case) -> int:
    """Rows that the windows hold at the end: those that a row of another stream can still meet."""
    base = duckdb.connect()
    newest = {
        n: base.execute(f"SELECT max(epoch_us(ts)) FROM '{case.inputs()}/{n}/*.parquet'").fetchone()[0]
        for n in case.names
    }
    total = 0
    for name in case.names:
        horizon = min(newest[other] for other in case.names if other != name) - (DELAY + case.life) * 1_000_000
        total += base.execute(
            f"SELECT count(*) FROM '{case.inputs()}/{name}/*.parquet' WHERE epoch_us(ts) > {horizon}"
        ).fetchone()[0]
    return total


# -- the benchmark ------------------------------------------------------------------------------------------------------------


class Sides:
    """The processes of both sides, started when first asked for."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.started: dict[str, harness.Peer] = {}

    def job(self, case: Case, side: str, tasks: int | None = None) -> partial[Json]:
        if side not in self.started:
            self.started[side] = harness.Peer("benchmarks.multiway")
        asked = {
            "side": side, "case": case.__dict__, "inputs": str(case.inputs()), "warm_up": str(case.inputs(seed=101, part=0.5)),
            "rows": case.streams * case.rows, "cores": self.cores, "tasks": tasks,
        }  # fmt: skip
        return partial(self.started[side], asked)

    def close(self) -> None:
        for peer in self.started.values():
            peer.close()


def beside_spark(sides: Sides, case: Case, pairs: int) -> Json:
    answer = expected(case)
    say(f"{case.streams} streams, {case.streams * case.rows:,} rows, {answer[0]:,} results")
    found = harness.interleaved({side: sides.job(case, side) for side in ("penstock", "native")}, pairs)
    ours, theirs = found["penstock"], found["native"]
    held = window_rows(case)
    return {
        "equal": all(run["answer"] == answer for runs in found.values() for run in runs),
        "ratio": pair_ratio([r["rate"] for r in ours], [r["rate"] for r in theirs]),
        "results": answer[0],
        "window_rows": held,
        "state_ratio": round(ours[-1]["state_rows"] / max(1, held), 3),
        "work": ours[-1]["work"],
        **{
            side: {
                "rows_per_second": round(median([r["rate"] for r in runs])),
                "cpu_seconds": round(median([r["cpu_seconds"] for r in runs]), 1),
                "state_rows": runs[-1]["state_rows"],
                "state_bytes": runs[-1]["state_bytes"],
            }
            for side, runs in found.items()
        },
    }


def by_tasks(sides: Sides, case: Case, pairs: int) -> Json:
    """A join that Spark refuses, with one task and with two."""
    answer = expected(case)
    say(f"an inequality between {case.streams} streams, {case.streams * case.rows:,} rows, {answer[0]:,} results")
    found = harness.interleaved({str(tasks): sides.job(case, "penstock", tasks) for tasks in (1, 2)}, pairs)
    seconds = {tasks: round(median([r["seconds"] for r in runs]), 2) for tasks, runs in found.items()}
    return {
        "equal": all(run["answer"] == answer for runs in found.values() for run in runs),
        "seconds_by_tasks": seconds,
        "speed_up": round(pair_ratio([r["seconds"] for r in found["1"]], [r["seconds"] for r in found["2"]]), 3),
        "work": found["2"][-1]["work"],
        "results": answer[0],
    }


THREE = Case(streams=3, rows=600_000, files=6, life=20, seconds=10.0, matches=4.0)
FIVE = Case(streams=5, rows=150_000, files=6, life=20, seconds=10.0, matches=2.0)
SEVEN = Case(streams=7, rows=40_000, files=6, life=20, seconds=10.0, matches=1.5)
THETA = Case(streams=2, rows=30_000, files=4, life=20, theta=True)


def measure(cases: Sequence[Case], theta: Case, pairs: int, cores: int) -> Report:
    load = harness.load()
    sides = Sides(cores)
    found = {case.streams: beside_spark(sides, case, pairs) for case in cases}
    scanned = by_tasks(sides, theta, pairs)
    sides.close()
    equal = scanned["equal"] and all(case["equal"] for case in found.values())
    ratios = {f"spark_{streams}way": case["ratio"] for streams, case in found.items()}
    figures = {
        **{f"{streams}way": case for streams, case in found.items()},
        "theta": scanned,
        "machine": harness.machine(load),
    }
    return Report("multiway", equal, ratios, figures)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multiway", description=__doc__)
    parser.add_argument("--json", action="store_true", help="only the cases behind the ratios, and only the JSON line")
    parser.add_argument("--all", action="store_true", help="also seven streams")
    parser.add_argument("--pairs", type=int, default=3, help="interleaved pairs of runs (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="cores of the Spark session (default: %(default)s)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        harness.serve(worker)
        return 0
    cases = [THREE, FIVE, *([SEVEN] if options.all else [])]
    return harness.finish(measure(cases, THETA, options.pairs, options.cores))


if __name__ == "__main__":
    sys.exit(main())
