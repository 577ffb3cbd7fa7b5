"""A join of two streams, one of them with skewed keys, and how even the work of its tasks is.

The other stream has uniform keys, so that there are about as many results as without skew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness
from benchmarks.harness import EPOCH, Json, median
from benchmarks.multiway import Case as Joined
from benchmarks.multiway import fingerprint

SETTLED = 6  # steps that are not counted: caches are warm after them, and the map of buckets is chosen


@dataclass(frozen=True)
class Skewed:
    """Keys of `a` by Zipf's law with exponent `zipf`, or the share `hot` of its rows with one key; the others uniform.

    `rows` of each stream are in a file, which is a step and covers as many seconds as the window reaches back.
    """

    zipf: float = 0.0
    hot: float = 0.0
    rows: int = 100_000
    files: int = 16
    keys: int = 40_000
    seconds: float = 10.0
    seed: int = 1

    def inputs(self) -> Path:
        return harness.cached("pressure-skewed", asdict(self), self._write)

    def _write(self, folder: Path) -> None:
        draw = np.random.default_rng(self.seed)
        names = draw.permutation(self.keys)
        shares = np.arange(1, self.keys + 1) ** -self.zipf
        shares /= shares.sum()
        for stream in "ab":
            (folder / stream).mkdir(parents=True)
            for number in range(self.files):
                places = draw.integers(0, self.keys, self.rows)
                if stream == "a" and self.zipf:
                    places = draw.choice(self.keys, self.rows, p=shares)
                if stream == "a" and self.hot:
                    places[draw.random(self.rows) < self.hot] = 0
                even = (number + np.arange(self.rows) / self.rows) * self.seconds
                columns = {
                    "id": pa.array(np.arange(self.rows, dtype=np.int64) + number * self.rows),
                    "k": pa.array(names[places]),
                    "ts": pa.array(EPOCH + (even * 1e6).astype(np.int64)).cast(pa.timestamp("us", tz="UTC")),
                }
                path = folder / stream / f"{number:05d}.parquet"
                pq.write_table(pa.table(columns), path)
                os.utime(path, (1_700_000_000 + number,) * 2)

    @property
    def sql(self) -> str:
        reach = int(self.seconds)
        joined = f"a [RANGE {reach} SECONDS] JOIN b [RANGE {reach} SECONDS] ON a.k = b.k"
        return f"SELECT a.id AS a_id, b.id AS b_id FROM {joined}"

    @property
    def duckdb(self) -> str:
        gap, reach = "epoch_us(b.ts) - epoch_us(a.ts)", int(self.seconds * 1e6)
        tables = " JOIN ".join(f"'{self.inputs()}/{name}/*.parquet' {name}" for name in "ab")
        return f"SELECT a.id AS a_id, b.id AS b_id FROM {tables} ON a.k = b.k WHERE abs({gap}) < {reach}"

    def expected(self) -> list[int | str]:
        """DuckDB's own answer over the same files, kept beside them."""
        kept = self.inputs() / f"answer-{hashlib.sha256(self.duckdb.encode()).hexdigest()[:16]}.json"
        if not kept.is_file():
            kept.write_text(json.dumps(fingerprint(self.duckdb, PAIR)))
        found: list[int | str] = json.loads(kept.read_text())
        return found


PAIR = Joined((0, 0), (0, 0), (0, 0), 0)  # whose results are compared by the numbers of both rows


def job(case: str, data: Skewed, tasks: int, cores: int, **options: Any) -> Callable[[], Json]:
    """A run in a process of its own."""
    asked = {"case": case, "data": asdict(data), "tasks": tasks, "cores": cores, "options": options}
    return partial(harness.in_fresh_process, "benchmarks.pressure", asked)


def work(asked: Json) -> Json:
    """Run the join, and say what each task has spent in each step, in CPU seconds, and how long the step took."""
    from penstock import Engine
    from penstock.step.stepper import Stepper

    data, steps = Skewed(**asked["data"]), list[Json]()
    original = Stepper.run_batch

    def run_batch(self: Stepper, batch: Any, batch_id: int) -> None:
        original(self, batch, batch_id)
        reports = self.last_reports
        steps.append(
            {
                "tasks": [sum(r.cpu) for r in reports],
                "wall": [sum(r.phases.values()) for r in reports],
                "phases": [dict(r.phases) for r in reports],
                "seconds": sum(self.timings.values()),
                "counts": [{name: sum(sum(getattr(c, name)) for c in r.buckets) for name in ROWS} for r in reports],
            }
        )

    with harness.scratch() as folder:
        spark = harness.session(asked["cores"])
        engine = Engine(spark, folder / "state", durable=False, tasks=asked["tasks"], **asked["options"])
        for name in "ab":
            schema = "id bigint, k bigint, ts timestamp"
            frame = harness.read_stream(spark, data.inputs() / name, schema)
            engine.stream(name, frame, event_time="ts", delay="1 second")
        query = engine.query(data.sql, name="j")
        Stepper.run_batch = run_batch  # type: ignore[method-assign]
        engine.start(available_now=True).await_termination()
        query.results().write.parquet(str(folder / "results"))
        answer = fingerprint(f"SELECT * FROM '{folder / 'results'}/*.parquet'", PAIR)
        decisions = [d for d in engine.decisions() if d["mode"] == "balance"]
        spark.stop()
    counted = steps[SETTLED:]
    return {
        "answer": answer,
        "results": answer[0],
        "excess": median([max(s["tasks"]) * len(s["tasks"]) / sum(s["tasks"]) - 1 for s in counted]),
        "excess_of_sums": _excess([sum(own) for own in zip(*(s["tasks"] for s in counted), strict=True)]),
        "excess_by_the_clock": _excess([sum(own) for own in zip(*(s["wall"] for s in counted), strict=True)]),
        "step_seconds": median([s["seconds"] for s in counted]),
        "task_seconds": median([max(s["tasks"]) for s in counted]),
        "decisions": decisions,
        "steps": steps,
        "says": f"{median([s['seconds'] for s in counted]) * 1000:.0f} ms a step, {answer[0]:,} results",
    }


ROWS = ("rows", "probed", "candidates", "compared", "results", "written")


def _excess(seconds: list[float]) -> float:
    return max(seconds) * len(seconds) / sum(seconds) - 1
