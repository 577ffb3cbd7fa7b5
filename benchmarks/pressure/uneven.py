"""A join of two streams whose buckets of keys differ in how many results they have for their rows.

Each third of the buckets gets a third of the rows, but has a fourth, a half or all of the keys (Liu 2005, figure 6.5:
rates 4, 2 and 1), so that its rows have four, two or one time as many partners.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness
from benchmarks.harness import EPOCH, Json
from benchmarks.multiway import Case as Joined
from benchmarks.multiway import fingerprint

RATES = (4, 2, 1)
SCHEMA = "id bigint, k bigint, ts timestamp"
PAIR = Joined((0, 0), (0, 0), (0, 0), 0)  # whose results are compared by the numbers of both rows


@dataclass(frozen=True)
class Uneven:
    """`rows` of each stream are in a file, which is a step of `seconds`; the window reaches back `reach` of them.

    `keys` are those of the bucket with the rate 1.
    """

    rows: int = 10_000
    files: int = 16
    keys: int = 3_000
    seconds: float = 10.0
    reach: int = 40
    seed: int = 1

    def inputs(self) -> Path:
        return harness.cached("pressure-uneven", {**asdict(self), "rates": RATES}, self._write)

    def _write(self, folder: Path) -> None:
        draw, pools = np.random.default_rng(self.seed), pools_of(self.keys)
        for stream in "ab":
            (folder / stream).mkdir(parents=True)
            for number in range(self.files):
                path = folder / stream / f"{number:05d}.parquet"
                pq.write_table(self.table(draw, pools, number), path)
                os.utime(path, (1_700_000_000 + number,) * 2)

    def table(self, draw: np.random.Generator, pools: list[np.ndarray], number: int, times: float = 1.0) -> pa.Table:
        """The rows of a step, `times` as many as usual."""
        rows = int(self.rows * times)
        third = draw.integers(0, len(pools), rows)
        keys = np.choose(third, [pool[draw.integers(0, len(pool), rows)] for pool in pools])
        even = (number + np.arange(rows) / rows) * self.seconds
        return pa.table({
            "id": pa.array(np.arange(rows, dtype=np.int64) + number * 1_000_000),
            "k": pa.array(keys),
            "ts": pa.array(EPOCH + (even * 1e6).astype(np.int64)).cast(pa.timestamp("us", tz="UTC")),
        })  # fmt: skip

    @property
    def sql(self) -> str:
        joined = f"a [RANGE {self.reach} SECONDS] JOIN b [RANGE {self.reach} SECONDS] ON a.k = b.k"
        return f"SELECT a.id AS a_id, b.id AS b_id FROM {joined}"

    def duckdb(self, inputs: Path) -> str:
        gap, reach = "epoch_us(b.ts) - epoch_us(a.ts)", self.reach * 1_000_000
        tables = " JOIN ".join(f"'{inputs}/{name}/*.parquet' {name}" for name in "ab")
        return f"SELECT a.id AS a_id, b.id AS b_id FROM {tables} ON a.k = b.k WHERE abs({gap}) < {reach}"

    def expected(self) -> list[int | str]:
        """DuckDB's own answer over the same files, kept beside them."""
        inputs = self.inputs()
        kept = inputs / f"answer-{hashlib.sha256(self.sql.encode()).hexdigest()[:16]}.json"
        if not kept.is_file():
            kept.write_text(json.dumps(fingerprint(self.duckdb(inputs), PAIR)))
        found: list[int | str] = json.loads(kept.read_text())
        return found


def pools_of(keys: int) -> list[np.ndarray]:
    """The keys of each third of the buckets: fewer of them, and so more partners for each row, at higher rates."""
    from penstock.columns.hash import hash_bigint
    from penstock.state.buckets import BUCKETS, bucket_of

    known = np.arange(64 * keys, dtype=np.int64)
    thirds = bucket_of(hash_bigint(known), BUCKETS) * len(RATES) // BUCKETS
    return [known[thirds == third][: keys // rate] for third, rate in enumerate(RATES)]


def summary(found: Json) -> Json:
    """The figures of a run without those of each step."""
    return {name: value for name, value in found.items() if name not in ("says", "answer")}
