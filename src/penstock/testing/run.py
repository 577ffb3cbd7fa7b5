"""A started engine without Spark: what begins it, changes it between two steps, and ends it, as production does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import RegistrationError, ResultsError, StateError
from penstock.model.time import NEVER
from penstock.planner.network import Network
from penstock.results.delivery import Delivery, group_sinks
from penstock.results.open_sink import open_sink
from penstock.results.part import Part
from penstock.results.released import horizon, released
from penstock.results.sink_queries import sink_queries, sink_tables
from penstock.results.views import views_of
from penstock.state.manifest import Manifest, ManifestLog, Progress
from penstock.state.orphans import collect_orphans
from penstock.state.progress import declare, follow_delay
from penstock.state.registry import Registry, RegistryLog
from penstock.step import commit
from penstock.step.ending import is_ending
from penstock.step.layout import Layout, lay_out
from penstock.step.stepper import Stepper
from penstock.storage.identity import read_id

if TYPE_CHECKING:
    from penstock.testing.engine import Engine


class Run:
    """Holds the store until it is stopped, or the process dies on it."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.catalog, self.store = engine, engine.catalog, engine.store
        self.log = engine.source.on(engine.store)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.store.owner_lock())
            self._begin()
            self._stack = stack.pop_all()

    def _begin(self) -> None:
        self.catalog.check_newest()
        manifest = ManifestLog(self.store).load()
        if manifest.final:
            raise StateError(f"the streams in {self.store.root} have ended (final); use a new store")
        self.log.check_start(manifest.last_batch)
        if manifest.step >= 0:
            RegistryLog(self.store).load(manifest.version)
        commit.check_runs(self.store, manifest)
        self.delivery = Delivery(lambda query, now: released(self.catalog, self.catalog.numbered(query), now))
        manifest = self._caught_up(manifest)
        self.stepper = self._stepper(manifest, *self.catalog.commit(manifest))
        self.stepper.expire_every = self.engine.expire_every
        self._connect(-1)
        self.stepper.cursors = self.delivery.deliver(manifest) if self.delivery.sinks else {}
        self.stepper.owes = self.delivery.owes
        collect_orphans(self.store, manifest)
        if is_ending(manifest):
            self.stepper.finish()
        self._take_over()
        self._follow_delays()

    def _stepper(self, manifest: Manifest, registry: Registry, network: Network) -> Stepper:
        catalog, tasks = self.catalog, self.engine.tasks
        return Stepper(
            self.engine.executor, self.log, self.store, manifest, network, registry, self._layout(network), tasks, self.delivery.deliver,
            catalog.cut, lambda plan, now: catalog.steer(plan, now, tasks), partial(views_of, catalog), partial(horizon, catalog),
        )  # fmt: skip

    def _layout(self, network: Network) -> Layout:
        return lay_out([stream for name, stream in network.streams.items() if name in self.catalog.opened])

    def _caught_up(self, manifest: Manifest) -> Manifest:
        """After a crash results may wait for those that read them: they get them before anything else is registered."""
        wanted = self.catalog.registry
        if not manifest.derived or wanted == self.catalog.saved:
            return manifest
        self.catalog.registry = self.catalog.saved
        try:
            stepper = self._stepper(manifest, self.catalog.saved, self.catalog.network())
            stepper.catch_up()
            return stepper.manifest
        finally:
            self.catalog.registry = wanted

    # -- what a test asks -----------------------------------------------------------------------------------------

    def take_planned(self) -> None:
        """Take the rows that wait, until none do."""
        while (batch := self.log.planned()) is not None:
            self.stepper.run_batch(self.log.rows(batch), batch)
            self.log.done(batch)

    def tick(self) -> bool:
        if self.delivery.owed:
            self.stepper.cursors = self.delivery.deliver(self.stepper.manifest)
        return self.stepper.tick()

    def advance(self, stream: str, to: int) -> None:
        progress = self.stepper.manifest.progress
        moved = declare(progress.get(stream, Progress(NEVER, NEVER)), to)
        if moved != progress.get(stream):
            self.stepper.tick({**progress, stream: moved})

    def change(self, change: Callable[[], None]) -> None:
        """Change what is declared at this step boundary; all or nothing."""
        self.stepper.catch_up()  # who comes now reads the results of later steps only
        with self.catalog.whole_or_not_at_all():
            change()
            self.catalog.check_streams()
            if not self.catalog.opened:
                raise RegistrationError("an engine that runs needs a stream; stop it instead")
            registry, network = self.catalog.commit(self.stepper.manifest)
        if network.version != self.stepper.network.version:
            self.stepper.layout = self._layout(network)
            self.stepper.adopt(network, registry)
            self._connect(self.stepper.manifest.step)
            self._take_over()
            self.stepper.forget_streams()
            self._follow_delays()

    def stop(self, *, final: bool) -> None:
        with self._stack:
            self.stepper.settle()
            self.stepper.tick()
            if final:
                self.stepper.finish()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _connect(self, step: int) -> None:
        """Group the sinks of all live queries; one that is new begins after `step`."""
        cursors = {**self.stepper.manifest.cursors, **self.stepper.cursors}
        opening = partial(open_sink, tables=self._tables, store=self.store, owner=read_id(self.store))
        self.delivery.sinks = group_sinks(sink_queries(self.catalog), cursors, step, opening)

    def _take_over(self) -> None:
        """Let queries that begin from the state with the next step see the rows held."""
        manifest = self.stepper.manifest
        begun = [q for q in self.catalog.registry.live() if q.start == "state" and q.since == manifest.step + 1]
        if begun and manifest.runs:
            self.stepper.take_over(frozenset(q.share or q.id for q in begun))

    def _follow_delays(self) -> None:
        """A delay that has become shorter moves progress now, before any row is judged by it."""
        progress, streams = self.stepper.manifest.progress, self.stepper.network.streams
        moved = {n: follow_delay(streams[n], progress[n]) for n in self.stepper.layout.order if n in progress}
        if any(p.value > progress[n].value for n, p in moved.items()):
            self.stepper.tick({**progress, **moved})

    def _tables(self, queries: Sequence[int], part: Part) -> Iterator[pa.Table]:
        tables = sink_tables(self.catalog, self.stepper.manifest, queries, part)
        if tables is None:
            raise ResultsError("only Spark can compute the select list of a query with a sink")
        return tables
