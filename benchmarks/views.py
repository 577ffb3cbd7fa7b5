"""Join views over six sources: every strategy beside `auto` and a full recompute, on PostgreSQL and on Parquet files.

All strategies maintain the same changes from the same version of the view, in turns, each into its own view; installing
is part of every time. After each turn every view must equal DuckDB's answer over the true rows. `recompute` is that of
Penstock, `native` the system's own: the server's, or DuckDB's over the files. `auto` has maintained the view for a
while before it is measured, and deletions affect few of the files. `right_deep` is about the first computation, on
Spark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import pyarrow as pa

from benchmarks import harness, views_shapes
from benchmarks.harness import Json, Report, median, pair_ratio, say
from benchmarks.views_sources import Chain, Delayed, Files, Postgres, expected, fingerprint, links
from penstock.demo.shop import server
from penstock.model import View
from penstock.sql import parse_view
from penstock.storage.local import LocalStore
from penstock.views.rows.bag import COUNT
from penstock.views.view import Parts, ViewHandle

System = Postgres | Files
AUTO, NATIVE, RECOMPUTE, BATCH = "auto", "native", "recompute", "batch"
SINGLE = (BATCH, "parallel_batch", "adjacent", "conditional", "parallel_conditional", RECOMPUTE)
SLOW = 0.020  # seconds added to each request


class Keeper:
    """One strategy with its own view, which begins as a copy of another one."""

    def __init__(self, view: View, readers: Mapping[str, Any], root: Path, strategy: str) -> None:
        self.root = root
        parts = Parts(view, readers, LocalStore(str(root)), "view")
        self.handle = ViewHandle(parts, strategy=AUTO if strategy == NATIVE else strategy)

    def copy(self, readers: Mapping[str, Any], root: Path, strategy: str) -> Keeper:
        links(self.root, root)
        return Keeper(self.handle.view, readers, root, strategy)

    def refresh(self) -> Json:
        """A refresh, and the seconds that its caller waited: the view is installed, and the next plans are computed."""
        started = perf_counter()
        facts = self.handle.refresh()
        return {**facts, "seconds": perf_counter() - started}

    def recompute_natively(self, system: System, sql: str, delay: float) -> Json:
        """As without Penstock: the system computes the view from scratch, and all of it is installed."""
        started = perf_counter()
        sleep(delay)
        found = system.native(sql)
        rows = found.rename_columns(self.handle.schema.names).cast(self.handle.schema)
        rows = rows.append_column(COUNT, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
        self.handle.store.install(rows, {}, {}, whole=True)
        return {"seconds": perf_counter() - started, "strategy": NATIVE, "requests": 1, "rounds": 1}


@dataclass
class Case:
    """Changes of a share of the rows of a view's relations in one system, with extra seconds per request."""

    share: float
    delay: float = 0.0
    changed: int | None = None
    each_row: float = 0.0  # seconds added for each row of an answer

    def __str__(self) -> str:
        slow = f", {self.delay * 1000:g} ms a request" if self.delay else ""
        slow += f", {self.each_row * 1000:g} ms a row" if self.each_row else ""
        some = f", {self.changed} sources" if self.changed else ""
        return f"{100 * self.share:g} %{slow}{some}"


class Bench:
    """One system with a workload, and the keepers that take turns."""

    def __init__(
        self, workload: Any, system: System, folder: Path, names: Sequence[str] = SINGLE, learning: int = 12
    ) -> None:
        self.workload, self.system, self.folder = workload, system, folder
        self.names, self.learning = tuple(names), learning
        self.cases = 0
        sources = {name: reader.source for name, reader in system.readers.items()}
        self.auto = Keeper(parse_view(workload.sql, sources, name="v"), system.readers, folder / "first", AUTO)
        self.auto.refresh()

    def run(self, case: Case, turns: int) -> Json:
        """All strategies over the same changes, after one warm-up turn and some from which only `auto` learns."""
        self.cases += 1
        delays = case.delay, case.each_row
        readers = {name: Delayed(r, *delays) if any(delays) else r for name, r in self.system.readers.items()}
        self.auto = self.auto.copy(readers, self.folder / f"{self.cases}-{AUTO}", AUTO)
        for _ in range(self.learning):
            self.workload.change(self.system, case.share, case.changed)
            self.auto.refresh()
        self.auto.handle.store.compact()
        keepers = {AUTO: self.auto}
        for name in (*self.names, NATIVE):
            keepers[name] = self.auto.copy(readers, self.folder / f"{self.cases}-{name}", name)
        scout = self.auto.copy(readers, self.folder / f"{self.cases}-scout", self.names[0])
        runs: dict[str, list[Json]] = {name: [] for name in keepers}
        looks, sorts, equal, changed = [], [], True, 0
        for turn in range(turns + 1):
            changed = self.workload.change(self.system, case.share, case.changed)
            started = perf_counter()
            with ThreadPoolExecutor(len(readers)) as pool:  # as a refresh would
                list(pool.map(lambda reader: reader.position(), self.system.readers.values()))
            looks.append(perf_counter() - started)
            first = scout.refresh()["seconds"]
            order = list(keepers) if turn % 2 else list(reversed(keepers))
            for name in order:
                keeper = keepers[name]
                if name == NATIVE:
                    runs[name].append(keeper.recompute_natively(self.system, self.workload.sql, case.delay))
                else:
                    runs[name].append(keeper.refresh())
            sorts.append(max(0.0, first - runs[self.names[0]][-1]["seconds"]))
            truth = expected(self.workload.relations, self.workload.sql)
            wanted = fingerprint(truth, truth.column_names)
            for name, keeper in keepers.items():
                rows, _ = keeper.handle.store.read()
                same = fingerprint(rows, [c for c in rows.column_names if c != COUNT]) == wanted
                if not same:
                    say(f"  {name} does not hold the view after {case}")
                equal = equal and same
        for keeper in (scout, *(keepers[name] for name in (*self.names, NATIVE))):
            keeper.handle.close()
        if isinstance(self.system, Files):  # only the first request for these pays for them, but all need them
            for of in runs.values():
                for run, look, sort in zip(of, looks, sorts, strict=True):
                    run["seconds"] += {NATIVE: 0.0, RECOMPUTE: look}.get(run["strategy"], look + sort)
        measured = {name: of[1:] for name, of in runs.items()}
        return self._summary(case, changed, measured, looks[1:], equal)

    def _summary(
        self, case: Case, changed: int, runs: Mapping[str, list[Json]], looks: list[float], equal: bool
    ) -> Json:
        looked = looks if isinstance(self.system, Files) else [0.0] * len(looks)
        seconds = {name: [run["seconds"] for run in of] for name, of in runs.items()}
        best = min(self.names, key=lambda name: median(seconds[name]))
        shown = {
            "equal": equal,
            "changed_rows": changed,
            "picked": [r["strategy"] for r in runs[AUTO]],
            "best": best,
            "ms": {name: round(1000 * median(times), 1) for name, times in seconds.items()},
            "requests": {name: of[-1]["requests"] for name, of in runs.items()},
            "rounds": {name: of[-1]["rounds"] for name, of in runs.items()},
            "looking_ms": round(1000 * median(looked), 1),
            "recompute": round(pair_ratio(seconds[RECOMPUTE], seconds[AUTO]), 3),
            "native": round(pair_ratio(seconds[NATIVE], seconds[AUTO]), 3),
            "batch": round(pair_ratio(seconds[BATCH], seconds[AUTO]), 3),
            "pick": round(pair_ratio(seconds[AUTO], seconds[best]), 3),
        }
        times = ", ".join(f"{name} {ms:.0f}" for name, ms in sorted(shown["ms"].items(), key=lambda pair: pair[1]))
        say(f"  {self.system.name}, {case}: {times} ms; auto took {shown['picked'][-1]}")
        return shown


@dataclass(frozen=True)
class Size:
    """Sizes: rows of each relation (fewer where many of them change), of the random queries' largest, turns, cores."""

    postgres: int = 150_000
    parquet: int = 1_000_000
    fewer_postgres: int = 60_000
    fewer_parquet: int = 120_000
    queries: int = 2
    query_rows: int = 200_000
    turns: int = 4
    cores: int = 2


def measure(size: Size) -> Report:
    load = harness.load()
    with harness.scratch() as folder, server() as url:
        found: dict[str, Json] = {}
        for rows, cases in (
            (size.postgres, [Case(0.001), Case(0.001, SLOW)]),
            (size.fewer_postgres, [Case(0.01), Case(0.1)]),
        ):
            say(f"PostgreSQL, six relations of {rows:,} rows")
            chain = Chain(6, rows)
            system: System = Postgres(chain.relations, url)
            bench = Bench(chain, system, folder / f"postgres-{rows}")
            found |= {f"postgres, {case}": bench.run(case, size.turns) for case in cases}
            system.close()
        for rows, case in ((size.parquet, Case(0.001)), (size.fewer_parquet, Case(0.1))):
            say(f"Parquet, six relations of {rows:,} rows")
            chain = Chain(6, rows)
            system = Files(chain.relations, folder / f"files-{rows}")
            found[f"parquet, {case}"] = Bench(chain, system, folder / f"parquet-{rows}").run(case, size.turns)
    say("first computation on Spark")
    queries = [views_shapes.Random(8, seed, size.query_rows) for seed in range(size.queries)]
    shapes = views_shapes.measure(queries, size.cores, size.turns)
    small, slow, large = Case(0.001), Case(0.001, SLOW), Case(0.1)
    ratios = {
        **{
            whole: min(found[f"{name}, {small}"][whole] for name in ("postgres", "parquet"))
            for whole in (RECOMPUTE, NATIVE)
        },
        "batch": found[f"postgres, {small}"]["batch"],
        "batch_slow": found[f"postgres, {slow}"]["batch"],
        "worst_pick": max(case["pick"] for case in found.values()),
        "right_deep": shapes["ratio"],
    }
    figures = {
        "refresh": found,
        **{
            f"large_deltas_over_{whole}": {
                name: round(1 / found[f"{name}, {large}"][whole], 3) for name in ("postgres", "parquet")
            }
            for whole in (RECOMPUTE, NATIVE)
        },
        "first_computation": shapes,
        "machine": harness.machine(load),
    }
    equal = shapes["equal"] and all(case["equal"] for case in found.values())
    return Report("views", equal, ratios, figures, lower=["worst_pick"])


SMALL = Size(2_000, 3_000, fewer_postgres=1_000, fewer_parquet=1_500, queries=1, query_rows=2_000, turns=1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.views", description=__doc__)
    parser.add_argument("--json", action="store_true", help="only the cases behind the ratios, and only the JSON line")
    parser.add_argument("--all", action="store_true", help="also the larger pictures, drawn into docs/figures")
    parser.add_argument("--small", action="store_true", help="tiny sizes: shows that it runs, measures nothing")
    parser.add_argument("--turns", type=int, default=Size.turns, help="turns of all strategies (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="cores of the Spark session (default: %(default)s)")
    options = parser.parse_args(arguments)
    size = SMALL if options.small else Size(turns=options.turns, cores=options.cores)
    report = measure(size)
    if options.all:
        from benchmarks.views_figures import all_figures

        figures = all_figures(size)
        equal, shown = report.equal and all_equal(figures), {**report.figures, **figures}
        report = replace(report, equal=equal, figures=shown)
    return harness.finish(report)


def all_equal(figures: Any) -> bool:
    """Whether all comparisons in the figures, at any depth, were equal."""
    if isinstance(figures, Mapping):
        return all(bool(value) if name == "equal" else all_equal(value) for name, value in figures.items())
    return all(map(all_equal, figures)) if isinstance(figures, list | tuple) else True


if __name__ == "__main__":
    sys.exit(main())
