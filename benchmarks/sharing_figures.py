"""The larger pictures of sharing: cost by number of queries, strategies over windows and selectivities, chains, three streams.

Figures go to `docs/figures` as SVG. Windows and selectivities are those of the experiments in Wang 2008, 8.2 and 8.3; rates are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import Json, median, say
from benchmarks.sharing import BESIDE, SETTLED, Asked, Case, beside_spark, expected, in_reach, job, wide

FOLDER = harness.ROOT / "docs" / "figures"
Peers = Callable[[str], harness.Peer]

NUMBERS = (1, 2, 4, 8, 16, 64, 256)
NATIVE = 8  # native queries at most
STRATEGIES = ("state_slice", "push_down", "pull_up", "isolated")
WINDOWS = {"mostly small": (5, 10, 30), "uniform": (10, 20, 30), "mostly large": (20, 25, 30)}
SELECTIVITIES = (0.2, 0.5, 0.8)
CHAINS = {
    "uniform": lambda k: [30 * (n + 1) / k for n in range(k)],
    "mostly small": lambda k: [10 * (n + 1) / (k - 2) for n in range(k - 2)] + [20, 30],
    "small and large": lambda k: (
        [6 * (n + 1) / (k // 2) for n in range(k // 2)] + [24 + 6 * (n + 1) / (k - k // 2) for n in range(k - k // 2)]
    ),
}
GRID = Case(rows=120_000, files=30, seconds=2.0, longest=30)


def all_figures(peers: Peers, cores: int) -> Json:
    found = {
        "numbers": by_number(peers, cores),
        "grid": grid(peers, cores),
        "chains": chains(peers, cores),
        "three_streams": three_streams(peers, cores),
    }
    draw(found)
    return found


def by_number(peers: Peers, cores: int) -> Json:
    """Rate and state for each number of queries, beside as many native ones as a small machine can run."""
    shown: Json = {}
    for count in NUMBERS:
        if count <= NATIVE:
            shown[str(count)] = beside_spark(peers, BESIDE, count, 1, cores)
        else:
            run = _run(peers, BESIDE, wide(count, BESIDE.longest), cores)
            shown[str(count)] = {"equal": run.pop("equal"), "penstock": run}
    return shown


def grid(peers: Peers, cores: int) -> Json:
    """Rows held and rate of each strategy: q1 without a filter and the shortest window, q2 and q3 with the same filter on a."""
    shown: Json = {}
    for name, lives in WINDOWS.items():
        for share in SELECTIVITIES:
            high = round(1000 * share)
            queries = [Asked(lives[0], lives[0], 0, 1000), *(Asked(life, life, 0, high) for life in lives[1:])]
            for strategy in STRATEGIES:
                say(f"windows {name}, selectivity {share}, {strategy}")
                shown[f"{name}, {share}, {strategy}"] = _run(peers, GRID, queries, cores, strategy=strategy)
    return shown


def chains(peers: Peers, cores: int) -> Json:
    """The chain with the fewest rows against the cheapest, without selections."""
    shown: Json = {}
    for name, windows in CHAINS.items():
        for count in (12, 24, 36):
            lives = [max(1, round(life)) for life in windows(count)]
            queries = [Asked(life, life, 0, 1000) for life in lives]
            for chain in ("mem_opt", "cpu_opt"):
                say(f"windows {name}, {count} queries, {chain}")
                shown[f"{name}, {count}, {chain}"] = _run(peers, GRID, queries, cores, chain=chain)
    return shown


def three_streams(peers: Peers, cores: int) -> Json:
    """Many three-way queries: a joined with two windows of b, each query with windows and a filter of its own."""
    shown: Json = {}
    for count in (1, 8, 32, 64):
        say(f"{count} three-way queries")
        shown[str(count)] = _run(peers, GRID, wide(count, GRID.longest), cores, three=True)
    return shown


def _run(
    peers: Peers, case: Case, queries: Sequence[Asked], cores: int, *, three: bool = False, **options: str
) -> Json:
    run = peers("penstock")({**job(case, "penstock", queries, cores, **options), "three": three})
    steps = [b["triggerExecution"] for b in run["batches"][min(SETTLED, len(run["batches"]) // 2) :]]
    return {
        "equal": run["counts"] == expected(case.inputs(), queries, three=three),
        "rows_per_second": round(run["rate"]),
        "step_ms": round(median(steps)),
        "state_rows": run["state_rows"],
        "rows_in_reach": None if three else in_reach(case.inputs(), queries, run["progress"]),
        "runs": run["runs"],
        "results": sum(run["counts"]),
    }


def draw(found: Mapping[str, Json]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    FOLDER.mkdir(parents=True, exist_ok=True)
    numbers = found["numbers"]
    figure, (rates, rows) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    counts = [int(k) for k in numbers]
    rates.loglog(counts, [numbers[str(k)]["penstock"]["rows_per_second"] for k in counts], "o-", label="Penstock")
    native = [k for k in counts if "native" in numbers[str(k)]]
    rates.loglog(
        native, [numbers[str(k)]["native"]["rows_per_second"] for k in native], "s--", label="one Spark query each"
    )
    rates.set(xlabel="queries", ylabel="input rows per second", title="Input rate")
    rows.loglog(counts, [numbers[str(k)]["penstock"]["state_rows"] for k in counts], "o-", label="Penstock")
    rows.loglog(native, [numbers[str(k)]["native"]["state_rows"] for k in native], "s--", label="one Spark query each")
    rows.set(xlabel="queries", ylabel="rows", title="State")
    for axes in (rates, rows):
        axes.set_xticks(counts, [str(k) for k in counts])
        axes.minorticks_off()
        axes.legend()
        axes.grid(alpha=0.3)
    _save(figure, FOLDER / "sharing-by-number.svg")

    figure, axes_of = plt.subplots(1, len(WINDOWS), figsize=(11, 3.6), sharey=True, layout="constrained")
    for axes, name in zip(axes_of, WINDOWS, strict=True):
        for number, strategy in enumerate(STRATEGIES):
            held = [found["grid"][f"{name}, {share}, {strategy}"]["state_rows"] for share in SELECTIVITIES]
            axes.bar([n + 0.2 * number for n in range(len(SELECTIVITIES))], held, 0.2, label=strategy)
        axes.set_xticks([n + 0.3 for n in range(len(SELECTIVITIES))], [f"{s:g}" for s in SELECTIVITIES])
        axes.set(title=f"windows {name}", xlabel="selectivity of the filter")
    axes_of[0].set_ylabel("rows of state")
    axes_of[0].legend()
    _save(figure, FOLDER / "sharing-strategies.svg")

    figure, axes_of = plt.subplots(1, len(CHAINS), figsize=(11, 3.6), sharey=True, layout="constrained")
    for axes, name in zip(axes_of, CHAINS, strict=True):
        for chain in ("mem_opt", "cpu_opt"):
            steps = [found["chains"][f"{name}, {k}, {chain}"]["step_ms"] for k in (12, 24, 36)]
            axes.plot((12, 24, 36), steps, "o-", label=chain)
        axes.set(title=f"windows {name}", xlabel="queries", xticks=(12, 24, 36), ylim=(0, None))
        axes.grid(alpha=0.3)
    axes_of[0].set_ylabel("ms a step")
    axes_of[0].legend()
    _save(figure, FOLDER / "sharing-chains.svg")


def _save(figure, path: Path) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "penstock"}):
        figure.savefig(path, metadata={"Date": None})
    say(f"wrote {path.relative_to(harness.ROOT)}")
