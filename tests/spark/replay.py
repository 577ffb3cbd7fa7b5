"""Streams as Parquet files that Spark reads again alike after a crash, and an engine run over them.

Each step brings one file to each stream (an empty one if the stream gets nothing) and each batch reads one file of
each, so that Spark's micro-batches are exactly the steps that were written.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from penstock import Engine
from penstock.columns.types import arrow_type
from penstock.model import Column, Stream
from penstock.reference import Row
from penstock.run import Run
from penstock.spark.session import local_session
from tests.effort import ALL
from tests.workloads import Workload

TIMEOUT = 300.0


def quick_session() -> SparkSession:
    """A session with little compilation: JVMs are short-lived, and in `make test` most of Spark's queries run once.

    What Spark computes from generated code is also tried in `make test`: by `generated_code`, and by the programs that
    tests start.
    """
    return local_session(
        cores=2,
        spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark__sql__codegen__wholeStage=str(ALL).lower(),
    )


@contextlib.contextmanager
def generated_code(spark: SparkSession) -> Iterator[None]:
    """Within, Spark generates code for whole stages of a query, as it does outside of tests."""
    before = spark.conf.get("spark.sql.codegen.wholeStage")
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    try:
        yield
    finally:
        spark.conf.set("spark.sql.codegen.wholeStage", before)


class Saved:
    """A folder that was used, and a copy of it, from which it is restored where it was: Spark's log holds paths."""

    def __init__(self, root: Path, copy: Path) -> None:
        self.root, self.copy = root, copy
        shutil.copytree(root, copy, dirs_exist_ok=True)

    def restore(self) -> Path:
        shutil.rmtree(self.root)
        shutil.copytree(self.copy, self.root)
        return self.root


def stream(name: str, columns: str, *, event_time: str = "ts", delay: int = 0, **options: object) -> Stream:
    """A stream from a line like 'ts timestamp, k bigint'."""
    pairs = [part.strip().split(" ", 1) for part in columns.split(", ")]
    return Stream(name, tuple(Column(n, t) for n, t in pairs), event_time, delay, **options)


FOR_SPARK = "hash(1) IS NOT NULL"  # true, but no term of ours: with this filter a source is read by Spark


class Replay:
    """A folder of files for each stream; `add` writes what the next step brings."""

    def __init__(self, root: Path, *streams: Stream) -> None:
        self.root = root
        self.streams = {s.name: s for s in streams}
        for name in self.streams:
            (root / name).mkdir(parents=True, exist_ok=True)
        self.steps = len(list((root / next(iter(self.streams))).glob("*.parquet")))
        self.plain = True  # workers may read the files themselves; otherwise all rows come through Spark

    def add(self, **rows: Sequence[Row]) -> None:
        self.add_alone(*self.streams, **rows)

    def add_alone(self, *names: str, **rows: Sequence[Row]) -> None:
        """A step that brings no file to other streams than these."""
        for name in names:
            stream = self.streams[name]
            columns = {
                c.name: pa.array([row[c.name] for row in rows.get(name, ())], arrow_type(c.type))
                for c in stream.columns
            }
            # Spark lists whole files only: written aside, moved in, and older than the next by a whole second.
            aside = self.root / f".{name}.parquet"
            pq.write_table(pa.table(columns), aside)
            modified = time.time() - 100_000 + self.steps
            os.utime(aside, (modified, modified))
            aside.rename(self.root / name / f"{self.steps:05d}.parquet")
        self.steps += 1

    def frame(self, spark: SparkSession, name: str, *, files: int = 1) -> DataFrame:
        schema = ", ".join(f"`{c.name}` {c.type}" for c in self.streams[name].columns)
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", files)
        frame = reader.parquet(str(self.root / name))
        return frame if self.plain else frame.where(FOR_SPARK)

    def declare(self, engine: Engine, *names: str) -> None:
        """Register the streams (all, or those named) with the options of their models."""
        for name in names or self.streams:
            s = self.streams[name]
            engine.stream(
                name, self.frame(engine.spark, name), event_time=s.event_time, delay=s.delay, late=s.late, bad=s.bad,
                idle=s.idle, idle_skew=s.idle_skew, sequence=s.sequence,
            )  # fmt: skip

    def engine(
        self,
        spark: SparkSession,
        state: Path,
        queries: Mapping[str, str] | None = None,
        *,
        tasks: int = 2,
        strategy: str = "auto",
        plan: str = "auto",
        **options: Any,
    ) -> Engine:
        """An engine with all streams and the given queries (name -> SQL) declared, not yet started."""
        engine = Engine(spark, state, tasks=tasks, durable=False, strategy=strategy, plan=plan, **options)
        self.declare(engine)
        for name, sql in (queries or {}).items():
            engine.query(sql, name=name)
        return engine


def replay_of(workload: Workload, root: Path, *, steps: int | None = None) -> Replay:
    """The workload's first batches (all if `steps` is None) as files."""
    replay = Replay(root, *workload.streams.values())
    # Both ways, by chance.
    replay.plain = sum(len(rows) for batch in workload.batches for rows in batch.values()) % 2 == 0
    for batch in workload.batches[:steps]:
        replay.add(**batch)
    return replay


def names(workload: Workload) -> dict[str, str]:
    return {f"q{n}": sql for n, sql in enumerate(workload.queries)}


def drain(engine: Engine, *, final: bool = False) -> Run:
    """Answer all input that is there."""
    run = engine.start(available_now=True, final=final)
    assert run.await_termination(TIMEOUT)
    return run


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def steps_by_batch(engine: Engine) -> dict[int, int]:
    """Which step consumed each batch; ticks are steps too, so the numbers differ."""
    entries = [_unsealed(p) for p in Path(engine.store.path("manifest")).glob("[0-9]*.json")]
    return {entry["batch"]: entry["step"] for entry in entries if entry["batch"] is not None}


def _unsealed(entry: Path) -> dict[str, Any]:
    return json.loads(entry.read_text().partition(" ")[2])


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    """The rows of a DataFrame as plain values; timestamps as microseconds."""
    return values_of(frame.toArrow())


def values_of(table: pa.Table) -> list[tuple[object, ...]]:
    """The same of a table."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())  # noqa: PLW2901
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))
