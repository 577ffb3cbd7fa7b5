"""A running engine for its user: it is stopped, waited for, asked for changes, and says how it is.

What happens to it is in `step/loop.py`, on a thread of its own; here its parts are put together, for Spark.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.catalog.catalog import Catalog
from penstock.catalog.requests import RequestLog
from penstock.model.memory import Limits
from penstock.planner.admission import Admission
from penstock.requests import Requests
from penstock.results.sink import Into, OpenSink
from penstock.spark.batches import SparkBatches
from penstock.spark.executor import SparkExecutor
from penstock.spark.inputs import Inputs
from penstock.spark.mirrored_log import opened_log
from penstock.spark.pruned import lay_out_needed
from penstock.spark.schedule import Schedule
from penstock.spark.sink import SinkRows, cause, open_sink
from penstock.spark.spark_log import check_log
from penstock.spark.throttle import Throttle
from penstock.spark.warm import Warming, warm_workers
from penstock.state.registry import QueryRecord
from penstock.status import Rates, Seen, status_of
from penstock.step.bound import Bound
from penstock.step.core import Core, committed, refuse_ended
from penstock.step.happened import AdvanceAsked, ChangeAsked, CleanUpAsked, ResumeAsked
from penstock.step.inbox import Inbox
from penstock.step.loop import Loop
from penstock.step.relief import Relief
from penstock.storage.faults import told_plainly
from penstock.storage.identity import read_id
from penstock.storage.store import Store

KEEP_WARM_SECONDS = 30.0  # Spark stops idle Python workers after about a minute


class Run:
    """Handle of a started engine; behaves like Spark's StreamingQuery where the words are the same."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        catalog: Catalog,
        inputs: Inputs,
        execute: Callable[[str], object],
        *,
        tasks: int,
        bound: Bound,
        limits: Limits | None,
        relief: Relief,
        expire_every: int,
        schedule: Schedule,
        available_now: bool,
        final: bool,
    ) -> None:
        """Own the state directory. `execute` runs a statement in the engine."""
        self.spark, self.store, self.catalog, self.schedule, self.tasks = spark, store, catalog, schedule, tasks
        self.active = self.ended = False
        self.warnings: list[str] = []
        self.executor = SparkExecutor(spark, limits)
        with told_plainly(), contextlib.ExitStack() as stack:
            stack.enter_context(store.owner_lock())
            self._log = stack.enter_context(opened_log(store))
            inbox = Inbox()
            self.batches = SparkBatches(
                spark, catalog, inputs, self.executor, store.root, self._log, inbox, schedule, lambda: self.name,
                self._warm, only_present=available_now,
                admission=None if limits is None or available_now else Admission(),
            )  # fmt: skip
            self.core = Core(
                self.executor, self._log, catalog, store, self._open_sink,
                lambda network: lay_out_needed(network, inputs.frames), tasks=tasks, bound=bound,
                limits=limits, relief=relief,
                expire_every=expire_every, follows_clock=not available_now, warnings=self.warnings, cause=cause,
            )  # fmt: skip
            self.stepper, self.delivery = self.core.stepper, self.core.delivery
            self.loop = Loop(
                self.core, self.batches, Requests(RequestLog(store), catalog, execute), inbox,
                only_present=available_now, final=final, seen=self._look, idle=self._keep_warm, release=self._release,
            )  # fmt: skip
            self._stack = stack.pop_all()
        self._rates, self._warmed = Rates(), 0.0

    def begin(self) -> None:
        """Continue from what is committed."""
        try:
            with told_plainly():
                self.loop.begin(self._begin, self._launch)
        except BaseException:
            self._release()
            raise

    # -- what people call ---------------------------------------------------------------------------------------------

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended; True if it has. Raises what stopped it."""
        return self.loop.wait(timeout)

    def stop(self, *, final: bool = False) -> None:
        """Stop after the running step; with `final` the streams have ended: all closes and is emitted.

        It returns when the run has ended. Called by a sink it returns at once: the run ends after this step.
        """
        self.loop.stop(final=final)

    def clean_up(self) -> None:
        """Run all probes that were put off under pressure; the missing results are committed when this returns."""
        self.loop.ask(CleanUpAsked())

    def status(self) -> dict[str, Any]:
        """The status of the run: steps, streams (rows, rates, lag), queries, state, sinks.

        Rows that workers read themselves are counted only here: Spark's own progress (`numInputRows`) does not include
        them. `restarts` are those of Spark's query under this run, for a change of streams or for columns that were not
        read before.
        """
        return status_of(self.seen, self.stepper.manifest, self.catalog, self._rates)

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def change(self, change: Callable[[], None]) -> None:
        """Change declarations at the next step boundary; all or nothing."""
        self.loop.ask(ChangeAsked(change))

    def resume(self, record: QueryRecord) -> None:
        """Resume a suspended query with the next step."""
        self.loop.ask(ResumeAsked(record))

    def advance(self, name: str, value: int) -> None:
        """No later row of a stream has a time below `value`: committed, with all that it closes, when this returns."""
        self.loop.ask(AdvanceAsked(name, value))

    @cached_property
    def name(self) -> str:
        """The name of Spark's query: the same at every start."""
        return f"penstock-{Path(self.store.root).name}-{self._id[:8]}"

    @cached_property
    def _id(self) -> str:
        return read_id(self.store)

    @property
    def error(self) -> BaseException | None:
        """What has ended the run."""
        return self.loop.error

    @property
    def final(self) -> bool:
        """Whether the streams end with the run."""
        return self.loop.final

    @property
    def spark_query(self) -> StreamingQuery:
        """Spark's present query."""
        return self.batches.query

    @property
    def throttle(self) -> Throttle:
        """The limits of Spark's present query."""
        return self.batches.throttle

    # -- called by the loop -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        manifest = committed(self.store, self.catalog, self._log)
        check_log(self._log.store)
        if not self.core.begin(manifest):
            refuse_ended(self.store)

    def _open_sink(self, into: Into) -> OpenSink:
        rows = SinkRows(self.catalog, lambda: self.stepper.manifest, self.executor.own_session)
        return open_sink(into, rows, self.store, self._id)

    def _launch(self, run: Callable[[], None]) -> Thread:
        self.active = True
        self._look()
        # What the caller has set for its jobs, such as a pool of the scheduler, holds for those of the run.
        thread = InheritableThread(target=run, name="penstock-run", daemon=True)
        thread.start()
        return thread

    def _warm(self) -> Warming:
        self._warmed = time.monotonic()
        return warm_workers(self.executor.own_session(), self.tasks, self.warnings)

    def _keep_warm(self) -> None:
        if time.monotonic() - max(self.stepper.last_active, self._warmed) > KEEP_WARM_SECONDS:
            self._warm()

    def _look(self) -> None:
        """Show others how the run is."""
        self.seen = Seen.of(self.loop, self.schedule, active=self.active)

    def _release(self) -> None:
        self.active = False
        try:
            self._stack.close()
        finally:
            self.ended = True
