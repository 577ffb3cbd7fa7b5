"""A fleet of different queries: those of NEXMark in one engine, beside Spark side by side, and DuckDB over all rows.

Every side delivers each query's own select list to a folder of Parquet files, and its time ends when the last row is
there. A run has many or few steps of equal size; the time of a step is the difference between both runs divided by the
difference in steps, so that starting does not count. Every process is fresh, and each answer is compared with DuckDB's:
whole, or (Spark, whose watermark closes no window after the last rows) up to the last window that has ended.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import command, harness, nexmark
from benchmarks.command import CORES
from benchmarks.harness import Json, Report, median, say
from benchmarks.nexmark import SECOND, STREAMS, Answer, Asked, Events

SECONDS_PER_STEP = 18  # of event time, so that ten steps cover three minutes
TINY = 1000  # events of a small step
DEAREST = "q20"  # of the queries alone
SAMPLE_SECONDS = 2.0
READ_STEPS = 2
BEFORE = "b26981e"  # rows went from the source to the join one by one
# Spark runs with the faster of its state stores for state of this size, and lets its queries share the cores fairly.
NATIVE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.join.stateFormatVersion": "2",
    "spark.scheduler.mode": "FAIR",
}


# -- the sides, each in a process of its own --------------------------------------------------------------------------


@dataclass
class Memory:
    """Peak memory of all processes of a run together, with shared pages counted once."""

    most: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            held = 0
            for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    held += process.memory_full_info().pss
            self.most = max(self.most, held)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        watcher = threading.Thread(target=self.watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            self._over.set()
            watcher.join()


def started_engine(folder: Path, inputs: Path, asked: Mapping[str, Asked], cores: int) -> Any:
    """An engine with all queries, each with a folder of its own as its sink."""
    from penstock import Engine

    engine = Engine(harness.session(cores), folder / "state", durable=False)
    engine.execute(nexmark.streams(inputs))
    for name, one in asked.items():
        engine.execute(f"{one.sql} INTO '{folder / 'out' / name}'")
    return engine


def penstock_run(folder: Path, inputs: Path, asked: Mapping[str, Asked], cores: int) -> Json:
    engine = started_engine(folder, inputs, asked, cores)
    first: list[float] = []
    used, started = harness.cpu_seconds(), time.perf_counter()
    with _first_commit(first):
        run = engine.start(available_now=True, final=True)
        run.await_termination()
    seconds, used = time.perf_counter() - started, harness.cpu_seconds() - used
    counters = engine.manifest().counters
    return {
        "seconds": seconds,
        "cpu_seconds": used,
        "late": sum(counters.stream(name).late for name in STREAMS),
        "shipped": [counters.engine.sent_rows, counters.engine.sent_bytes],
        "phases": run.status().get("phases", {}),
        "first_seconds": first[0] - started,
    }


def reading_run(folder: Path, inputs: Path, asked: Mapping[str, Asked], cores: int) -> Json:
    """The same with the time to read all results, by public methods alone: older checkouts are measured by it too."""
    engine = started_engine(folder, inputs, asked, cores)
    used, started = harness.cpu_seconds(), time.perf_counter()
    engine.start(available_now=True, final=True).await_termination()
    seconds, used = time.perf_counter() - started, harness.cpu_seconds() - used
    return {
        "seconds": seconds,
        "cpu_seconds": used,
        "late": sum(engine.late(name).count() for name in STREAMS),
        "read_seconds": read_results(engine, asked),
        "read_rows": delivered(folder / "out"),
    }


def read_results(engine: Any, asked: Mapping[str, Asked]) -> float:
    """The seconds to read the whole results of all queries; a first read, which compiles, is not counted."""
    seconds = 0.0
    for _ in range(2):
        started = time.perf_counter()
        for name in asked:
            engine.results(name).write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - started
    return seconds


def delivered(out: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in out.glob("*/*.parquet"))


@contextlib.contextmanager
def _first_commit(found: list[float]) -> Iterator[None]:
    """When steps were committed."""
    from penstock.step.stepper import Stepper

    original = Stepper._commit  # noqa: SLF001

    def noted(self: Any, entry: Any) -> None:
        original(self, entry)
        found.append(time.perf_counter())

    Stepper._commit = noted  # type: ignore[method-assign]  # noqa: SLF001
    try:
        yield
    finally:
        Stepper._commit = original  # type: ignore[method-assign]  # noqa: SLF001


def spark_run(folder: Path, inputs: Path, asked: Mapping[str, Asked], cores: int) -> Json:
    spark = harness.session(cores, **NATIVE)
    statements = nexmark.sections("nexmark_spark.sql")
    for stream in STREAMS:
        schema = spark.read.parquet(str(inputs / stream)).schema
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(str(inputs / stream))
        frame.withWatermark("date_time", "2 seconds").createOrReplaceTempView(stream)

    def start(name: str) -> Any:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        writer = spark.sql(statements[name][1]).writeStream.format("parquet").outputMode("append")
        writer = writer.option("path", str(folder / "out" / name))
        return writer.option("checkpointLocation", str(folder / "log" / name)).trigger(availableNow=True).start()

    found = harness.run_queries(lambda: [start(name) for name in asked])
    return {"seconds": found["seconds"], "cpu_seconds": found["cpu_seconds"], "late": 0}


def duckdb_run(folder: Path, inputs: Path, asked: Mapping[str, Asked]) -> Json:
    used, started = harness.cpu_seconds(), time.perf_counter()
    answer = Answer(inputs)
    for name, one in asked.items():
        (folder / "out" / name).mkdir(parents=True)
        answer.base.execute(f"COPY ({one.duckdb}) TO '{folder / 'out' / name / 'all.parquet'}' (FORMAT parquet)")
    return {"seconds": time.perf_counter() - started, "cpu_seconds": harness.cpu_seconds() - used, "late": 0}


def again(known: Mapping[str, Asked], name: str) -> Asked:
    """A query; `q5_2` is the second of the same that q5 asks."""
    first = known[name.split("_", maxsplit=1)[0]]
    return replace(first, name=name, sql=first.sql.replace(f"CREATE QUERY {first.name} ", f"CREATE QUERY {name} "))


def worker(job: Json) -> Json:
    """One run in this process, with its answers compared."""
    inputs = Events(**job["events"]).folder()
    known = nexmark.queries()
    asked = {name: again(known, name) for name in job["queries"]}
    sides: dict[str, Callable[[Path], Json]] = {
        "penstock": partial(penstock_run, inputs=inputs, asked=asked, cores=job["cores"]),
        "reading": partial(reading_run, inputs=inputs, asked=asked, cores=job["cores"]),
        "spark": partial(spark_run, inputs=inputs, asked=asked, cores=job["cores"]),
        "duckdb": partial(duckdb_run, inputs=inputs, asked=asked),
    }
    memory = Memory()
    with harness.scratch() as folder:
        with memory.watched():
            found = sides[job["side"]](folder)
        different = [] if job["side"] == "duckdb" else wrong(job, inputs, folder / "out", asked)
    says = f"{found['seconds']:6.1f} s {found['cpu_seconds']:6.1f} s CPU"
    return {
        **found,
        "memory": memory.most,
        "equal": not different and not found["late"],
        "different": different,
        "says": says,
    }


# -- the check --------------------------------------------------------------------------------------------------------


def wrong(job: Json, inputs: Path, out: Path, asked: Mapping[str, Asked]) -> list[str]:
    """The first rows of each query that differ from DuckDB's."""
    answer, lines = Answer(inputs), []
    until = native_watermark(Events(**job["events"])) if job["side"] == "spark" else None
    for name, one in asked.items():
        expected = one if until is None else ended(one, until)
        files = sorted((out / name).glob("*.parquet"))
        if files:
            found = pa.concat_tables([pq.read_table(f, partitioning=None) for f in files], promote_options="permissive")
            lines += answer.differences(expected, found)
        elif answer.rows(expected):
            lines.append(f"{name}: nothing was delivered, {answer.rows(expected):,} rows are expected")
    return lines


def native_watermark(events: Events) -> int:
    """Spark's watermark, in milliseconds, in the last batch: it follows from the rows of the batches before."""
    before = [events.tables(number)["bid"].column("date_time").cast(pa.int64()) for number in range(events.steps - 1)]
    return max(int(pc.max(times).as_py()) for times in before) // 1000 * 1000 - nexmark.DISORDER


def ended(asked: Asked, until: int) -> Asked:
    """The query for DuckDB if only the windows that end at or before this time have been answered."""
    if "[SESSION" in asked.sql:  # a session ends a gap after its last row
        return replace(asked, duckdb=f"{asked.duckdb} HAVING max(t) + {10 * SECOND} <= {until}")
    if re.search(r"\bended\b", asked.duckdb):
        return replace(asked, duckdb=f"SELECT * FROM ({asked.duckdb}) WHERE ended <= {until}")
    return asked


# -- the benchmark ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Two runs of one side that differ in their number of steps."""

    side: str
    queries: tuple[str, ...]
    step: int
    few: int
    many: int
    cores: int
    seconds_per_step: int = SECONDS_PER_STEP

    def run(self, steps: int, source: Path | None = None) -> Json:
        """One run in a fresh process; of the code in another checkout if one is given."""
        events = {"step": self.step, "steps": steps, "seconds": steps * self.seconds_per_step}
        job = {"side": self.side, "queries": list(self.queries), "events": events, "cores": self.cores}
        found = harness.in_fresh_process("benchmarks.fleet", job, source)
        say(f"  {self.side:<9} {len(self.queries):>2} queries {steps:>3} steps of {self.step:>7,}  {found['says']}")
        for line in found["different"]:
            say(f"    {line}")
        return found

    def measure(self) -> Json:
        few, many = self.run(self.few), self.run(self.many)
        more = self.many - self.few
        events = self.step * self.many
        return {
            "equal": few["equal"] and many["equal"],
            "step_seconds": round((many["seconds"] - few["seconds"]) / more, 3),
            "step_cpu_seconds": round((many["cpu_seconds"] - few["cpu_seconds"]) / more, 3),
            "cpu_seconds_per_million": round(1e6 * (many["cpu_seconds"] - few["cpu_seconds"]) / more / self.step, 2),
            "peak_gigabytes": round(many["memory"] / 2**30, 2),
            **(
                {"shipped_per_event": [round(count / events, 2) for count in many["shipped"]]}
                if "shipped" in many
                else {}
            ),
            **(
                {
                    "first_seconds": round(median([few["first_seconds"], many["first_seconds"]]), 2),
                    "phases": many["phases"],
                }
                if "first_seconds" in many
                else {}
            ),
        }


def reading(case: Case) -> Json:
    """Rows per second of `results()`, now and before rows became columns; nothing where that commit is not known."""
    now = case.run(READ_STEPS)
    found = {
        "equal": now["equal"],
        "rows": now["read_rows"],
        "rows_per_second": round(now["read_rows"] / now["read_seconds"]),
    }
    with harness.checkout(BEFORE) as source:
        if source is not None:
            then = case.run(READ_STEPS, source)
            found["before"] = round(then["read_rows"] / then["read_seconds"])
            found["commit"] = BEFORE
    return found


def measure(step: int, few: int, many: int, cores: int) -> Report:
    load, known = harness.load(), nexmark.queries()
    both, every = tuple(n for n, q in known.items() if q.native), tuple(known)
    size = {"step": step, "few": few, "many": many, "cores": cores}
    tiny = {"step": min(TINY, step), "few": few, "many": few + 6 * (many - few), "cores": cores, "seconds_per_step": 1}
    cases = {
        "17": Case("penstock", both, **size),
        "spark": Case("spark", both, **size),
        "duckdb": Case("duckdb", both, **size),
        "21": Case("penstock", every, **size),
        "1": Case("penstock", (DEAREST,), **size),
        "tiny 21": Case("penstock", every, **tiny),
        "tiny 1": Case("penstock", (DEAREST,), **tiny),
    }
    say(f"{len(both)} queries that both can answer, {len(every)} in all; {step:,} events a step")
    found = {name: case.measure() for name, case in cases.items()}
    read = reading(Case("reading", every, **size))
    seconds = {name: one["step_seconds"] for name, one in found.items()}
    ratios = {
        "spark_fleet": seconds["spark"] / seconds["17"],
        "duckdb_fleet": seconds["17"] / seconds["duckdb"],
        "fleet_one": seconds["21"] / seconds["1"],
        "fleet_tiny": seconds["tiny 21"] / seconds["tiny 1"],
        "fleet_first": found["21"]["first_seconds"] / found["1"]["first_seconds"],
    }
    if "before" in read:
        ratios["fleet_read"] = read["rows_per_second"] / read["before"]
    lower = ("duckdb_fleet", "fleet_one", "fleet_tiny", "fleet_first")
    equal = all(one["equal"] for one in (*found.values(), read))
    return Report("fleet", equal, ratios, {**found, "read": read, "machine": harness.machine(load)}, lower)


def describe(report: Report) -> str:
    names = (
        "step_seconds",
        "step_cpu_seconds",
        "cpu_seconds_per_million",
        "peak_gigabytes",
        "shipped_per_event",
        "first_seconds",
    )
    rows = [[name, *[one.get(n, "") for n in names]] for name, one in report.figures.items() if "step_seconds" in one]
    return harness.table(["case", *[name.replace("_", " ") for name in names]], rows)


SIZES = {
    "events": (200_000, "events of a step"),
    "few": (4, "steps of the shorter run"),
    "many": (10, "steps of the longer run"),
    **CORES,
}


def measured(options: Namespace) -> Report:
    sizes = (options.few, options.many, options.cores)
    report = measure(options.events, *sizes)
    if not options.all:
        return report
    from benchmarks import fleet_figures

    pictures = fleet_figures.all_figures(options.events, *sizes)
    equal = all(cell["equal"] for picture in pictures.values() for cell in picture.values())
    return replace(report, equal=report.equal and equal, figures={**report.figures, **pictures})


def main(arguments: list[str] | None = None) -> int:
    return command.run(
        "fleet",
        __doc__,
        measured,
        everything="more sizes and numbers of queries, and where the time goes, with charts",
        sizes=SIZES,
        worker=worker,
        describe=describe,
        arguments=arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
