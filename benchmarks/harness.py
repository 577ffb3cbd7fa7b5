"""Shared parts of all measurements: cached input files, one fresh process per run, interleaved pairs, medians.

Progress goes to stderr; stdout ends with the one line that other programs read.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Json = dict[str, Any]
ROOT = Path(__file__).parents[1]
EPOCH = 1_700_000_000_000_000  # microseconds: where event time starts in generated data
GENERATOR = 1  # part of every cache key: raise it when the generated rows change


@dataclass(frozen=True)
class Report:
    """The outcome of a benchmark. Ratios require equal results; more is better, except for those named in `lower`."""

    name: str
    equal: bool
    ratios: Mapping[str, float]
    figures: Json = field(default_factory=dict)
    lower: Collection[str] = ()

    def line(self) -> str:
        ratios = {name: round(ratio, 3) for name, ratio in self.ratios.items()} if self.equal else {}
        better = {name: "lower" if name in self.lower else "higher" for name in ratios}
        line = {"name": self.name, "equal": self.equal, "ratios": ratios, "better": better, "figures": self.figures}
        return json.dumps(line)


def finish(report: Report) -> int:
    """Print the line; the exit code says whether the results were equal."""
    sys.stderr.flush()
    print(report.line(), flush=True)
    return 0 if report.equal else 1


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values)) if values else 0.0


def medians(steps: Sequence[Mapping[str, float]], scale: float = 1.0) -> dict[str, float]:
    """The median of each named part over steps; a part that a step lacks took no time there."""
    names = dict.fromkeys(name for step in steps for name in step)
    return {name: round(scale * median([step.get(name, 0.0) for step in steps]), 2) for name in names}


def pair_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of interleaved pairs, so that a slow minute affects both sides of a pair."""
    return median([a / b for a, b in zip(ours, theirs, strict=True)])


def interleaved(sides: Mapping[str, Callable[[], Json]], pairs: int) -> dict[str, list[Json]]:
    """Run every side `pairs` times, in turns, every other time in reverse order."""
    found: dict[str, list[Json]] = {name: [] for name in sides}
    for pair in range(pairs):
        order = list(sides) if pair % 2 == 0 else list(reversed(sides))
        for name in order:
            started = time.perf_counter()
            result = sides[name]()
            found[name].append(result)
            spent = time.perf_counter() - started
            say(f"  pair {pair + 1}/{pairs}  {name:<22} {result.get('says', '')}  ({spent:.0f} s with start and check)")
    return found


def in_fresh_process(module: str, job: Json, source: Path | None = None) -> Json:
    """Run `python -m module --worker <job>` and return the JSON of its last line: no side inherits another's warm JVM.

    With `source` the package is that of another checkout.
    """
    command = [sys.executable, "-m", module, "--worker", json.dumps(job)]
    environment = dict(os.environ)
    if source is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(source / "src"), environment.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise RuntimeError(f"{module} failed for {job}:\n{tail}")
    found: Json = json.loads(lines[-1])
    return found


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path | None]:
    """The files of a commit in a folder of their own; None if there is no such commit here."""
    with scratch() as folder:
        packed = subprocess.run(["git", "archive", commit], capture_output=True, check=False, cwd=ROOT)
        if packed.returncode:
            yield None
            return
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
            files.extractall(folder, filter="data")
        yield folder


class Peer:
    """A process that runs one job after the other in one warm JVM, so that sides can take turns.

    With `checkout` it runs the benchmark and the package of another one.
    """

    def __init__(self, module: str, checkout: Path | None = None) -> None:
        self.module = module
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (lives as long as the process)
        command = [sys.executable, "-m", module, "--serve"]
        environment = dict(os.environ)
        if checkout is not None:
            environment["PYTHONPATH"] = f"{checkout / 'src'}{os.pathsep}{checkout}"
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, cwd=checkout or ROOT,
            env=environment,
        )  # fmt: skip

    def __call__(self, job: Json) -> Json:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith(RESULT):
                found: Json = json.loads(line.removeprefix(RESULT))
                return found
        self.log.seek(0)
        tail = "\n".join(self.log.read().splitlines()[-40:])
        raise RuntimeError(f"{self.module} failed for {job}:\n{tail}")

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.log.close()


RESULT = "result "


def serve(work: Callable[[Json], Json]) -> None:
    """The other end of a Peer: jobs as lines of JSON from standard input, until it ends."""
    for line in sys.stdin:
        print(RESULT + json.dumps(work(json.loads(line))), flush=True)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one run's state, checkpoints and output, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cached(kind: str, key: Json, make: Callable[[Path], None]) -> Path:
    """A folder of generated data, made once per key and stored among the temporary files."""
    text = json.dumps({**key, "generator": GENERATOR}, sort_keys=True)
    root = Path(tempfile.gettempdir()) / f"penstock-bench-data-{os.getuid()}"
    folder = root / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not folder.is_dir():
        root.mkdir(exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=root))
        make(making)
        try:
            making.rename(folder)
        except OSError:  # another process made the same data in the meantime
            shutil.rmtree(making, ignore_errors=True)
    return folder


@dataclass(frozen=True)
class StreamFiles:
    """Parquet files of one stream, one per batch, with `matches` matches per row.

    Every file covers `seconds` of event time. Rows are out of order by less than `disorder` seconds, and times are
    whole milliseconds, so that equal times and exact window ends occur. With `text` keys are text.
    """

    rows: int
    files: int
    keys: int
    seed: int
    seconds: float = 20.0
    disorder: float = 2.0
    text: bool = False

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        draw = np.random.default_rng(self.seed)
        cuts = [self.rows * n // self.files for n in range(self.files + 1)]
        for number in range(self.files):
            first, count = cuts[number], cuts[number + 1] - cuts[number]
            even = (number + np.arange(count) / max(count, 1)) * self.seconds
            millis = ((even - draw.random(count) * self.disorder) * 1000).astype(np.int64)
            keys = pa.array(draw.integers(0, self.keys, count))
            columns = {
                "id": pa.array(np.arange(first, first + count, dtype=np.int64)),
                "k": pc.binary_join_element_wise("key", keys.cast(pa.string()), "-") if self.text else keys,
                "ts": pa.array(EPOCH + 1000 * millis).cast(pa.timestamp("us", tz="UTC")),
                "v": pa.array(draw.random(count)),
                "n": pa.array(draw.integers(0, 1000, count, dtype=np.int32)),
            }
            path = folder / f"{number:05d}.parquet"
            pq.write_table(pa.table(columns), path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads files by age


STREAM_SCHEMA = "id bigint, k bigint, ts timestamp, v double, n int"


def streams(
    names: Sequence[str],
    rows: int | Sequence[int],
    files: int,
    keys: int | Sequence[int],
    seed: int = 1,
    **shape: float,
) -> Path:
    """A folder of generated files for each name; rows and keys are those of every stream, or given for each."""
    of_each = [[count] * len(names) if isinstance(count, int) else list(count) for count in (rows, keys)]

    def make(folder: Path) -> None:
        for offset, (name, count, values) in enumerate(zip(names, *of_each, strict=True)):
            StreamFiles(count, files, values, seed + offset, **shape).write(folder / name)

    asked = {"rows": rows, "files": files, "keys": keys, "seed": seed, **shape}
    return cached("streams", asked if list(names) == ["a", "b"] else {**asked, "names": list(names)}, make)


def two_streams(rows: int, files: int, keys: int, seed: int = 1, **shape: float) -> Path:
    """The folders `a` and `b` of generated files, `rows` in each."""
    return streams("ab", rows, files, keys, seed, **shape)


def load() -> float:
    """How busy the machine is: runnable processes, mean of the last minute."""
    return round(os.getloadavg()[0], 2)


def machine(load_before: float) -> Json:
    """Where the figures come from: they are comparable only within one run."""
    packages = ("pyspark", "pyarrow", "numpy", "numba", "duckdb")
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "heap_gigabytes": heap_gigabytes(),
        "load": [load_before, load()],
    }


# -- runs on Spark ----------------------------------------------------------------------------------------------------


def heap_gigabytes() -> int:
    """A third of the machine's memory, at most 8: Spark's own join keeps its state in the heap."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return max(2, min(8, int(memory / 3)))


def cpu_seconds() -> float:
    """CPU time so far of this process, its JVM and its live Python workers; other load disturbs it less."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def session(cores: int, **settings: str) -> Any:
    """The same session for every side: Penstock's settings for a local disk help Spark's own queries as well."""
    try:
        from penstock.spark.session import local_session
    except ModuleNotFoundError:  # in an older checkout, which a benchmark measures beside this one
        from penstock.runtime.session import local_session  # type: ignore[import-not-found]

    common = {
        "spark.driver.memory": f"{heap_gigabytes()}g",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": str(cores),
    }
    return local_session(cores, **{**common, **settings})


def read_stream(spark: Any, folder: str | Path, schema: str = STREAM_SCHEMA) -> Any:
    """One generated file per batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(str(folder))


def run_query(start: Callable[[], Any]) -> Json:
    """Time a streaming query from its start to the end of its last batch; `start` returns Spark's handle."""
    return run_queries(lambda: [start()])


def run_queries(start: Callable[[], Sequence[Any]]) -> Json:
    """Time concurrent queries, from the start of the first to the end of the last; batches are the first's."""
    used, started = cpu_seconds(), time.perf_counter()
    queries = start()
    for query in queries:
        query.awaitTermination()
    seconds, used = time.perf_counter() - started, cpu_seconds() - used
    progress = [[json.loads(p.json()) for p in query._jsq.recentProgress()] for query in queries]  # noqa: SLF001
    _release()
    state = [operator for of_query in progress for operator in of_query[-1]["stateOperators"]]
    return {
        "seconds": seconds,
        "cpu_seconds": used,
        "batches": [p["durationMs"] for p in progress[0] if "addBatch" in p["durationMs"]],
        "state_rows": sum(s["numRowsTotal"] for s in state),
        "state_bytes": sum(s["memoryUsedBytes"] for s in state),
    }


def _release() -> None:
    """Release the state of native queries that have ended: in the heap it would slow the following runs."""
    from pyspark import SparkContext

    jvm = SparkContext._active_spark_context._jvm  # noqa: SLF001
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    jvm.java.lang.System.gc()


def force_orders(engine: Any, orders: Mapping[int, Sequence[int]]) -> None:
    """Make an engine begin with these probe orders; use the mode 'static', which keeps them."""
    steer = engine.catalog.steer

    def fixed(*arguments: Any) -> Any:
        steering = steer(*arguments)
        for mode in steering.modes.values():
            mode.orders = {start: tuple(order) for start, order in orders.items()}
        steering.refresh()
        return steering

    engine.catalog.steer = fixed


def run_engine(engine: Any) -> Json:
    """Time an engine over the present input in the same way, and record each step."""
    steps: list[Json] = []
    runs = []

    def start() -> Any:
        runs.append(engine.start(available_now=True))
        return runs[0].spark_query

    with _recorded(steps):
        found = run_query(start)
        runs[0].await_termination()
    last = steps[-1] if steps else {"state_rows": 0, "state_bytes": 0}
    return {**found, "steps": steps, "state_rows": last["state_rows"], "state_bytes": last["state_bytes"]}


@contextlib.contextmanager
def _recorded(steps: list[Json]) -> Iterator[None]:
    """Record the timings of each step, and the phases of its slowest task."""
    from penstock.step.stepper import Stepper

    original = Stepper.run_batch

    def run_batch(self: Any, batch: Any, batch_id: int) -> None:
        original(self, batch, batch_id)
        phases = [report.phases for report in self.last_reports]
        steps.append(
            {
                "timings": dict(self.timings),
                "phases": max(phases, key=lambda p: sum(p.values()), default={}),
                "state_rows": sum(run.rows for run in self.manifest.runs.values()),
                "state_bytes": sum(run.bytes for run in self.manifest.runs.values()),
            }
        )

    Stepper.run_batch = run_batch  # type: ignore[method-assign]
    try:
        yield
    finally:
        Stepper.run_batch = original  # type: ignore[method-assign]
