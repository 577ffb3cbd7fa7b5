"""The data sets Uni, pUni and Zipf of Wang 2013 (6.1), reproducible from a seed, and a join's exact answer.

The thesis has windows of rows; here windows are of time and contain that many rows on average. Ranges with which a poor
order makes rows by the million are redrawn: the thesis does not say how it handled them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness
from benchmarks.harness import EPOCH

WIDEST = 500_000
UNI = (500, 1_000, 2_000, 10_000, 50_000, 100_000)
PUNI = (1_000, 2_000, 10_000, 50_000, 500_000)
# Table 6.2: how many streams follow Zipf's law, over how many values, and the ranges of the other, uniform ones.
ZIPF = {
    0.2: (6, (10_000, 20_000, 100_000, 200_000), ()),
    0.4: (6, (100_000, 200_000, 300_000, 1_000_000), ()),
    0.6: (3, (1_000_000, 1_500_000), (10_000, 20_000, 50_000)),
    0.8: (2, (10_000_000, 20_000_000), (5_000, 10_000, 50_000)),
}
LARGEST = 15_000  # rows of the largest window
MOST = 200.0  # composites that a row may make in the worst order, on average
PHASES = 4  # of pUni: the ranges of all streams change three times
SECOND = 1_000_000  # microseconds


@dataclass(frozen=True)
class Law:
    """The distribution of the values 1..`values` of a stream: i is proportional to i^-exponent, uniform with 0."""

    values: int
    exponent: float = 0.0

    def draw(self, count: int, source: np.random.Generator) -> np.ndarray:
        """By inversion of the integral, with rejection (Hormann & Derflinger 1996): exact, without a table."""
        if not self.exponent:
            return source.integers(1, self.values + 1, count)
        power = 1 - self.exponent
        low, high = _area(1.5, power) - 1, _area(self.values + 0.5, power)
        drawn = np.empty(0, dtype=np.int64)
        while len(drawn) < count:
            area = source.uniform(low, high, count)
            near = np.clip(np.rint((area * power) ** (1 / power)), 1, self.values)
            drawn = np.append(drawn, near[area >= _area(near + 0.5, power) - near**-self.exponent].astype(np.int64))
        return drawn[:count]


def _area(x: float | np.ndarray, power: float) -> float | np.ndarray:
    return x**power / power


@dataclass(frozen=True)
class DataSet:
    """Streams of one of the sets; each file covers a second of event time and has about `rows` rows."""

    kind: str  # 'uni', 'puni', 'zipf'
    streams: int
    window: int  # rows, a multiple of `rows`
    rows: int
    files: int
    exponent: float = 0.0  # of 'zipf'
    scale: float = 1.0  # factor on the ranges of values, for windows that are smaller than those of the thesis
    seed: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple("abcdef"[: self.streams])

    @property
    def life(self) -> int:
        """Seconds that contain as many rows as the window."""
        return self.window // self.rows

    def laws(self, number: int) -> tuple[Law, ...]:
        """The laws of all streams in one file."""
        if self.kind == "zipf":
            skewed, values, ranges = ZIPF[self.exponent]
            laws = [Law(values[n % len(values)], self.exponent) for n in range(skewed)]
            laws += [Law(ranges[n % len(ranges)]) for n in range(self.streams - skewed)]
            found = laws[: self.streams]
        elif self.kind == "uni":
            found = [Law(WIDEST), *self._drawn(UNI, self.streams - 1, 0)]
        else:
            phase = number * PHASES // self.files
            found = self._drawn(PUNI, self.streams, phase) if phase else [Law(WIDEST)] * self.streams
        return tuple(Law(max(1, round(law.values * self.scale)), law.exponent) for law in found)

    def _drawn(self, choices: Sequence[int], count: int, phase: int) -> list[Law]:
        source = np.random.default_rng([self.seed, phase, count])
        while True:
            ranges = sorted(int(r) for r in source.choice(choices, count))
            if prod(max(1.0, LARGEST / r) for r in ranges[1:]) <= MOST:
                return [Law(r) for r in source.permutation(ranges).tolist()]

    def inputs(self, seed: int | None = None, files: int | None = None) -> Path:
        seed, count = self.seed if seed is None else seed, files or self.files

        def make(folder: Path) -> None:
            for offset, name in enumerate(self.names):
                (folder / name).mkdir(parents=True)
                first = 0
                for number in range(count):
                    source = np.random.default_rng([seed, offset, number])
                    rows = round(self.rows * source.uniform(0.5, 1.5))
                    micros = np.sort(number * SECOND + source.integers(0, SECOND, rows))
                    columns = {
                        "id": pa.array(np.arange(first, first + rows, dtype=np.int64)),
                        "k": pa.array(self.laws(number)[offset].draw(rows, source)),
                        "ts": pa.array(EPOCH + micros).cast(pa.timestamp("us", tz="UTC")),
                        "v": pa.array(source.random(rows)),
                        "n": pa.array(source.integers(0, 1000, rows, dtype=np.int32)),
                    }
                    first += rows
                    path = folder / name / f"{number:05d}.parquet"
                    pq.write_table(pa.table(columns), path)
                    os.utime(path, (1_700_000_000 + number,) * 2)

        key = {name: value for name, value in asdict(self).items() if name != "window"}
        return harness.cached("dataset", {**key, "seed": seed, "files": count, "of": self.files}, make)

    @property
    def sql(self) -> str:
        select = ", ".join(f"{n}.id AS {n}_id" for n in self.names)
        roles = ", ".join(f"{n} [RANGE {self.life} SECONDS]" for n in self.names)
        return f"SELECT {select} FROM {roles} WHERE " + " AND ".join(f"a.k = {n}.k" for n in self.names[1:])

    def answer(self) -> list[int]:
        """The expected result of `fingerprint`, stored beside the files."""
        inputs = self.inputs()
        kept = inputs / f"answer-{self.life}.json"
        if not kept.is_file():
            kept.write_text(json.dumps(self._answer(inputs)))
        found: list[int] = json.loads(kept.read_text())
        return found

    def fingerprint(self, relation: str) -> list[int]:
        """The number of results, and the sum of their ids, each stream's times its place."""
        ids = " + ".join(f"{n} * {name}_id" for n, name in enumerate(self.names, 1))
        count, total = (
            duckdb.connect().execute(f"SELECT count(*), coalesce(sum({ids}), 0) FROM ({relation})").fetchone()
        )
        return [int(count), int(total)]

    def _answer(self, inputs: Path) -> list[int]:
        """By the last row of each result: as windows are equal, any rows of its key that it can see form one with it.

        This needs no join, which would have too many pairs over all time.
        """
        held = []
        for name in self.names:
            table = pq.read_table(inputs / name)
            time = table["ts"].cast(pa.int64()).to_numpy() - EPOCH
            # Keys apart by more than all time.
            place = table["k"].to_numpy() * (10_000 * SECOND) + time + self.life * SECOND
            order = np.argsort(place)
            ids = table["id"].to_numpy()[order]
            held.append((place[order], ids, np.concatenate(([0], np.cumsum(ids)))))
        count = total = 0
        for last, (place, ids, _) in enumerate(held):
            found, summed = np.ones(len(place), dtype=np.int64), (last + 1) * ids
            for other, (there, _, sums) in enumerate(held):
                if other != last:
                    side = "right" if other < last else "left"  # of equal times the last stream's row is the last
                    low, high = (
                        np.searchsorted(there, place - self.life * SECOND, "right"),
                        np.searchsorted(there, place, side),
                    )
                    high = np.maximum(low, high)
                    summed = summed * (high - low) + found * (other + 1) * (sums[high] - sums[low])
                    found = found * (high - low)
            count, total = count + int(found.sum()), total + int(summed.sum())
        return [count, total]
