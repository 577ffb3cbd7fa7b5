"""A running engine without its source: how it begins on a state directory, changes between two steps, and ends.

Its executor and its source are ports; the same core runs under Spark and in one process.
It has no threads: one calls it, an event at a time (`loop`, decision 0038).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from penstock.catalog.catalog import Catalog
from penstock.errors import RegistrationError, StateError
from penstock.model.memory import Limits
from penstock.model.time import NEVER
from penstock.planner.network import Network
from penstock.results.delivery import Delivery, cause_of, group_sinks
from penstock.results.released import released
from penstock.results.sink import Into, OpenSink
from penstock.results.sink_queries import sink_queries
from penstock.state.cursors import SinkCursor
from penstock.state.fence import fenced
from penstock.state.manifest import Manifest, ManifestLog, Progress
from penstock.state.orphans import collect_orphans
from penstock.state.progress import declare, follow_delay
from penstock.state.registry import Registry, RegistryLog
from penstock.step.bound import Bound
from penstock.step.commit import check_runs
from penstock.step.ending import is_ending
from penstock.step.layout import Layout
from penstock.step.ports import Executor, Source
from penstock.step.relief import Relief
from penstock.step.stepper import Stepper
from penstock.storage.store import Store


class Core:
    """The steps of one engine, its sinks, and its changing queries.

    `open_sink` opens a sink, `cause` explains the failure of one; `lay_out` says which columns of which streams the
    source reads for a network.
    """

    def __init__(
        self,
        executor: Executor,
        source: Source,
        catalog: Catalog,
        store: Store,
        open_sink: Callable[[Into], OpenSink],
        lay_out: Callable[[Network], Layout],
        *,
        tasks: int,
        bound: Bound | None = None,
        limits: Limits | None = None,
        relief: Relief | None = None,
        expire_every: int = 1,
        follows_clock: bool = True,
        warnings: list[str] | None = None,
        cause: Callable[[BaseException], str] = cause_of,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.catalog, self.store, self.open_sink, self.lay_out = catalog, store, open_sink, lay_out
        self.delivery = Delivery(lambda query, now: released(catalog, catalog.numbered(query), now), cause=cause)
        self.stepper = Stepper(
            executor, source, self.delivery, catalog, store, tasks=tasks, bound=bound, limits=limits,
            expire_every=expire_every,
            follows_clock=follows_clock, warnings=warnings, relief=relief, clock=clock,
        )  # fmt: skip

    def begin(self, manifest: Manifest) -> bool:
        """Continue from what is committed, with the present declarations; False if the streams end with it."""
        manifest = self._caught_up(manifest)
        registry, network = self.catalog.commit(manifest)
        self.stepper.begin(manifest, network, registry, self.lay_out(network))
        self._connect(manifest.cursors, -1)
        self.stepper.committed.deliver()
        collect_orphans(self.store, manifest)
        if is_ending(self.stepper.manifest):
            self.stepper.finish()
            return False
        self._take_over()
        self._follow_delays()
        return True

    def settle(self) -> None:
        """Run the steps that belong to the queries as they are, before a change."""
        self.stepper.clean_up()  # what is owed is owed to them
        self.stepper.catch_up()  # new readers see only the results of later steps

    def change(self, change: Callable[[], None]) -> tuple[Registry, Network]:
        """Change declarations, all or nothing; returns what to run from now on. `adopt` makes it effective."""
        catalog = self.catalog
        self.settle()
        with catalog.whole_or_not_at_all():
            change()
            catalog.check_streams()
            if not catalog.opened:
                raise RegistrationError("an engine that runs needs a stream; stop it instead")
            return catalog.commit(self.stepper.manifest)

    def adopt(self, registry: Registry, network: Network) -> None:
        """Run the changed network from the next step on."""
        manifest = self.stepper.manifest
        self.stepper.adopt(network, registry)
        self._connect({**manifest.cursors, **self.stepper.committed.cursors}, manifest.step)
        self._take_over()
        self.stepper.forget_streams()
        self._follow_delays()

    def advance(self, name: str, value: int) -> None:
        """No later row of the stream has a time below `value`: committed with all that it closes."""
        progress = self.stepper.manifest.progress
        moved = declare(progress.get(name, Progress(NEVER, NEVER)), value)
        if moved != progress.get(name):
            self.stepper.tick({**progress, name: moved})

    def end(self, *, final: bool) -> None:
        """Emit what is complete; with `final` the streams have ended, and everything is."""
        if final:
            self.stepper.clean_up()
        self.stepper.quiesce()
        self.stepper.tick()
        if final:
            self.stepper.finish()

    def _caught_up(self, manifest: Manifest) -> Manifest:
        """After a crash results may wait for their readers, which get them before anything else is registered.

        Readers that begin with this start see only the results of later steps. So too if probes are owed: they are owed
        to the queries as they were.
        """
        catalog, wanted = self.catalog, self.catalog.registry
        if not (manifest.derived or manifest.owed) or wanted == catalog.saved:
            return manifest
        catalog.registry = catalog.saved
        try:
            network = catalog.network()
            self.stepper.begin(manifest, network, catalog.saved, self.lay_out(network))
            self.stepper.clean_up()
            self.stepper.catch_up()
            return self.stepper.manifest
        finally:
            catalog.registry = wanted

    def _connect(self, cursors: Mapping[str, SinkCursor], step: int) -> None:
        """Group the sinks of all live queries; a new one begins after `step`."""
        self.delivery.sinks = group_sinks(sink_queries(self.catalog), cursors, step, self.open_sink)

    def _take_over(self) -> None:
        """Let queries that begin from state see the stored rows, even if the engine died before it."""
        manifest = self.stepper.manifest
        begun = [q for q in self.catalog.registry.live() if q.start == "state" and q.since > manifest.worked]
        if begun and manifest.runs:
            self.stepper.take_over(frozenset(q.share or q.id for q in begun))

    def _follow_delays(self) -> None:
        """A shortened delay advances progress before any row is judged by it, also after a crash."""
        progress, streams = self.stepper.manifest.progress, self.stepper.network.streams
        moved = {n: follow_delay(streams[n], progress[n]) for n in self.stepper.layout.order if n in progress}
        if any(p.value > progress[n].value for n, p in moved.items()):
            self.stepper.tick({**progress, **moved})


def committed(store: Store, catalog: Catalog, source: Source) -> Manifest:
    """The state that an engine begins with; raises if something of it, or of what it is understood by, is not there."""
    catalog.check_newest()

    def check(manifest: Manifest) -> None:
        if manifest.final:
            refuse_ended(store)
        source.check_start(manifest)
        if manifest.version:
            RegistryLog(store).load(manifest.version)  # the state has no meaning without it
        check_runs(store, manifest)

    return fenced(ManifestLog(store), check)


def refuse_ended(store: Store) -> NoReturn:
    """Streams that have ended do not begin again."""
    msg = (
        f"the streams in {store.root} have ended (final); its results can be read, but it cannot be started again: use "
        "a new state directory"
    )
    raise StateError(msg)
