"""A started engine without Spark: it begins, changes between two steps, and ends, as in production."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import ResultsError
from penstock.planner.network import Network
from penstock.results.open_sink import open_sink
from penstock.results.part import Part
from penstock.results.sink_queries import sink_tables
from penstock.step.core import Core, committed
from penstock.step.layout import Layout, lay_out
from penstock.storage.identity import read_id

if TYPE_CHECKING:
    from penstock.testing.engine import Engine


class Run:
    """Owns the store until it is stopped, or the process dies on it."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.catalog, self.store = engine, engine.catalog, engine.store
        self.log = engine.source.on(engine.store)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.store.owner_lock())
            self._begin()
            self._stack = stack.pop_all()

    def _begin(self) -> None:
        manifest = committed(self.store, self.catalog, self.log)
        opened = partial(open_sink, tables=self._tables, store=self.store, owner=read_id(self.store))
        self.core = Core(
            self.engine.executor, self.log, self.catalog, self.store, opened, self._layout, tasks=self.engine.tasks,
            expire_every=self.engine.expire_every, limits=self.engine.limits,
        )  # fmt: skip
        self.stepper, self.delivery = self.core.stepper, self.core.delivery
        self.core.begin(manifest)

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
        return self.stepper.tick()

    def advance(self, stream: str, to: int) -> None:
        self.core.advance(stream, to)

    def change(self, change: Callable[[], None]) -> None:
        """Change declarations at this step boundary; all or nothing."""
        registry, network = self.core.change(change)
        if network.version != self.stepper.network.version:
            self.stepper.layout = self._layout(network)
            self.core.adopt(registry, network)

    def stop(self, *, final: bool) -> None:
        with self._stack:
            self.core.end(final=final)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _tables(self, queries: Sequence[int], part: Part) -> Iterator[pa.Table]:
        tables = sink_tables(self.catalog, self.stepper.manifest, queries, part)
        if tables is None:
            raise ResultsError("only Spark can compute the select list of a query with a sink")
        return tables
