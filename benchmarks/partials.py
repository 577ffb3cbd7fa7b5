"""What should go through the exchange of a step: rows, partials made by mappers, or partials made by Spark SQL?

The first two are the engine itself, over batches that Spark reads, forced to send one or the other; windows are so long
that none is closed. Their CPU times give the costs of a row and of a partial in `planner.folding`.

Spark shuffles partials by all grouping columns, and windows are assembled from all panes of a key, so its partials need
a second exchange to the task of their key. Both sides end with the same partials in the same tasks; the kernel makes
those of rows.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import command, harness
from benchmarks.aggregates import SCHEMA, SECOND, Input
from benchmarks.harness import Json, Report, median, pair_ratio
from penstock.kernels.aggregate.forms import keep_rows
from penstock.model import Aggregate, Aggregation, Expression, Item, Ref
from penstock.model.windows import Sliding
from penstock.planner.aggregates import AggregatePlan, plan_aggregates

BATCHES = 4  # of the engine
COUNT, SUM = "p0_0", "p2_0"  # of a partial; sums are small enough for the first of their two columns
Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
REPORT = "partials bigint, rows bigint, total bigint"


@dataclass(frozen=True)
class Case:
    """One batch, and its expected sums."""

    name: str
    data: Input
    pane: int  # seconds

    def halved(self, files: int) -> Input:
        """Files with half as many rows over half the time, two of which make a batch with two mappers."""
        return replace(self.data, rows=self.data.rows // 2, seconds=self.data.seconds // 2, files=files)


CASES = (
    Case("few keys", Input(rows=500_000, files=1, keys=200, seconds=50), 1),
    Case("many keys", Input(rows=500_000, files=1, keys=10_000, seconds=50), 1),
    Case("many keys and short panes", Input(rows=500_000, files=1, keys=100_000, seconds=500), 1),
)


def plan_of(pane: int) -> AggregatePlan:
    """Count and sum by key, stored as partials."""
    key, value = (Expression((Ref(0, n),), Ref(0, n), total=True) for n in ("k", "v"))
    window = Sliding(60 * pane * SECOND, pane * SECOND)
    asked = Aggregation(window, (Item(None, key),), (Aggregate("count", None), Aggregate("sum", value)), None)
    (plan,) = plan_aggregates({0: asked}, {value: "bigint"}, wanted="paned")
    return plan


def _report(partials: int, rows: int, total: int) -> pa.RecordBatch:
    return pa.record_batch({"partials": [partials], "rows": [rows], "total": [total]})


def folded(plan: AggregatePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that makes partials of the rows it receives."""
    received = list(batches)
    if received:
        rows = pa.Table.from_batches(received)
        tables = keep_rows(plan, rows.append_column("g0", rows["_key"])).tables
        yield _report(*(sum(map(measure, tables)) for measure in (len, partial(_sum, COUNT), partial(_sum, SUM))))


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that receives partials."""
    received = list(batches)
    if received:
        table = pa.Table.from_batches(received)
        yield _report(len(table), _sum("c", table), _sum("total", table))


def _sum(column: str, table: pa.Table) -> int:
    return int(pc.sum(table[column]).as_py() or 0)


def engine_run(job: Json) -> Json:
    """The engine over batches of Spark, with mappers that send what the job says."""
    from penstock import Engine
    from penstock.planner.folding import is_foldable
    from penstock.spark import job as job_of_steps
    from penstock.step import compose

    def folded(network, _):
        return frozenset(a.index for a in network.aggregates if is_foldable(a)) if job["folded"] else frozenset()

    spark = harness.session(job["cores"])
    data = Input(**job["input"])
    sql = "SELECT k, count(*) AS n, sum(v) AS total FROM s [RANGE {} SECONDS SLIDE {} SECONDS] GROUP BY k"
    always = patch.object(job_of_steps, "FEW_ROWS", -1)  # there are mappers, also in a step with few rows
    with harness.scratch() as folder, patch.object(compose, "folded_in", folded), always:
        engine = Engine(spark, folder / "state", tasks=job["cores"], durable=False)
        read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "2").parquet(str(data.folder() / "s"))
        # With this filter no mapper reads the files itself; no window is closed.
        engine.stream("s", read.where("hash(k) IS NOT NULL"), event_time="ts", delay="1 day")
        engine.query(sql.format(60 * job["pane"], job["pane"]), name="q")
        found = harness.run_engine(engine)
        manifest = engine.manifest()
    (aggregate,) = engine.network().aggregates
    counts = manifest.counters.table(aggregate.name)
    whole = manifest.counters.engine
    stored = sum(counts.panes.partials.values())
    ms = median([1000 * step["timings"]["job"] for step in found["steps"]])
    return {
        "cpu": found["cpu_seconds"],
        "ms": ms,
        "sent_rows": whole.sent_rows,
        "sent_bytes": whole.sent_bytes,
        "sums": [stored, counts.aggregated],
        "says": f"{ms:.0f} ms a batch, {found['cpu_seconds']:.1f} s of CPU, "
        f"{whole.sent_rows:,} rows and {whole.sent_bytes / 2**20:.0f} MiB sent",
    }


def worker(job: Json) -> Json:
    return engine_run(job) if "folded" in job else spark_run(job)


def spark_run(job: Json) -> Json:
    from pyspark.sql import functions as F  # noqa: N812

    from penstock.spark.step_sessions import SETTINGS

    spark = harness.session(job["cores"], **SETTINGS)
    data, cores = Input(**job["input"]), job["cores"]

    def reports():
        """A new plan for each turn: Spark would not run the map stage of an earlier one again."""
        read = spark.read.schema(SCHEMA).parquet(str(data.folder() / "s"))
        sent = read.selectExpr("k AS _key", "unix_micros(ts) AS _ts", "v AS a0")
        work: Work = partial(folded, plan_of(job["pane"]))
        if job["side"] == "partials":
            pane = F.expr(f"_ts div {job['pane'] * SECOND}").alias("pane")
            sent, work = sent.groupBy("_key", pane).agg(F.count("*").alias("c"), F.sum("a0").alias("total")), counted
        return sent.repartitionById(cores, F.expr(f"pmod(hash(_key), {cores})")).mapInArrow(work, REPORT)

    times = []
    for _ in range(job["turns"]):
        started = time.perf_counter()
        found = reports().toArrow()
        times.append(1000 * (time.perf_counter() - started))
    sums = [_sum(name, found) for name in ("partials", "rows", "total")]
    return {"ms": median(times[job["turns"] // 2 :]), "sums": sums, "says": f"{times[-1]:.0f} ms, {sums[0]:,} partials"}


def measured(options: Namespace) -> Report:
    load = harness.load()
    found = {"engine": _of_engine(options), "spark": _of_spark(options)}
    figures = {place: of_place[2] for place, of_place in found.items()}
    ratios = {name: ratio for of_place in found.values() for name, ratio in of_place[1].items()}
    equal = all(of_place[0] for of_place in found.values())
    return Report("partials", equal, ratios, {**figures, "machine": harness.machine(load)})


def _of_engine(options: Namespace) -> tuple[bool, dict[str, float], Json]:
    """The engine with rows and with partials of mappers; and the cost of each by the CPU time of all cases."""
    peer, sides = harness.Peer("benchmarks.partials"), ("rows", "partials")
    ratios, figures, equal = dict[str, float](), Json(), True
    saved, sizes = list[float](), list[list[float]]()
    for case in CASES:
        data = case.halved(2 * BATCHES)
        harness.say(f"{case.name}, the engine: {data.all_rows:,} rows")
        asked = {"input": asdict(data), "pane": case.pane, "cores": options.cores}
        turns = {side: partial(peer, {**asked, "folded": side == "partials"}) for side in sides}
        if case is CASES[0]:
            harness.interleaved(turns, 1)  # compiled and warm
        runs = harness.interleaved(turns, options.pairs)
        sums = runs["rows"][0]["sums"]
        equal &= sums[1] == data.all_rows and all(run["sums"] == sums for side in runs.values() for run in side)
        name = f"{case.name}: CPU of rows / of partials"
        ratios[name] = pair_ratio(*([run["cpu"] for run in runs[side]] for side in ("rows", "partials")))
        figures[case.name] = {
            side: {key: median([run[key] for run in of_side]) for key in ("cpu", "ms", "sent_rows", "sent_bytes")}
            for side, of_side in runs.items()
        } | {"all_rows": data.all_rows, "kept": sums[0]}
        for one, other in zip(runs["rows"], runs["partials"], strict=True):
            saved.append(1e6 * (one["cpu"] - other["cpu"]))
            sizes.append([one["sent_rows"], -other["sent_rows"]])
    peer.close()
    row, part = np.linalg.lstsq(np.array(sizes, dtype=float), np.array(saved), rcond=None)[0].tolist()
    return equal, ratios, {**figures, "us_by_row": row, "us_by_partial": part}


def _of_spark(options: Namespace) -> tuple[bool, dict[str, float], Json]:
    """The kernel over rows that Spark exchanges, and partials of Spark."""
    peers = {side: harness.Peer("benchmarks.partials") for side in ("rows", "partials")}
    ratios, figures, equal = {}, {}, True
    for case in CASES:
        harness.say(f"{case.name}, Spark: {case.data.all_rows:,} rows")
        jobs = {
            side: {"side": side, "input": asdict(case.data), "pane": case.pane, "cores": options.cores, "turns": 5}
            for side in peers
        }
        runs = harness.interleaved({side: partial(peers[side], job) for side, job in jobs.items()}, options.pairs)
        times = {side: [run["ms"] for run in of_side] for side, of_side in runs.items()}
        sums = runs["rows"][0]["sums"]
        equal &= sums[1] == case.data.all_rows and all(run["sums"] == sums for side in runs.values() for run in side)
        ratios[f"{case.name}: rows / partials of Spark"] = pair_ratio(times["rows"], times["partials"])
        ms = {f"{side}_ms": round(median(of_side)) for side, of_side in times.items()}
        figures[case.name] = {**ms, "rows": sums[1], "partials": sums[0]}
    for peer in peers.values():
        peer.close()
    return equal, ratios, figures


def describe(report: Report) -> str:
    engine, spark = (report.figures[place] for place in ("engine", "spark"))
    names = [case.name for case in CASES if case.name in engine]
    sides = [
        [
            name,
            f"{found['all_rows'] / found['kept']:.1f}",
            side,
            f"{own['sent_rows']:,.0f}",
            f"{own['sent_bytes'] / 2**20:.1f}",
            f"{own['cpu']:.2f}",
            f"{own['ms']:.0f}",
        ]
        for name in names
        for found in [engine[name]]
        for side, own in found.items()
        if isinstance(own, dict)
    ]
    rows = [
        [name, f"{found['rows']:,}", f"{found['partials']:,}", found["rows_ms"], found["partials_ms"]]
        for name, found in spark.items()
    ]
    costs = f"A row costs {engine['us_by_row']:.2f} us of CPU, a partial of a mapper {engine['us_by_partial']:.2f} us."
    return "\n\n".join(
        [
            harness.table(
                [
                    "the engine",
                    "rows per partial of a step",
                    "sent",
                    "rows or partials",
                    "MiB",
                    "CPU, s",
                    "job of a batch, ms",
                ],
                sides,
            ),
            costs,
            harness.table(["the kernel and Spark", "rows", "partials", "rows, ms", "partials of Spark, ms"], rows),
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    return command.run(
        "partials", __doc__, measured, everything="nothing more", sizes={**command.PAIRS, **command.CORES},
        worker=worker, describe=describe, arguments=arguments,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
