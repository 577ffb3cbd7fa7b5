"""A long run of small steps: neither the cost nor the leftovers of a step may depend on how many steps there were.

Each step brings two streams some rows on time, some late and some invalid ones. Three queries run all the time (a join
into a folder, a join and a window aggregate into functions), their results expire after a few steps, and every so many
steps one more query is added, an older one is altered, and the oldest is dropped. The ratio is the worst growth from
the first tenth of the steps to the last: of the time of a step, memory (PSS of all processes), the part of the JVM's
heap that survives a full collection, open files, files in the state directory, and bytes of the manifest.

The whole heap of the JVM is resident from the start: else a collector with free memory touches more and more of it, up
to its limit, whatever is live.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import command, harness
from benchmarks.command import CORES
from benchmarks.harness import EPOCH, Json, Report, median, say

NAMES = ("a", "b")
SCHEMA = "id bigint, step bigint, k bigint, v bigint, ts timestamp"
SECOND = 1_000_000
DELAY = "1 second"  # rows on time are less than a second out of order
RETAIN = "20 seconds"  # as many steps, since each covers a second
SIDE_RETAIN = "20 seconds"  # of the clock, fewer than the warm-up takes: late and invalid rows come and go too
AHEAD = 4  # files ready to be read, so that every step finds one of each stream
BEHIND = 10  # steps after which a file that was read is removed from the folder that Spark lists
ROUND = 64  # steps between two snapshots, and between two rounds of upkeep: sizes rise and fall with them
GRACE = 5.0  # seconds before released files are deleted
SAMPLE_EVERY = 4  # steps
LIMIT = 1.2  # the maximal growth
HEAP = "1g"
# All caches by count or by time must be full before growth is measured: Spark keeps 100 batches, and source logs for
# ten minutes.
SETTINGS = {
    "spark.driver.memory": HEAP,
    "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC -Xms{HEAP} -XX:+AlwaysPreTouch",
    "spark.sql.streaming.numRecentProgressUpdates": "100",
    "spark.sql.streaming.fileSource.log.cleanupDelay": f"{GRACE:.0f}s",
}
STANDING = {
    "pairs": "SELECT a.id AS a_id, b.id AS b_id FROM a [RANGE 5 SECONDS] JOIN b [RANGE 3 SECONDS] ON a.k = b.k",
    "dear": "SELECT a.id AS a_id, b.v AS b_v "
    "FROM a [RANGE 4 SECONDS] JOIN b [RANGE 4 SECONDS] ON a.k = b.k WHERE b.v > 500",
    "sums": "SELECT k, count(*) AS c, sum(v) AS total, window_end FROM a [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k",
}
COMING = (
    "SELECT a.id AS a_id, b.id AS b_id FROM a [RANGE {seconds} SECONDS] JOIN b [RANGE 2 SECONDS] ON a.k = b.k "
    "WHERE a.v > {least}"
)


@dataclass(frozen=True)
class Case:
    """The rows of a step, and the length of the run: `seconds`, and from `least` to `most` steps."""

    rows: int = 100  # of each stream, on time
    late: int = 3
    bad: int = 2
    keys: int = 20
    warm_up: int = 320
    least: int = 400
    most: int = 1_000_000
    seconds: float = 200.0
    change_every: int = 50

    def table(self, stream: int, number: int) -> pa.Table:
        """The rows of a step: of its second, of an hour before (not in the first step), and without a time."""
        draw = np.random.default_rng((number, stream))
        late = self.late if number else 0
        count = self.rows + late + self.bad
        times = EPOCH + number * SECOND - draw.integers(0, 9 * SECOND // 10, count)
        times[self.rows : self.rows + late] -= 3600 * SECOND
        timeless = np.arange(count) >= self.rows + late
        keyless = draw.random(count) < 0.05
        table = pa.table({
            "id": pa.array(number * 1000 + np.arange(count)),
            "step": pa.array(np.full(count, number)),
            "k": pa.array(draw.integers(0, self.keys, count), mask=keyless),
            "v": pa.array(draw.integers(0, 1000, count)),
            "ts": pa.array(times, mask=timeless).cast(pa.timestamp("us", tz="UTC")),
        })  # fmt: skip
        return table.take(pa.array(draw.permutation(count)))


class Feed:
    """Files of the streams: written some steps ahead, and removed once they have been read."""

    def __init__(self, case: Case, root: Path) -> None:
        self.case, self.root = case, root
        self.written = self.taken = 0
        for name in NAMES:
            for folder in ("in", "read"):
                (root / folder / name).mkdir(parents=True)

    def up_to(self, number: int) -> None:
        """Write the files before this one."""
        for step in range(self.written, number):
            for stream, name in enumerate(NAMES):
                aside = self.root / f"{name}.parquet"
                pq.write_table(self.case.table(stream, step), aside)
                os.utime(aside, (1_700_000_000 + step,) * 2)  # Spark reads files by age
                aside.rename(self.root / "in" / name / f"{step:08d}.parquet")
        self.written = max(self.written, number)

    def take(self, number: int) -> None:
        """Remove the files before this one."""
        for step in range(self.taken, number):
            for name in NAMES:
                file = self.root / "in" / name / f"{step:08d}.parquet"
                file.rename(self.root / "read" / name / file.name)
        self.taken = max(self.taken, number)


@dataclass
class Sum:
    """A number of rows and an order-independent checksum: the rows themselves would need the measured memory."""

    rows: int = 0
    checksum: int = 0

    def __call__(self, table: pa.Table, _step: int = -1) -> None:
        total = np.zeros(len(table), dtype=np.uint64)
        for number, column in enumerate(table.columns):
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("us", tz=column.type.tz))  # noqa: PLW2901
            values = column.cast(pa.int64()).fill_null(-1).to_numpy().view(np.uint64)
            total = (total ^ values + np.uint64(number)) * np.uint64(0x9E3779B97F4A7C15)
            total ^= total >> np.uint64(29)
        self.rows += len(table)
        self.checksum = (self.checksum + int(total.sum(dtype=np.uint64))) % 2**64


# -- what is measured -------------------------------------------------------------------------------------------------


@dataclass
class Watch:
    """The batches of a run: when each was done, and which version of the queries answered it."""

    done: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    moved: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, batches: int, run: Any) -> int:
        """Wait for so many batches; returns how many are done."""
        with self.moved:
            while len(self.done) < batches:
                if not self.moved.wait(timeout=1.0) and not run.active:
                    run.await_termination(0)
                    raise RuntimeError("the run has ended before its time")
            return len(self.done)

    def first(self, version: int) -> int:
        """The first batch that this version of the queries, or a later one, has answered."""
        return next((n for n, v in enumerate(self.versions) if v >= version), len(self.versions))


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Note each batch, and delete released files soon."""
    from penstock.step import stepper as step

    run_batch, collect, versions = step.Stepper.run_batch, step.collect_orphans, step.collect_versions

    def noted(self: Any, batch: Any, batch_id: int) -> None:
        version = self.network.version
        run_batch(self, batch, batch_id)
        with watch.moved:
            watch.done.append(time.perf_counter())
            watch.versions.append(version)
            watch.moved.notify_all()

    step.Stepper.run_batch = noted  # type: ignore[method-assign]
    step.collect_orphans, step.collect_versions = partial(collect, grace=GRACE), partial(versions, grace=GRACE)
    try:
        yield
    finally:
        step.Stepper.run_batch = run_batch  # type: ignore[method-assign]
        step.collect_orphans, step.collect_versions = collect, versions


def sample(state: Path) -> dict[str, float]:
    """The memory of all processes of the run, and the content of the state directory, by folder."""
    found: Counter[str] = Counter()
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            kind = "driver" if process == own else "jvm" if process.name() == "java" else "workers"
            held = process.memory_full_info().pss
            found["memory"] += held
            found[f"memory_{kind}"] += held
            found["open_files"] += process.num_fds()
    for folder, _, names in os.walk(state):
        found["files"] += len(names)
        found[(*Path(folder).relative_to(state).parts, "itself")[0]] += len(names)
    snapshots = sorted((state / "manifest").glob("snapshot-*.json"))
    found["manifest"] = snapshots[-1].stat().st_size if snapshots else 0
    return dict(found)


def live_heap(spark: Any) -> int:
    """Bytes of the JVM's heap in use after full collections: Spark releases some objects only after the first."""
    for _ in range(2):
        spark._jvm.System.gc()  # noqa: SLF001
        time.sleep(0.5)
    runtime = spark._jvm.Runtime.getRuntime()  # noqa: SLF001
    return int(runtime.totalMemory() - runtime.freeMemory())


MEASURED = ("step", "memory", "open_files", "files", "manifest")


def growth(times: Sequence[float], samples: Mapping[int, Mapping[str, float]], warm_up: int) -> Json:
    """Of each quantity the first tenth after warm-up, the last, and their ratio; a tenth is at least one round."""
    counted = len(times) - warm_up
    length = max(1, min(max(ROUND, counted // 10), counted // 2))
    tenths = (range(warm_up, warm_up + length), range(len(times) - length, len(times)))
    found: Json = {}
    for name in dict.fromkeys([*MEASURED, *(name for one in samples.values() for name in one)]):
        if name == "step":
            ends = [median([times[n] - times[n - 1] for n in tenth if n > 0]) for tenth in tenths]
        else:
            ends = [float(np.mean([samples[n].get(name, 0) for n in tenth if n in samples] or [0])) for tenth in tenths]
        found[name] = grown(*ends)
    return found


def grown(first: float, last: float) -> Json:
    return {"first": round(first, 4), "last": round(last, 4), "growth": round(last / first, 3) if first else 1.0}


# -- the run ----------------------------------------------------------------------------------------------------------


@dataclass
class Came:
    """An added query: its first form, the altered one, and the versions with which it began, was altered and ended."""

    name: str
    texts: list[str]
    versions: list[int]
    got: Sum = field(default_factory=Sum)


def changed(engine: Any, came: list[Came]) -> None:
    """One more query; the one before is altered, and the one before that is dropped."""

    def version() -> int:
        return int(engine.network().version)

    number = len(came)
    if number >= 2:
        engine.drop(came[-2].name)
        came[-2].versions.append(version())
    if number >= 1:
        last = came[-1]
        last.texts.append(COMING.format(seconds=5, least=100 + number % 7))
        engine.query(last.texts[-1], name=last.name, into=last.got, retain=RETAIN, replace=True)
        last.versions.append(version())
    one = Came(f"coming_{number}", [COMING.format(seconds=3, least=400 + number % 5)], [])
    engine.query(one.texts[0], name=one.name, into=one.got, retain=RETAIN)
    one.versions.append(version())
    came.append(one)


def soak(case: Case, cores: int, folder: Path) -> Json:
    from penstock import Engine

    spark = harness.session(cores, **SETTINGS)
    feed, watch, samples = Feed(case, folder / "data"), Watch(), {}
    state, out = folder / "state", folder / "out"
    engine = Engine(spark, state)
    for name in NAMES:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
        frame = reader.parquet(str(folder / "data" / "in" / name))
        engine.stream(name, frame, event_time="ts", delay=DELAY, side_retain=SIDE_RETAIN)
    got = {name: Sum() for name in STANDING if name != "pairs"}
    for name, sql in STANDING.items():
        engine.query(sql, name=name, into=got.get(name, str(out)), retain=RETAIN)
    came: list[Came] = []
    heaps: list[int] = []
    with watched(watch):
        feed.up_to(AHEAD)
        run = engine.start(trigger="0 seconds")
        batches, begun, start = 0, False, 0.0
        while True:
            batches = watch.wait(batches + 1, run)
            if not begun and batches >= case.warm_up:
                begun, start = True, time.perf_counter()
                samples[batches] = sample(state)
                heaps.append(live_heap(spark))
            enough = batches >= case.warm_up + case.least and time.perf_counter() - start >= case.seconds
            if enough or batches >= case.warm_up + case.most:
                break
            feed.up_to(batches + AHEAD)
            feed.take(max(0, batches - BEHIND))
            if batches >= max(samples, default=0) + SAMPLE_EVERY:  # steps go on meanwhile: some numbers are never seen
                samples[batches] = sample(state)
            if batches >= case.change_every * (len(came) + 1):
                changed(engine, came)
            if batches % 100 == 0:
                last = samples[max(samples)] if samples else {}
                say(f"{batches} steps: " + ", ".join(f"{name} {value:,.0f}" for name, value in sorted(last.items())))
        heaps.append(live_heap(spark))
        watch.wait(feed.written, run)
        run.stop(final=True)
    feed.take(feed.written)
    manifest = engine.manifest()
    counted = {name: manifest.counters.stream(name) for name in NAMES}
    answer = Answer(feed, watch)
    right = {
        "rows": all(
            (c.rows, c.late, c.bad)
            == (
                feed.written * (case.rows + case.late + case.bad) - case.late,
                (feed.written - 1) * case.late,
                feed.written * case.bad,
            )
            for c in counted.values()
        ),
        "pairs": answer.folder(out) == answer.standing("pairs"),
        **{name: found == answer.standing(name) for name, found in got.items()},
        **{one.name: one.got == answer.came(one) for one in came},
        "expired": all(f.step > manifest.step - 4 * ROUND for f in manifest.results.values()),
    }
    return {
        "right": right,
        "steps": batches - case.warm_up,
        "warm_up": case.warm_up,
        "seconds": round(watch.done[batches - 1] - watch.done[min(case.warm_up, batches) - 1], 1),
        "changes": len(came),
        "results": {name: found.rows for name, found in got.items()},
        "late": {name: c.late for name, c in counted.items()},
        "bad": {name: c.bad for name, c in counted.items()},
        "growth": growth(watch.done[:batches], samples, case.warm_up) | {"live_heap": grown(*map(float, heaps))},
    }


# -- the check --------------------------------------------------------------------------------------------------------


class Answer:
    """DuckDB's answers over all rows on time, of the steps that a query has seen."""

    def __init__(self, feed: Feed, watch: Watch) -> None:
        self.watch, self.base = watch, duckdb.connect()
        for name in NAMES:
            files = f"{feed.root}/read/{name}/*.parquet"
            self.base.execute(
                f"CREATE TABLE {name} AS SELECT *, epoch_us(ts) AS t FROM '{files}' "
                f"WHERE epoch_us(ts) >= {EPOCH} + (step - 1) * {SECOND}"
            )

    def _sum(self, sql: str) -> Sum:
        found = Sum()
        found(self.base.sql(sql).to_arrow_table())
        return found

    def folder(self, out: Path) -> Sum:
        return self._sum(f"SELECT a_id, b_id FROM '{out}/*.parquet'")

    def _join(self, select: str, lives: tuple[int, int], where: str, steps: tuple[int, int] = (0, 2**60)) -> str:
        seen = " AND ".join(f"{name}.step >= {steps[0]} AND {name}.step < {steps[1]}" for name in NAMES)
        windows = f"b.t - a.t < {lives[0] * SECOND} AND a.t - b.t < {lives[1] * SECOND}"
        return f"SELECT {select} FROM a JOIN b ON a.k = b.k WHERE {windows} AND {where} AND {seen}"

    def standing(self, name: str) -> Sum:
        if name == "pairs":
            return self._sum(self._join("a.id, b.id", (5, 3), "TRUE"))
        if name == "dear":
            return self._sum(self._join("a.id, b.v", (4, 4), "b.v > 500"))
        ends = f"SELECT *, (t // {SECOND} + 1 + unnest(range(4))) * {SECOND} AS ended FROM a"
        return self._sum(f"SELECT k, count(*), sum(v)::BIGINT, ended FROM ({ends}) GROUP BY k, ended")

    def came(self, one: Came) -> Sum:
        """Each form of a query saw only the rows of its own steps."""
        begins = [*(self.watch.first(version) for version in one.versions), len(self.watch.versions)]
        found = Sum()
        for text, *steps in zip(one.texts, begins, begins[1:], strict=False):
            seconds, least = 3 if text is one.texts[0] else 5, int(text.rsplit(" ", 1)[1])
            piece = self._sum(self._join("a.id, b.id", (seconds, 2), f"a.v > {least}", (steps[0], steps[1])))
            found.rows, found.checksum = found.rows + piece.rows, (found.checksum + piece.checksum) % 2**64
        return found


# -- the benchmark ----------------------------------------------------------------------------------------------------


def measure(case: Case, cores: int) -> Report:
    load = harness.load()
    with harness.scratch() as folder:
        found = soak(case, cores, folder)
    wrong = [name for name, right in found["right"].items() if not right]
    if wrong:
        say(f"NOT as expected: {', '.join(wrong)}")
    worst = max(found["growth"][name]["growth"] for name in (*MEASURED, "live_heap"))
    figures = {**found, "limit": LIMIT, "machine": harness.machine(load)}
    return Report("soak", not wrong, {"soak": worst}, figures, lower=["soak"])


def describe(report: Report) -> str:
    rows = [
        [name, f"{cell['first']:,}", f"{cell['last']:,}", cell["growth"]]
        for name, cell in report.figures["growth"].items()
    ]
    return harness.table(["", "first tenth", "last tenth", "growth"], rows)


SIZES = {
    "seconds": (Case.seconds, "seconds of steps after the warm-up"),
    "least": (Case.least, "steps after the warm-up, at least"),
    **CORES,
}
LONG = 10_000


def measured(options: Namespace) -> Report:
    long = {"least": LONG, "most": LONG} if options.all else {"least": options.least}
    return measure(Case(seconds=options.seconds, **long), options.cores)


def main(arguments: list[str] | None = None) -> int:
    return command.run(
        "soak", __doc__, measured, everything=f"{LONG:,} steps", sizes=SIZES, describe=describe, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
