"""What a step is to do: `plan_step`, a pure function of the state and of what has happened (decision 0027).

Who runs the plan changes nothing in it (decision 0027): mappers and workers turn rows and the plan into reports,
`phases.fold` turns these into the record of the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.model.memory import Limits
from penstock.planner.network import Network
from penstock.planner.reached import Clock, Reached
from penstock.planner.routes import Routes
from penstock.planner.scans import Scans
from penstock.state.cursors import SinkCursor
from penstock.state.manifest import Manifest, Progress
from penstock.state.owed import Owed
from penstock.state.registry import Registry
from penstock.state.side_files import expired_sides, next_expiry
from penstock.state.tiers import ALL_HOT, Tiers
from penstock.step import derived
from penstock.step.balancing import map_of
from penstock.step.bound import Bound
from penstock.step.compose import compose_task, expired_runs
from penstock.step.ending import ended
from penstock.step.events import Batch, CleanUp, Event, TakeOver, Tick
from penstock.step.heard import Heard
from penstock.step.owing import Chosen, clean_up_task, put_off
from penstock.step.taken import Taken
from penstock.step.task import Task
from penstock.step.windows_due import all_closed, ended_tables, held_back, is_unshown
from penstock.storage.store import Store


@dataclass(frozen=True)
class State:
    """Everything that a step begins with; it does not change while the step runs.

    `manifest` is the committed state, `network` and `registry` are the queries, `cursors` say how far sinks have come,
    `heard` what the clock knows of streams. `routes` and `scans` are what the optimizer has chosen and measured.
    `views` give the results of queries to their readers. `sides_due` is the clock at which late and invalid rows
    expire, if known. `limits` are those of a task's memory, `tiers` say which state is cold.
    """

    manifest: Manifest
    network: Network
    registry: Registry
    store: Store
    tasks: int
    routes: Routes
    views: derived.Views
    heard: Heard
    cursors: Mapping[str, SinkCursor]
    scans: Scans
    bound: Bound = Bound()  # noqa: RUF009  (frozen)
    expire_every: int = 1  # steps between two rounds of dropping expired runs
    sides_due: float | None = None
    limits: Limits | None = None
    tiers: Tiers = ALL_HOT
    put_off: Chosen = field(default_factory=Chosen)  # the buckets whose probes the next batch puts off
    balanced: bool = True  # whether the map of buckets is the chosen one, and not the even one

    @property
    def retained(self) -> dict[str, int | None]:
        """How long late and invalid rows of each stream are kept, even of a dropped one."""
        return {name: record.stream.side_retain for name, record in self.registry.streams.items()}


@dataclass(frozen=True)
class StepPlan:
    """A step before its work is done.

    `progress` and `reached` are what it closes by. `task` is the request to tasks (None: no work for them), `fresh` the
    rows of derived streams for them; if it `takes_in`, none has any left after it. `runs_removed` and `sides_removed`
    are files that are not needed after it.
    """

    event: Event
    progress: Mapping[str, Progress]
    reached: Reached
    task: Task | None = None
    fresh: tuple[Taken, ...] = ()
    takes_in: bool = False
    runs_removed: tuple[str, ...] = ()
    sides_removed: tuple[str, ...] = ()


def plan_step(state: State, event: Event, now: float) -> StepPlan | None:
    """The step that an event makes, at this clock; None if there is nothing to do."""
    match event:
        case Batch():
            return _batch(state, event, now)
        case TakeOver():
            return _take_over(state, event, now)
        case CleanUp():
            return _clean_up(state, event, now)
        case Tick():
            return _tick(state, event, now)


def _batch(state: State, event: Batch, now: float) -> StepPlan:
    """A step over rows uses the progress of the previous one: what its own rows say counts from the next one on."""
    deferred = put_off(state.network, state.manifest, state.routes, state.put_off, now)
    task = _task(state, state.manifest.progress, state.manifest.reached(), now, deferred)
    gone = _expired_runs(state, task.progress) if task.step % state.expire_every == 0 else []
    return StepPlan(
        event,
        state.manifest.progress,
        task.progress,
        task,
        _fresh(state),
        takes_in=True,
        runs_removed=_without(gone, task),
    )


def _take_over(state: State, event: TakeOver, now: float) -> StepPlan:
    """Stored rows get the bits of new queries: their files are rewritten."""
    manifest = state.manifest
    task = _task(state, manifest.progress, manifest.reached(), now)
    # Stored rows probe where they are stored: there are no turns.
    task = replace(task, buckets=task.buckets.unsplit, merges=(), taking_over=event.queries)
    numbers = {t.index for t in state.network.tables if any(e.query in event.queries for e in t.entries)}
    replaced = [run.name for index in numbers for run in task.runs.get(index, ())]
    return StepPlan(event, manifest.progress, task.progress, task, runs_removed=tuple(replaced))


def _clean_up(state: State, event: CleanUp, now: float) -> StepPlan:
    """Owed probes look for the partners that they had at their time; nothing else changes."""
    manifest = state.manifest
    task = _task(state, manifest.progress, manifest.reached(), now)
    task = clean_up_task(task, state.network, manifest, event.owed)
    return StepPlan(event, manifest.progress, task.progress, task)


def _tick(state: State, event: Tick, now: float) -> StepPlan | None:
    """Without rows tasks have work if windows wait for this progress or are shown early, or for derived streams."""
    network, manifest, final = state.network, state.manifest, event.final
    waiting = not final and bool(derived.waiting(network, manifest, state.views))
    moved = dict(event.progress)
    if final:
        moved = {name: ended(manifest, name) for name in network.streams}
    elif not waiting:
        moved |= derived.moved(network, manifest, manifest.progress)
    values: dict[Clock, int] = {name: p.value for name, p in moved.items()}
    ahead = manifest.reached() | values
    if waiting or held_back(network, manifest, ahead, moved) or (not final and is_unshown(network, manifest, now)):
        task = _task(state, moved, ahead, now)
        over = ended_tables(network, task.ahead, task.closed)
        task = replace(task, merges=() if final else tuple(m for m in task.merges if m.table in over))
        gone = _expired_runs(state, all_closed(network, ahead) if final else ahead)
        return StepPlan(
            event,
            moved,
            ahead,
            task,
            _fresh(state) if waiting else (),
            takes_in=waiting,
            runs_removed=_without(gone, task),
        )
    gone = _expired_runs(state, all_closed(network, values) if final else manifest.reached())
    changed = moved != dict(manifest.progress)
    owed = any(manifest.cursors.get(sink, SinkCursor()) != cursor for sink, cursor in state.cursors.items())
    due = next_expiry(manifest.sides, state.retained) if state.sides_due is None else state.sides_due
    if not (changed or gone or final or owed or now >= due):
        return None
    old = tuple(side.name for side in expired_sides(manifest.sides, state.retained, now))
    return StepPlan(event, moved, ahead, runs_removed=tuple(gone), sides_removed=old)


def _task(
    state: State, progress: Mapping[str, Progress], reached: Reached, now: float, deferred: tuple[Owed, ...] = ()
) -> Task:
    return compose_task(
        state.network,
        state.manifest,
        reached,
        progress,
        store=state.store,
        buckets=map_of(state.manifest, state.tasks, state.registry.buckets, balanced=state.balanced),
        routes=state.routes,
        scans=state.scans,
        stale=state.registry.stale,
        bound=state.bound,
        clock=now,
        limits=state.limits,
        tiers=state.tiers,
        deferred=deferred,
    )


def _fresh(state: State) -> tuple[Taken, ...]:
    return tuple(derived.taken_in(state.network, state.manifest, state.views))


def _expired_runs(state: State, reached: Reached) -> list[str]:
    return expired_runs(state.network, state.manifest, reached)


def _without(gone: Iterable[str], task: Task) -> tuple[str, ...]:
    """These runs, and those that the step merges."""
    return tuple(dict.fromkeys([*gone, *(name for merge in task.merges for name in merge.runs)]))
