"""Window joins of three, five and seven streams on one key: Penstock beside a chain of Spark's own stream-stream joins.

Spark joins two streams at a time, so intermediate results are state of the next join. Penstock stores only windows.
Results are compared with DuckDB. A join without an equality, which Spark refuses, runs with one task and with two.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from benchmarks import command, harness
from benchmarks.command import CORES, PAIRS
from benchmarks.harness import Json, Report, median, pair_ratio, say
from benchmarks.sharing import DELAY, HDFS

SETTLED = 1  # batches before the steady state
WARM_UP = 20  # seconds before the first measured run of a process


@dataclass(frozen=True)
class Case:
    """A join of several streams: rows, keys and window of each, and the join conditions."""

    rows: tuple[int, ...]
    keys: tuple[int, ...]
    lives: tuple[int, ...]  # seconds
    files: int
    seconds: float = 10.0  # of event time in a file
    # Keys are equal; 'loop': the same, in a form that no index supports; 'apart': by a condition without an equality.
    tie: str = "equal"

    @classmethod
    def even(
        cls,
        streams: int,
        rows: int,
        files: int,
        life: int,
        seconds: float = 10.0,
        matches: float = 1.0,
        tie: str = "equal",
    ) -> Case:
        """Equal streams; a row has `matches` rows of each other stream."""
        keys = max(1, round(rows / files / seconds * 2 * life / matches))
        return cls((rows,) * streams, (keys,) * streams, (life,) * streams, files, seconds, tie)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple("abcdefg"[: len(self.rows)])

    def inputs(self, seed: int = 1, part: float = 1.0) -> Path:
        files = max(2, round(self.files * part))
        rows = tuple(count * files // self.files for count in self.rows)
        return harness.streams(
            self.names, rows, files, self.keys, seed, seconds=self.seconds, disorder=min(2.0, self.seconds)
        )

    @property
    def select(self) -> str:
        return ", ".join(f"{name}.id AS {name}_id" for name in self.names)

    @property
    def tied(self) -> str:
        """The conditions except for time."""
        if self.tie == "apart":  # one pair in a thousand, and no order of rows helps to find it
            return " AND ".join(f"({x}.v < {y}.v - 0.968 OR {x}.v > {y}.v + 0.968)" for x, y in pairwise(self.names))
        if self.tie == "loop":  # no key is that large, but the planner cannot know it
            return " AND ".join(f"({x}.k = {y}.k OR {x}.k = {y}.k + 1000000000)" for x, y in pairwise(self.names))
        return " AND ".join(f"{self.names[0]}.k = {name}.k" for name in self.names[1:])

    def penstock(self) -> str:
        roles = ", ".join(f"{name} [RANGE {life} SECONDS]" for name, life in zip(self.names, self.lives, strict=True))
        return f"SELECT {self.select} FROM {roles} WHERE {self.tied}"

    def duckdb(self, inputs: Path) -> str:
        tables = ", ".join(f"'{inputs}/{name}/*.parquet' {name}" for name in self.names)
        near = [
            f"epoch_us({y}.ts) - epoch_us({x}.ts) < {life * 1_000_000}"
            for x, life in zip(self.names, self.lives, strict=True)
            for y in self.names
            if x != y
        ]
        return f"SELECT {self.select} FROM {tables} WHERE {' AND '.join([self.tied, *near])}"


# -- the sides, each in its own process -------------------------------------------------------------------------------


def penstock_run(spark, folder: Path, inputs: Path, case: Case, options: Json) -> tuple[Json, str]:
    """With options of the engine; `fixed` are orders that it must keep."""
    from penstock import Engine

    asked = {name: value for name, value in options.items() if name != "fixed"}
    engine = Engine(spark, folder / "state", durable=False, **asked)
    if "fixed" in options:
        harness.force_orders(engine, {int(start): tuple(order) for start, order in options["fixed"].items()})
    for name in case.names:
        engine.stream(name, harness.read_stream(spark, inputs / name), event_time="ts", delay=f"{DELAY} seconds")
    query = engine.query(case.penstock(), name="j")
    found = harness.run_engine(engine)
    counters = engine.manifest().counters
    late = sum(counters.stream(name).late for name in case.names)
    if late:
        raise RuntimeError(f"{late} rows are late; the sides cannot be compared")
    tables = list(counters.tables.values())
    work = {
        key: sum(getattr(c, key) for c in tables) for key in ("probed", "candidates", "compared", "stored", "shipped")
    }
    query.results().write.parquet(str(folder / "results"))
    return {**found, "work": work}, str(folder / "results")


def native_run(spark, folder: Path, inputs: Path, case: Case) -> tuple[Json, str]:
    """Two at a time. A joined row keeps one event time; the others become numbers, tested in the next condition."""
    from pyspark.sql import functions as F  # noqa: N812

    first, *others = case.names
    lives = dict(zip(case.names, case.lives, strict=True))

    def read(name: str):
        frame = harness.read_stream(spark, inputs / name).withWatermark("ts", f"{DELAY} seconds")
        return frame.selectExpr(f"id AS {name}_id", f"k AS {name}_k", f"ts AS {name}_ts")

    joined, known = read(first), [first]
    for name in others:
        near = [
            f"{first}_ts > {name}_ts - INTERVAL {lives[first]} SECONDS",
            f"{name}_ts > {first}_ts - INTERVAL {lives[name]} SECONDS",
        ]
        for other in known[1:]:
            gap = f"unix_micros({name}_ts) - {other}_us"
            near += [f"{gap} < {lives[other] * 1_000_000}", f"-({gap}) < {lives[name] * 1_000_000}"]
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
    """One measured run. A new process warms up for the same time on every side; later only idle Python workers."""
    with harness.scratch() as folder:
        case, native = case_of(job["case"]), job["side"] == "native"
        first, started = SparkSession.getActiveSession() is None, time.monotonic()
        spark = harness.session(job["cores"], **(HDFS if native else {}))
        run = partial(native_run, case=case) if native else partial(penstock_run, case=case, options=job["options"])
        if first or job["rewarm"]:
            run(spark, folder / "warm-up", Path(job["warm_up"]))
        while first and time.monotonic() - started < job["warm_seconds"]:
            run(spark, folder / f"warm-up-{time.monotonic()}", Path(job["warm_up"]))
        found, output = run(spark, folder / "measured", Path(job["inputs"]))
        rate = sum(case.rows) / found["seconds"]
        step_ms = median([b["triggerExecution"] for b in found["batches"][SETTLED:]])
        return {
            **found,
            "answer": fingerprint(f"SELECT * FROM '{output}/*.parquet'", case),
            "rate": rate,
            "step_ms": step_ms,
            "says": f"{found['seconds']:6.1f} s {rate:10,.0f} rows/s, {step_ms:5.0f} ms "
            f"a batch, {found['state_rows']:,} rows of state",
        }


def case_of(plain: Json) -> Case:
    """A case as it came through JSON."""
    return Case(**{name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()})


# -- the check --------------------------------------------------------------------------------------------------------


def fingerprint(relation: str, case: Case) -> list[int | str]:
    """The number of rows and an order-independent checksum."""
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
    """Rows in the windows at the end: those that a row of another stream can still join."""
    base = duckdb.connect()
    newest = {
        n: base.execute(f"SELECT max(epoch_us(ts)) FROM '{case.inputs()}/{n}/*.parquet'").fetchone()[0]
        for n in case.names
    }
    total = 0
    for name, life in zip(case.names, case.lives, strict=True):
        horizon = min(newest[other] for other in case.names if other != name) - (DELAY + life) * 1_000_000
        total += base.execute(
            f"SELECT count(*) FROM '{case.inputs()}/{name}/*.parquet' WHERE epoch_us(ts) > {horizon}"
        ).fetchone()[0]
    return total


# -- the benchmark ----------------------------------------------------------------------------------------------------


def job(case: Case, side: str, cores: int, *, rewarm: bool | None = None, **options: Any) -> Json:
    """A run of a case, with options of the engine; `rewarm` runs part of the input first (default: if needed)."""
    return {
        "side": side, "case": asdict(case), "inputs": str(case.inputs()),
        "warm_up": str(case.inputs(seed=101, part=0.5)),
        "cores": cores, "options": options, "rewarm": side == "penstock" if rewarm is None else rewarm,
        "warm_seconds": WARM_UP,
    }  # fmt: skip


class Sides:
    """The processes of both sides, started on first use."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.started: dict[str, harness.Peer] = {}

    def job(self, case: Case, side: str, *, rewarm: bool | None = None, **options: Any) -> partial[Json]:
        """A run of a case, with options of the engine; `rewarm` runs part of the input first (default: if needed)."""
        if side not in self.started:
            self.started[side] = harness.Peer("benchmarks.multiway")
        asked = job(case, side, self.cores, rewarm=rewarm, **options)
        return partial(self.started[side], asked)

    def close(self) -> None:
        for peer in self.started.values():
            peer.close()


def beside_spark(sides: Sides, case: Case, pairs: int) -> Json:
    answer = expected(case)
    say(f"{len(case.rows)} streams, {sum(case.rows):,} rows, {answer[0]:,} results")
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
    say(
        f"a condition without an equality between {len(case.rows)} streams, {sum(case.rows):,} rows, "
        f"{answer[0]:,} results"
    )
    found = harness.interleaved({str(tasks): sides.job(case, "penstock", tasks=tasks) for tasks in (1, 2)}, pairs)
    seconds = {tasks: round(median([r["seconds"] for r in runs]), 2) for tasks, runs in found.items()}
    return {
        "equal": all(run["answer"] == answer for runs in found.values() for run in runs),
        "seconds_by_tasks": seconds,
        "speed_up": round(pair_ratio([r["seconds"] for r in found["1"]], [r["seconds"] for r in found["2"]]), 3),
        "work": found["2"][-1]["work"],
        "results": answer[0],
    }


THREE = Case.even(3, rows=800_000, files=4, life=20, seconds=20.0, matches=4.0)
FIVE = Case.even(5, rows=120_000, files=3, life=20, seconds=20.0, matches=2.0)
SEVEN = Case.even(7, rows=40_000, files=6, life=20, matches=1.5)
THETA = Case.even(2, rows=24_000, files=4, life=20, seconds=20.0, tie="apart")
Figures = Callable[[Sides, Json], Json]  # measures more, and draws it beside what was measured so far


def measure(cases: Sequence[Case], theta: Case, pairs: int, cores: int, figures: Figures | None = None) -> Report:
    """The cases behind the ratios, and whatever `figures` measures."""
    load = harness.load()
    sides = Sides(cores)
    ways = {f"{len(case.rows)}way": beside_spark(sides, case, pairs) for case in cases}
    found = {**ways, "theta": by_tasks(sides, theta, 1)}
    more = figures(sides, found) if figures else {}
    sides.close()
    equal = all(case["equal"] for case in found.values()) and all(
        case["equal"] for picture in more.values() for case in picture.values()
    )
    ratios = {f"spark_{way}": case["ratio"] for way, case in ways.items()}
    return Report("multiway", equal, ratios, {**found, **more, "machine": harness.machine(load)})


def measured(options: Namespace) -> Report:
    if not options.all:
        return measure([THREE, FIVE], THETA, options.pairs, options.cores)
    from benchmarks.multiway_figures import all_figures

    return measure([THREE, FIVE, SEVEN], THETA, options.pairs, options.cores, all_figures)


def main(arguments: list[str] | None = None) -> int:
    more = "also seven streams, orders, indexes and intervals, with charts in docs/figures: about 14 minutes"
    return command.run(
        "multiway",
        __doc__,
        measured,
        everything=more,
        sizes={**PAIRS, **CORES},
        worker=worker,
        arguments=arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
