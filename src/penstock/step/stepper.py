"""The driver of steps: it holds the state; each event becomes a plan, reports, a record, and the state after it.

What a step does is said in `plan` and `phases`, in which order it becomes durable in `commit`. Steps run one at a time,
which is the matter of who calls; each sees the state exactly as the step before committed it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.catalog.catalog import Catalog
from penstock.errors import StepError
from penstock.planner import pane_sharing
from penstock.planner.network import Network
from penstock.planner.steering import Steering
from penstock.results.released import horizon
from penstock.results.retention import following_upkeep
from penstock.results.views import views_of
from penstock.state.manifest import Entry, Manifest, Progress
from penstock.state.orphans import collect_orphans, collect_versions
from penstock.state.registry import QueryRecord, Registry
from penstock.state.sides import next_expiry
from penstock.step import derived
from penstock.step.accounts import bounded
from penstock.step.bound import Bound
from penstock.step.commit import Committed
from penstock.step.ending import ended, is_out, is_settled, most_ticks
from penstock.step.events import Batch, Event, TakeOver, Tick
from penstock.step.heard import Heard, by_clock
from penstock.step.layout import Layout
from penstock.step.learn import Optimizer, rearranged
from penstock.step.phases import fold
from penstock.step.plan import State, StepPlan, plan_step
from penstock.step.ports import Executor, Sinks, Source
from penstock.step.suspended import resumed
from penstock.step.task import Reports
from penstock.step.upkeep import forget_streams, put_in_order
from penstock.storage.crash_points import kill_point
from penstock.storage.store import Store


class Stepper:
    """Runs and commits steps, one after another, by the ports that it is given."""

    def __init__(
        self,
        executor: Executor,
        source: Source,
        sinks: Sinks,
        catalog: Catalog,
        store: Store,
        *,
        tasks: int,
        bound: Bound | None = None,
        expire_every: int = 1,
        follows_clock: bool = True,
        warnings: list[str] | None = None,
    ) -> None:
        """`bound` is how much one query may produce in a step, `expire_every` the steps between two rounds of dropping
        runs that are out of reach; `warnings` gets what there is to say of streams.
        """
        self.executor, self.source, self.sinks, self.catalog, self.store = executor, source, sinks, catalog, store
        self.tasks, self.bound, self.expire_every = tasks, bound or Bound(), expire_every
        self.views = partial(views_of, catalog)
        self.heard = Heard(time.time(), follows_clock=follows_clock)
        self.warnings = [] if warnings is None else warnings
        self.last_reports: Reports = ()
        self.timings: dict[str, float] = {}
        self.last_active = time.monotonic()

    def begin(self, manifest: Manifest, network: Network, registry: Registry, layout: Layout) -> None:
        """Go on from this manifest with this network."""
        self.committed = Committed(self.store, self.source, self.sinks, manifest)
        self.next_upkeep = following_upkeep(manifest.step)
        self.optimizer = Optimizer(lambda network, now: self.catalog.steer(network, now, self.tasks))
        self._due: tuple[Manifest, float] | None = None
        self.layout = layout
        self.adopt(network, registry)

    @property
    def manifest(self) -> Manifest:
        return self.committed.manifest

    @property
    def layout(self) -> Layout:
        """Where the columns travel of the streams that the source reads."""
        return self._layout

    @layout.setter
    def layout(self, layout: Layout) -> None:
        self._layout, self.heard = layout, replace(self.heard, read=layout.order)

    @property
    def steering(self) -> Steering:
        return self.optimizer.steering

    def adopt(self, network: Network, registry: Registry) -> None:
        """Run this network from the next step on."""
        self.network, self.registry = network, registry
        self.optimizer.adopt(network, self.manifest)
        self.executor.adopt(network, self.layout, registry.settings)

    @property
    def state(self) -> State:
        """What the next step begins with."""
        return State(
            self.manifest, self.network, self.registry, self.store, self.tasks, self.optimizer.steering.routes,
            self.views, self.heard, self.committed.cursors, self.optimizer.scans, self.bound, self.expire_every,
        )  # fmt: skip

    # -- steps ---------------------------------------------------------------------------------------------------

    def run_batch(self, batch: Any, batch_id: int) -> None:
        """A step over a batch that the source hands over."""
        began = time.perf_counter()
        identity = self.source.identity(batch_id)
        if batch_id <= self.manifest.last_batch:
            self.source.check_replay(self.manifest, batch_id, identity)
            return
        self._step(Batch(batch_id, identity), self.state, batch, began)
        if self.manifest.step >= self.next_upkeep:  # ticks are steps too, so no step need be a multiple of anything
            self._upkeep()
        self.last_active = time.monotonic()

    def tick(self, progress: Mapping[str, Progress] | None = None, *, final: bool = False) -> bool:
        """A step without a batch: new progress, purge, delivery that is owed. False if there is nothing to do."""
        state = replace(self.state, sides_due=self._sides_due())
        return self._step(Tick(dict(progress or self.manifest.progress), final), state)

    def take_over(self, queries: frozenset[int]) -> None:
        """A step of its own: give the rows that are held the bits of new queries, and find the results among them."""
        self._step(TakeOver(queries), self.state)

    def forget_streams(self) -> None:
        """Give up the progress of streams that are gone."""
        if record := forget_streams(self.state, time.time()):
            self._commit(record)

    def resume(self, record: QueryRecord) -> None:
        """Let a query that was suspended go on with the next step."""
        if entry := resumed(self.registry, self.manifest, record):
            self._commit(replace(entry, cursors=self.committed.cursors))

    def catch_up(self) -> None:
        """Let derived streams take in all results so far, also those that this gives to others."""
        while derived.waiting(self.network, self.manifest, self.views):
            self.tick()

    def settle(self) -> None:
        """Catch up, and let the windows above close that this has closed; then only new rows bring anything."""
        for _ in range(most_ticks(self.network)):
            if is_settled(self.network, self.manifest, self.views):
                break
            self.tick()

    def finish(self) -> None:
        """The streams have ended: first those that are read, level by level the derived ones, then all is final."""
        own = {d.name for d in self.network.derived_streams}
        read = {n: ended(self.manifest, n) for n in self.network.streams if n not in own}
        for _ in range(most_ticks(self.network)):
            if is_out(self.network, self.manifest, self.views):
                break
            self.tick({**self.manifest.progress, **read})
        self.tick(final=True)

    def lulls(self, progress: Mapping[str, Progress], names: Iterable[str], now: float) -> dict[str, Progress]:
        """Progress with that of these streams, of which nothing is left to read, by the clock."""
        moved, warnings = by_clock(self.network, self.heard, progress, names, now)
        self._warn(warnings)
        return moved

    # -- inside --------------------------------------------------------------------------------------------------

    def _step(self, event: Event, state: State, batch: Any | None = None, started: float | None = None) -> bool:
        """An event becomes a plan, reports, a record, and the state after it; False if it changes nothing."""
        began, step, rows = time.time(), state.manifest.step + 1, isinstance(event, Batch)
        if rows:
            kill_point("before_job", step)
        plan = plan_step(state, event, began)
        if plan is None:
            return False
        planned = time.perf_counter()
        reports, planning = self._run(plan, batch)
        ran = time.perf_counter()
        if rows:
            kill_point("after_job", step)
        record, warnings = fold(state, plan, reports, began, time.time())
        if rows and plan.task is not None:
            record = self.optimizer.learn(self.network, self.manifest, record, plan.task, reports)
            self.last_reports = reports
            self.heard = self.heard.after(reports, record.clock)
        self._warn(warnings)
        self._commit(record)
        if rearranged(record):
            self.adopt(pane_sharing.arrange(self.network, self.manifest.panes), self.registry)
        if started is not None:
            self.timings = {
                "plan": planned - started + planning, "job": ran - planned - planning,
                "commit": time.perf_counter() - ran,
            }  # fmt: skip
        return True

    def _run(self, plan: StepPlan, batch: Any | None) -> tuple[Reports, float]:
        """What the tasks of a step report, and the seconds it took to plan their work."""
        if plan.task is None:
            return (), 0.0
        if isinstance(plan.event, TakeOver):
            reports, planning = self.executor.take_over(plan.task), 0.0
        else:
            reports, planning = self.executor.run(plan.task, batch, plan.fresh)
        bounded(self.network, reports, plan.task.bound)
        for report in reports:
            for stream, example in report.errors.items():
                said = f"stream {stream!r} got a row it must not get ({example})"
                raise StepError(f"{said}; its policy is 'error', so the step was not committed")
        return reports, planning

    def _commit(self, record: Entry) -> None:
        self.committed.commit(record)

    def _upkeep(self) -> None:
        """Put the state in order, collect what no manifest names, and cut chains anew."""
        if record := put_in_order(self.state, self.sinks, partial(horizon, self.catalog), time.time()):
            self._commit(record)
        collect_orphans(self.store, self.manifest)
        collect_versions(self.store, self.manifest)
        network = self.catalog.cut(self.network, self.manifest)
        if network != self.network:
            self.optimizer.cut(self.network, network, self.manifest)
            self.adopt(network, self.registry)
        self.next_upkeep = following_upkeep(self.manifest.step)

    def _sides_due(self) -> float:
        """The clock at which late and bad rows are to be given up; looked for once for each state."""
        if self._due is None or self._due[0] is not self.manifest:
            self._due = self.manifest, next_expiry(self.manifest.sides, self.state.retained)
        return self._due[1]

    def _warn(self, warnings: Iterable[str]) -> None:
        self.warnings += [text for text in dict.fromkeys(warnings) if text not in self.warnings]
