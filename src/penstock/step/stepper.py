"""The driver of steps: it holds the state; each event becomes a plan, reports, a record, and the next state.

`plan` and `phases` define what a step does, `commit` the order in which it becomes durable. Steps run one at a time,
which is up to the caller; each sees the state exactly as the previous step committed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.catalog.catalog import Catalog
from penstock.errors import StepError
from penstock.model.memory import Limits
from penstock.planner import pane_sharing
from penstock.planner.network import Network
from penstock.planner.steering import Steering
from penstock.results.released import horizon
from penstock.results.retention import following_upkeep
from penstock.results.views import views_of
from penstock.state.balance.policies import OFF
from penstock.state.buckets import BucketMap
from penstock.state.manifest import Entry, Manifest, Progress
from penstock.state.orphans import collect_orphans, collect_versions
from penstock.state.owed import Owed, without_paid
from penstock.state.registry import QueryRecord, Registry
from penstock.state.side_files import next_expiry
from penstock.state.tiers import ALL_HOT
from penstock.step import derived
from penstock.step.accounts import bounded
from penstock.step.balancing import Balancer, map_of
from penstock.step.bound import Bound
from penstock.step.commit import Committed
from penstock.step.compose import choose_tiers
from penstock.step.ending import ended, is_out, is_quiescent, most_ticks
from penstock.step.events import Batch, CleanUp, Event, TakeOver, Tick
from penstock.step.heard import Heard, by_clock
from penstock.step.layout import Layout
from penstock.step.learn import Optimizer, rearranged
from penstock.step.owing import Chosen, at_once
from penstock.step.phases import fold
from penstock.step.plan import State, StepPlan, plan_step
from penstock.step.ports import Executor, Sinks, Source
from penstock.step.relief import Relief
from penstock.step.task import Reports
from penstock.step.upkeep import forget_streams, put_in_order, resumed
from penstock.storage.crash_points import kill_point
from penstock.storage.store import Store


class Stepper:
    """Runs and commits steps, one after another, through its ports."""

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
        limits: Limits | None = None,
        relief: Relief | None = None,
        expire_every: int = 1,
        follows_clock: bool = True,
        warnings: list[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`bound` is the maximal output of one query in a step, `expire_every` the steps between two rounds of dropping
        expired runs; `limits` what a task may have in memory; `warnings` gets warnings about streams; `clock`
        tells the time, in seconds.
        """
        self.executor, self.source, self.sinks, self.catalog, self.store = executor, source, sinks, catalog, store
        self.tasks, self.bound, self.expire_every = tasks, bound or Bound(), expire_every
        self.limits, self.tiers = limits, ALL_HOT
        self.views = partial(views_of, catalog)
        self.clock = clock
        self.heard = Heard(clock(), follows_clock=follows_clock)
        self.warnings = [] if warnings is None else warnings
        self.relief = relief or Relief()
        self.put_off: Chosen | None = None  # instead of what the relief chooses
        self.last_reports: Reports = ()
        self.timings: dict[str, float] = {}
        self.last_active = time.monotonic()

    def begin(self, manifest: Manifest, network: Network, registry: Registry, layout: Layout) -> None:
        """Continue from this manifest with this network."""
        self.committed = Committed(self.store, self.source, self.sinks, manifest)
        self.next_upkeep = following_upkeep(manifest.step)
        choices = self.catalog.choices
        self.optimizer = Optimizer(
            lambda network, now: self.catalog.steer(network, now, self.tasks),
            Balancer(choices.policy, choices.balancing),
        )
        self._due: tuple[Manifest, float] | None = None
        self.layout = layout
        self.adopt(network, registry)
        self._choose_tiers()

    @property
    def manifest(self) -> Manifest:
        return self.committed.manifest

    @property
    def layout(self) -> Layout:
        """The slots of the columns of the streams that the source reads."""
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
        """The input of the next step."""
        return State(
            self.manifest, self.network, self.registry, self.store, self.tasks, self.optimizer.steering.routes,
            self.views, self.heard, self.committed.cursors, self.optimizer.scans, self.bound, self.expire_every,
            limits=self.limits, tiers=self.tiers,
            put_off=self.relief.chosen(self.network, self.registry) if self.put_off is None else self.put_off,
            balanced=self.optimizer.balancer.policy != OFF,
        )  # fmt: skip

    @property
    def buckets(self) -> BucketMap:
        """Which task serves which buckets in the next step."""
        return map_of(self.manifest, self.tasks, self.registry.buckets, balanced=self.state.balanced)

    # -- steps ---------------------------------------------------------------------------------------------------

    def run_batch(self, batch: Any, batch_id: int) -> None:
        """A step over a batch from the source."""
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
        """A step without a batch: new progress, expiry, pending delivery. False if there is nothing to do."""
        state = replace(self.state, sides_due=self._sides_due())
        return self._step(Tick(dict(progress or self.manifest.progress), final), state)

    def take_over(self, queries: frozenset[int]) -> None:
        """A step of its own: set the bits of new queries on stored rows, and find the results among them."""
        self._step(TakeOver(queries), self.state)

    def clean_up(self, owed: Sequence[Owed] | None = None) -> None:
        """Run these owed probes, all by default, in steps of their own."""
        while left := self.manifest.owed if owed is None else owed:
            now = at_once(left)
            self._step(CleanUp(now), self.state)
            owed = None if owed is None else without_paid(owed, now)

    def pay(self, may: float) -> None:
        """Run some owed probes, in about as many seconds."""
        if self.manifest.owed:
            started = time.perf_counter()
            self._step(CleanUp(self.relief.due(self.manifest.owed)), self.state)
            self.relief.paid(time.perf_counter() - started, may)

    def forget_streams(self) -> None:
        """Drop the progress of streams that no longer exist."""
        if record := forget_streams(self.state, self.clock()):
            self._commit(record)

    def resume(self, record: QueryRecord) -> None:
        """Resume a suspended query with the next step."""
        if entry := resumed(self.registry, self.manifest, record):
            self._commit(replace(entry, cursors=self.committed.cursors))

    def catch_up(self) -> None:
        """Let derived streams read all results so far, including those that this produces."""
        while derived.waiting(self.network, self.manifest, self.views):
            self.tick()

    def quiesce(self) -> None:
        """Catch up, and close the windows above that this affects; then only new rows have an effect."""
        for _ in range(most_ticks(self.network)):
            if is_quiescent(self.network, self.manifest, self.views):
                break
            self.tick()

    def finish(self) -> None:
        """The streams have ended: first those that are read, level by level the derived ones, then all is final."""
        self.clean_up()
        own = {d.name for d in self.network.derived_streams}
        read = {n: ended(self.manifest, n) for n in self.network.streams if n not in own}
        for _ in range(most_ticks(self.network)):
            if is_out(self.network, self.manifest, self.views):
                break
            self.tick({**self.manifest.progress, **read})
        self.tick(final=True)

    def idle_progress(self, progress: Mapping[str, Progress], names: Iterable[str], now: float) -> dict[str, Progress]:
        """Progress with that of these fully read streams by the clock."""
        moved, warnings = by_clock(self.network, self.heard, progress, names, now)
        self._warn(warnings)
        return moved

    # -- inside --------------------------------------------------------------------------------------------------

    def _step(self, event: Event, state: State, batch: Any | None = None, started: float | None = None) -> bool:
        """An event becomes a plan, reports, a record, and the next state; False if it changes nothing."""
        began, step, rows = self.clock(), state.manifest.step + 1, isinstance(event, Batch)
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
        record, warnings = fold(state, plan, reports, began, self.clock())
        if rows and plan.task is not None:
            record = self.optimizer.learn(self.network, self.manifest, record, plan.task, reports)
            seconds = ran - (planned if started is None else started)
            buckets = plan.task.buckets.buckets
            record = self.relief.learn(self.network, self.manifest, record, reports, seconds, buckets)
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
        """The reports of a step's tasks, and the seconds to plan their work."""
        if plan.task is None:
            return (), 0.0
        if isinstance(plan.event, TakeOver | CleanUp):
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
        self._choose_tiers()

    def _choose_tiers(self) -> None:
        """What is cold from the next step on."""
        if self.limits is not None:
            self.tiers = choose_tiers(self.tiers, self.network, self.manifest, self.limits.hot)

    def _upkeep(self) -> None:
        """Put the state in order, collect files that no manifest names, and choose chains anew."""
        if record := put_in_order(self.state, self.sinks, partial(horizon, self.catalog), self.clock()):
            self._commit(record)
        collect_orphans(self.store, self.manifest)
        collect_versions(self.store, self.manifest)
        network = self.catalog.cut(self.network, self.manifest)
        if network != self.network:
            self.optimizer.cut(self.network, network, self.manifest)
            self.adopt(network, self.registry)
        self.next_upkeep = following_upkeep(self.manifest.step)

    def _sides_due(self) -> float:
        """The clock at which late and invalid rows expire; computed once per state."""
        if self._due is None or self._due[0] is not self.manifest:
            self._due = self.manifest, next_expiry(self.manifest.sides, self.state.retained)
        return self._due[1]

    def _warn(self, warnings: Iterable[str]) -> None:
        self.warnings += [text for text in dict.fromkeys(warnings) if text not in self.warnings]
