"""A running engine: the Spark query, the ticker beside it, and the handle for users."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import SessionError
from penstock.planner.network import Network
from penstock.planner.stream_skew import leaders
from penstock.requests import take_requests
from penstock.spark.executor import SparkExecutor
from penstock.spark.files import sources_of
from penstock.spark.mirrored_log import opened_log
from penstock.spark.offset_log import CHECKPOINT
from penstock.spark.pruned import lay_out_needed, missing
from penstock.spark.query import (
    OnBatch,
    abandon,
    make_throttle,
    named_frames,
    query_failure,
    query_writer,
    starting,
    trigger_seconds,
    unread,
)
from penstock.spark.schedule import Schedule
from penstock.spark.session import anew, gone
from penstock.spark.sink import SinkRows, cause, open_sink
from penstock.spark.sources import source_evolution
from penstock.spark.spark_log import check_log
from penstock.spark.warm import warm_workers
from penstock.state.registry import QueryRecord, Registry
from penstock.status import Rates, query_status, state_status, stream_status
from penstock.step.accounts import phases_of
from penstock.step.core import Core, committed, refuse_ended
from penstock.storage.faults import plainly, told_plainly
from penstock.storage.identity import read_id

if TYPE_CHECKING:
    from penstock.engine import Engine

TICK_SECONDS = 0.25
QUIET_SECONDS = 1.0
_log = logging.getLogger("penstock.run")
KEEP_WARM_SECONDS = 30.0  # Spark stops idle Python workers after about a minute


class Stopping(Exception):  # noqa: N818  (not an error: the run is asked to end)
    """A batch came while the run was stopping."""


class Run:
    """Handle of a started engine; behaves like Spark's StreamingQuery where the words are the same."""

    def __init__(self, engine: Engine, *, trigger: str, latency: float, available_now: bool, final: bool) -> None:
        self.engine = engine
        self.final = final
        self.available_now = available_now
        self.active = False
        self.error: BaseException | None = None
        self.warnings: list[str] = []
        self._rates = Rates()
        self._restarts: dict[str, Any] = {"count": 0, "seconds": 0.0, "last": None}
        self._ended = threading.Event()
        self.lock = threading.RLock()  # held while a step runs, or while the input of the next one changes
        self.closing = False  # no batch begins a step any more
        self._changing = threading.RLock()
        self._switching = False
        self._on_batch = OnBatch(self._run_batch)
        self.schedule = Schedule(trigger, latency)
        self._stack = contextlib.ExitStack()
        self.executor = SparkExecutor(engine.spark)
        with told_plainly(), contextlib.ExitStack() as stack:
            stack.enter_context(engine.store.owner_lock())
            self._log = stack.enter_context(opened_log(engine.store))
            self._begin()
            self._stack = stack.pop_all()

    def _begin(self) -> None:
        engine, catalog = self.engine, self.engine.catalog
        manifest = committed(engine.store, catalog, self._log)
        check_log(self._log.store)
        owner = read_id(engine.store)
        self.name = f"penstock-{Path(engine.store.root).name}-{owner[:8]}"  # of Spark's query: the same at every start
        rows = SinkRows(catalog, lambda: self.stepper.manifest, self.executor.own_session)
        opened = partial(open_sink, rows=rows, store=engine.store, owner=owner)
        self.core = Core(
            self.executor, self._log, catalog, engine.store, opened,
            lambda network: lay_out_needed(network, engine.inputs.frames), tasks=engine.tasks, bound=engine.bound,
            expire_every=engine.expire_every, follows_clock=not self.available_now, warnings=self.warnings, cause=cause,
        )  # fmt: skip
        self.stepper, self.delivery = self.core.stepper, self.core.delivery
        if not self.core.begin(manifest):
            refuse_ended(engine.store)
        self.warnings += take_requests(self)  # answers to earlier requests are not waited for
        self.warming = warm_workers(self.executor.own_session(), self.engine.tasks, self.warnings)
        self.spark_query = self._start_query()
        self.active = True
        self._watcher = threading.Thread(target=self._watch, name="penstock-ticks", daemon=True)
        self._watcher.start()

    def _start_query(self) -> StreamingQuery:
        engine, catalog, stepper = self.engine, self.engine.catalog, self.stepper
        layout, frames = stepper.layout, engine.inputs.frames
        self.executor.intake.sources = sources_of(frames, layout)
        self.throttle = throttle = make_throttle(engine.spark, frames, layout)
        stepper.heard = replace(stepper.heard, held=frozenset(), planned_before=True)
        named = named_frames(frames, layout, catalog.registry.streams)
        with source_evolution(engine.spark):
            every = None if self.available_now else self.schedule.trigger
            writer = query_writer(named, catalog.streams, layout, self._log.location, self._on_batch, every, self.name)
            self._log.store.make(CHECKPOINT)  # Spark would create it readable for everybody
            self.schedule.begin(0.0 if every is None else trigger_seconds(engine.spark, every))
            with starting(engine.store.root):
                throttle.query = writer.start()
            return throttle.query

    # -- what people call ---------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether the run has released the state directory, so that another one may begin."""
        return self._ended.is_set()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended; True if it has. Raises what stopped it."""
        ended = self._ended.wait(timeout)
        if ended and self.error is not None:
            raise self.error
        return ended

    def stop(self, *, final: bool = False) -> None:
        """Stop after the running step; with `final` the streams have ended: all closes and is emitted."""
        self.final = self.final or final
        if self.active:
            with self.lock:  # the running step ends first
                self.closing = True
            try:
                self.spark_query.stop()
            except Exception:
                if gone(self.engine.spark) is None:
                    raise
        self._ended.wait()
        if self.error is not None:
            raise self.error

    def change(self, change: Callable[[], None]) -> None:
        """Change declarations at this step boundary; all or nothing."""
        with self._changing:
            with self.lock:  # between two steps
                inputs, frames = self.engine.inputs, dict(self.engine.inputs.frames)
                try:
                    registry, network = self.core.change(change)
                except BaseException:
                    inputs.frames = frames
                    raise
                same = inputs.frames.keys() == frames.keys() and all(inputs.frames[n] is f for n, f in frames.items())
                if not self.active or (same and not self._reads_otherwise(network)):
                    if not self.active:  # Spark's query begins with the columns that are needed now
                        self.stepper.layout = self.core.lay_out(network)
                    if network.version != self.stepper.network.version:
                        self.core.adopt(registry, network)
                    return
                self._switching = self.closing = True
            self._switch(registry, network)

    def _reads_otherwise(self, network: Network) -> bool:
        """Whether rows must come with other columns: those that queries need, the sequence for a delay in rows."""
        before, layout = self.stepper.network.streams, self.stepper.layout
        return bool(missing(network, layout)) or any(
            (before[name].delay_rows is None) != (network.streams[name].delay_rows is None) for name in layout.order
        )

    def _switch(self, registry: Registry, network: Network) -> None:
        """Let Spark's query end between two steps, and start it with the present streams and columns."""
        started, columns = time.monotonic(), missing(network, self.stepper.layout)
        try:
            self.spark_query.stop()
            with self.lock:
                self.stepper.layout = self.core.lay_out(network)
                self.core.adopt(registry, network)
                self.closing = False
                self.spark_query = self._start_query()
                self._restarted(time.monotonic() - started, columns)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._switching = False

    def _restarted(self, seconds: float, columns: Mapping[str, Sequence[str]]) -> None:
        last = {"step": self.stepper.manifest.step, "columns": columns, "seconds": round(seconds, 4)}
        count, total = self._restarts["count"] + 1, self._restarts["seconds"] + seconds
        self._restarts = {"count": count, "seconds": round(total, 4), "last": last}
        _log.info(
            "Spark's query was started anew after step %(step)d in %(seconds).1f s; columns read for it: %(columns)s",
            last,
        )

    def status(self) -> dict[str, Any]:
        """The status of the run: steps, streams (rows, rates, lag), queries, state, sinks, and how even tasks are.

        Rows that workers read themselves are counted only here: Spark's own progress (`numInputRows`) does not include
        them. `restarts` are those of Spark's query under this run, for a change of streams or for columns that were not
        read before.
        """
        stepper, sinks = self.stepper, self.delivery.sinks
        manifest, streams, held = stepper.manifest, stepper.network.streams, self.throttle.held
        return {
            "active": self.active,
            "step": manifest.step,
            "batch": manifest.last_batch,
            "streams": {n: stream_status(streams[n], manifest, self._rates, held) for n in stepper.layout.order},
            "queries": query_status(self.engine.catalog, manifest, sinks),
            **state_status(manifest),
            "sinks": [{"sink": s.name, "delivered": s.delivered, "error": s.error} for s in sinks],
            "delay": self.schedule.delay,
            "restarts": dict(self._restarts),
            "interval": None if self.schedule.pace is None else self.schedule.pace.interval,
            "orders": {"checks": stepper.steering.checks, "seconds": dict(stepper.optimizer.seconds)},
            "balance": stepper.optimizer.balancer.status(stepper.buckets),
            "timings": {k: round(v, 4) for k, v in stepper.timings.items()},
            "phases": phases_of(stepper.last_reports),
            "warnings": list(self.warnings),
            "error": None if self.error is None else str(self.error),
        }

    # -- inside -------------------------------------------------------------------------------------------------

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        self.warming.wait()
        started = time.monotonic()
        with self.lock:
            if self.closing:
                raise Stopping  # nothing of the batch was done; the next start gets it again
            try:
                self.stepper.run_batch(batch, batch_id)
            except BaseException as error:
                self._fail(error)
                raise
        brought = {n for report in self.stepper.last_reports for n, c in report.counters.streams.items() if c.rows}
        manifest = self.stepper.manifest
        newest = {name: progress.newest for name, progress in manifest.progress.items()}
        self._hold(leaders(self.stepper.network, manifest.progress_values(), newest, brought))
        seconds, done = time.monotonic() - started, time.time()
        rows = sum(c.rows for report in self.stepper.last_reports for c in report.counters.streams.values())
        self.schedule.wait(started, seconds, rows, lambda: self.closing)
        self.schedule.turned(self._log.planned_at(batch_id), done)

    def _hold(self, streams: frozenset[str]) -> None:
        """Read nothing of these streams until others have caught up with them."""
        self.throttle.hold(streams)
        self.stepper.heard = self.stepper.heard.hold(self.throttle.held, time.time())

    def _go_on(self) -> bool:
        """Whether Spark's query, which has read all unthrottled input, was restarted for the throttled streams."""
        with self.lock:
            failed = self.error is not None or self.spark_query.exception() is not None
            if not self.available_now or not self.throttle.held or failed or self.closing:
                return False
            self.spark_query = self._start_query()
        return True

    def _watch(self) -> None:
        """Tick while the Spark query lives; close down when it has ended."""
        warmed = time.monotonic()
        try:
            while self._switching or self.spark_query.isActive or self._go_on():
                time.sleep(TICK_SECONDS)
                self._refuse_gone()  # else Spark's query would keep requesting batches that nobody can run
                take_requests(self)
                if self.lock.acquire(blocking=False):
                    try:
                        self._tick()
                    finally:
                        self.lock.release()
                idle = time.monotonic() - max(self.stepper.last_active, warmed)
                if idle > KEEP_WARM_SECONDS:
                    warm_workers(self.executor.own_session(), self.engine.tasks, self.warnings)
                    warmed = time.monotonic()
        except BaseException as error:  # noqa: BLE001  (must reach the user through the handle)
            self._fail(error)
        finally:
            self._close()

    def _fail(self, error: BaseException) -> None:
        """Record the first cause that ends the run; if Spark is gone, that explains more than its consequences."""
        if self.error is not None:
            return
        try:
            self._refuse_gone()
        except SessionError as cause:
            if cause is not error:
                cause.__context__, cause.__suppress_context__ = error, True  # for the log alone
            self.error = cause
        else:
            self.error = plainly(error)

    def _refuse_gone(self) -> None:
        if why := gone(self.engine.spark):
            step = self.stepper.manifest.step
            msg = (
                f"the run on {self.engine.store.root} ended "
                f"{f'after step {step}' if step >= 0 else 'before its first step'}, since the Spark session "
                "under it is "
                f"gone: {why}; all that was committed is there, and goes on: {anew(self.engine.spark)}"
            )
            raise SessionError(msg)

    def _tick(self) -> None:
        if time.monotonic() - self.stepper.last_active < QUIET_SECONDS:
            return  # the next batch will expire state; a step of our own now would only delay it
        if self.throttle.held and not unread(self.spark_query):
            self._hold(frozenset())  # the streams that others waited for bring nothing more
        if self.delivery.owed:
            self.stepper.committed.deliver()
        manifest, names = self.stepper.manifest, self.stepper.layout.order
        waiting = unread(self.spark_query)
        # Input since Spark's last poll is not read yet, whatever it reports.
        looked = time.time() - self.schedule.between_looks
        self.stepper.tick(None if waiting else self.stepper.idle_progress(manifest.progress, names, looked))

    def resume(self, record: QueryRecord) -> None:
        """Resume a suspended query with the next step."""
        with self.lock:
            self.stepper.resume(record)

    def advance(self, name: str, value: int) -> None:
        """No later row has a time below `value`: committed, with all that it closes, when this returns."""
        with self.lock:
            self.core.advance(name, value)

    def _close(self) -> None:
        try:
            self._refuse_gone()
            if self.spark_query.isActive:
                self.spark_query.stop()
            exception = self.spark_query.exception()
            if exception is not None and self.error is None and not self.closing:
                self.error = query_failure(exception, self.engine.store.root)
            if self.error is None:
                with self.lock:
                    self.core.end(final=self.final)
        except BaseException as error:  # noqa: BLE001  (must reach the user through the handle)
            self._fail(error)
            if gone(self.engine.spark):
                abandon(self.spark_query)
        finally:
            self.active = False
            self._on_batch.release()
            self._stack.close()
            self._ended.set()
