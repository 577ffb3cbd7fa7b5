"""What a step owes: the probes that it puts off, and those of earlier steps that a clean-up runs (decision 0039).

Pure functions of the network, the routes and the manifest. A join can owe probes if they start from rows of one key and
are not delayed anyway: not if windows count rows, which are evaluated once progress has passed them, nor if new rows
start in every task, since nothing but a key says which of them have probed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.planner.join import Join
from penstock.planner.network import Network
from penstock.planner.routes import Route, Routes, past_route
from penstock.state.manifest import Manifest
from penstock.state.owed import Owed, Ranges, before
from penstock.state.registry import Registry
from penstock.state.run import RunEntry
from penstock.step.bound import Bound
from penstock.step.task import Task


@dataclass(frozen=True)
class Chosen:
    """By state table the buckets whose new rows do not probe; for the `spared` joins they do."""

    buckets: Mapping[str, Ranges] = field(default_factory=dict)
    spared: frozenset[str] = frozenset()


def can_owe(network: Network, join: Join, route: Route) -> bool:
    """Whether probes of this start can be put off."""
    return bool(route.hops) and not join.closes and not route.everywhere and not network.tables[route.table].timed


def put_off(network: Network, manifest: Manifest, routes: Routes, chosen: Chosen, clock: float) -> tuple[Owed, ...]:
    """The probes that the step after the manifest's puts off in these buckets."""
    step = manifest.step + 1
    held = tuple((name, progress.value) for name, progress in manifest.progress.items())
    without = tuple(sorted(int(query) for query in manifest.suspended))
    found = []
    for table in network.tables:
        starts = tuple(
            (join.name, route.start)
            for join, own in zip(network.joins, routes.joins, strict=True)
            for route in own
            if route.table == table.index and can_owe(network, join, route) and join.name not in chosen.spared
        )
        if starts and chosen.buckets.get(table.name):
            found.append(Owed(table.name, starts, chosen.buckets[table.name], step, step, clock, held, without))
    return tuple(found)


def waited_for(network: Network, registry: Registry) -> frozenset[str]:
    """The joins of whose results others wait for all: queries in order, and queries and aggregates over them.

    These would stop until everything is paid, so a join is spared for the sake of one of them.
    """
    ordered = {record.id for record in registry.live() if record.ordered}
    read = {derived.query for derived in network.derived_streams}
    parts = {part.id for query in network.queries if query.id in ordered | read for part in network.parts_of(query)}
    return frozenset(join.name for join in network.joins if any(member.id in parts for member in join.members))


def at_once(owed: Sequence[Owed]) -> tuple[Owed, ...]:
    """The oldest of these probes, and those that one step can run with them.

    Each start must have one table to start from, and the same queries must have been suspended.
    """
    chosen: list[Owed] = []
    tables: dict[tuple[str, int], str] = {}
    for own in sorted(owed, key=lambda own: own.first):
        alike = not chosen or own.without == chosen[0].without
        if alike and all(tables.get(start, own.table) == own.table for start in own.starts):
            chosen.append(own)
            tables |= dict.fromkeys(own.starts, own.table)
    return tuple(chosen)


def clean_up_task(task: Task, network: Network, manifest: Manifest, owed: Sequence[Owed]) -> Task:
    """The task of a step as one that runs owed probes, over all rows that were there in their steps."""
    kept = before(manifest.reached(), manifest.owed)
    number = {table.name: table.index for table in network.tables}
    runs: dict[int, list[RunEntry]] = {}
    for run in manifest.runs.values():
        if run.table in number and not run.expired(kept):
            runs.setdefault(number[run.table], []).append(run)
    tables = {start: number[own.table] for own in owed for start in own.starts}
    routes = tuple(
        tuple(
            past_route(join, route.start, tables[join.name, route.start], route.order)
            for route in own
            if (join.name, route.start) in tables
        )
        for join, own in zip(network.joins, task.routes.joins, strict=True)
    )
    steps = max((own.last - own.first + 1 for own in owed), default=1)
    return replace(
        task,
        runs={table: tuple(own) for table, own in runs.items()},
        routes=Routes(routes),
        merges=(),
        suspended=frozenset(owed[0].without),
        owed=tuple(owed),
        bound=Bound(task.bound.rows * steps, task.bound.bytes * steps),  # each step had one of its own
    )


def starts_of(owed: Iterable[Owed], join: str) -> dict[int, list[Owed]]:
    """What a join owes, by start."""
    found: dict[int, list[Owed]] = {}
    for own in owed:
        for name, start in own.starts:
            if name == join:
                found.setdefault(start, []).append(own)
    return found
