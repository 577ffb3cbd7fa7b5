"""What should go through the exchange of a step: rows, or the partial aggregates that Spark SQL makes of them by key and pane?

Spark shuffles partials by all that they are grouped by, and windows are put together from all panes of a key, so partials need a second
exchange to come to the task of their key. Both sides end with the same partials in the same tasks; the kernel makes those of rows.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import command, harness
from benchmarks.aggregates import SCHEMA, SECOND, Input
from benchmarks.harness import Json, Report, median, pair_ratio
from penstock.kernels.aggregate.forms import keep_rows
from penstock.model import Aggregate, Aggregation, Expression, Item, Ref
from penstock.model.windows import Sliding
from penstock.planner.aggregates import AggregatePlan, plan_aggregates

COUNT, SUM = "p0_0", "p2_0"  # of a partial; sums are small enough for the first of their two columns
Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
REPORT = "partials bigint, rows bigint, total bigint"


@dataclass(frozen=True)
class Case:
    """One batch, and what it comes down to."""

    name: str
    data: Input
    pane: int  # seconds


CASES = (
    Case("few keys", Input(rows=500_000, files=1, keys=200, seconds=50), 1),
    Case("many keys", Input(rows=500_000, files=1, keys=10_000, seconds=50), 1),
    Case("many keys and short panes", Input(rows=500_000, files=1, keys=100_000, seconds=500), 1),
)


def plan_of(pane: int) -> AggregatePlan:
    """Count and sum by key, kept as partials."""
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


def worker(job: Json) -> Json:
    from pyspark.sql import functions as F  # noqa: N812

    from penstock.runtime.steps.step_sessions import SETTINGS

    spark = harness.session(job["cores"], **SETTINGS)
    data, cores = Input(**job["input"]), job["cores"]

    def reports():
        """A plan of its own for each turn: Spark would not run the map stage of one that it has run."""
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
    peers = {side: harness.Peer("benchmarks.partials") for side in ("rows", "partials")}
    ratios, figures, equal = {}, {}, True
    for case in CASES:
        harness.say(f"{case.name}: {case.data.all_rows:,} rows")
        jobs = {
            side: {"side": side, "input": asdict(case.data), "pane": case.pane, "cores": options.cores, "turns": 8}
            for side in peers
        }
        runs = harness.interleaved({side: partial(peers[side], job) for side, job in jobs.items()}, options.pairs)
        times = {side: [run["ms"] for run in of_side] for side, of_side in runs.items()}
        sums = runs["rows"][0]["sums"]
        equal &= sums[1] == case.data.all_rows and all(run["sums"] == sums for side in runs.values() for run in side)
        ratios[case.name] = pair_ratio(times["rows"], times["partials"])
        ms = {f"{side}_ms": round(median(of_side)) for side, of_side in times.items()}
        figures[case.name] = {**ms, "rows": sums[1], "partials": sums[0]}
    for peer in peers.values():
        peer.close()
    return Report("partials", equal, ratios, {**figures, "machine": harness.machine(load)})


def describe(report: Report) -> str:
    rows = [
        [name, f"{found['rows']:,}", f"{found['partials']:,}", found["rows_ms"], found["partials_ms"], f"{report.ratios[name]:.2f}"]
        for name, found in report.figures.items()
        if name != "machine"
    ]  # fmt: skip
    return harness.table(["case", "rows", "partials", "rows, ms", "partials, ms", "rows / partials"], rows)


def main(arguments: list[str] | None = None) -> int:
    return command.run(
        "partials", __doc__, measured, everything="nothing more", sizes={**command.PAIRS, **command.CORES},
        worker=worker, describe=describe, arguments=arguments,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
