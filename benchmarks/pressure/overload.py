"""Three times the sustainable rate for a while: how late the results of productive keys come, and whether all come.

A first run measures how long a step over one file of each stream takes. Then files come at 80 % of the rate that this
allows, at three times that rate during the overload, and again at 80 %, until nothing is owed. A result's latency is
from the time at which the file of its later row came to the commit of its step. `overload` is the 95th percentile of
the results of the more productive half of the buckets during the overload, by that before it; Spark reads all files
that have come, so nothing is held back at the source.
"""

from __future__ import annotations

import shutil
import threading
import time
from argparse import Namespace
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks import harness
from benchmarks.harness import Json, median, say
from benchmarks.multiway import fingerprint
from benchmarks.pressure.case import Case, Outcome
from benchmarks.pressure.uneven import PAIR, SCHEMA, Uneven

BEFORE, AFTER = 20, 10  # files at the usual rate
TIMES, LOAD = 3, 0.8
DATA = Uneven(rows=6_000, keys=600, seconds=1.0, reach=10)
LONGEST = 600.0  # seconds until everything is caught up


def measure(options: Namespace) -> Outcome:
    seconds = 60.0 if options.all else 20.0
    say(f"{TIMES} times the sustainable rate for {seconds:.0f} s")
    runs = [_run(options.cores, seconds) for _ in range(options.pairs)]
    ratios = {"overload": median([run["late"] / run["usual"] for run in runs])}
    equal = all(run.pop("equal") and run["owed_rows"] > 0 for run in runs)
    return Outcome(equal, ratios, {"runs": runs}, lower=("overload",))


def _run(cores: int, seconds: float) -> Json:
    asked: Json = {"case": "overload", "data": asdict(DATA), "cores": cores, "seconds": seconds}
    return harness.in_fresh_process("benchmarks.pressure", asked)


def work(asked: Json) -> Json:
    data, cores = Uneven(**asked["data"]), asked["cores"]
    spark = harness.session(cores)
    with harness.scratch() as folder:
        period = _step_seconds(spark, replace(data, files=16), folder, cores) / LOAD
        during = int(asked["seconds"] * TIMES / period)
        data = replace(data, files=BEFORE + during + AFTER)
        return _overloaded(spark, data, folder / "overload", cores, period, during)


def _step_seconds(spark: Any, data: Uneven, folder: Path, cores: int) -> float:
    """A step over one file of each stream, of those with full windows."""
    from penstock import Engine

    engine = Engine(spark, folder / "calibration", durable=False, tasks=cores)
    for name in "ab":
        engine.stream(name, harness.read_stream(spark, data.inputs() / name, SCHEMA), event_time="ts", delay="1 second")
    engine.query(data.sql, name="j")
    steps: list[Json] = harness.run_engine(engine)["steps"]
    return median([step["seconds"] for step in steps[data.reach :]])


def _overloaded(spark: Any, data: Uneven, folder: Path, cores: int, period: float, during: int) -> Json:
    from penstock import Engine
    from penstock.step.commit import Committed

    came: list[float] = []
    committed: dict[int, float] = {}
    original = Committed.commit

    def commit(self: Committed, record: Any) -> None:
        original(self, record)
        committed[record.step] = time.time()

    def bring() -> None:
        """Each file is moved in at its time, those of both streams together."""
        due = time.time()
        for number in range(data.files):
            time.sleep(max(0.0, due - time.time()))
            for name in "ab":
                shutil.copy(data.inputs() / name / f"{number:05d}.parquet", folder / f".{name}.parquet")
                (folder / f".{name}.parquet").rename(folder / name / f"{number:05d}.parquet")
            came.append(time.time())
            due += period / (TIMES if BEFORE <= number < BEFORE + during else 1)

    data.inputs()
    for name in "ab":
        (folder / name).mkdir(parents=True)
    options = {"overload": "defer", "overload_options": {"share": 0.5, "steps": 2}}
    engine = Engine(spark, folder / "state", durable=False, tasks=cores, **options)
    for name in "ab":
        frame = spark.readStream.schema(SCHEMA).parquet(str(folder / name))
        engine.stream(name, frame, event_time="ts", delay="1 second")
    query = engine.query(data.sql, name="j")
    Committed.commit = commit  # type: ignore[method-assign]
    run = engine.start(trigger=f"{period:.3f} seconds")
    source = threading.Thread(target=bring)
    source.start()
    rows, began = 0, time.monotonic()
    while time.monotonic() - began < LONGEST:
        owed = run.status()["owed"]
        rows = max(rows, owed["rows"])
        taken = engine.manifest().counters.stream("a").rows
        if not source.is_alive() and not owed["rows"] and taken == data.files * data.rows:
            break
        time.sleep(0.1)
    caught_up = time.monotonic() - began
    source.join()
    run.stop(final=True)
    query.results(step=True).write.parquet(str(folder / "results"))
    usual, late, all_late = _latencies(folder, data, came, committed, during)
    answer = fingerprint(f"SELECT a_id, b_id FROM '{folder / 'results'}/*.parquet'", PAIR)
    decisions = [d for d in engine.decisions() if d["mode"] == "overload"]
    spark.stop()
    return {
        "equal": answer == data.expected(),
        "period": round(period, 3),
        "owed_rows": rows,
        "usual": usual,
        "late": late,
        "late_of_all": all_late,
        "caught_up": round(caught_up, 1),
        "decisions": [(d["step"], d["before"], d["after"], d["reason"]) for d in decisions],
        "says": f"{usual:.2f} s usually, {late:.2f} s under overload, {rows:,} rows owed at most",
    }


def _latencies(
    folder: Path, data: Uneven, came: list[float], committed: dict[int, float], during: int
) -> tuple[float, float, float]:
    """The 95th percentile for the more productive buckets before the overload and during it; and for all during it."""
    from penstock.columns.hash import hash_bigint
    from penstock.state.buckets import bucket_of

    base = duckdb.connect()
    keys = base.execute(f"SELECT id, k FROM '{data.inputs()}/a/*.parquet'").fetchnumpy()
    found = base.execute(f"SELECT a_id, b_id, _step FROM '{folder / 'results'}/*.parquet'").fetchnumpy()
    order = np.argsort(keys["id"])
    of = keys["k"][order][np.searchsorted(keys["id"][order], found["a_id"])]
    buckets = bucket_of(hash_bigint(of.astype(np.int64)))
    counts = np.bincount(buckets)
    productive = np.isin(buckets, np.argsort(-counts)[: len(counts[counts > 0]) // 2])
    later = np.maximum(found["a_id"], found["b_id"]) // 1_000_000
    steps = np.array([committed.get(step, np.nan) for step in range(max(committed) + 1)])
    latency = steps[found["_step"]] - np.array(came)[later]
    # Windows are full after the first files.
    usually, then = (later >= data.reach) & (later < BEFORE), (later >= BEFORE) & (later < BEFORE + during)
    return tuple(
        round(float(np.percentile(latency[chosen], 95)), 3)
        for chosen in (usually & productive, then & productive, then)
    )  # type: ignore[return-value]


CASE = Case(measure, work)
