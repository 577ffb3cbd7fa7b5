"""The costs of reading, sending, building and probing a row on this Spark, from small joins that differ in one of them.

The figures serve the choice between shapes, which are compared with each other: common parts need not be exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from time import perf_counter

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.planner.views.shape_cost import Costs

NARROW, WIDE = 1, 9  # columns of 8 bytes
HOPS = 5
LEAST = 1e-9  # seconds per row where noise made the result negative


def calibrate(spark: SparkSession, scratch: Path, rows: int = 300_000, repetitions: int = 3) -> Costs:
    """Measure: takes some seconds, and writes files under `scratch`."""
    cores = spark.sparkContext.defaultParallelism
    whole, tenth = str(scratch / "whole"), str(scratch / "tenth")
    wide = [(F.col("id") * n).alias(f"c{n}") for n in range(1, WIDE)]
    for path, count in ((whole, rows), (tenth, rows // 10)):
        spark.range(count).select((F.col("id") * 7919 % count).alias("k"), *wide).write.mode("overwrite").parquet(path)
    return costs_of(_measured(spark, whole, tenth, cores, scratch, repetitions), rows, cores)


def _measured(
    spark: SparkSession, whole: str, tenth: str, cores: int, scratch: Path, repetitions: int
) -> dict[str, float]:
    """Seconds of each probe, the least of the repetitions, which run in turns after one to warm up."""

    def read(path: str, columns: int = NARROW) -> DataFrame:
        return spark.read.parquet(path).select("k", *(f"c{n}" for n in range(1, columns)))

    def sent(frame: DataFrame) -> DataFrame:
        return frame.repartition(cores, "k")

    def joined(probe: str, build: str) -> DataFrame:
        return sent(read(probe)).join(sent(read(build)).hint("shuffle_hash"), "k")

    def further(frame: DataFrame, _: int) -> DataFrame:
        return sent(frame).select((F.col("k") + 1).alias("k"))  # adjacent exchanges would be merged

    probes: dict[str, Callable[[], None]] = {
        "job": lambda: _drained(spark.range(1).toDF("k")),
        "hops": lambda: _drained(reduce(further, range(HOPS), spark.range(1).toDF("k"))),
        "read": lambda: _drained(read(whole)),
        "read wide": lambda: _drained(read(whole, WIDE)),
        "send": lambda: _drained(sent(read(whole))),
        "send wide": lambda: _drained(sent(read(whole, WIDE))),
        "probe": lambda: _drained(joined(whole, tenth)),
        "build": lambda: _drained(joined(tenth, whole)),
        "write": lambda: read(whole).write.mode("overwrite").parquet(str(scratch / "written")),
    }
    found: dict[str, list[float]] = {name: [] for name in probes}
    for _ in range(repetitions + 1):
        for name, probe in probes.items():
            started = perf_counter()
            probe()
            found[name].append(perf_counter() - started)
    return {name: min(times[1:]) for name, times in found.items()}


def _drained(frame: DataFrame) -> None:
    """Compute every row with all of its columns."""
    total: Column = F.count(F.lit(1))
    frame.select(F.xxhash64(*frame.columns).alias("h")).agg(total, F.bit_xor("h")).collect()


def costs_of(seconds: Mapping[str, float], rows: int, cores: int) -> Costs:
    """Differences between the probes, per row and core.

    Sending and partitioning are one exchange here, counted as two equal halves. A join that builds the whole table and
    one that probes with it send and read the same rows, so with the cost of the exchanges the two can be separated.
    """

    def per_row(time: float) -> float:
        return max(LEAST, time * cores / rows)

    exchange = per_row(seconds["send"] - seconds["read"])
    wider = per_row(seconds["send wide"] - seconds["read wide"])
    byte = max(0.0, wider - exchange) / (8 * (WIDE - NARROW))
    flow = max(LEAST, exchange - byte * 8 * NARROW)
    both = 1.1 * (per_row(seconds["send"] - seconds["job"]))
    probe, build = (per_row(seconds[name] - seconds["job"]) - both for name in ("probe", "build"))
    # probe = p + 0.1 b and build = b + 0.1 p
    return Costs(
        read=per_row(seconds["read"] - seconds["job"]),
        partition=flow / 2,
        send=flow / 2,
        build=max(LEAST, (build - 0.1 * probe) / 0.99),
        probe=max(LEAST, (probe - 0.1 * build) / 0.99),
        byte=byte,
        job=seconds["job"],
        hop=max(0.0, seconds["hops"] - seconds["job"]) / HOPS,
        write=per_row(seconds["write"] - seconds["read"]),
    )
