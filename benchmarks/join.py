"""A window join of two streams: Penstock beside Spark's own stream-stream join, on the same files.

The ratio `spark` is that of plain files with numeric keys; `general` is that of sources with a projection and text
keys, beside the time of Penstock where only Spark can read such a source.

Both sides run locally, without syncs, with the same trigger size, checkpoint manager and number of partitions, each in
a fresh process after the same warm-up, and write every result to Parquet. A run counts only if its results are, by
number and checksum, those of DuckDB over the same files. The cost of syncs is printed separately, outside the ratio.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from benchmarks import command, harness
from benchmarks.command import CORES, PAIRS
from benchmarks.harness import Json, Peer, Report, median, medians, pair_ratio, say

LIFE_A, LIFE_B = 60, 40  # seconds: the windows of the two streams
DELAY = 5  # seconds; more than the disorder of the files, so that no row is late on either side
SECONDS_PER_FILE = 20
COLUMNS = ("k", "a_ts", "a_id", "a_v", "a_n", "b_ts", "b_id", "b_v", "b_n")
SELECT = (
    "a.k AS k, a.ts AS a_ts, a.id AS a_id, a.v AS a_v, a.n AS a_n, b.ts AS b_ts, b.id AS b_id, b.v AS b_v, b.n AS b_n"
)
STORES = {
    "hdfs": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        ),
        "spark.sql.streaming.join.stateFormatVersion": "2",
    },
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.join.stateFormatVersion": "4",
    },
}
SETTLED = 2  # batches before the steady state
WARM_UP = 40  # seconds before the first measured run of a process


def data(rows: int, files: int, seed: int = 1, *, general: bool = False) -> Path:
    """Enough keys for about one match per row."""
    rate = rows / files / SECONDS_PER_FILE
    keys = max(1, round(rate * (LIFE_A + LIFE_B)))
    shape = {"text": True} if general else {}
    return harness.two_streams(rows, files, keys, seed, seconds=SECONDS_PER_FILE, **shape)


def source(spark, inputs: Path, name: str, *, general: bool, for_spark: bool = False):
    """One of the streams: plain files, or a projection of them; `for_spark` with a filter that is true but no term."""
    if not general:
        return harness.read_stream(spark, inputs / name)
    schema = harness.STREAM_SCHEMA.replace("k bigint", "k string")
    rows = harness.read_stream(spark, inputs / name, schema).selectExpr("k", "ts", "id", "v", "abs(n) AS n")
    return rows.where("hash(1) IS NOT NULL") if for_spark else rows


# -- the two sides, each in its own process ---------------------------------------------------------------------------


def penstock_run(
    spark, folder: Path, inputs: Path, *, general: bool, durable: bool, for_spark: bool
) -> tuple[Json, str]:
    from penstock import Engine

    engine = Engine(spark, folder / "state", durable=durable)
    for name in "ab":
        rows = source(spark, inputs, name, general=general, for_spark=for_spark)
        engine.stream(name, rows, event_time="ts", delay=f"{DELAY} seconds")
    sql = f"SELECT {SELECT} FROM a [RANGE {LIFE_A} SECONDS] JOIN b [RANGE {LIFE_B} SECONDS] ON a.k = b.k"
    query = engine.query(sql, name="j")
    found = harness.run_engine(engine)
    late = sum(engine.late(name).count() for name in "ab")
    if late:
        raise RuntimeError(f"{late} rows are late; the sides cannot be compared")
    query.results().write.parquet(str(folder / "results"))
    return found, str(folder / "results")


def spark_run(spark, folder: Path, inputs: Path, *, general: bool) -> tuple[Json, str]:
    from pyspark.sql import functions as F  # noqa: N812

    a, b = (
        source(spark, inputs, name, general=general).withWatermark("ts", f"{DELAY} seconds").alias(name)
        for name in "ab"
    )
    condition = f"a.k = b.k AND a.ts > b.ts - INTERVAL {LIFE_A} SECONDS AND b.ts > a.ts - INTERVAL {LIFE_B} SECONDS"
    joined = a.join(b, F.expr(condition)).selectExpr(*SELECT.split(", "))
    writer = (
        joined.writeStream.format("parquet")
        .option("path", str(folder / "results"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    return harness.run_query(writer.start), str(folder / "results")


def worker(job: Json) -> Json:
    """One measured run and the check of its results, right after a warm-up.

    A new process warms up on the whole input for the same time on every side, so that all run compiled code; later runs
    only on a few small files, since Python workers die when idle.
    """
    with harness.scratch() as folder:
        first, started = SparkSession.getActiveSession() is None, time.monotonic()
        spark = harness.session(job["cores"], **STORES.get(job["side"], {}))
        run = spark_run
        if job["side"] not in STORES:
            run = partial(penstock_run, durable=job["durable"], for_spark=job["for_spark"])
        run = partial(run, general=job["general"])
        run(spark, folder / "warm-up", Path(job["inputs" if first else "warm_up"]))
        while first and time.monotonic() - started < job["warm_seconds"]:
            run(spark, folder / f"warm-up-{time.monotonic()}", Path(job["inputs"]))
        found, output = run(spark, folder / "measured", Path(job["inputs"]))
        count, checksum = fingerprint(f"SELECT * FROM '{output}/*.parquet'")
        steady = median([b["triggerExecution"] for b in found["batches"][SETTLED:]])
        rows = job["rows"]
        return {
            **found,
            "count": count,
            "checksum": checksum,
            "rate": rows / found["seconds"],
            "steady_ms": steady,
            "says": f"{found['seconds']:6.2f} s {rows / found['seconds']:>9,.0f} rows/s {steady:6.0f} ms "
            f"a batch {found['cpu_seconds']:6.1f} s CPU {count:>9,} results",
        }


# -- the check --------------------------------------------------------------------------------------------------------


def fingerprint(relation: str) -> tuple[int, str]:
    """The number of rows and an order-independent checksum."""
    values = ", ".join(f"epoch_us({c})" if c.endswith("ts") else c for c in COLUMNS)
    sql = f"SELECT count(*), coalesce(sum((hash({values}) % 2305843009213693951)::HUGEINT), 0) FROM ({relation})"
    count, total = duckdb.connect().execute(sql).fetchone()
    return int(count), str(total)


def expected(inputs: Path) -> tuple[int, str]:
    """DuckDB's own answer over the same files, kept beside them."""
    kept = inputs / f"answer-{LIFE_A}-{LIFE_B}.json"
    if not kept.is_file():
        condition = (
            f"a.k = b.k AND epoch_us(b.ts) - epoch_us(a.ts) < {LIFE_A * 1_000_000} AND epoch_us(a.ts) - "
            f"epoch_us(b.ts) < {LIFE_B * 1_000_000}"
        )
        relation = f"SELECT {SELECT} FROM '{inputs}/a/*.parquet' a JOIN '{inputs}/b/*.parquet' b ON {condition}"
        kept.write_text(json.dumps(fingerprint(relation)))
    count, checksum = json.loads(kept.read_text())
    return count, checksum


# -- the benchmark ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Interleaved pairs of runs over the same input; some more are synced."""

    rows: int
    files: int
    pairs: int
    synced: int = 0
    general: bool = False

    def measure(self, peers: Mapping[str, Peer], cores: int) -> tuple[Json, bool]:
        """The figures of all sides, and whether their results are DuckDB's."""
        inputs = data(self.rows, self.files, general=self.general)
        warm_up = data(max(1, self.rows // self.files // 4) * 3, 3, seed=101, general=self.general)
        kind = "sources with a projection, text keys" if self.general else "plain files, number keys"
        say(f"{kind}: {self.rows:,} rows in {self.files} files per stream, {self.pairs} pairs; DuckDB's answer ...")
        answer = expected(inputs)
        say(f"{answer[0]:,} results expected")
        job = {
            "inputs": str(inputs), "warm_up": str(warm_up), "warm_seconds": WARM_UP, "rows": 2 * self.rows,
            "cores": cores,
            "general": self.general, "durable": False, "for_spark": False,
        }  # fmt: skip

        def side(name: str, **changes: bool) -> partial[Json]:
            return partial(peers[name], {**job, "side": name, **changes})

        found = harness.interleaved({name: side(name) for name in peers}, self.pairs)
        if self.synced:
            found |= harness.interleaved({"penstock synced": side("penstock", durable=True)}, self.synced)
        if self.general:
            found |= harness.interleaved({"penstock read by spark": side("penstock", for_spark=True)}, 1)
        equal = all((run["count"], run["checksum"]) == answer for runs in found.values() for run in runs)
        rates = {name: [run["rate"] for run in runs] for name, runs in found.items()}
        best = max((name for name in peers if name in STORES), key=lambda s: median(rates[s]))
        return {
            "rows": 2 * self.rows,
            "batches": self.files,
            "pairs": self.pairs,
            "results": answer[0],
            "store": best,
            "ratio": round(pair_ratio(rates["penstock"], rates[best]), 3),
            "rows_per_second": {name: round(median(values)) for name, values in rates.items()},
            "pair_ratios": [round(a / b, 3) for a, b in zip(rates["penstock"], rates[best], strict=True)],
            "cpu_seconds": {name: round(median([r["cpu_seconds"] for r in runs]), 1) for name, runs in found.items()},
            "steady_ms": {name: round(median([run["steady_ms"] for run in runs])) for name, runs in found.items()},
            "steady_ratio": round(
                pair_ratio([r["steady_ms"] for r in found[best]], [r["steady_ms"] for r in found["penstock"]]), 3
            ),
            "phases_ms": {name: phases(runs) for name, runs in found.items()},
            "state": {
                name: {"rows": runs[-1]["state_rows"], "bytes": runs[-1]["state_bytes"]} for name, runs in found.items()
            },
        }, equal


def measure(plain: Case, general: Case, cores: int, stores: list[str]) -> Report:
    load = harness.load()
    peers = {name: Peer("benchmarks.join") for name in ("penstock", *stores)}
    figures, equal = plain.measure(peers, cores)
    figures["general"], as_equal = general.measure(peers, cores)
    for peer in peers.values():
        peer.close()
    figures["machine"] = harness.machine(load)
    ratios = {"spark": figures["ratio"], "general": figures["general"]["ratio"]}
    return Report("join", equal and as_equal, ratios, figures)


def phases(runs: list[Json]) -> Json:
    """Milliseconds per batch in the steady state: Spark's own clock, and for Penstock the step and its slowest task."""
    shown = {"spark": medians([b for run in runs for b in run["batches"][SETTLED:]])}
    steps = [s for run in runs for s in run.get("steps", ())[SETTLED:]]
    if steps:
        shown["step"] = medians([s["timings"] for s in steps], 1000)
        shown["task"] = medians([s["phases"] for s in steps], 1000)
    return shown


def describe(report: Report) -> str:
    parts = {
        "plain files, number keys": report.figures,
        "sources with a projection, text keys": report.figures["general"],
    }
    return "\n\n".join(f"{title}:\n{shown(figures)}" for title, figures in parts.items())


def shown(figures: Json) -> str:
    rows = [
        [
            name,
            f"{rate:,}",
            figures["steady_ms"][name],
            figures["cpu_seconds"][name],
            f"{figures['state'][name]['rows']:,}",
            figures["state"][name]["bytes"],
        ]
        for name, rate in figures["rows_per_second"].items()
    ]
    text = harness.table(["side", "rows/s", "ms a batch", "CPU s", "state rows", "state bytes"], rows)
    for name, parts in figures["phases_ms"].items():
        for kind, times in parts.items():
            text += f"\n{name}, {kind}, ms a batch: " + ", ".join(f"{part} {ms:g}" for part, ms in times.items())
    return text


def measured(options: Namespace) -> Report:
    # The HDFS-backed store is the faster one as long as the state fits the heap, as it does here; --all shows both.
    stores = list(STORES) if options.all else ["hdfs"]
    plain = Case(options.rows, options.files, options.pairs, options.pairs if options.all else 1)
    general = Case(options.rows, options.files, options.pairs, general=True)
    return measure(plain, general, options.cores, stores)


SIZES = {"rows": (2_000_000, "rows per stream"), "files": (10, "files, and so batches, per stream"), **PAIRS, **CORES}


def main(arguments: list[str] | None = None) -> int:
    more = "both state stores of Spark, and the synced run in every pair"
    return command.run(
        "join", __doc__, measured, everything=more, sizes=SIZES, worker=worker, describe=describe, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
