"""A small engine for tests: declare streams and queries in SQL, hand over rows step by step, read results. No Spark.

Everything that it does to rows and state is production code; the rows come from the test alone, and expressions that
need Spark are refused by name.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.catalog.catalog import Catalog
from penstock.catalog.check_query import prepare
from penstock.catalog.check_sink import Into
from penstock.catalog.check_stream import check_stream
from penstock.catalog.choices import Choices
from penstock.catalog.terms_analysis import TermsAnalysis
from penstock.errors import PenstockError, StateError
from penstock.model import Stream
from penstock.model.memory import Limits
from penstock.reference import Row
from penstock.results.views import results_table
from penstock.sql import AdvanceStream, AlterStream, CreateQuery, DropQuery, DropStream, altered, parse_script
from penstock.state.manifest import Entry, Manifest, ManifestLog
from penstock.state.registry import QueryRecord
from penstock.state.run import Rows, RunEntry, decode_run
from penstock.storage.memory import MemoryStore
from penstock.testing.executor import InProcess, Manner
from penstock.testing.run import Run
from penstock.testing.source import HandedOver, Shared


class Engine:
    """Answers standing queries over rows that are handed over. Its state is in `store`, so another one can continue."""

    def __init__(
        self,
        store: Shared | None = None,
        *,
        source: HandedOver | None = None,
        tasks: int = 1,
        choices: Choices | None = None,
        expire_every: int = 1,
        manner: Manner | None = None,
        chance: random.Random | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = MemoryStore() if store is None else store
        self.source = HandedOver() if source is None else source
        self.tasks, self.expire_every, self.limits, self.clock = tasks, expire_every, limits, clock
        self.executor = InProcess(manner or Manner(), chance or random.Random(0))
        self.catalog = Catalog(self.store, TermsAnalysis(), choices or Choices())
        self.run: Run | None = None
        self.ended: Run | None = None  # the last one
        self._left: Manifest | None = None  # what it has left in the store

    # -- declaring: before the start, or while it runs at the next step boundary ----------------------------------

    def stream(self, stream: Stream) -> None:
        """Declare a stream whose rows will be handed over."""
        self._change(partial(self.catalog.add_stream, stream))

    def query(self, sql: str, *, name: str, into: Into | None = None, replace: bool = False, **options: Any) -> None:
        """Register a query; `options` are those of its record: start, on_error, retain, ordered, flush."""
        self._add(QueryRecord(0, name, sql, **options), into, instead=replace)

    def drop(self, name: str, *, purge: bool = False) -> None:
        self.catalog.live(name)
        self._change(partial(self.catalog.drop, name, purge=purge))

    def alter_stream(self, stream: Stream) -> None:
        """Change the delay of a stream."""
        check_stream(stream)
        self._change(partial(self.catalog.alter_stream, stream))

    def execute(self, script: str) -> None:
        """Statements about queries, and those that alter, advance and drop streams."""
        for statement in parse_script(script):
            match statement:
                case CreateQuery(name, select):
                    options = {"on_error": statement.on_error, "retain": statement.retain, "start": statement.start}
                    self.query(select.strip(), name=name, into=statement.into, replace=statement.replace, **options)
                case DropQuery(name, purge, if_exists):
                    if not if_exists or self.catalog.registry.find(name):
                        self.drop(name, purge=purge)
                case DropStream(name):
                    self._change(partial(self.catalog.drop_stream, name))
                case AlterStream(name):
                    self.alter_stream(altered(self.catalog.live_stream(name), statement))
                case AdvanceStream(name, to) if isinstance(to, int):
                    self.advance(name, to)
                case _:
                    raise PenstockError(f"a test engine has no use for {type(statement).__name__}")

    # -- running --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, or continue after an engine on this store that ended in any way; its unfinished work comes first."""
        if self.run is not None:
            raise StateError(f"this engine already runs on {self.store.root}; stop it first")
        self.catalog.check_streams()
        self.run = Run(
            self.catalog,
            self.store,
            self.source,
            self.executor,
            tasks=self.tasks,
            expire_every=self.expire_every,
            limits=self.limits,
            clock=self.clock,
        )
        self._left = None
        self.run.take_planned()

    def take(self, **rows: Sequence[Row]) -> None:
        """A step with these rows, by stream."""
        self.source.given.append(rows)
        self._started.take_planned()

    def tick(self) -> bool:
        """A step without rows, if there is something to do."""
        return self._started.tick()

    def advance(self, stream: str, to: int) -> None:
        """Declare that no later row of a stream has a time below `to`."""
        self._started.advance(stream, to)

    def stop(self, *, final: bool = False) -> None:
        """End after the last step; with `final` the streams have ended, and everything closes."""
        self._started.stop(final=final)
        self.ended, self.run = self.run, None
        self._left = ManifestLog(self.store).load()

    # -- reading --------------------------------------------------------------------------------------------------

    def results(self, name: str, manifest: Manifest | None = None) -> list[tuple[Any, ...]]:
        """The committed results of a query, now or as of an earlier state; times as whole microseconds."""
        return tuples(results_table(self.catalog, name, manifest or self.manifest))

    def record(self, step: int) -> Entry:
        """What a step has changed, with its own counters; those of the manifest are totals."""
        return ManifestLog(self.store).steps.read(step)

    def rows(self, run: RunEntry) -> Rows:
        """The stored rows of a run that the manifest still names."""
        return decode_run(self.store.map(run.name), run, self.store.label(run.name))

    @property
    def manifest(self) -> Manifest:
        """The last committed state."""
        if self.run is not None:
            return self.run.stepper.manifest
        return ManifestLog(self.store).load() if self._left is None else self._left

    @property
    def layout(self) -> tuple[str, ...]:
        """The streams that are read."""
        return self._started.stepper.layout.order

    @property
    def _started(self) -> Run:
        if self.run is None:
            raise StateError("this engine does not run; start it first")
        return self.run

    def _add(self, record: QueryRecord, into: Into | None, *, instead: bool) -> None:
        checked, compiled = prepare(self.catalog, record, into)
        self._change(partial(self.catalog.add, checked, compiled, into, instead=instead))

    def _change(self, change: Callable[[], None]) -> None:
        if self.run is None:
            change()
        else:
            self.run.change(change)


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows as plain values; times are whole microseconds."""
    columns = []
    for column in table.columns:
        timed = pa.types.is_timestamp(column.type)
        columns.append(
            (column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()) if timed else column).to_pylist()
        )
    return list(zip(*columns, strict=True))
