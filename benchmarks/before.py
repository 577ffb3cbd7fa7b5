"""Today's code beside that of another commit: the same work in turns, in seconds of CPU.

Every checkout runs its own workers of the other benchmarks, and gets the same jobs: our side of the join, of shared and
multi-way joins, of aggregates, a fleet of different queries, small steps, and refreshes of a view. A ratio is the
median over the pairs of CPU seconds now by those before, of the whole process tree, with processes that have ended.
Results must be equal; so are rows and bytes of state, and what was shipped, unless a figure says otherwise.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks import aggregates, command, fleet, harness, join, multiway, nexmark, sharing, step
from benchmarks.command import CORES
from benchmarks.harness import Json, Peer, Report, median, pair_ratio, say

COMMIT = "7664bf2"  # the last one before the core was separated from Spark
WARM_UP = 10  # seconds of a process before its first measured run
PAIRS = {"pairs": (5, "interleaved pairs of runs")}
SAME = ("count", "checksum", "counts", "answer", "results", "different", "rows")  # of a run: what it has answered
SIZES = ("state_rows", "state_bytes", "shipped", "result_rows", "result_bytes", "work")


def joined(cores: int, *, general: bool) -> Json:
    rows, files = 800_000, 4
    inputs = join.data(rows, files, general=general)
    warm_up = join.data(rows // files // 4 * 3, 3, seed=101, general=general)
    return {
        "side": "penstock", "inputs": str(inputs), "warm_up": str(warm_up), "warm_seconds": WARM_UP, "rows": 2 * rows,
        "cores": cores, "general": general, "durable": False, "for_spark": False,
    }  # fmt: skip


def shared(cores: int) -> Json:
    case = sharing.Case(rows=480_000, files=12, seconds=2.0, longest=16)
    return {**sharing.job(case, "penstock", sharing.selective(64, case.longest), cores), "warm_seconds": WARM_UP}


def three_way(cores: int) -> Json:
    case = multiway.Case.even(3, rows=400_000, files=4, life=20, seconds=20.0, matches=4.0)
    return {**multiway.job(case, "penstock", cores), "warm_seconds": WARM_UP}


def windows(cores: int) -> Json:
    data = aggregates.Input(rows=250_000, files=8)
    return {**aggregates.job(data, "penstock", aggregates.mix(16, 300), cores), "warm_seconds": WARM_UP}


def small_steps(cores: int) -> Json:
    return {"inputs": str(step.data(200, 100)), "cores": cores, "durable": False}


def different(cores: int) -> Json:
    queries = [name for name, query in nexmark.queries().items() if query.native]
    events = {"step": 200_000, "steps": 4, "seconds": 4 * fleet.SECONDS_PER_STEP}
    return {"side": "penstock", "queries": queries, "events": events, "cores": cores, "read": False}


def refreshed(cores: int) -> Json:
    return {"cores": cores, "rows": 200_000, "turns": 8}


CASES: Mapping[str, tuple[str, Callable[[int], Json]]] = {
    "join": ("join", lambda cores: joined(cores, general=False)),
    "join_general": ("join", lambda cores: joined(cores, general=True)),
    "sharing": ("sharing", shared),
    "multiway": ("multiway", three_way),
    "aggregates": ("aggregates", windows),
    "step": ("step", small_steps),
    "fleet": ("fleet", different),
    "views": ("before", refreshed),
}


def refreshes(job: Json) -> Json:
    """A view over Parquet files, refreshed after every change; only what users call, so that any commit can run it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from penstock import Engine

    with harness.scratch() as folder:
        for name in ("orders", "items"):
            (folder / name).mkdir()
        engine = Engine(harness.session(job["cores"]), folder / "state", durable=False)
        engine.execute(f"""
            CREATE SOURCE orders (id BIGINT, item BIGINT) USING parquet OPTIONS (path '{folder}/orders')
                CHANGES BY SNAPSHOT;
            CREATE SOURCE items (id BIGINT, price BIGINT) USING parquet OPTIONS (path '{folder}/items')
                CHANGES BY SNAPSHOT;""")
        view = engine.view("SELECT o.id, i.price FROM orders o, items i WHERE o.item = i.id", name="sold")
        used, started = 0.0, time.perf_counter()
        for turn in range(job["turns"]):
            count = job["rows"] if turn == 0 else job["rows"] // 1000
            first = 0 if turn == 0 else job["rows"] + turn * count
            ids = range(first, first + count)
            items = pa.table({"id": pa.array(ids), "price": pa.array([i % 97 for i in ids])})
            orders = pa.table({"id": pa.array(ids), "item": pa.array([(i * 7) % (first + count) for i in ids])})
            pq.write_table(items, folder / "items" / f"{turn}.parquet")
            pq.write_table(orders, folder / "orders" / f"{turn}.parquet")
            before = harness.cpu_seconds()
            view.refresh()
            used += harness.cpu_seconds() - before
        rows = view.read().count()
        return {"seconds": time.perf_counter() - started, "cpu_seconds": used, "rows": rows, "says": f"{used:.1f} s"}


def tree_seconds(process: int) -> float:
    """CPU seconds of a process and all below it, with those that have ended."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        known = psutil.Process(process)
        for each in (known, *known.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(each.cpu_times()[:4])  # own and of ended children, user and system
    return total


def run(peer: Peer, job: Json) -> Json:
    """A job with the CPU seconds of the whole process tree."""
    used = tree_seconds(peer.process.pid)
    found = peer(job)
    return {**found, "tree_seconds": tree_seconds(peer.process.pid) - used}


def compare(module: str, job: Json, old: Path, pairs: int) -> Json:
    peers = {"now": Peer(f"benchmarks.{module}"), "before": Peer(f"benchmarks.{module}", old)}
    for peer in peers.values():
        run(peer, job)  # warms up, and is not counted
    found = harness.interleaved({side: lambda p=peer: run(p, job) for side, peer in peers.items()}, pairs)
    for peer in peers.values():
        peer.close()
    now, before = found["now"], found["before"]
    last = {side: {k: runs[-1][k] for k in SIZES if k in runs[-1]} for side, runs in found.items()}
    answers = [{k: r[k] for k in SAME if k in r} for r in (*now, *before)]
    return {
        "equal": all(answer == answers[0] for answer in answers),
        "cpu": round(pair_ratio([r["tree_seconds"] for r in now], [r["tree_seconds"] for r in before]), 3),
        "wall": round(pair_ratio([r["seconds"] for r in now], [r["seconds"] for r in before]), 3),
        "cpu_seconds": {side: round(median([r["tree_seconds"] for r in runs]), 2) for side, runs in found.items()},
        "differs": {k: [last["now"].get(k), last["before"].get(k)] for k in SIZES if _differ(last, k)},
    }


def _differ(last: Mapping[str, Json], name: str) -> bool:
    return bool(last["now"].get(name) != last["before"].get(name))


def measure(names: list[str], commit: str, pairs: int, cores: int) -> Report:
    load = harness.load()
    with harness.checkout(commit) as old:
        if old is None:
            raise SystemExit(f"commit {commit} is not in this repository: give another one with --commit")
        (old / "benchmarks" / "before.py").write_text(Path(__file__).read_text())
        found: dict[str, Any] = {}
        for name in names:
            module, job = CASES[name]
            say(name)
            found[name] = compare(module, job(cores), old, pairs)
            say(f"  {json.dumps(found[name])}")
    ratios = {name: case["cpu"] for name, case in found.items()}
    equal = all(case["equal"] for case in found.values())
    figures = {"commit": commit, **found, "machine": harness.machine(load)}
    return Report("before", equal, ratios, figures, lower=list(ratios))


def measured(options: Namespace) -> Report:
    names = options.cases.split(",") if options.cases else list(CASES)
    return measure(names, options.commit, options.pairs, options.cores)


def main(arguments: list[str] | None = None) -> int:
    sizes = {
        "cases": ("", f"of {', '.join(CASES)}; empty: all"), "commit": (COMMIT, "what to compare with"), **PAIRS,
        **CORES,
    }  # fmt: skip
    return command.run(
        "before", __doc__, measured, everything="nothing more", sizes=sizes, worker=refreshes, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
