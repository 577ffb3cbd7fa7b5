"""Counts and sums by key over sliding windows: Penstock beside Spark's own `window()`, and cost by number of queries.

Spark puts every row into each of its windows, so with long windows it gets only the first files, and rates are rows per
second of batches. Every run is compared with DuckDB's answer over panes of a second: exactly the windows that are due,
row by row for the newest of them and for some queries, by number for all.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import command, harness
from benchmarks.command import CORES
from benchmarks.harness import EPOCH, Json, Report, median, pair_ratio, say

SCHEMA = "k bigint, ts timestamp, v bigint"
SECOND = 1_000_000  # microseconds
DISORDER, DELAY = 1.9, 2  # seconds: no row is late on either side
SLIDES = (1, 2, 5, 10, 15, 20, 30, 60)
LONGEST, SHORTEST = 600, 15  # seconds: the ranges of many queries
CHECKED = 8  # queries whose rows are compared, of many
NEWEST = 100  # seconds of window ends whose rows are compared
WARM_UP = 20  # seconds before the first measured run of a process
NOTHING = pa.table({"k": [], "ended": pa.array([], pa.timestamp("us", tz="UTC")), "c": [], "total": []})
HDFS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    )
}


# -- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """One query: its window in seconds, and the rows that a group must have to be a result."""

    range: int
    slide: int
    least: int = 1

    def penstock(self) -> str:
        having = f" HAVING count(*) >= {self.least}" if self.least > 1 else ""
        return (
            f"SELECT k, window_end AS ended, count(*) AS c, sum(v) AS total "
            f"FROM s [RANGE {self.range} SECONDS SLIDE {self.slide} SECONDS] GROUP BY k{having}"
        )

    def native(self, rows):
        """As Spark says it: its windows begin at multiples of the slide, ours end there."""
        from pyspark.sql import functions as F  # noqa: N812

        offset = f"{-self.range % self.slide} seconds"
        window = F.window("ts", f"{self.range} seconds", f"{self.slide} seconds", offset)
        found = rows.groupBy("k", window.alias("w")).agg(F.count("*").alias("c"), F.sum("v").alias("total"))
        return found.where(F.col("c") >= self.least).select("k", F.col("w.end").alias("ended"), "c", "total")


def mix(count: int, least: int) -> list[Asked]:
    """Different windows, long and short, with slides of all kinds; the first is the longest with the shortest slide."""
    ranges = np.linspace(LONGEST, SHORTEST, count).round().astype(int).tolist()
    return [Asked(length, SLIDES[number % len(SLIDES)], least) for number, length in enumerate(ranges)]


# -- the input and the answer -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """Files of rows with Zipf-distributed keys; those of a longer input begin with those of a shorter one.

    Every file covers `seconds` of event time, out of order across files too. After them comes one with `tail` rows, if
    any: it only adds a batch that knows the progress of the one before.
    """

    rows: int  # of a file
    files: int
    keys: int = 10_000
    seconds: int = 50
    tail: int = 0
    seed: int = 1

    @property
    def all_rows(self) -> int:
        return self.rows * self.files + self.tail

    def folder(self) -> Path:
        return harness.cached("aggregates", asdict(self), self._write)

    def _write(self, folder: Path) -> None:
        (folder / "s").mkdir()
        law = np.cumsum(1 / np.arange(1, self.keys + 1))
        for number, count in enumerate([self.rows] * self.files + [self.tail] * bool(self.tail)):
            draw = np.random.default_rng([self.seed, number])
            even = (number + np.arange(count) / count) * self.seconds
            millis = ((even - draw.random(count) * DISORDER) * 1000).astype(np.int64)
            columns = {
                "k": pa.array(np.searchsorted(law, draw.random(count) * law[-1])),
                "ts": pa.array(EPOCH + 1000 * millis).cast(pa.timestamp("us", tz="UTC")),
                "v": pa.array(draw.integers(0, 1500, count)),
            }
            path = folder / "s" / f"{number:05d}.parquet"
            pq.write_table(pa.table(columns), path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads files by age

    def due(self) -> tuple[int, int]:
        """Progress as the last batch knew it, and after that batch."""
        newest = [pc.max(pq.read_table(path)["ts"]).value for path in sorted((self.folder() / "s").iterdir())]
        known = [max(newest[:n], default=0) - DELAY * SECOND for n in (len(newest) - 1, len(newest))]
        return known[0], known[1]


class Answer:
    """The correct answer for an input, for any windows of whole seconds: from counts and sums by key and second."""

    def __init__(self, data: Input) -> None:
        kept = data.folder() / "panes.parquet"
        if not kept.is_file():
            part = kept.with_suffix(f".{os.getpid()}")
            duckdb.connect().execute(
                f"COPY (SELECT k, epoch_us(ts) // {SECOND} AS pane, count(*) AS c, sum(v)::BIGINT AS total "
                f"FROM '{data.folder()}/s/*.parquet' GROUP BY ALL) TO '{part}' (FORMAT parquet)"
            )
            part.rename(kept)
        keys, panes, *values = (pq.read_table(kept)[name].to_numpy() for name in ("k", "pane", "c", "total"))
        self.first, last = int(panes.min()), int(panes.max())
        self.sums = []  # of each key, of all seconds before a given one
        for value in values:
            table = np.zeros((int(keys.max()) + 1, last - self.first + 2), dtype=np.int64)
            table[keys, panes - self.first + 1] = value
            self.sums.append(table.cumsum(axis=1))
        self.due = data.due()

    def _ends(self, asked: Asked, due: int, since: int) -> np.ndarray:
        """In seconds after the first: the ends of windows that are due, those after `since` only."""
        low = max(self.first + 1, since // SECOND + 1)
        return np.arange(-(-low // asked.slide) * asked.slide, due // SECOND + 1, asked.slide) - self.first

    def _inside(self, asked: Asked, ends: np.ndarray) -> list[np.ndarray]:
        last = self.sums[0].shape[1] - 1
        upper, lower = np.clip(ends, 0, last), np.clip(ends - asked.range, 0, last)
        return [sums[:, upper] - sums[:, lower] for sums in self.sums]

    def count(self, asked: Asked, due: int) -> int:
        count, _ = self._inside(asked, self._ends(asked, due, 0))
        return int((count >= asked.least).sum())

    def rows(self, asked: Asked, due: int, since: int = 0) -> np.ndarray:
        """Key, end in microseconds, count and sum, in order."""
        ends = self._ends(asked, due, since)
        count, total = self._inside(asked, ends)
        keys, windows = np.nonzero(count >= asked.least)
        found = [keys, (ends[windows] + self.first) * SECOND, count[keys, windows], total[keys, windows]]
        return in_order(np.stack(found, axis=1))

    def agrees(self, queries: Sequence[Asked], counts: Sequence[int], some: Callable[[int, int], pa.Table]) -> bool:
        """Whether all are right with the progress that the last batch knew, or that it brought.

        `some(n, since)` are the results of query n whose windows end after a time.
        """
        chosen = sorted(set(np.linspace(0, len(queries) - 1, min(CHECKED, len(queries))).round().astype(int).tolist()))
        for due in self.due:
            if [self.count(asked, due) for asked in queries] == list(counts):
                since = due - NEWEST * SECOND
                return all(np.array_equal(shown(some(n, since)), self.rows(queries[n], due, since)) for n in chosen)
        return False


def shown(table: pa.Table) -> np.ndarray:
    """Results of either side in the form of the answer."""
    ended = table["ended"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    columns = [table["k"], ended, table["c"], table["total"]]
    return in_order(np.stack([column.to_numpy().astype(np.int64) for column in columns], axis=1))


def in_order(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort(rows.T[::-1])]


# -- the sides, each in its own process -------------------------------------------------------------------------------


def read(spark, data: Input):
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(str(data.folder() / "s"))


def penstock_run(
    spark,
    folder: Path,
    data: Input,
    queries: Sequence[Asked],
    *,
    check: bool = True,
    rows: bool = False,
    **options: str,
) -> Json:
    """With `rows` every result is a stored row, as a folder needs it; else results have the default form."""
    from pyspark.sql import functions as F  # noqa: N812

    from penstock import Engine

    engine = Engine(spark, folder / "state", durable=False, **options)
    engine.stream("s", read(spark, data), event_time="ts", delay=f"{DELAY} seconds")
    asked = [
        engine.query(query.penstock(), name=f"q{number}", into=str(folder / f"q{number}") if rows else None)
        for number, query in enumerate(queries)
    ]
    found = harness.run_engine(engine)
    manifest = engine.manifest()
    late = manifest.counters.stream("s").late
    if late:
        raise RuntimeError(f"{late} rows are late; the sides cannot be compared")
    written = manifest.results.values()
    found |= {
        "results": sum(query.stats()["results"] for query in asked),
        "result_rows": sum(f.rows for f in written),
        "result_bytes": sum(f.bytes for f in written),
    }

    def some(number: int, since: int) -> pa.Table:
        return asked[number].results().where(F.unix_micros("ended") > since).toArrow()

    if check:
        started = time.perf_counter()
        asked[0].results().write.format("noop").mode("overwrite").save()
        found["read_seconds"] = time.perf_counter() - started
    counts = [query.stats()["results"] for query in asked] if check else []
    return {**found, "counts": counts, "equal": not check or Answer(data).agrees(queries, counts, some)}


def native_run(spark, folder: Path, data: Input, queries: Sequence[Asked], *, check: bool = True) -> Json:
    def start(number: int, asked: Asked):
        rows = read(spark, data).withWatermark("ts", f"{DELAY} seconds")
        writer = asked.native(rows).writeStream.format("parquet").option("path", str(folder / f"q{number}"))
        return writer.option("checkpointLocation", str(folder / f"log{number}")).trigger(availableNow=True).start()

    found = harness.run_queries(lambda: [start(n, asked) for n, asked in enumerate(queries)])
    files = [list((folder / f"q{number}").glob("*.parquet")) for number in range(len(queries))]
    counts = [sum(pq.read_metadata(f).num_rows for f in of_query) for of_query in files]
    found |= {
        "results": sum(counts),
        "result_rows": sum(counts),
        "result_bytes": sum(f.stat().st_size for of_query in files for f in of_query),
    }

    def some(number: int, since: int) -> pa.Table:
        if not files[number]:
            return NOTHING
        table = pa.concat_tables(pq.read_table(f) for f in files[number])
        times = table["ended"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        return table.filter(pc.greater(times, since))

    return {**found, "counts": counts, "equal": not check or Answer(data).agrees(queries, counts, some)}


def worker(job: Json) -> Json:
    """One measured run. A new process warms up for the same time on every side; later only idle Python workers."""
    with harness.scratch() as folder:
        native = job["side"] == "native"
        first, started = SparkSession.getActiveSession() is None, time.monotonic()
        spark = harness.session(job["cores"], **(HDFS if native else {}))
        queries = [Asked(**asked) for asked in job["queries"]]
        data, warm_up = Input(**job["input"]), Input(**job["warm_up"])
        run = native_run if native else partial(penstock_run, **job["options"])
        if first or not native:
            run(spark, folder / "warm-up", warm_up, queries, check=False)
        while first and time.monotonic() - started < job["warm_seconds"]:
            run(spark, folder / f"warm-up-{time.monotonic()}", warm_up, queries, check=False)
        found = run(spark, folder / "measured", data, queries)
        batches = [batch["triggerExecution"] for batch in found["batches"]]
        full = batches[: data.files]  # a tail is not measured
        rate = 1000 * data.rows * len(full) / sum(full)
        return {
            **found,
            "batch_ms": batches,
            "rate": rate,
            "says": f"{rate:10,.0f} rows/s, {median(full):7.0f} ms a batch, {found['results']:>10,} "
            f"results in {found['result_rows']:>9,} rows, {found['state_rows']:>9,} rows of state",
        }


# -- the benchmark ----------------------------------------------------------------------------------------------------


def job(data: Input, side: str, queries: Sequence[Asked], cores: int, **options: object) -> Json:
    warm_up = replace(data, rows=max(1, data.rows // 10), files=2, tail=0, seed=101)
    return {
        "side": side, "input": asdict(data), "warm_up": asdict(warm_up),
        "queries": [asdict(asked) for asked in queries],
        "cores": cores, "options": options, "warm_seconds": WARM_UP,
    }  # fmt: skip


Peers = Callable[[str], Callable[[Json], Json]]


def of_side(runs: Sequence[Json], data: Input) -> Json:
    """The figures of a side: rates and batches are medians of its runs, the rest is from the last run."""
    last = runs[-1]
    return {
        "equal": all(run["equal"] for run in runs),
        "batches": data.files,
        "rows_per_second": round(median([run["rate"] for run in runs])),
        "batch_ms": [round(median(times)) for times in zip(*(run["batch_ms"] for run in runs), strict=True)],
        "cpu_seconds": round(median([run["cpu_seconds"] for run in runs]), 1),
        **{name: last[name] for name in ("results", "result_rows", "result_bytes", "state_rows", "state_bytes")},
        # Penstock only: to assemble and read all results of the first query.
        **({"read_ms": round(1000 * median([run["read_seconds"] for run in runs]))} if "read_seconds" in last else {}),
    }


def beside_spark(peers: Peers, asked: Sequence[Asked], data: Input, capped: Input, pairs: int, cores: int) -> Json:
    """The same queries on both sides, Spark's over the capped input."""
    windows = ", ".join(f"{query.range} s / {query.slide} s" for query in asked[:4])
    say(f"{windows}: {data.all_rows:,} rows beside {capped.all_rows:,} of Spark's own window()")
    inputs = {"penstock": data, "native": capped}
    sides = {side: partial(peers(side), job(given, side, asked, cores)) for side, given in inputs.items()}
    found = harness.interleaved(sides, pairs)
    shown = {side: of_side(found[side], given) for side, given in inputs.items()}
    return {
        "equal": all(side["equal"] for side in shown.values()),
        "ratio": pair_ratio(*([run["rate"] for run in found[side]] for side in inputs)),
        "pair_ratios": [round(a["rate"] / b["rate"], 2) for a, b in zip(*found.values(), strict=True)],
        **shown,
    }


def by_number(
    peers: Peers, data: Input, counts: Sequence[int], least: int, pairs: int, cores: int, **options: str
) -> Json:
    """Step times of K queries with HAVING, for each K, once two thirds of the input have filled the windows."""
    say(f"{', '.join(map(str, counts))} queries with HAVING, {data.all_rows:,} rows in {data.files} steps")
    sides = {
        str(count): partial(peers("penstock"), job(data, "penstock", mix(count, least), cores, **options))
        for count in counts
    }
    found = harness.interleaved(sides, pairs)
    shown: Json = {count: {**of_side(runs, data), "step_ms": _step_ms(runs)} for count, runs in found.items()}
    for count, runs in found.items():
        steps = [step for run in runs for step in run["steps"][data.files * 2 // 3 :]]
        shown[count]["phases_ms"] = harness.medians([step["phases"] for step in steps], 1000)
    first, last = (found[str(count)] for count in (counts[0], counts[-1]))
    return {
        "equal": all(side["equal"] for side in shown.values()),
        "ratio": pair_ratio([_step_ms([run]) for run in last], [_step_ms([run]) for run in first]),
        **shown,
    }


def _step_ms(runs: Sequence[Json]) -> float:
    return round(median([ms for run in runs for ms in run["batch_ms"][len(run["batch_ms"]) * 2 // 3 :]]), 1)


@dataclass(frozen=True)
class Case:
    """What is measured. Spark gets `capped` files for the short window, `share` of a file and its tail for the long."""

    short: Input = Input(rows=250_000, files=8)
    capped: int = 2
    full: Input = Input(rows=250_000, files=14)  # 700 s: the longest windows are full for the last third
    tail: int = 1_000
    share: float = 0.15
    counts: tuple[int, int] = (1, 64)
    least: int = 300  # of HAVING

    @property
    def one(self) -> Input:
        """As dense as a whole file, and shorter: Spark takes minutes for one."""
        rows, seconds = int(self.full.rows * self.share), int(self.full.seconds * self.share)
        return replace(self.full, rows=rows, seconds=seconds, files=1, tail=self.tail)


def measure(case: Case, pairs: int, cores: int, figures: Callable[[Peers, Case, int], Json] | None = None) -> Report:
    """The cases behind the ratios, and whatever `figures` measures."""
    load = harness.load()
    started: dict[str, harness.Peer] = {}

    def peers(side: str) -> harness.Peer:
        if side not in started:
            started[side] = harness.Peer("benchmarks.aggregates")
        return started[side]

    short, long = [Asked(60, 1)], [Asked(600, 1)]
    found = {
        "sliding": beside_spark(peers, short, case.short, replace(case.short, files=case.capped), pairs, cores),
        "by_number": by_number(peers, case.full, case.counts, case.least, pairs, cores),
        "sliding_600": beside_spark(peers, long, case.full, case.one, 1, cores),
    }
    pictures = figures(peers, case, cores) if figures else {}
    for peer in started.values():
        peer.close()
    equal = all(part["equal"] for part in found.values()) and all(
        cell["equal"] for picture in pictures.values() for cell in picture.values()
    )
    ratios = {
        "spark_sliding": found["sliding"]["ratio"],
        "spark_sliding_600": found["sliding_600"]["ratio"],
        f"own_k{case.counts[-1]}": found["by_number"]["ratio"],
    }
    shown = {**found, **pictures, "machine": harness.machine(load)}
    return Report("aggregates", equal, ratios, shown, lower=[f"own_k{case.counts[-1]}"])


def describe(report: Report) -> str:
    rows = []
    for part in ("sliding", "sliding_600", "by_number"):
        for name, side in report.figures[part].items():
            if isinstance(side, dict):
                size = f"{side['result_bytes'] / 2**20:,.1f}"
                rows.append(
                    [
                        part,
                        name,
                        side["batches"],
                        f"{side['rows_per_second']:,}",
                        round(median(side["batch_ms"])),
                        f"{side['results']:,}",
                        f"{side['result_rows']:,}",
                        size,
                        f"{side['state_rows']:,}",
                    ]
                )
    return harness.table(
        ["case", "side", "batches", "rows/s", "ms a batch", "results", "stored as", "MB", "state rows"], rows
    )


def measured(options: Namespace) -> Report:
    figures = None
    if options.all:
        from benchmarks.aggregates_figures import all_figures as figures
    return measure(Case(), options.pairs, options.cores, figures)


SIZES = {"pairs": (2, "interleaved pairs of runs"), **CORES}


def main(arguments: list[str] | None = None) -> int:
    more = (
        "also ranges, plans, numbers of queries, rows of every result, disorder and skewed groups, with charts "
        "in docs/figures: about 20 minutes"
    )
    return command.run(
        "aggregates", __doc__, measured, everything=more, sizes=SIZES, worker=worker, describe=describe,
        arguments=arguments,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
