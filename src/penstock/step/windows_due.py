"""What a step closes and shows: windows that progress has passed, for all or single groups, and early results.

Pure functions of the network, the manifest and the clock, in seconds; tasks do the work.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.kernels.aggregate.ahead import Ahead
from penstock.kernels.groups import Closed, closed_keys
from penstock.model.time import FOREVER, NEVER
from penstock.planner.network import Network
from penstock.planner.reached import Closing, Reached
from penstock.state.cursors import Shown
from penstock.state.manifest import Closings, Manifest, Patterns, Progress
from penstock.step.task import Reports, Task


def held_back(network: Network, manifest: Manifest, reached: Reached, progress: Mapping[str, Progress]) -> bool:
    """Whether windows that count rows, or aggregates, delay rows that this progress admits."""
    ahead = ahead_by(network, manifest, progress)
    number = {t.name: t.index for t in network.tables}
    for join in network.joins:
        if join.closes:
            before, now = join.closed(reached)
            tables = {table for _, table in join.places}
            runs = (r for r in manifest.runs.values() if number.get(r.table) in tables)
            if any(r.min_time < now and r.max_time >= before for r in runs):
                return True
    held = {r.table for r in manifest.runs.values() if not r.expired(reached)}
    waiting = [a for a in network.aggregates if a.name in held]
    return any(a.closes(*a.closed(reached)) or ahead.closes(a, reached) for a in waiting)


def closed_by(network: Network, progress: Reached, reports: Reports = ()) -> Closings:
    """What a step with this progress closes; with capped results, as far as all its tasks have come."""
    found = {Closing(stream): progress[stream] for stream in network.closes if stream in progress}
    for aggregate in network.aggregates:
        if aggregate.flush is not None:
            out = [r.flushed[aggregate.name].until for r in reports if aggregate.name in r.flushed]
            found |= dict.fromkeys(aggregate.closings, min(out, default=aggregate.closed(progress)[1]))
    return tuple(found.items())


def closed_groups(network: Network, progress: Mapping[str, Progress]) -> dict[str, Patterns]:
    """The groups whose windows a step with this progress closes, and the keys of joins that it expires."""
    return {stream: progress[stream].closed for stream in network.streams if stream in progress}


def ends_without_job(network: Network, manifest: Manifest, progress: Mapping[str, Progress]) -> bool:
    """Whether groups can end in a step without a job: not while joins store rows of ended keys."""
    closed = closed_keys(network, manifest.progress)
    over = ended_tables(network, ahead_by(network, manifest, progress), closed)
    held = {run.table for run in manifest.runs.values()}
    return not held & over & {table.name for table in network.tables}


def ended_tables(network: Network, ahead: Ahead, closed: Mapping[int, Closed]) -> set[str]:
    """The tables and aggregates with state that a step may expire because groups or keys have ended since the last."""
    keyed = {
        network.tables[index].name for index, met in closed.items() if any(ahead.tells(m.stream.name) for m in met)
    }
    return keyed | {a.name for a in network.aggregates if ahead.moves(a)}


def ahead_by(network: Network, manifest: Manifest, progress: Mapping[str, Progress]) -> Ahead:
    """The punctuations of groups that a step with this progress uses, and those of the previous step."""
    return Ahead(manifest.closed_groups, closed_groups(network, progress))


def all_closed(network: Network, progress: Reached) -> Reached:
    """Progress after the very last step, which has closed everything."""
    held = [name for aggregate in network.aggregates for name in aggregate.closings]
    return {**progress, **dict.fromkeys([*map(Closing, network.streams), *held], FOREVER)}


def shown_now(network: Network, manifest: Manifest, clock: float) -> dict[int, int]:
    """The queries whose early results are due at this clock, each with the step that emitted them last."""
    now, found = _microseconds(clock), {}
    for member in (m for a in network.aggregates for m in a.members):
        last = manifest.shown.get(member.id, Shown())
        if member.every is not None and now // member.every > last.at // member.every:
            found[member.id] = last.step
    return found


def shown_by(task: Task, clock: float) -> dict[int, Shown]:
    """The queries whose early results a step has emitted by this clock."""
    return dict.fromkeys(task.early, Shown(task.step, _microseconds(clock)))


def early_queries(network: Network) -> set[int]:
    """The queries with early results."""
    return {m.id for a in network.aggregates for m in a.members if m.every is not None}


def is_unshown(network: Network, manifest: Manifest, clock: float) -> bool:
    """Whether early results are due: something has come since the last ones."""
    early = shown_now(network, manifest, clock)
    newest = {a.name: [early[m.id] for m in a.members if m.id in early] for a in network.aggregates}
    return any(run.step > shown for run in manifest.runs.values() for shown in newest.get(run.table, ()))


def panes_until(network: Network, manifest: Manifest) -> dict[int, int]:
    """By query: the end of the panes among its results."""
    found = {query.id: manifest.results.panes_until(query.id) for query in network.queries}
    return {query: until for query, until in found.items() if until > NEVER}


def _microseconds(clock: float) -> int:
    return int(1_000_000 * clock)
