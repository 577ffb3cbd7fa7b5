"""A run of an engine in a process of its own, whose memory others can watch; it prints what it has found as JSON.

    python -m tests.memory.scene FOLDER '{"memory": "1500 MB", ..}'

Two streams with wide rows are joined; every batch but the last has the same number of rows, and the last 20 times as
many. What the join must find follows from how the rows are made.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.memory.tree import Samples

MICRO = 1_000_000


def write(folder: Path, job: dict[str, Any]) -> int:
    """Batches as files, one for each batch and stream; returns their bytes as rows of state."""
    size, width = job["rows"], job["width"]
    sizes = [size] * job["batches"] + [job.get("factor", 20) * size]
    total = 0
    for number, name in enumerate("ab"):
        (folder / name).mkdir(parents=True)
        chance, first = np.random.default_rng(number), 0
        for batch, rows in enumerate(sizes):
            with pq.ParquetWriter(folder / name / f"{batch:05}.parquet", SCHEMA, compression="zstd") as file:
                for start in range(0, rows, 1 << 14):
                    count = min(1 << 14, rows - start)
                    place = np.arange(first + start, first + start + count)
                    # Each text is of its own, but compresses well: writing the input must not take longer than the run.
                    heads = np.char.add(place.astype(str), "-")
                    texts = [head + "x" * (width - len(head)) for head in heads.tolist()]
                    times = pa.array(place * (job["seconds"] * MICRO // size), pa.timestamp("us", tz="UTC"))
                    keys = chance.integers(0, job["keys"], count)
                    file.write_table(pa.table([times, pa.array(place), pa.array(keys), pa.array(texts)], schema=SCHEMA))
                    total += count * (width + 40)
            first += rows
    return total


SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64()), ("k", pa.int64()), ("s", pa.string())])


def run(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    from penstock import Engine

    wrote = write(folder / "in", job)
    engine = Engine.local(
        folder / "state",
        cores=job.get("cores", 2),
        memory=job.get("memory"),
        durable=False,
        spark__driver__memory=job["heap"],
        spark__local__dir=str(folder / "scratch"),
    )
    for name in "ab":
        frame = engine.spark.readStream.schema("ts timestamp, n long, k long, s string")
        frame = frame.option("maxFilesPerTrigger", 1).parquet(str(folder / "in" / name))
        engine.stream(name, frame, event_time="ts", delay="0 seconds")
    window = f"[RANGE {job['window']} SECONDS]"
    engine.query(f"SELECT a.n AS a_n, b.n AS b_n, a.s AS a_s FROM a {window}, b {window} WHERE a.k = b.k", name="q")
    started = time.monotonic()
    with Samples(os.getpid()) as samples:
        running = engine.start(available_now=True)
        running.await_termination()
    seconds = time.monotonic() - started
    status = running.status()
    found = engine.results("q").selectExpr("count(*)", "sum(a_n * 31 + b_n)", "sum(length(a_s))").first()
    names = {p: _name(p) for p in samples.then}
    java = sum(size for p, size in samples.then.items() if names[p].startswith("java"))
    return {
        "most": samples.most, "java": java, "then": {f"{names[p]} {p}": size >> 20 for p, size in samples.then.items()},
        "seconds": seconds, "found": [int(value or 0) for value in found], "state": status["state"], "input": wrote,
        "memory": status["memory"], "pieces": status["memory"]["pieces"],
    }  # fmt: skip


def expected(folder: Path, job: dict[str, Any]) -> list[int]:
    """The same by DuckDB."""
    import duckdb

    window = job["window"] * MICRO
    row = duckdb.execute(
        f"""SELECT count(*), sum(a.n * 31 + b.n), sum(length(a.s))
        FROM '{folder}/a/*.parquet' a JOIN '{folder}/b/*.parquet' b ON a.k = b.k
        AND epoch_us(a.ts) - epoch_us(b.ts) < {window} AND epoch_us(b.ts) - epoch_us(a.ts) < {window}"""
    ).fetchone()
    assert row is not None
    return [int(value or 0) for value in row]


def _name(process: int) -> str:
    try:
        words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
    except OSError:
        return "?"
    return Path(words[0]).name


if __name__ == "__main__":
    place, given = Path(sys.argv[1]), json.loads(sys.argv[2])
    print(json.dumps(run(place, given)))
