"""First computation of join views: random acyclic queries, each computed by every shape that runs (Liu 2005, 3.4).

Relations have a thousand to some ten thousand rows, and results are about as large as a relation, as in the thesis; the
cluster is this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import perf_counter

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness
from benchmarks.harness import Json, median, say
from penstock.model import Edge, Expression, Item, Node, Ref, View
from penstock.planner.views.shape_cost import Costs
from penstock.planner.views.shapes import RIGHT_DEEP, Shape

PAYLOAD = ("p", "q", "r")
UNEQUAL_SIZES = 10.0  # largest relation over the smallest
KEYS = 2**61 - 1


@dataclass(frozen=True)
class Random:
    """A random acyclic query: relation n > 0 is joined to an earlier one, and the join multiplies rows by about one."""

    relations: int
    seed: int
    rows: int = 20_000  # of the largest

    def edges(self) -> list[tuple[int, int]]:
        draw = np.random.default_rng(self.seed)
        return [(int(draw.integers(0, n)), n) for n in range(1, self.relations)]

    def write(self, folder: Path) -> None:
        draw = np.random.default_rng(self.seed + 1_000)
        sizes = (self.rows * UNEQUAL_SIZES ** -draw.random(self.relations)).astype(int)
        columns = [{"id": np.arange(size)} for size in sizes]
        for own in columns:
            own.update({name: draw.integers(0, 2**40, len(own["id"])) for name in PAYLOAD})
        for number, (parent, child) in enumerate(self.edges()):
            values = max(1, round(sizes[child] / draw.uniform(0.7, 1.4)))
            for end in (parent, child):
                columns[end][f"e{number}"] = draw.integers(0, values, sizes[end])
        for number, own in enumerate(columns):
            pq.write_table(pa.table(own), folder / f"r{number}.parquet")

    def inputs(self) -> Path:
        return harness.cached("view-shapes", self.__dict__ | {"shape": UNEQUAL_SIZES}, self.write)

    def view(self) -> View:
        nodes = tuple(Node(f"r{n}", f"r{n}") for n in range(self.relations))
        edges = tuple(Edge(a, b, ((f"e{n}", f"e{n}"),)) for n, (a, b) in enumerate(self.edges()))
        columns = [Ref(n, c) for n in range(self.relations) for c in ("id", *PAYLOAD)]
        items = tuple(Item(None, Expression((ref,), ref, total=True)) for ref in columns)
        return View("v", "", nodes, edges, (), items)

    def answer(self) -> list[int]:
        """DuckDB's rows of the same query: their number, and the sum of their ids."""
        tables = ", ".join(f"'{self.inputs()}/r{n}.parquet' r{n}" for n in range(self.relations))
        tied = " AND ".join(f"r{a}.e{n} = r{b}.e{n}" for n, (a, b) in enumerate(self.edges()))
        mixed = " + ".join(f"r{n}.id * {n + 1}" for n in range(self.relations))
        every = " + ".join(f"r{n}.{c} % 1009" for n in range(self.relations) for c in PAYLOAD)
        sql = f"SELECT count(*), sum(({mixed}) * ({mixed}) % 1000003), sum({every}) FROM {tables} WHERE {tied}"
        return [int(v or 0) for v in duckdb.connect().execute(sql).fetchone()]


def computed(spark, case: Random, shape: Shape, relations, costs: Costs) -> tuple[float, list[int]]:
    """Seconds to make all rows and all their columns, and the same sums."""
    from pyspark.sql import functions as F  # noqa: N812

    from penstock.views.refresh.compute import compute

    frames = {f"r{n}": spark.read.parquet(f"{case.inputs()}/r{n}.parquet") for n in range(case.relations)}
    width = 1 + len(PAYLOAD)
    mixed = " + ".join(f"c{n * width} * {n + 1}" for n in range(case.relations))
    every = " + ".join(f"c{n * width + k} % 1009" for n in range(case.relations) for k in range(1, width))
    with harness.scratch() as folder:
        started = perf_counter()
        frame = compute(case.view(), frames, shape, relations, folder, costs)
        (row,) = frame.agg(
            F.sum("_count"), F.expr(f"sum(({mixed}) * ({mixed}) % 1000003)"), F.expr(f"sum({every})")
        ).collect()
        return perf_counter() - started, [int(v or 0) for v in row]


def of_query(spark, case: Random, costs: Costs, pairs: int, cores: int, memory: float = inf) -> Json:
    """Every kind of shape that runs on one query, in turns, after one run each to warm up."""
    from penstock.planner.views.shape_choice import RUNNABLE
    from penstock.views.refresh.compute import choose_shape

    frames = {f"r{n}": spark.read.parquet(f"{case.inputs()}/r{n}.parquet") for n in range(case.relations)}
    choice, relations = choose_shape(case.view(), frames, costs, cores, memory)
    answer, equal = case.answer(), True
    shapes = {kind: choice.best[kind] for kind in RUNNABLE if kind in choice.best}
    if memory == inf and shapes["segmented_right_deep"].segments == shapes[RIGHT_DEEP].segments:
        shapes.pop("segmented_right_deep")  # with enough memory there is nothing to split
    seconds: dict[str, list[float]] = {kind: [] for kind in shapes}
    used: dict[str, list[float]] = {kind: [] for kind in shapes}
    for turn in range(pairs + 1):
        order = list(shapes) if turn % 2 else list(reversed(shapes))
        for kind in order:
            before = harness.cpu_seconds()
            spent, found = computed(spark, case, shapes[kind], relations, costs)
            equal = equal and found == answer
            if turn:
                seconds[kind].append(spent)
                used[kind].append(harness.cpu_seconds() - before)
    medians = {kind: round(median(times), 3) for kind, times in seconds.items()}
    return {
        "equal": equal,
        "results": answer[0],
        "chosen": choice.shape.kind,
        "seconds": medians,
        "cpu_seconds": {kind: round(median(times), 2) for kind, times in used.items()},
        "estimated": {kind: round(choice.seconds[kind], 3) for kind in medians},
        "runs": seconds,
    }


def ratios_of(found: Json, over: str = RIGHT_DEEP) -> list[float]:
    """One kind over the chosen one, turn by turn."""
    chosen = found["chosen"] if found["chosen"] in found["runs"] else over
    return [a / b for a, b in zip(found["runs"][over], found["runs"][chosen], strict=True)]


def measure(cases: Sequence[Random], cores: int, pairs: int, memory: float = inf) -> Json:
    """Calibrate, then all queries in one session; Spark must not change the joins of a shape while it runs."""
    from penstock.views.refresh.calibrate import calibrate

    spark = harness.session(cores, **{"spark.sql.adaptive.enabled": "false"})
    with harness.scratch() as folder:
        costs = calibrate(spark, folder)
    shown: Json = {}
    for case in cases:
        found = of_query(spark, case, costs, pairs, cores, memory)
        shown[f"{case.relations} relations, query {case.seed}"] = found
        times = ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in found["seconds"].items())
        say(f"  {case.relations} relations, query {case.seed}: {times}; chosen {found['chosen']}")
    over = RIGHT_DEEP if memory == inf else "segmented_right_deep"
    every = [ratio for found in shown.values() for ratio in ratios_of(found, over)]
    return {
        "equal": all(found["equal"] for found in shown.values()),
        "ratio": median(every),
        "costs": {name: float(f"{value:.3g}") for name, value in costs.__dict__.items()},
        "queries": {name: {k: v for k, v in found.items() if k != "runs"} for name, found in shown.items()},
    }
