"""Clean-ups: how long they take if the most or the least productive buckets were put off, or are paid first.

Most steps put off 30 % of the work. `cleanup` is the time by which half of the missing results are there if a clean-up
begins with the most productive buckets, beside one that begins with the least productive ones: the same work in another
order. `put_off` is the time of the whole clean-up if the most productive buckets were put off, by that with the least
productive ones (Liu 2005, figure 6.5: 13.4 times).
"""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.harness import Json
from benchmarks.multiway import fingerprint
from benchmarks.pressure.case import Case, Outcome
from benchmarks.pressure.uneven import PAIR, SCHEMA, Uneven, summary

SHARE = 0.3
PORTION = 12  # buckets that are paid at a time
LAST_NORMAL = 5  # steps that only measure loads


def measure(options: Namespace) -> Outcome:
    data = Uneven()
    jobs: dict[str, Any] = {}
    for put_off in ("least_productive", "most_productive", "random"):
        for first in ("most_productive", "least_productive") if put_off == "random" else ("most_productive",):
            asked = {
                "case": "cleanup",
                "data": asdict(data),
                "put_off": put_off,
                "first": first,
                "cores": options.cores,
            }
            jobs[f"{put_off} put off, {first} paid first"] = partial(
                harness.in_fresh_process, "benchmarks.pressure", asked
            )
    runs = harness.interleaved(jobs, options.pairs)
    equal = all(run["answer"] == data.expected() for own in runs.values() for run in own)
    names = list(jobs)

    def ratio(name: str, one: int, other: int) -> float:
        return harness.pair_ratio([r[name] for r in runs[names[one]]], [r[name] for r in runs[names[other]]])

    ratios = {"cleanup": ratio("half", 2, 3), "put_off": ratio("seconds", 1, 0)}
    figures = {name: [summary(run) for run in own] for name, own in runs.items()}
    return Outcome(equal, ratios, figures, lower=("cleanup",))


def work(asked: Json) -> Json:
    """Run the join, put buckets off from some step on, and pay."""
    from penstock import Engine
    from penstock.planner.deferral.loads import learn
    from penstock.planner.deferral.selectors import SELECTORS, chosen
    from penstock.state.owed import Owed, numbers_in, ranges_of
    from penstock.step.owing import Chosen
    from penstock.step.relief import loads_of
    from penstock.step.stepper import Stepper

    data, known = Uneven(**asked["data"]), {"loads": (), "taken": frozenset()}
    original, whole = Stepper.run_batch, Stepper.clean_up
    found: list[tuple[float, int]] = []

    def run_batch(self: Stepper, batch: Any, batch_id: int) -> None:
        original(self, batch, batch_id)
        buckets = self.registry.buckets
        if batch_id <= LAST_NORMAL:
            known["loads"] = learn(known["loads"], batch_id, loads_of(self.last_reports, buckets))
        if batch_id == LAST_NORMAL:
            order = SELECTORS[asked["put_off"]](known["loads"], 1)
            known["taken"] = chosen(order, known["loads"], SHARE, frozenset())
            self.put_off = Chosen({table.name: ranges_of(known["taken"]) for table in self.network.tables})

    def part(own: Owed, some: set[int]) -> Owed:
        ranges = ranges_of(numbers_in(own.buckets) & some)
        return Owed(own.table, own.starts, ranges, own.first, own.last, own.since, own.held, own.without)

    def clean_up(self: Stepper, owed: Any = None) -> None:
        """All that is owed, a few buckets at a time."""
        if owed is not None or not self.manifest.owed:
            return whole(self, owed)
        before, started = self.manifest.counters.query(1).results, time.perf_counter()
        order = SELECTORS[asked["first"]](known["loads"], 1)
        left = [bucket for bucket in order if bucket in known["taken"]]
        for start in range(0, len(left), PORTION):
            some = set(left[start : start + PORTION])
            whole(self, [own for own in (part(o, some) for o in self.manifest.owed) if own.buckets])
            found.append((time.perf_counter() - started, self.manifest.counters.query(1).results - before))
        return None

    with harness.scratch() as folder:
        spark = harness.session(asked["cores"])
        engine = Engine(spark, folder / "state", durable=False, tasks=asked["cores"])
        for name in "ab":
            frame = harness.read_stream(spark, data.inputs() / name, SCHEMA)
            engine.stream(name, frame, event_time="ts", delay="1 second")
        query = engine.query(data.sql, name="j")
        Stepper.run_batch = run_batch  # type: ignore[method-assign]
        Stepper.pay = lambda *_: None  # type: ignore[method-assign]  # nothing is paid in spare time
        Stepper.clean_up = clean_up  # type: ignore[method-assign]
        run = engine.start(trigger="0 seconds")
        while run.status()["batch"] < data.files - 1:
            time.sleep(0.02)
        rows = run.status()["owed"]["rows"]
        run.clean_up()
        run.stop()
        query.results().write.parquet(str(folder / "results"))
        answer = fingerprint(f"SELECT * FROM '{folder / 'results'}/*.parquet'", PAIR)
        spark.stop()
    seconds, results = found[-1]
    half = next(spent for spent, missing in found if missing >= results / 2)
    return {
        "answer": answer,
        "buckets": len(known["taken"]),
        "owed_rows": rows,
        "missing_results": results,
        "seconds": seconds,
        "half": half,
        "says": f"{results:,} missing results of {rows:,} rows in {seconds:.2f} s, half of them in {half:.2f} s",
    }


CASE = Case(measure, work)
