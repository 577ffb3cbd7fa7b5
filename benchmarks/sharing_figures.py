"""Figures of sharing: cost by number of queries, strategies over windows and selectivities, chains, three streams.

Windows and selectivities are those of the experiments in Wang 2008, 8.2 and 8.3; rates are ours. Savings of state
slicing are shown beside the prediction of that thesis for the same windows and selectivity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import charts, harness
from benchmarks.charts import Panel
from benchmarks.harness import Json, median, say
from benchmarks.sharing import Asked, Case, beside_spark, expected, job, opposed, reach, wide
from lab.costs import TwoQueries, savings

Peers = Callable[[str], harness.Peer]
STRATEGIES = ("state_slice", "push_down", "pull_up", "isolated")
MIXES = {"mostly small": (1 / 6, 1 / 3, 1), "uniform": (1 / 3, 2 / 3, 1), "mostly large": (2 / 3, 5 / 6, 1)}
CHAINS = {
    "uniform": lambda k: [(n + 1) / k for n in range(k)],
    "mostly small": lambda k: [(n + 1) / (k - 2) / 3 for n in range(k - 2)] + [2 / 3, 1],
    "small and large": lambda k: (
        [(n + 1) / (k // 2) / 5 for n in range(k // 2)] + [0.8 + (n + 1) / (k - k // 2) / 5 for n in range(k - k // 2)]
    ),
}

# Enough steps for runs to be merged: before, rows stay until their whole run has expired, whatever the queries.
SWEEP = Case(rows=240_000, files=48, seconds=3.0, longest=110)
GRID = Case(rows=80_000, files=20, seconds=3.0, longest=30)
LONG = Case(rows=400_000, files=16, seconds=4.0, longest=36)
THREE = Case(rows=48_000, files=16, seconds=3.0, longest=30, streams="abc")
SHARED = ("state_slice", "pull_up", "isolated")  # what is compared over three streams
CELLS = (
    "push_down here is one table with runs apart by cell and no copies of the other stream, unlike that of Wang 2008"
)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the figures; windows are shares of the longest one of a case."""

    sweep: Case = SWEEP
    numbers: tuple[int, ...] = (1, 2, 4, 8, 16, 64, 256)
    native: int = 8  # native queries at most
    grid: Case = GRID
    mixes: tuple[str, ...] = tuple(MIXES)
    selectivities: tuple[float, ...] = (0.2, 0.5, 0.8)
    repeats: int = 2  # runs of each cell of the grid
    chains: Case = LONG
    chained: tuple[int, ...] = (12, 36)
    streams: Case = THREE
    three: tuple[int, ...] = (1, 4, 16)


def all_figures(peers: Peers, cores: int, sizes: Sizes | None = None, folder: Path | None = None) -> Json:
    sizes = sizes or Sizes()
    found = {
        "numbers": by_number(peers, cores, sizes),
        "grid": grid(peers, cores, sizes),
        "chains": chains(peers, cores, sizes),
        "three_streams": three_streams(peers, cores, sizes),
    }
    charts.write("sharing", found, folder)
    draw(found, sizes, folder)
    return found


# -- measured ---------------------------------------------------------------------------------------------------------


def by_number(peers: Peers, cores: int, sizes: Sizes) -> Json:
    """Rate and state for each number of queries, beside as many native ones as a small machine can run."""
    shown: Json = {}
    for count in sizes.numbers:
        if count <= sizes.native:
            shown[str(count)] = beside_spark(peers, sizes.sweep, count, 1, cores)
        else:
            say(f"{count} queries")
            run = _run(peers, sizes.sweep, wide(count, sizes.sweep.longest), cores)
            shown[str(count)] = {"equal": run.pop("equal"), "penstock": run}
    return shown


def grid(peers: Peers, cores: int, sizes: Sizes) -> Json:
    """Stored rows and rate of each strategy: q1 without a filter and the shortest window, q2 and q3 with one on a."""
    shown: Json = {}
    for name in sizes.mixes:
        lives = [max(1, round(share * sizes.grid.longest)) for share in MIXES[name]]
        for share in sizes.selectivities:
            high = round(1000 * share)
            queries = [Asked(lives[0], lives[0], 0, 1000), *(Asked(life, life, 0, high) for life in lives[1:])]
            found: dict[str, list[Json]] = {strategy: [] for strategy in STRATEGIES}
            for _ in range(sizes.repeats):
                for strategy, runs in found.items():
                    say(f"windows {name}, selectivity {share}, {strategy}")
                    runs.append(_run(peers, sizes.grid, queries, cores, strategy=strategy))
            cell = {strategy: _middle(runs) for strategy, runs in found.items()}
            shown[f"{name}, {share}"] = {
                "equal": all(run["equal"] for run in cell.values()),
                **cell,
                "saved": {
                    other: round(1 - cell["state_slice"]["state_rows"] / cell[other]["state_rows"], 3)
                    for other in ("pull_up", "push_down")
                },
                "saved_by_model": modelled(lives, share),
            }
    return shown


def _middle(runs: Sequence[Json]) -> Json:
    """Several equal runs as one: the median of all times."""
    timed = {name: round(median([run[name] for run in runs])) for name in ("rows_per_second", "step_ms")}
    return {**runs[-1], **timed, "equal": all(run["equal"] for run in runs)}


def modelled(lives: Sequence[int], share: float) -> dict[str, float]:
    """Rows saved by state slicing: queries with the same filter count as one, with the longer window."""
    saved = savings(TwoQueries(rate=1, short=lives[0], long=lives[-1], passing=share, matching=0.1))
    return {"pull_up": round(saved.memory_of_pull_up, 3), "push_down": round(saved.memory_of_push_down, 3)}


def chains(peers: Peers, cores: int, sizes: Sizes) -> Json:
    """The chain with the fewest rows against the cheapest.

    The longer a window on a, the fewer rows of a it wants: else every row would live longest, and both chains would
    produce the same runs. b has one short window, so that rows of b probe a's chain and have none of their own.
    """
    shown: Json = {}
    for name, windows in CHAINS.items():
        for count in sizes.chained:
            lives = [max(1, round(share * sizes.chains.longest)) for share in windows(count)]
            queries = [Asked(life, lives[0], 900 * n // count, 1000) for n, life in enumerate(lives)]
            cell = {}
            for chain in ("mem_opt", "cpu_opt"):
                say(f"windows {name}, {count} queries, {chain}")
                cell[chain] = _run(peers, sizes.chains, queries, cores, strategy="state_slice", chain=chain)
            shown[f"{name}, {count}"] = {"equal": all(run["equal"] for run in cell.values()), **cell}
    return shown


def three_streams(peers: Peers, cores: int, sizes: Sizes) -> Json:
    """Many three-way queries with windows in different orders and their own filters, shared and isolated."""
    shown: Json = {}
    for count in sizes.three:
        cell = {}
        for strategy in SHARED:
            say(f"{count} queries over three streams, {strategy}")
            cell[strategy] = _run(peers, sizes.streams, opposed(count, sizes.streams.longest), cores, strategy=strategy)
        shown[str(count)] = {"equal": all(run["equal"] for run in cell.values()), **cell}
    return shown


def _run(peers: Peers, case: Case, queries: Sequence[Asked], cores: int, **options: str) -> Json:
    run = peers("penstock")({**job(case, "penstock", queries, cores, **options), "rewarm": False})
    say(f"  {run['says']}")
    steps = [b["triggerExecution"] for b in run["batches"][len(run["batches"]) // 2 :]]  # windows are full by then
    return {
        "equal": run["counts"] == expected(case.inputs(), queries),
        "rows_per_second": round(run["rate"]),
        "step_ms": round(median(steps)),
        "state_rows": run["state_rows"],
        "state_bytes": run["state_bytes"],
        **reach(case, queries, run),
        "runs": run["runs"],
        "results": sum(run["counts"]),
    }


# -- the charts -------------------------------------------------------------------------------------------------------


def draw(found: Json, sizes: Sizes, folder: Path | None = None) -> None:
    draw_numbers(found["numbers"], folder)
    draw_three(found["three_streams"], folder)
    draw_grid(found["grid"], sizes, folder)
    for what, measure, unit in (("", "step_ms", "ms a step"), ("-state", "state_rows", "rows of state")):
        panels = [
            Panel(f"Windows {name}", "queries", unit, [str(count) for count in sizes.chained],
                  {chain: [found["chains"][f"{name}, {count}"][chain][measure] for count in sizes.chained]
                   for chain in ("mem_opt", "cpu_opt")}, "bars")
            for name in CHAINS
        ]  # fmt: skip
        title = "Chains with the fewest rows and with the least work"
        charts.draw(f"sharing-chains{what}", title, "measured", panels, folder, level=True)


def draw_numbers(numbers: Json, folder: Path | None = None) -> None:
    counts = [int(count) for count in numbers]
    sides = {"Penstock": "penstock", "one Spark query each": "native"}

    def series(measure: str) -> dict[str, list[float | None]]:
        return {
            name: [numbers[str(count)].get(side, {}).get(measure) for count in counts] for name, side in sides.items()
        }

    charts.draw(
        "sharing-numbers",
        "Many queries over the same two streams",
        "measured",
        [
            Panel("Rate", "queries", "input rows per second", counts, series("rows_per_second"), log="xy"),
            Panel("State at the end", "queries", "rows", counts, series("state_rows"), log="xy"),
            Panel("State at the end", "queries", "bytes", counts, series("state_bytes"), log="xy"),
            Panel("Rows held for each row in reach", "queries", "rows held / rows in reach", counts,
                  series("state_ratio"), log="x"),
        ],
        folder,
    )  # fmt: skip


def draw_three(three: Json, folder: Path | None = None) -> None:
    counts = [int(count) for count in three]
    panels = [
        Panel(title, "queries", unit, counts,
              {strategy: [three[str(count)][strategy][measure] for count in counts] for strategy in SHARED}, log="xy")
        for title, unit, measure in (
            ("Rate", "input rows per second", "rows_per_second"), ("State at the end", "rows", "state_rows"),
        )
    ]  # fmt: skip
    charts.draw(
        "sharing-three", "Many queries over three streams, with windows in opposite orders", "measured", panels, folder
    )


def draw_grid(grid: Json, sizes: Sizes, folder: Path | None = None) -> None:
    shares = [f"{share:g}" for share in sizes.selectivities]
    for what, measure, unit, title in (
        ("state", "state_rows", "rows", "Rows of state by strategy"),
        ("rate", "rows_per_second", "input rows per second", "Rate by strategy"),
    ):
        panels = [
            Panel(
                f"Windows {name}",
                "share of rows that the filter lets pass",
                unit,
                shares,
                {
                    strategy: [grid[f"{name}, {share}"][strategy][measure] for share in shares]
                    for strategy in STRATEGIES
                },
                "bars",
            )
            for name in sizes.mixes
        ]
        charts.draw(f"sharing-strategies-{what}", title, "measured", panels, folder, level=True, note=CELLS)
    panels = []
    for name in sizes.mixes:
        cells = [grid[f"{name}, {share}"] for share in shares]
        series = {}
        for other in ("pull_up", "push_down"):
            series[f"less than {other}"] = [100 * cell["saved"][other] for cell in cells]
            series[f"less than {other}, by the model"] = [100 * cell["saved_by_model"][other] for cell in cells]
        panels.append(
            Panel(
                f"Windows {name}",
                "share of rows that the filter lets pass",
                "rows of state saved, %",
                shares,
                series,
                "bars",
            )
        )
    charts.draw("sharing-saved", "Rows of state that slicing saves", "measured", panels, folder, level=True, note=CELLS)
