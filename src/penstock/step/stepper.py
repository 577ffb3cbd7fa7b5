"""The step: one Spark job over a micro-batch (or a tick without one), then one commit.

Workers write files and report their names; nothing they wrote exists until the manifest entry of the step is there. Steps run
one at a time under one lock; each sees the state exactly as the step before committed it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import StepError
from penstock.planner import pane_sharing as arranging
from penstock.planner.network import Network
from penstock.planner.scans import Scans
from penstock.planner.share import recuts
from penstock.planner.steering import Steering
from penstock.results.retention import Horizon, following_upkeep, renew_results
from penstock.results.sides import merge_sides
from penstock.state.buckets import BucketMap
from penstock.state.forgetting import forgotten, handed_on
from penstock.state.manifest import BEFORE, NOW, Entry, Manifest, ManifestLog, Progress
from penstock.state.orphans import collect_orphans, collect_versions
from penstock.state.registry import QueryRecord, Registry
from penstock.state.result_files import ResultFile
from penstock.state.sides import expired_sides, next_expiry
from penstock.step import derived
from penstock.step.accounts import (
    bounded,
    counters_of,
    results_of,
    runs_of,
    suspended_by,
    with_dropped,
)
from penstock.step.bound import Bound
from penstock.step.compose import compose_task, out_of_reach
from penstock.step.ending import ended, is_out, is_settled, most_ticks
from penstock.step.entries import all_taken, job_changes, tick_entry
from penstock.step.layout import Layout
from penstock.step.learn import arranged, folding, rearranged, steered
from penstock.step.ports import Executor, Source
from penstock.step.suspended import resumed
from penstock.step.taken import Taken
from penstock.step.task import Reports, Task
from penstock.step.tracker import Tracker
from penstock.step.windows_due import (
    all_closed,
    closed_by,
    ended_tables,
    ends_without_job,
    held_back,
    is_unshown,
    shown_cursors,
)
from penstock.storage.crash_points import kill_point
from penstock.storage.store import Store


class Stopping(Exception):  # noqa: N818  (not an error: the run is asked to end)
    """A batch came while the run was stopping."""


class Stepper:
    """Runs and commits steps for one network."""

    def __init__(
        self,
        executor: Executor,
        source: Source,
        store: Store,
        manifest: Manifest,
        network: Network,
        registry: Registry,
        layout: Layout,
        tasks: int,
        after_commit: Callable[[Manifest], Mapping[str, int]],
        cut: Callable[[Network, Manifest], Network],
        steer: Callable[[Network, Manifest], Steering],
        views: derived.Views,
        horizon: Horizon,
    ) -> None:
        """`after_commit` delivers and returns the sinks' cursors; `cut` chooses the network's chains anew, `steer` its probe orders.

        `views` hold the results of the queries that others read, `horizon` says which of them are given up.
        """
        self.executor, self.source, self.store, self.layout, self.tasks = executor, source, store, layout, tasks
        self.log = ManifestLog(store)
        self.manifest = manifest
        self.after_commit, self.cut, self.steer, self.views, self.horizon = after_commit, cut, steer, views, horizon
        self.lock = threading.RLock()
        self.closing = False
        self.cursors: Mapping[str, int] = {}
        self.next_upkeep = following_upkeep(manifest.step)
        self.owes: Callable[[ResultFile], bool] = lambda _: False  # whether a sink has yet to get rows of a file
        self.last_reports: Reports = ()
        self.scans = Scans()  # what the last steps took, for tables without a key
        self.recut: list[dict[str, Any]] = []  # chains that have changed since the last step
        self.tracker = Tracker()
        self.timings: dict[str, float] = {}
        self.expire_every = 1  # steps between two rounds of dropping runs that are out of reach
        self.planning = 0.0  # seconds of the last step in which probe orders were looked at
        self.seconds = {"planning": 0.0, "probing": 0.0}  # of all steps, the slowest task of each
        self.bound = Bound()  # how much one query may produce in a step
        self.last_active = time.monotonic()
        self._due, self._due_of = 0.0, Manifest()
        self.adopt(network, registry)

    def adopt(self, network: Network, registry: Registry) -> None:
        """Run this network from the next step on; the layout is that of the running Spark query's streams."""
        self.network, self.registry = network, registry
        self.steering = self.steer(network, self.manifest)
        self.executor.adopt(network, self.layout, registry.settings)

    def forget_streams(self) -> None:
        """Give up the progress of streams that are gone: one that comes back begins anew."""
        known = {name: p for name, p in self.manifest.progress.items() if name in self.network.streams}
        if len(known) < len(self.manifest.progress):
            self._append(self._tick_entry(progress=known))

    def resume(self, record: QueryRecord) -> None:
        """Let a query that was suspended go on with the next step."""
        with self.lock:
            if entry := resumed(self.registry, self.manifest, record):
                self._append(replace(entry, cursors=self.cursors))

    def take_over(self, shares: frozenset[int]) -> None:
        """A step of its own: give the rows that are held the bits of new queries, and find the results among them."""
        with self.lock:
            task = replace(self._task(), merges=(), taking_over=shares)
            reports = self.executor.take_over(task)
            bounded(self.network, reports, task.bound)
            numbers = {t.index for t in self.network.tables if any(e.query in shares for e in t.entries)}
            replaced = [run.name for index in numbers for run in task.runs.get(index, ())]
            entry = self._tick_entry(
                counters=counters_of(reports), runs_added=runs_of(reports), results=results_of(reports), runs_removed=tuple(replaced),
                suspended=suspended_by(self.network, reports, self.manifest.suspended),
            )  # fmt: skip
            self.store.sync([f"{folder}/." for folder in ("runs", "results")])
            self._append(replace(entry, counters=with_dropped(entry, self.manifest)))

    def run_batch(self, batch: Any, batch_id: int) -> None:
        """What Spark calls for each micro-batch."""
        with self.lock:
            if self.closing:
                raise Stopping  # nothing of the batch was done; the next start gets it again
            started, self.tracker.began = time.perf_counter(), time.time()
            identity = self.source.identity(batch_id)
            if batch_id <= self.manifest.last_batch:
                self.source.check_replay(self.manifest, batch_id, identity)
                return
            step = self.manifest.step + 1
            kill_point("before_job", step)
            task = self._task()
            planned = time.perf_counter()
            reports, projecting = self._run(task, batch, self._taken_in())
            ran = time.perf_counter()
            kill_point("after_job", step)
            self._commit(step, batch_id, identity, task, reports)
            if step >= self.next_upkeep:  # ticks are steps too, so no step need be a multiple of anything
                self._upkeep()
                self.next_upkeep = following_upkeep(self.manifest.step)
            self.timings = {
                "plan": planned - started + projecting, "job": ran - planned - projecting, "commit": time.perf_counter() - ran
            }  # fmt: skip
            self.last_active = time.monotonic()
            self.tracker.planned_before = False

    def tick(self, progress: Mapping[str, Progress] | None = None, *, final: bool = False) -> bool:
        """A step without a batch: new progress, purge, delivery that is owed. False if there is nothing to do."""
        with self.lock:
            moved = dict(progress or self.manifest.progress)
            waiting = not final and bool(derived.waiting(self.network, self.manifest, self.views))
            if final:
                moved = {name: ended(self.manifest, name) for name in self.network.streams}
            elif not waiting:
                moved |= derived.moved(self.network, self.manifest, self.manifest.progress)
            values = {name: p.value for name, p in moved.items()}
            expired = self._out_of_reach(all_closed(self.network, values) if final else self.manifest.reached())
            changed = moved != dict(self.manifest.progress)
            owed = any(self.manifest.cursors.get(sink, -1) != step for sink, step in self.cursors.items())
            ahead = self.manifest.reached() | values
            if (
                waiting
                or held_back(self.network, self.manifest, ahead, moved)
                or (not final and is_unshown(self.network, self.manifest))
            ):
                self._close(moved, ahead, final=final, waiting=waiting)
                return True
            now = time.time()
            if not (changed or expired or final or owed or now >= self._sides_due()):
                return False
            old = expired_sides(self.manifest.sides, self._retained, now)
            entry = self._tick_entry(
                progress=moved, clock=now, sides_removed=tuple(s.name for s in old), runs_removed=tuple(expired), final=final,
                closed=closed_by(self.network, values), ended=NOW if ends_without_job(self.network, self.manifest, moved) else "",
            )  # fmt: skip
            self._append(replace(entry, counters=with_dropped(entry, self.manifest)))
            return True

    def catch_up(self) -> None:
        """Let derived streams take in all results so far, also those that this gives to others."""
        with self.lock:
            while derived.waiting(self.network, self.manifest, self.views):
                self.tick()

    def settle(self) -> None:
        """Catch up, and let the windows close that this has closed for those above; then only new rows bring anything."""
        with self.lock:
            for _ in range(most_ticks(self.network)):
                if is_settled(self.network, self.manifest, self.views):
                    break
                self.tick()

    def finish(self) -> None:
        """The streams have ended: first those that are read, then level by level those that are derived; then all is final."""
        with self.lock:
            own = {d.name for d in self.network.derived_streams}
            read = {n: ended(self.manifest, n) for n in self.network.streams if n not in own}
            for _ in range(most_ticks(self.network)):
                if is_out(self.network, self.manifest, self.views):
                    break
                self.tick({**self.manifest.progress, **read})
            self.tick(final=True)

    def _close(
        self, progress: Mapping[str, Progress], reached: Mapping[str, int], *, final: bool, waiting: bool = False
    ) -> None:
        """A tick with a job: rows that wait for this progress take part, and what they find is committed with it.

        If derived streams have rows `waiting`, it takes them in.
        """
        task = self._task(reached, progress)
        over = ended_tables(self.network, task.ahead, task.closed)
        task = replace(task, merges=() if final else tuple(m for m in task.merges if m.table in over))
        reports, _ = self._run(task, None, self._taken_in() if waiting else [])
        own = {d.name for d in self.network.derived_streams}
        # By these the step has closed, whatever it takes in.
        groups = {name: progress[name].closed if name in progress else () for name in own}
        if waiting:
            after = self._moved(reports)
            progress = {**progress, **{name: p for name, p in after.items() if name in own}}
        gone = self._out_of_reach(all_closed(self.network, reached) if final else reached)
        merged = [name for merge in task.merges for name in merge.runs]
        entry = self._tick_entry(
            **self._job_changes(task, reports), progress=progress, ended=NOW, closed_groups=groups, final=final,
            runs_removed=tuple(dict.fromkeys([*gone, *merged])),
            **({"derived": all_taken(self.network, self.manifest)} if waiting else {}),
        )  # fmt: skip
        entry = folding(self.network, self.manifest, entry, self.tasks)
        self.store.sync([f"{folder}/." for folder in ("runs", "results", "sides")])
        self._append(replace(entry, counters=with_dropped(entry, self.manifest)))

    def _upkeep(self) -> None:
        """Give up expired results, late and bad rows, merge small files, forget queries that have ended, and collect what no manifest names."""
        taken = derived.unread_since(self.network, self.manifest)
        merged, removed = renew_results(self.store, self.registry, self.manifest, self.owes, self.horizon, taken)
        lost = forgotten(self.registry, self.manifest, {*self.cursors, *shown_cursors(self.network)})
        now = time.time()
        old = {s.name for s in expired_sides(self.manifest.sides, self._retained, now)}
        young = [s for s in self.manifest.sides if s.name not in old]
        joined = merge_sides(self.store, young, self._retained, self.manifest.step)
        old |= {name for _, names in joined for name in names}
        if removed or lost or old:
            expired = tuple(self._out_of_reach(self.manifest.reached()))
            entry = self._tick_entry(
                results=merged, results_removed=removed, runs_removed=expired, forgotten=lost, clock=now,
                sides=tuple(side for side, _ in joined), sides_removed=tuple(sorted(old)),
            )  # fmt: skip
            counters = with_dropped(entry, self.manifest).plus(handed_on(self.registry, self.manifest))
            if merged or joined:
                self.store.sync(["results/.", "sides/."])
            self._append(replace(entry, counters=counters))
        collect_orphans(self.store, self.manifest)
        collect_versions(self.store, self.manifest)
        network = self.cut(self.network, self.manifest)
        if network != self.network:
            found = recuts(self.network, network, self.manifest.counters, list(self.manifest.runs.values()))
            self.recut += [{"step": self.manifest.step, **decision.to_json()} for decision in found]
            self.adopt(network, self.registry)

    def _tick_entry(self, **changes: Any) -> Entry:
        return tick_entry(self.network, self.manifest, self.cursors, **changes)

    def _job_changes(self, task: Task, reports: Reports) -> dict[str, Any]:
        changes = job_changes(self.network, self.manifest, self.cursors, task, reports)
        changes["suspended"] |= derived.suspended_by(self.network, self.manifest, self.views)
        return changes

    def _taken_in(self) -> list[Taken]:
        return derived.taken_in(self.network, self.manifest, self.views)

    def _task(self, reached: Mapping[str, int] | None = None, progress: Mapping[str, Progress] | None = None) -> Task:
        """What the next step asks of its tasks; with the progress of the last one unless it is given."""
        return compose_task(
            self.network,
            self.manifest,
            self.manifest.reached() if reached is None else reached,
            self.manifest.progress if progress is None else progress,
            store=self.store,
            buckets=BucketMap.even(self.tasks, self.registry.buckets),
            routes=self.steering.routes,
            scans=self.scans,
            stale=self.registry.stale,
            bound=self.bound,
        )

    def _run(self, task: Task, batch: Any | None, fresh: list[Taken]) -> tuple[Reports, float]:
        """The reports of a step over a batch and what derived streams add to it, and the seconds it took to plan it."""
        reports, planning = self.executor.run(task, batch, fresh)
        bounded(self.network, reports, task.bound)
        return reports, planning

    def _commit(self, step: int, batch_id: int, identity: str, task: Task, reports: Reports) -> None:
        for report in reports:
            for stream, example in report.errors.items():
                msg = f"stream {stream!r} got a row it must not get ({example}); its policy is 'error', so the step was not committed"
                raise StepError(msg)
        removed = self._out_of_reach(task.progress) if step % self.expire_every == 0 else []
        removed += [name for merge in task.merges for name in merge.runs]
        progress = self._moved(reports)
        changes = self._job_changes(task, reports)
        entry = self._tick_entry(
            **changes, batch=batch_id, last_batch=batch_id, identity=identity, progress=progress,
            runs_removed=tuple(dict.fromkeys(removed)), derived=all_taken(self.network, self.manifest),
            ended=BEFORE,
        )  # fmt: skip
        orders, self.planning = steered(self.steering, self.manifest, entry)
        entry = replace(entry, counters=with_dropped(entry, self.manifest), **orders)
        entry = arranged(self.network, self.manifest, entry)
        entry = folding(self.network, self.manifest, entry, self.tasks)
        entry = replace(entry, decisions=(*self.recut, *entry.decisions))
        self.store.sync(self.source.durable_names(batch_id))
        self.store.sync([f"{folder}/." for folder in ("runs", "results", "sides")])
        kill_point("before_manifest", step)
        self.last_reports = reports
        if any(table.timed for table in self.network.tables):
            self.scans.observe(self.network, task.routes.replicated, [(r.counters, r.phases) for r in reports])
        self.seconds["planning"] += self.planning
        self.seconds["probing"] += max((report.phases.get("probe", 0.0) for report in reports), default=0.0)
        self.tracker.came(reports, entry.clock)
        self._append(entry)
        self.recut = []
        if rearranged(entry):
            self.adopt(arranging.arrange(self.network, self.manifest.panes), self.registry)

    def _append(self, entry: Entry) -> None:
        self.log.append(entry)
        self.manifest = self.manifest.apply(entry)
        kill_point("after_manifest", entry.step)
        self.cursors = self.after_commit(self.manifest)
        kill_point("after_delivery", entry.step)
        for name in entry.runs_removed:
            self.store.delete(name)
        for name in (*entry.results_removed, *entry.sides_removed):
            self.store.touch(name)
        self.log.snapshot_if_due(self.manifest)

    def lulls(self, progress: Mapping[str, Progress], names: Iterable[str], now: float) -> dict[str, Progress]:
        """Progress with that of these streams, of which nothing is left to read, by the clock."""
        return self.tracker.lulls(self.network, self.layout.order, progress, names, now)

    @property
    def _retained(self) -> dict[str, int | None]:
        """How long late and bad rows of each stream are kept, also of one that was dropped."""
        return {name: record.stream.side_retain for name, record in self.registry.streams.items()}

    def _sides_due(self) -> float:
        """The clock at which late and bad rows are to be given up; looked for once for each state."""
        if self._due_of is not self.manifest:
            self._due, self._due_of = next_expiry(self.manifest.sides, self._retained), self.manifest
        return self._due

    def _moved(self, reports: Reports) -> dict[str, Progress]:
        return self.tracker.moved(self.network, self.layout.order, self.manifest, reports)

    def _out_of_reach(self, progress: Mapping[str, int]) -> list[str]:
        return out_of_reach(self.network, self.manifest, progress)
