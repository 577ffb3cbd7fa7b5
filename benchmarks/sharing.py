"""Many standing queries over the same two streams: Penstock beside one native Spark query for each, and cost by number.

Every query joins two streams by key with its own windows and filter. The native side runs all its queries at once in
one session, each with its own state and file sink; Penstock runs one network. Results are compared with DuckDB, by
query.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import command, harness
from benchmarks.command import CORES, PAIRS
from benchmarks.harness import Json, Report, median, pair_ratio, say

DELAY = 5  # seconds; more than the disorder of the files, so that no row is late on either side
COLUMNS = ("a_id", "b_id", "a_v", "b_v")
SELECT = "a.id AS a_id, b.id AS b_id, a.v AS a_v, b.v AS b_v"
SETTLED = 8  # steps before the steady state
WARM_UP = 20  # seconds before the first measured run of a process
HDFS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.join.stateFormatVersion": "2",
}


@dataclass(frozen=True)
class Asked:
    """One query: the windows of two or three streams in seconds; it wants rows of `a` with column n in [low, high)."""

    life_a: int
    life_b: int
    low: int
    high: int
    life_c: int | None = None

    @property
    def lives(self) -> dict[str, int]:
        """The window of each stream."""
        return {"a": self.life_a, "b": self.life_b} | ({} if self.life_c is None else {"c": self.life_c})

    @property
    def condition(self) -> str:
        """The join condition without times."""
        third = "" if self.life_c is None else " AND b.k = c.k"
        return f"a.k = b.k{third} AND a.n >= {self.low} AND a.n < {self.high}"

    def penstock(self) -> str:
        third = "" if self.life_c is None else ", c.id AS c_id"
        items = ", ".join(f"{name} [RANGE {life} SECONDS] AS {name}" for name, life in self.lives.items())
        return f"SELECT {SELECT}{third} FROM {items} WHERE {self.condition}"

    def spark(self) -> str:
        return (
            f"{self.condition} AND a.ts > b.ts - INTERVAL {self.life_a} SECONDS "
            f"AND b.ts > a.ts - INTERVAL {self.life_b} SECONDS"
        )

    def duckdb(self) -> str:
        gaps = [
            f"epoch_us({y}.ts) - epoch_us({x}.ts) < {life * 1_000_000}"
            for x, life in self.lives.items()
            for y in self.lives
            if y != x
        ]
        return " AND ".join([self.condition, *gaps])


def wide(count: int, longest: int) -> list[Asked]:
    """Windows from short to long, and increasingly selective filters."""
    lives = [max(1, round(longest * (number + 1) / count)) for number in range(count)]
    return [Asked(life, max(1, life * 2 // 3), 800 * number // count, 1000) for number, life in enumerate(lives)]


def selective(count: int, longest: int, share: float = 1 / 16) -> list[Asked]:
    """Filters that pass one row in 16, spread over all values, and windows in no order; the first has the longest."""
    draw = np.random.default_rng(3)
    width = round(1000 * share)
    lows = np.linspace(0, 1000 - width, count).round().astype(int).tolist()
    lives = [longest, *draw.integers(max(1, longest // 8), longest, count - 1).tolist()]
    return [Asked(int(life), longest, low, low + width) for life, low in zip(lives, lows, strict=True)]


def opposed(count: int, longest: int) -> list[Asked]:
    """Three streams with windows in different orders: the longer that of a, the shorter that of b; that of c varies."""
    lives = [max(1, round(longest * (number + 1) / count)) for number in range(count)]
    return [
        Asked(lives[n], lives[-1 - n], 800 * n // count, 1000, lives[(n + count // 2) % count]) for n in range(count)
    ]


# -- the sides, each in its own process -------------------------------------------------------------------------------


def penstock_run(spark, folder: Path, inputs: Path, queries: Sequence[Asked], **options: str) -> tuple[Json, list[int]]:
    from penstock import Engine

    engine = Engine(spark, folder / "state", durable=False, **options)
    names = list(queries[0].lives)
    for name in names:
        engine.stream(name, harness.read_stream(spark, inputs / name), event_time="ts", delay=f"{DELAY} seconds")
    for number, asked in enumerate(queries):
        engine.query(asked.penstock(), name=f"q{number}")
    found = harness.run_engine(engine)
    manifest = engine.manifest()
    late = sum(manifest.counters.stream(name).late for name in names)
    if late:
        raise RuntimeError(f"{late} rows are late; the sides cannot be compared")
    held = {"state_rows": sum(r.rows for r in manifest.runs.values()), "runs": len(manifest.runs)}
    held["progress"] = manifest.progress_values()
    counts = [manifest.counters.query(number + 1).results for number in range(len(queries))]
    return {**found, **held}, counts


def native_run(spark, folder: Path, inputs: Path, queries: Sequence[Asked]) -> tuple[Json, list[int]]:
    from pyspark.sql import functions as F  # noqa: N812

    def start(number: int, asked: Asked):
        a, b = (
            harness.read_stream(spark, inputs / name).withWatermark("ts", f"{DELAY} seconds").alias(name)
            for name in "ab"
        )
        joined = a.join(b, F.expr(asked.spark())).selectExpr(*SELECT.split(", "))
        writer = joined.writeStream.format("parquet").option("path", str(folder / f"q{number}"))
        writer = writer.option("checkpointLocation", str(folder / f"checkpoint{number}"))
        return writer.trigger(availableNow=True).start()

    found = harness.run_queries(lambda: [start(n, asked) for n, asked in enumerate(queries)])
    counts = []
    for number in range(len(queries)):
        files = list((folder / f"q{number}").glob("*.parquet"))
        counts.append(sum(pq.read_metadata(f).num_rows for f in files))
    return found, counts


def worker(job: Json) -> Json:
    """One measured run. A new process warms up for the same time on every side; later only idle Python workers."""
    with harness.scratch() as folder:
        if job["side"] == "planning":
            return planning_whole(harness.session(job["cores"]), folder, Path(job["inputs"]), job["count"])
        native = job["side"] == "native"
        first, started = SparkSession.getActiveSession() is None, time.monotonic()
        spark = harness.session(job["cores"], **(HDFS if native else {}))
        queries = [Asked(**asked) for asked in job["queries"]]
        run = native_run if native else partial(penstock_run, **job["options"])
        if first or job["rewarm"]:
            run(spark, folder / "warm-up", Path(job["warm_up"]), queries)
        while first and time.monotonic() - started < job["warm_seconds"]:
            run(spark, folder / f"warm-up-{time.monotonic()}", Path(job["warm_up"]), queries)
        found, counts = run(spark, folder / "measured", Path(job["inputs"]), queries)
        steps = found["batches"][SETTLED:]
        return {
            **found,
            "counts": counts,
            "rate": job["rows"] / found["seconds"],
            "says": f"{found['seconds']:6.1f} s {job['rows'] / found['seconds']:10,.0f} rows/s, "
            f"{median([b['triggerExecution'] for b in steps]):5.0f} ms a step, {found['state_rows']:,} rows of state",
        }


# -- what is expected -------------------------------------------------------------------------------------------------


def expected(inputs: Path, queries: Sequence[Asked]) -> list[int]:
    """The number of results of every query, by DuckDB, kept beside the files."""
    digest = hashlib.sha256(repr(queries).encode()).hexdigest()[:16]
    kept = inputs / f"answer-{digest}.json"
    if not kept.is_file():
        longest = {f"life_{name}": max(q.lives[name] for q in queries) for name in queries[0].lives}
        widest = Asked(**longest, low=0, high=1000)
        counts = ", ".join(f"count(*) FILTER ({asked.duckdb()})" for asked in queries)
        tables = ", ".join(f"'{inputs}/{name}/*.parquet' {name}" for name in widest.lives)
        sql = f"SELECT {counts} FROM {tables} WHERE {widest.duckdb()}"
        kept.write_text(json.dumps(list(duckdb.connect().execute(sql).fetchone())))
    return json.loads(kept.read_text())


def in_reach(inputs: Path, queries: Sequence[Asked], progress: dict[str, int]) -> int:
    """Rows that some query can still use: a row of `a` lives as long as the longest window among its own queries."""
    total = 0
    for name in queries[0].lives:
        life = str(max(q.lives[name] for q in queries))
        if name == "a":
            own = ", ".join(f"CASE WHEN n >= {q.low} AND n < {q.high} THEN {q.life_a} ELSE 0 END" for q in queries)
            life = f"greatest(0, {own})"
        until = min(value for other, value in progress.items() if other != name)
        sql = (
            f"SELECT count(*) FROM '{inputs}/{name}/*.parquet' "
            f"WHERE {life} > 0 AND epoch_us(ts) + 1000000 * {life} > {until}"
        )
        total += int(duckdb.connect().execute(sql).fetchone()[0])
    return total


# -- the benchmark ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One measurement: the input, and the queries of each side."""

    rows: int  # per stream
    files: int
    seconds: float  # of event time in a file
    longest: int  # seconds: the longest window
    matches: float = 1.0  # results per row of a query without a filter and with the longest windows
    streams: str = "ab"

    def inputs(self, seed: int = 1) -> Path:
        rate = self.rows / self.files / self.seconds
        keys = max(1, round(rate * 2 * self.longest / self.matches))
        shape = {"seconds": self.seconds, "disorder": min(2.0, self.seconds)}
        return harness.streams(self.streams, self.rows, self.files, keys, seed, **shape)

    def warm_up(self) -> Path:
        """A quarter of the rows, and of the files as far as possible."""
        return replace(self, rows=self.rows // 4, files=max(2, self.files // 4)).inputs(seed=101)


def job(case: Case, side: str, queries: Sequence[Asked], cores: int, **options: str) -> Json:
    return {
        "side": side, "inputs": str(case.inputs()), "warm_up": str(case.warm_up()),
        "rows": len(case.streams) * case.rows,
        "queries": [asdict(asked) for asked in queries], "cores": cores, "options": options,
        "rewarm": side == "penstock", "warm_seconds": WARM_UP,
    }  # fmt: skip


def beside_spark(peers: Callable[[str], harness.Peer], case: Case, count: int, pairs: int, cores: int) -> Json:
    """K queries here against K native ones: rates, and whether all counts are right."""
    queries = wide(count, case.longest)
    answer = expected(case.inputs(), queries)
    say(f"{count} queries beside {count} native ones, {2 * case.rows:,} rows, {sum(answer):,} results")
    sides = {side: partial(peers(side), job(case, side, queries, cores)) for side in ("penstock", "native")}
    found = harness.interleaved(sides, pairs)
    return {
        "equal": all(run["counts"] == answer for runs in found.values() for run in runs),
        "ratio": pair_ratio([r["rate"] for r in found["penstock"]], [r["rate"] for r in found["native"]]),
        "results": sum(answer),
        **{
            side: {
                "rows_per_second": round(median([r["rate"] for r in runs])),
                "cpu_seconds": round(median([r["cpu_seconds"] for r in runs]), 1),
                "state_rows": runs[-1]["state_rows"],
                "state_bytes": runs[-1]["state_bytes"],
                **(reach(case, queries, runs[-1]) if side == "penstock" else {}),
            }
            for side, runs in found.items()
        },
    }


def reach(case: Case, queries: Sequence[Asked], run: Json) -> Json:
    """Rows that some query can still use at the end of a run, and how many times as many are stored."""
    wanted = in_reach(case.inputs(), queries, run["progress"])
    return {"rows_in_reach": wanted, "state_ratio": round(run["state_rows"] / max(1, wanted), 4)}


def by_number(peers: Callable[[str], harness.Peer], case: Case, counts: Sequence[int], pairs: int, cores: int) -> Json:
    """Step times and state of K selective queries, for each K; step times exclude the slowest task's write phase."""
    say(f"{', '.join(map(str, counts))} selective queries, {2 * case.rows:,} rows in {case.files} steps")
    asked = {count: selective(count, case.longest) for count in counts}
    answers = {count: expected(case.inputs(), queries) for count, queries in asked.items()}
    sides = {
        str(count): partial(peers("penstock"), job(case, "penstock", queries, cores))
        for count, queries in asked.items()
    }
    found = harness.interleaved(sides, pairs)
    shown: Json = {"equal": True}
    for count, queries in asked.items():
        runs = found[str(count)]
        shown["equal"] &= all(run["counts"] == answers[count] for run in runs)
        shown[str(count)] = {
            "step_ms": round(median([_step_ms(run) for run in runs]), 1),
            "phases_ms": harness.medians([s["phases"] for run in runs for s in run["steps"][SETTLED:]], 1000),
            "state_rows": runs[-1]["state_rows"],
            "state_bytes": runs[-1]["state_bytes"],
            **reach(case, queries, runs[-1]),
            "runs": runs[-1]["runs"],
            "results": sum(answers[count]),
        }
    first, last = str(counts[0]), str(counts[-1])
    shown["ratio"] = pair_ratio([_step_ms(r) for r in found[last]], [_step_ms(r) for r in found[first]])
    return shown


def planning(count: int) -> Json:
    """The time to plan one more query beside `count` others: its SQL, the network of all, and the chains."""
    from penstock.model import Column, Stream
    from penstock.planner.build import build_network
    from penstock.planner.counters import Counters
    from penstock.planner.network import StandingQuery
    from penstock.planner.share import choose_chains
    from penstock.sql import parse_query

    columns = tuple(Column(*column.split()) for column in harness.STREAM_SCHEMA.split(", "))
    streams = {name: Stream(name, columns, "ts", delay=0) for name in "ab"}
    texts = [asked.penstock() for asked in selective(count + 1, 10 * count)]
    known = [StandingQuery(n, f"q{n}", parse_query(text, streams)) for n, text in enumerate(texts[1:], 2)]
    started = time.perf_counter()
    added = StandingQuery(1, "q1", parse_query(texts[0], streams))
    choose_chains(build_network([added, *known], streams), "auto", Counters(), [])
    return {"queries": count, "ms": round(1000 * (time.perf_counter() - started))}


def planning_whole(spark, folder: Path, inputs: Path, count: int) -> Json:
    """The time for an engine with `count` queries to add one: the call, and the work of the next step boundary.

    The call parses the query and lets Spark analyze it; at the boundary the registry is written, and the network and
    its chains are made. Nothing runs, so that no step is waited for.
    """
    from penstock import Engine
    from penstock.catalog.check_query import prepare
    from penstock.catalog.compiled import compile_query
    from penstock.state.registry import QueryRecord

    engine = Engine(spark, folder / "state", durable=False)
    for name in "ab":
        engine.stream(name, harness.read_stream(spark, inputs / name), event_time="ts", delay=f"{DELAY} seconds")
    asked = selective(count + 1, 10 * count)
    # The others differ in numbers only, so that Spark has to analyze but one of them.
    known, _ = prepare(engine.catalog, QueryRecord(0, "known", asked[1].penstock()), None)
    for number, one in enumerate(asked[1:], 2):
        record = replace(known, name=f"q{number}", sql=one.penstock())
        engine.catalog.add(record, compile_query(record, engine.catalog.streams, {}), None)
    engine.catalog.commit(engine.manifest())
    before = time.perf_counter()
    engine.query(asked[0].penstock(), name="q1")
    called = time.perf_counter()
    _, network = engine.catalog.commit(engine.manifest())
    done = time.perf_counter()
    return {
        "queries": len(network.queries) - 1,
        "call_ms": round(1000 * (called - before)),
        "boundary_ms": round(1000 * (done - called)),
        "ms": round(1000 * (done - before)),
    }


def _step_ms(run: Json) -> float:
    batches, steps = run["batches"][SETTLED:], run["steps"][SETTLED:]
    return median(
        [b["triggerExecution"] - 1000 * s["phases"].get("write", 0) for b, s in zip(batches, steps, strict=True)]
    )


BESIDE = Case(rows=800_000, files=3, seconds=25.0, longest=30)
OWN = Case(rows=480_000, files=24, seconds=2.0, longest=32)


def measure(
    beside: Case,
    own: Case,
    *,
    count: int,
    counts: Sequence[int],
    pairs: int,
    cores: int,
    many: int = 1000,
    figures: Callable[[Callable[[str], harness.Peer], int], Json] | None = None,
) -> Report:
    """The cases behind the ratios, planning beside `many` queries, and whatever `figures` measures."""
    load = harness.load()
    started: dict[str, harness.Peer] = {}

    def peers(side: str) -> harness.Peer:
        if side not in started:
            started[side] = harness.Peer("benchmarks.sharing")
        return started[side]

    native = beside_spark(peers, beside, count, pairs, cores)
    numbers = by_number(peers, own, counts, pairs, cores)
    whole = peers("penstock")({"side": "planning", "inputs": str(own.inputs()), "count": many, "cores": cores})
    pictures = figures(peers, cores) if figures else {}
    for peer in started.values():
        peer.close()
    most = str(counts[-1])
    shown = {
        "beside_spark": native,
        "by_number": numbers,
        "planning": planning(many),
        "planning_whole": whole,
        **pictures,
        "machine": harness.machine(load),
    }
    equal = native["equal"] and numbers["equal"] and all(_equal(picture) for picture in pictures.values())
    ratios = {
        f"spark_k{count}": native["ratio"],
        f"own_k{most}": numbers["ratio"],
        f"state_k{most}": numbers[most]["state_ratio"],
    }
    return Report("sharing", equal, ratios, shown, lower=[f"own_k{most}", f"state_k{most}"])


def _equal(picture: Json) -> bool:
    return all(case["equal"] for case in picture.values())


def measured(options: Namespace) -> Report:
    figures = None
    if options.all:
        from benchmarks.sharing_figures import all_figures as figures
    return measure(BESIDE, OWN, count=8, counts=(1, 64), pairs=options.pairs, cores=options.cores, figures=figures)


def main(arguments: list[str] | None = None) -> int:
    more = (
        "also numbers of queries, strategies, chains and three streams, with charts in docs/figures: about 15 minutes"
    )
    return command.run(
        "sharing",
        __doc__,
        measured,
        everything=more,
        sizes={**PAIRS, **CORES},
        worker=worker,
        arguments=arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
