"""A started engine without Spark: it begins, changes between two steps, and ends, as in production."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from penstock.catalog.catalog import Catalog
from penstock.errors import ResultsError
from penstock.model.memory import Limits
from penstock.planner.network import Network
from penstock.planner.routes import Routes
from penstock.results.open_sink import open_sink
from penstock.results.part import Part
from penstock.results.sink_queries import sink_tables
from penstock.step.core import Core, committed
from penstock.step.layout import Layout, lay_out
from penstock.storage.identity import read_id
from penstock.testing.executor import InProcess
from penstock.testing.source import HandedOver, Shared


class Run:
    """Owns the store until it is stopped, or the process dies on it."""

    def __init__(
        self,
        catalog: Catalog,
        store: Shared,
        source: HandedOver,
        executor: InProcess,
        *,
        tasks: int,
        expire_every: int,
        limits: Limits | None,
        clock: Callable[[], float],
    ) -> None:
        self.catalog, self.store, self.log = catalog, store, source.on(store)
        with contextlib.ExitStack() as stack:
            stack.enter_context(store.owner_lock())
            manifest = committed(store, catalog, self.log)
            opened = partial(open_sink, tables=self._tables, store=store, owner=read_id(store))
            self.core = Core(
                executor, self.log, catalog, store, opened, self._layout, tasks=tasks, expire_every=expire_every,
                limits=limits,
                clock=clock,
            )  # fmt: skip
            self.stepper, self.delivery = self.core.stepper, self.core.delivery
            self.core.begin(manifest)
            self._stack = stack.pop_all()

    def _layout(self, network: Network) -> Layout:
        return lay_out([stream for name, stream in network.streams.items() if name in self.catalog.opened])

    # -- called by tests ------------------------------------------------------------------------------------------

    def take_planned(self) -> None:
        """Process the waiting rows, until there are none."""
        while (batch := self.log.planned()) is not None:
            self.stepper.run_batch(self.log.rows(batch), batch)
            self.log.done(batch)

    def tick(self) -> bool:
        if self.delivery.owed:
            self.stepper.committed.deliver()
        # All rows that were handed over are read: what is silent now follows the clock.
        progress, names = self.stepper.manifest.progress, self.stepper.layout.order
        return self.stepper.tick(self.stepper.idle_progress(progress, names, self.stepper.clock()))

    def advance(self, stream: str, to: int) -> None:
        self.core.advance(stream, to)

    def change(self, change: Callable[[], None]) -> None:
        """Change declarations at this step boundary; all or nothing."""
        registry, network = self.core.change(change)
        if network.version != self.stepper.network.version:
            self.stepper.layout = self._layout(network)
            self.core.adopt(registry, network)

    def steer(self, network: Network | None = None, routes: Routes | None = None) -> None:
        """Run the next step by another form of the network (chains, order of tables), and by these routes.

        Both are choices that affect no answer. A change of declarations makes them anew.
        """
        if network is not None:
            self.stepper.adopt(network, self.stepper.registry)
        if routes is not None:
            self.stepper.steering.routes = routes

    def stop(self, *, final: bool) -> None:
        with self._stack:
            self.core.end(final=final)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _tables(self, queries: Sequence[int], part: Part) -> Iterator[pa.Table]:
        tables = sink_tables(self.catalog, self.stepper.manifest, queries, part)
        if tables is None:
            raise ResultsError("only Spark can compute the select list of a query with a sink")
        return tables
