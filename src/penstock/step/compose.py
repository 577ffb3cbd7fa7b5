"""The request of a step to its tasks: unexpired state, runs to merge, what is closed and shown, from the last manifest.

Pure functions of the network and the manifest; `plan` makes a step of their task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.kernels.aggregate.keep import horizon as horizon_of
from penstock.kernels.groups import closed_keys
from penstock.model.memory import Limits
from penstock.model.time import NEVER
from penstock.planner.folding import folded_in
from penstock.planner.network import Network
from penstock.planner.reached import Reached
from penstock.planner.rollup import rolled_in
from penstock.planner.routes import Routes
from penstock.planner.scans import Scans
from penstock.planner.segments import segment_count, segment_starts
from penstock.planner.state_table import StateTable
from penstock.planner.tiered import tiered_tables
from penstock.state.buckets import BucketMap
from penstock.state.compaction import Merge, choose_merges, choose_settling
from penstock.state.manifest import Manifest, Patterns, Progress
from penstock.state.owed import Owed, before, oldest_step
from penstock.state.run import RunEntry
from penstock.state.tiers import ALL_HOT, Tiers, choose, choose_changes
from penstock.step.bound import Bound
from penstock.step.task import Task
from penstock.step.windows_due import ahead_by, ended_tables, panes_until, shown_now
from penstock.storage.store import Store

MERGE_ROWS = 2_000_000  # rows rewritten per table and step at most: the budget that keeps a step's time even

Runs = Mapping[int, Sequence[RunEntry]]  # the unexpired ones, by number of the table


def compose_task(
    network: Network,
    manifest: Manifest,
    reached: Reached,
    progress: Mapping[str, Progress],
    *,
    store: Store,
    buckets: BucketMap,
    routes: Routes,
    scans: Scans,
    stale: int,
    bound: Bound,
    clock: float,
    limits: Limits | None = None,
    tiers: Tiers = ALL_HOT,
    deferred: tuple[Owed, ...] = (),
) -> Task:
    """The task of the step after the manifest's, with this progress, at this clock, that puts off these probes.

    `scans` are the measured costs of tables without a key; runs of registry versions below `stale` may have rows that
    only dropped queries needed; `bound` is the maximal output of one query, `limits` what a task may have in memory.
    """
    runs = _unexpired_runs(network, manifest, reached)
    # What owed probes may still need does not expire by progress since then, nor by single keys that have ended.
    kept = before(reached, manifest.owed)
    ahead = ahead_by(network, manifest, progress)
    closed = {} if manifest.owed else closed_keys(network, manifest.progress)
    over = ended_tables(network, ahead, closed)
    merges = [
        merge
        for t in network.tables
        if not t.grouped
        for merge in choose_merges(
            t.name, runs.get(t.index, ()), buckets.tasks, MERGE_ROWS, reached.get(t.stream, NEVER), stale, kept,
            counted=bool(t.counted), ended=t.name in over,
        )
    ]  # fmt: skip
    if limits is not None or any(run.cold for own in runs.values() for run in own):
        merges = _in_tiers(network, runs, reached, tiers, merges)
    settled = [
        choose_settling(
            a.name, runs.get(a.home, ()), buckets.tasks, MERGE_ROWS, a.closed(reached)[a.flush is None], stale,
            apart=horizon_of(a.plan, 0) is not None, ended=a.name in over,
        )
        for a in network.aggregates
    ]  # fmt: skip
    merges += [merge for merge in settled if merge]

    def segments(table: StateTable) -> tuple[int, ...]:
        """Where each task's share of a table without a key begins."""
        own = runs.get(table.index, ())
        scan = scans.scan(network, table, own, reached, manifest.counters)
        count = scans.settled(table.name, scan, segment_count(scan, buckets.tasks, scans.timing), buckets.tasks)
        return segment_starts(own, count, buckets.tasks, reached)

    return Task(
        manifest.step + 1,
        buckets,
        store,
        reached,
        {t: tuple(r) for t, r in runs.items()},
        routes,
        {t.index: segments(t) for t in network.tables if t.timed},
        merges=tuple(merges),
        suspended=frozenset(manifest.suspended),
        groups=_groups(network, manifest),
        closed=closed,
        ahead=ahead,
        newest={stream: _last(network, manifest, stream) for a in network.aggregates for stream in a.streams},
        panes=panes_until(network, manifest),
        early=shown_now(network, manifest, clock),
        flushed=manifest.flushed,
        bound=bound,
        folded=folded_in(network, manifest.folding),
        rolled=rolled_in(network, manifest.folding),
        limits=limits,
        deferred=deferred,
        kept=kept if manifest.owed else None,
        apart=oldest_step(manifest.owed),
    )


def _in_tiers(network: Network, runs: Runs, reached: Reached, tiers: Tiers, merges: Sequence[Merge]) -> list[Merge]:
    """Merges with the tier of what they write, and others that only change the tier of runs."""
    found = [merge for merge in merges if merge.table not in {network.tables[i].name for i in tiered_tables(network)}]
    for table in (network.tables[index] for index in sorted(tiered_tables(network))):
        progress, own = reached.get(table.stream, NEVER), {run.name: run for run in runs.get(table.index, ())}
        kept = [merge for merge in merges if merge.table == table.name]
        found += [replace(m, cold=all(tiers.is_cold(own[name], progress) for name in m.runs)) for m in kept]
        busy = {name for merge in kept for name in merge.runs}
        found += choose_changes(table.name, list(own.values()), tiers, progress, MERGE_ROWS, busy)
    return found


def choose_tiers(tiers: Tiers, network: Network, manifest: Manifest, hot: int) -> Tiers:
    """What is cold after a step, if so many bytes of state may be hot."""
    if not tiers.is_due(manifest.step):
        return tiers
    reached = manifest.reached()
    runs = _unexpired_runs(network, manifest, reached)
    tables = {network.tables[index] for index in tiered_tables(network)}
    own = {table.name: runs.get(table.index, ()) for table in tables}
    progress = {table.name: reached.get(table.stream, NEVER) for table in tables}
    return choose(tiers, own, progress, manifest.counters, manifest.step, hot)


def expired_runs(network: Network, manifest: Manifest, reached: Reached) -> list[str]:
    """Runs whose rows have all expired, and that no owed probe needs."""
    aggregates = {a.name for a in network.aggregates}
    tables = {table.name for table in network.tables} | aggregates
    kept = before(reached, manifest.owed)
    return [
        r.name
        for r in manifest.runs.values()
        if r.table not in tables or r.expired(reached if r.table in aggregates else kept)
    ]


def newest_time(manifest: Manifest, stream: str) -> int:
    """The newest event time that a stream has had."""
    found = manifest.progress.get(stream)
    return found.newest if found else NEVER


def _unexpired_runs(network: Network, manifest: Manifest, reached: Reached) -> Runs:
    number = {t.name: t.index for t in network.tables} | {a.name: a.home for a in network.aggregates}
    runs: dict[int, list[RunEntry]] = {}
    for run in manifest.runs.values():
        if run.table in number and not run.expired(reached):
            runs.setdefault(number[run.table], []).append(run)
    return runs


def _groups(network: Network, manifest: Manifest) -> dict[str, Patterns]:
    """The punctuations of groups that rows of a stream must respect; rows of derived streams always do."""
    derived = {d.name for d in network.derived_streams}
    return {name: p.closed for name, p in manifest.progress.items() if p.closed and name not in derived}


def _last(network: Network, manifest: Manifest, stream: str) -> int:
    """The newest time that a window at the end of the streams must contain."""
    joined = next((d for d in network.derived_streams if d.name == stream and d.joined), None)
    below = () if joined is None else (role.stream for role in joined.definition.roles)
    return max(newest_time(manifest, name) for name in (stream, *below))
