"""Figures of views: shapes by number of relations, strategies over updates, ratios, sources and delays, cycles, TPC-H.

Each follows an experiment of Liu 2005 (3.4, 10.5, 11.4) at sizes for one machine; figures go to `docs/figures` as SVG.
No ratio of the benchmark depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import harness, views_shapes
from benchmarks.harness import Json, median, say
from benchmarks.views import BATCH, RECOMPUTE, Bench, Case, Size
from benchmarks.views_shapes import Random
from benchmarks.views_sources import Chain, Cyclic, Files, Postgres, Relation, Tpch, fingerprint, tpch_files
from lab.maintenance import beam, hamiltonian_paths
from penstock.demo.shop import server
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.views.choice import priced
from penstock.planner.views.formulas import stepper
from penstock.planner.views.knee import SIZES, Knee
from penstock.planner.views.regression import Tau, fit
from penstock.planner.views.statistics import Statistics
from penstock.planner.views.strategies import batch, conditional
from penstock.views.refresh.maintain import graph_of, maintain
from penstock.views.rows.bag import COUNT

FOLDER = harness.ROOT / "docs" / "figures"
NAMES = (BATCH, "parallel_batch", "adjacent", "conditional", "parallel_conditional", RECOMPUTE)
CYCLE_NAMES = (BATCH, "parallel_batch", "conditional", "parallel_conditional", RECOMPUTE)
SLOW_ROW = 0.0005  # seconds; the thesis uses ten times as many, and runs for days
SIX = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (1, 4)]
CYCLES = {
    "V1, a chain": [(0, 1), (1, 2), (2, 3)],
    "V2, a triangle and one more": [(0, 1), (1, 2), (0, 2), (2, 3)],
    "V3, all pairs but one": [(0, 1), (1, 2), (0, 2), (1, 3), (2, 3)],
}


def all_figures(size: Size) -> Json:
    small = size.postgres < 10_000
    found = {
        "shapes_by_relations": shapes_by_relations(size, small),
        "group_sizes": group_sizes(size, small),
        "final_groups": final_groups(size, small),
        "short_of_memory": short_of_memory(size, small),
        "plan_search": plan_search(),
    }
    with harness.scratch() as folder, server() as url:
        found["requests"] = requests(url, size)
        found["regression"] = regression(url, size)
        found |= on_system(Systems("postgres", url, folder), size, small)
        found["parquet"] = on_system(Systems("parquet", url, folder), size, small)
        found["tpch"] = tpch(url, folder, size, small)
    if not small:  # tiny sizes only show that it runs
        draw(found)
    return found


# -- first computation ------------------------------------------------------------------------------------------------


def shapes_by_relations(size: Size, small: bool) -> Json:
    """Right-deep against segmented bushy over random queries (Figs. 3.8, 3.9)."""
    shown = {}
    for relations in (8,) if small else (8, 12, 16):
        say(f"shapes, {relations} relations")
        queries = [Random(relations, seed, size.query_rows // 2) for seed in range(1 if small else 6)]
        shown[str(relations)] = views_shapes.measure(queries, size.cores, size.turns)
    return shown


def group_sizes(size: Size, small: bool) -> Json:
    """Sizes of groups under both rules for the last probe (Fig. 3.12)."""
    from penstock.planner.views.bushy import FINAL_PROBES, by_cost, segmented_bushy
    from penstock.planner.views.shape_cost import Costs
    from penstock.views.refresh.compute import count_relations

    case = Random(8 if small else 16, 1, size.query_rows // 2)
    spark = harness.session(size.cores, **{"spark.sql.adaptive.enabled": "false"})
    costs, answer, shown = Costs(), case.answer(), {}
    frames = {f"r{n}": spark.read.parquet(f"{case.inputs()}/r{n}.parquet") for n in range(case.relations)}
    relations = count_relations(case.view(), frames)
    for most in (3,) if small else (3, 4, 5, 6):
        for final in FINAL_PROBES:
            shape = segmented_bushy(relations, most, by_cost(costs, size.cores), size.cores, final)
            runs = [views_shapes.computed(spark, case, shape, relations, costs) for _ in range(size.turns + 1)]
            shown[f"{most}, {final}"] = {
                "equal": all(found == answer for _, found in runs),
                "seconds": round(median([seconds for seconds, _ in runs[1:]]), 3),
            }
            say(f"groups of {most}, {final}: {shown[f'{most}, {final}']['seconds']} s")
    return shown


def final_groups(size: Size, small: bool) -> Json:
    """How many relations are in the group whose rows go through all others last (Fig. 3.11): the more, the slower."""
    from penstock.planner.views.bushy import by_cost, groups, segmented_bushy
    from penstock.planner.views.shape_cost import Costs
    from penstock.views.refresh.compute import count_relations

    case = Random(8 if small else 16, 1, size.query_rows // 2)
    spark = harness.session(size.cores, **{"spark.sql.adaptive.enabled": "false"})
    costs, answer, shown = Costs(), case.answer(), {}
    frames = {f"r{n}": spark.read.parquet(f"{case.inputs()}/r{n}.parquet") for n in range(case.relations)}
    relations = count_relations(case.view(), frames)
    judge = by_cost(costs, size.cores)
    for most in (3,) if small else (4, 6):
        for count in sorted({len(members) for _, members in groups(relations, most, judge)}):

            def last(_: Any, parts: Sequence[Any], count: int = count) -> int:
                return next(n for n, part in enumerate(parts) if len(part) == count)

            shape = segmented_bushy(relations, most, judge, size.cores, last)
            runs = [views_shapes.computed(spark, case, shape, relations, costs) for _ in range(size.turns + 1)]
            name = f"groups of {most}, {count} last"
            shown[name] = {
                "equal": all(found == answer for _, found in runs),
                "seconds": round(median([seconds for seconds, _ in runs[1:]]), 3),
            }
            say(f"{name}: {shown[name]['seconds']} s")
    return shown


def short_of_memory(size: Size, small: bool) -> Json:
    """Tables that do not fit: bushy pieces against right-deep ones (Fig. 3.13)."""
    count = 8 if small else 32
    rows = size.query_rows // (2 if small else 10)
    queries = [Random(count, seed, rows) for seed in range(1 if small else 4)]
    memory = rows * 0.4 * 48 * count / 3  # a third of all tables, estimated by rows and bytes
    say(f"shapes, {count} relations, {memory / 2**20:.1f} MB for tables")
    return views_shapes.measure(queries, size.cores, size.turns, memory)


# -- requests ---------------------------------------------------------------------------------------------------------


def requests(url: str, size: Size) -> Json:
    """Kinds of requests to PostgreSQL for the rows of a number of keys (Figs. 10.8-10.10), in ms."""
    chain = Chain(1, size.postgres)
    system = Postgres(chain.relations, url)
    draw, shown = np.random.default_rng(1), {}

    def one_by_one(keys: Sequence[int]) -> None:
        for key in keys:
            system.pool.fetch(f"SELECT id, a, b, pay FROM r1 WHERE a = {key}")

    def composite(keys: Sequence[int], part: int) -> None:
        for start in range(0, len(keys), part):
            asked = keys[start : start + part]
            system.pool.fetch(" UNION ALL ".join(f"SELECT id, a, b, pay FROM r1 WHERE a = {key}" for key in asked))

    def array(keys: Sequence[int]) -> None:
        system.pool.fetch(f"SELECT id, a, b, pay FROM r1 WHERE a = ANY ('{{{','.join(map(str, keys))}}}'::int8[])")

    def table(keys: Sequence[int]) -> None:
        values = f"SELECT unnest('{{{','.join(map(str, keys))}}}'::int8[]) AS k"
        with system.pool.connection() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TEMP TABLE asked AS {values}")
            cursor.execute("ANALYZE asked")
            cursor.execute("SELECT id, a, b, pay FROM r1 JOIN asked ON a = k")
            cursor.fetch_arrow_table()
            cursor.execute("DROP TABLE asked")

    ways: dict[str, tuple[int, Any]] = {
        "one by one": (1_000, one_by_one),
        "composite": (500, lambda keys: composite(keys, len(keys))),
        "composite of 50": (3_000, lambda keys: composite(keys, 50)),
        "array": (10**9, array),
        "temporary table": (10**9, table),
    }
    for count in (10, 50, 100, 500, 1_000, 3_000):
        keys = draw.choice(size.postgres, min(count, size.postgres), replace=False).tolist()
        times: dict[str, list[float]] = {name: [] for name, (most, _) in ways.items() if count <= most}
        for _ in range(size.turns + 1):
            for name, spent in times.items():
                started = perf_counter()
                ways[name][1](keys)
                spent.append(perf_counter() - started)
        shown[str(count)] = {name: round(1000 * median(spent[1:]), 2) for name, spent in times.items()}
        say(f"requests, {count} keys: {shown[str(count)]}")
    knee = Knee()
    for part in SIZES:
        keys = draw.choice(size.postgres, min(part, size.postgres), replace=False).tolist()
        for _ in range(size.turns + 1):
            started = perf_counter()
            composite(keys, part)
            knee.learn(part, perf_counter() - started)
    shown["composite"] = {"keys_of_a_request": knee.size}
    say(f"requests, composite: {knee.size} keys in each")
    system.close()
    return shown


def regression(url: str, size: Size) -> Json:
    """The time of a request by keys and columns, against the fitted model (Fig. 11.8), in ms."""
    draw = np.random.default_rng(3)
    names = ["k", *(f"x{n}" for n in range(5))]
    rows = pa.table({name: draw.integers(0, size.postgres, size.postgres) for name in names})
    system = Postgres({"wide": Relation(rows, ("k",), ())}, url)
    reader, measured = system.readers["wide"], []
    for count in (100, 250, 500, 750, 1_000):
        for columns in (2, 4, 6):
            keys = pa.table({"k": np.unique(draw.integers(0, size.postgres, count))})
            times = []
            for _ in range(size.turns + 1):
                started = perf_counter()
                reader.lookup(names[:columns], keys, [])
                times.append(perf_counter() - started)
            measured.append((len(keys), columns, median(times[1:])))
    system.close()
    model = fit(measured, rising=True)
    lines = {f"{k} keys, {c} columns": [round(1000 * s, 2), round(1000 * model(k, c), 2)] for k, c, s in measured}
    errors = [abs(model(k, c) / s - 1) for k, c, s in measured]
    say(f"regression: {100 * median(errors):.0f} % off in the median")
    return {"measured_and_fitted": lines, "median_error": round(median(errors), 3)}


# -- strategies -------------------------------------------------------------------------------------------------------


@dataclass
class Systems:
    """Makes systems of one kind, each with a folder of its own."""

    kind: str
    url: str
    folder: Path
    made: int = 0

    def bench(self, workload: Any, names: Sequence[str], learning: int = 12) -> Bench:
        self.made += 1
        at = self.folder / f"{self.kind}-{self.made}"
        system = Postgres(workload.relations, self.url) if self.kind == "postgres" else Files(workload.relations, at)
        return Bench(workload, system, self.folder / f"{self.kind}-{self.made}-views", names, learning)


def on_system(systems: Systems, size: Size, small: bool) -> Json:
    say(f"strategies, {systems.kind}")
    return {
        **strategies(systems, size, small),
        "cyclic": cyclic(systems, size, small),
        "six_relations": six_relations(systems, size, small),
    }


def strategies(systems: Systems, size: Size, small: bool) -> Json:
    """Updates, changed sources, join ratios and slow rows (Figs. 10.11-10.15) of six sources."""
    files = systems.kind == "parquet"
    rows = size.fewer_parquet if files else size.postgres

    def run(chain: Chain, cases: Mapping[str, Case]) -> Json:
        at = systems.bench(chain, NAMES, 2 if small else 6 if files else 12)
        found = {name: at.run(case, size.turns) for name, case in cases.items()}
        at.system.close()
        return found

    one = 1 / rows
    updates = (60,) if small else (10, 100, 1_000, 10_000)
    shown = {"updates": run(Chain(6, rows), {str(n): Case(n * one) for n in updates})}
    some = (6,) if small else (1, 3, 6) if files else range(1, 7)
    sources = {str(n): Case(170 * one, changed=n) for n in some}
    shown["sources"] = run(Chain(6, rows), sources)
    shown["ratios"], few = {}, max(200, rows // 20)  # of which the view makes 243 each, at a ratio of three
    for ratio in (1.0,) if small else (0.5, 1.0, 2.0, 3.0):
        shown["ratios"] |= run(Chain(6, few, ratio=ratio), {f"{ratio:g}": Case(34 / few)})
    # A full recompute waits for every row, so there are fewer still.
    delays = (0.0001,) if small else (0.0, 0.0001, 0.0005, 0.002)
    few = max(200, rows // 50)
    shown["delays"] = run(Chain(6, few), {f"{1000 * d:g}": Case(30 / few, each_row=d) for d in delays})
    return shown


def cyclic(systems: Systems, size: Size, small: bool) -> Json:
    """Views with cycles, and one in which every path must use an edge with fifty matches per row (11.7, 11.9-11.12)."""
    shown = {}
    rows = size.postgres // 10
    for name, edges in CYCLES.items():
        say(f"cyclic views, {name}")
        shown[name] = _cycle(Cyclic(edges, rows), systems, size, small)
    view = Cyclic(CYCLES["V2, a triangle and one more"], rows, coarse=(1, 2))
    view.deltas = (max(2, rows // 10), max(2, rows // 10), 2, 2)
    say("cyclic views, fifty matches on two edges")
    shown["fifty matches"] = _cycle(view, systems, size, small)
    view = Cyclic(CYCLES["V2, a triangle and one more"], rows // 10, coarse=(1, 2))
    view.deltas = (max(2, rows // 1_000), max(2, rows // 1_000), 2, 2)
    say("cyclic views, fifty matches on two edges, slow rows")
    shown["fifty matches, slow rows"] = _cycle(view, systems, size, small, Case(0.01, each_row=SLOW_ROW))
    return shown


def six_relations(systems: Systems, size: Size, small: bool) -> Json:
    """Six relations in cycles, one in ten to one in a hundred rows changed (Fig. 11.14); all on one server here."""
    bench, shown = systems.bench(Cyclic(SIX, size.postgres // 10), CYCLE_NAMES, 2 if small else 12), {}
    for share in (0.1,) if small else (0.01, 0.03, 0.1):
        say(f"six relations, {100 * share:g} % changed")
        shown[f"{100 * share:g}"] = bench.run(Case(share), size.turns)
    bench.system.close()
    return shown


def _cycle(view: Cyclic, systems: Systems, size: Size, small: bool, case: Case | None = None) -> Json:
    bench, case = systems.bench(view, CYCLE_NAMES, 2 if small else 12), case or Case(0.01)
    found = bench.run(case, size.turns)
    found["estimates"] = estimates(bench, found)
    found["plans"] = plans(bench, case, size.turns)
    bench.system.close()
    return found


def plans(bench: Bench, case: Case, turns: int, most: int = 12) -> Json:
    """The best plan against the worst of each strategy (Figs. 11.7, 11.11, 11.12), of a sample, and all paths.

    Each of them maintains one change from the same version; nothing is installed.
    """
    handle, draw = bench.auto.handle, np.random.default_rng(11)
    graph = graph_of(handle.view)
    nodes = range(graph.count)
    legal = {
        start: [order for order in permutations(n for n in nodes if n != start) if graph.legal(start, order)]
        for start in nodes
    }
    picks = [{start: orders[draw.integers(len(orders))] for start, orders in legal.items()} for _ in range(4 * most)]
    offers = {
        BATCH: list({plan.requests: plan for plan in (batch(graph, pick) for pick in picks)}.values())[:most],
        "conditional": [conditional(graph, path) for path in list(hamiltonian_paths(graph))[:most]],
    }
    readers, positions = handle.parts.readers, handle.positions()
    bench.workload.change(bench.system, case.share, case.changed)
    seconds = {name: [[0.0] * turns for _ in found] for name, found in offers.items()}
    changes = set()
    for turn in range(turns + 1):
        for name, found in offers.items():
            for number, plan in enumerate(found):
                done = maintain(handle.view, readers, positions, lambda _, plan=plan: plan)  # type: ignore[misc]
                changes.add(tuple(fingerprint(done.rows, [c for c in done.rows.column_names if c != COUNT])))
                if turn:  # the first is to warm up
                    seconds[name][number][turn - 1] = done.seconds
    shown: Json = {"equal": len(changes) == 1}
    for name, found in seconds.items():
        ranked = sorted(1000 * median(times) for times in found)
        shown[name] = {"plans": len(ranked), "best_ms": round(ranked[0], 1), "worst_ms": round(ranked[-1], 1)}
        shown[name]["worst_over_best"] = round(ranked[-1] / ranked[0], 3)
    said = ", ".join(f"{name} {shown[name]['best_ms']}-{shown[name]['worst_ms']}" for name in offers)
    say(f"  plans, best to worst: {said} ms")
    return shown


def estimates(bench: Bench, found: Json) -> Json:
    """Predicted time of each strategy by the model of requests alone, and measured time, in ms (Figs. 11.9, 11.10)."""
    handle = bench.auto.handle
    # Not of a foreseen recompute.
    known = [facts["changed"] for facts in handle.store.newest.facts if any(facts["changed"])]
    deltas = [float(n) for n in known[-1]]
    chooser = handle._prepared([int(n) for n in deltas])  # noqa: SLF001  (the model alone, which no refresh asks for)
    offers = priced(handle._graph, chooser.statistics, deltas, [n for n in CYCLE_NAMES if n != RECOMPUTE])  # noqa: SLF001
    pairs = {name: (1000 * (cost + chooser.overhead), found["ms"][name]) for name, (cost, _) in offers.items()}
    agree = [(a[0] < b[0]) == (a[1] < b[1]) for a, b in combinations(pairs.values(), 2)]
    return {
        "estimated_and_measured": {name: [round(x, 1) for x in pair] for name, pair in pairs.items()},
        "pairs_in_order": round(sum(agree) / max(1, len(agree)), 3),
    }


def plan_search() -> Json:
    """How well and how fast a beam finds the order of every step (Table 11.3), on nine nodes and twelve edges."""
    graph = JoinGraph(9, (), [*((n, (n + 1) % 9) for n in range(9)), (0, 4), (2, 6), (3, 8)])
    draw = np.random.default_rng(7)
    rows = tuple(float(n) for n in draw.integers(1_000, 100_000, 9))
    pairs = [(a, b) for a in range(9) for b in range(a + 1, 9) if graph.joined(a, b)]
    fanout = {pair: float(ratio) for pair, ratio in zip(pairs, draw.choice([0.5, 1.0, 3.0, 50.0], 12), strict=True)}
    statistics = Statistics(rows, (4,) * 9, fanout)

    def tau(v: int, node: int) -> Tau:
        return Tau(0.5 + 0.01 * v + 0.02 * node, (("C", 0.003), ("C*A", 0.0004)))

    shown = {}
    for keep in (1, 5, 20, float("inf")):
        started = perf_counter()
        costs = [beam(graph, n, stepper(graph, statistics, tau, [100.0] * 9, n), keep)[0] for n in range(9)]
        shown[f"{keep:g}"] = {"ms": round(1000 * (perf_counter() - started), 1), "cost": round(sum(costs), 3)}
    best = shown["inf"]["cost"]
    return {keep: {**found, "over_best": round(found["cost"] / best, 4)} for keep, found in shown.items()}


def tpch(url: str, folder: Path, size: Size, small: bool) -> Json:
    """Refreshing views like Q3, Q5 and Q9 against recomputing them, by the share of orders added or removed."""
    shown = {}
    files = tpch_files(0.01 if small else 0.1)
    for query in ("q3", "q5", "q9"):
        for kind in ("postgres", "parquet"):
            view = Tpch(query, files)
            name = f"{query}, {kind}"
            system: Postgres | Files
            system = Postgres(view.relations, url) if kind == "postgres" else Files(view.relations, folder / name)
            names = (BATCH, "parallel_batch", "conditional", "parallel_conditional", RECOMPUTE)
            bench = Bench(view, system, folder / f"view {name}", names, learning=2 if small else 10)
            shares = (0.01,) if small else (0.0001, 0.001, 0.01, 0.1)
            shown[name] = {f"{100 * share:g}": bench.run(Case(share), size.turns) for share in shares}
            system.close()
    return shown


# -- pictures ---------------------------------------------------------------------------------------------------------


def draw(found: Mapping[str, Json]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    FOLDER.mkdir(parents=True, exist_ok=True)
    labels = {
        "updates": "changed rows a source",
        "sources": "sources that changed",
        "delays": "ms added to a row",
        "ratios": "matches of a row",
    }
    figure, axes_of = plt.subplots(1, len(labels), figsize=(15, 3.8), layout="constrained")
    for axes, (name, label) in zip(axes_of, labels.items(), strict=True):
        for strategy in ("auto", *NAMES):
            times = [case["ms"][strategy] for case in found[name].values()]
            axes.plot(range(len(times)), times, "k--" if strategy == "auto" else "o-", label=strategy)
        axes.set_xticks(range(len(found[name])), list(found[name]))
        axes.set(xlabel=label, yscale="log")
        axes.grid(alpha=0.3)
    axes_of[0].set_ylabel("ms a refresh")
    axes_of[0].legend(fontsize="small")
    _save(figure, "views-strategies.svg")

    figure, axes_of = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for axes, kind in zip(axes_of, ("postgres", "parquet"), strict=True):
        for name, cases in found["tpch"].items():
            if name.endswith(kind):
                ratios = [case["recompute"] for case in cases.values()]
                axes.plot(range(len(ratios)), ratios, "o-", label=name[:2])
                axes.set_xticks(range(len(ratios)), list(cases))
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.set(title=f"TPC-H, {kind}", xlabel="% of orders changed", yscale="log")
        axes.grid(alpha=0.3)
    axes_of[0].set_ylabel("full recompute / refresh")
    axes_of[0].legend()
    _save(figure, "views-tpch.svg")


def _save(figure: Any, name: str) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "penstock"}):
        figure.savefig(FOLDER / name, metadata={"Date": None})
    say(f"wrote docs/figures/{name}")
