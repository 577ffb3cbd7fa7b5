"""A running engine: the Spark query, the ticker beside it, and the handle that people hold."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import PenstockError, RegistrationError, StateError
from penstock.model.time import FOREVER, NEVER
from penstock.planner.lead import leaders
from penstock.planner.network import Network
from penstock.planner.pace import Pace, Turn, longest_delays, percentile
from penstock.runtime import commit
from penstock.runtime.ingest import Layout, lay_out, read_together, unify
from penstock.runtime.requests import take_requests
from penstock.runtime.results import Part
from penstock.runtime.scan import is_plain
from penstock.runtime.sinks import Deliveries, Receiver, group_sinks
from penstock.runtime.sources import name_sources, source_evolution
from penstock.runtime.step import Stepper, Stopping
from penstock.runtime.throttle import Throttle, source_count
from penstock.state.manifest import Manifest, ManifestLog, Progress
from penstock.state.orphans import collect_orphans
from penstock.state.progress import declare
from penstock.state.registry import QueryRecord, Registry, RegistryLog

if TYPE_CHECKING:
    from penstock.engine import Engine

TICK_SECONDS = 0.25
QUIET_SECONDS = 1.0
KEEP_WARM_SECONDS = 30.0  # Spark gives up idle Python workers after about a minute


class Run:
    """Handle of a started engine; behaves like Spark's StreamingQuery where the words are the same."""

    def __init__(self, engine: Engine, *, trigger: str, latency: float, available_now: bool, final: bool) -> None:
        self.engine = engine
        self.final = final
        self.available_now = available_now
        self.active = False
        self.error: BaseException | None = None
        self.warnings: list[str] = []
        self._rates: dict[str, tuple[float, int, float]] = {}
        self._ended = threading.Event()
        self._closing = threading.Lock()
        self._changing = threading.RLock()
        self._switching = False
        self.trigger = "0 seconds" if trigger == "auto" else trigger  # then the callback itself waits
        self.pace = Pace(latency) if trigger == "auto" else None
        self.turns: deque[Turn] = deque(maxlen=257)  # of this Spark query
        self.trigger_seconds = self._query_started = self._last_start = 0.0
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            stack.enter_context(engine.store.owner_lock())
            self._begin()
            self._stack = stack.pop_all()

    def _begin(self) -> None:
        engine, catalog = self.engine, self.engine.catalog
        manifest = ManifestLog(engine.store).load()
        if manifest.final:
            self._refuse_ended()
        commit.check_start(engine.store, manifest.last_batch)
        if manifest.step >= 0:
            RegistryLog(engine.store).load(manifest.version)  # the state means nothing without it
        _check_runs(engine, manifest)
        engine.store.put_if_absent("id", uuid.uuid4().hex.encode())
        owner = engine.store.read("id").decode()
        self.deliveries = Deliveries(
            self._rows, lambda query, now: catalog.released(self._record(query), now), owner=owner
        )
        manifest = self._caught_up(manifest)
        registry, network = catalog.commit(manifest)
        self.stepper = self._stepper(manifest, registry, network)
        self.stepper.expire_every = engine.expire_every
        self.stepper.follows_clock = not self.available_now
        self.stepper.warnings = self.warnings
        self._connect(registry, manifest.cursors, -1)
        self.stepper.cursors = self.deliveries.deliver(manifest) if self.deliveries.sinks else {}
        self.stepper.owes = self.deliveries.owes
        collect_orphans(engine.store, manifest)
        if self.stepper.ending:
            self.stepper.finish()
            self._refuse_ended()
        self._take_over()
        self.warnings += take_requests(self)  # nobody waits for the answers of what was asked before
        self._warm()
        self.spark_query = self._start_query(self.trigger)
        self.active = True
        self._watcher = threading.Thread(target=self._watch, name="penstock-ticks", daemon=True)
        self._watcher.start()

    def _stepper(self, manifest: Manifest, registry: Registry, network: Network) -> Stepper:
        engine, catalog = self.engine, self.engine.catalog
        return Stepper(
            engine.spark, engine.store, manifest, network, registry, self._layout(network), engine.tasks, self.deliveries.deliver,
            catalog.cut, lambda plan, now: catalog.steer(plan, now, engine.tasks), catalog.views,
        )  # fmt: skip

    def _caught_up(self, manifest: Manifest) -> Manifest:
        """After a crash results may wait for those that read them: they get them before anything else is registered.

        Who comes with this start reads the results of later steps only.
        """
        catalog = self.engine.catalog
        wanted = catalog.registry
        if not manifest.derived or wanted == catalog.saved:
            return manifest
        catalog.registry = catalog.saved
        try:
            stepper = self._stepper(manifest, catalog.saved, catalog.network())
            stepper.catch_up()
            return stepper.manifest
        finally:
            catalog.registry = wanted

    def _refuse_ended(self) -> NoReturn:
        msg = (
            f"the streams in {self.engine.store.root} have ended (final); its results can be read, but it cannot be started "
            "again: use a new state directory"
        )
        raise StateError(msg)

    def _start_query(self, trigger: str) -> StreamingQuery:
        engine, catalog, layout = self.engine, self.engine.catalog, self.stepper.layout
        streams = catalog.registry.streams
        self.stepper.plain = all(is_plain(catalog.frames[name]) for name in layout.order)
        # A source of several streams is held back for none of them: one may be what the other waits for.
        together = read_together(catalog.frames, layout)
        sources = [(" + ".join(names), source_count(catalog.frames[names[0]])) for names in together]
        throttle = Throttle(engine.spark, sources)
        self.throttle, self.stepper.held, self.stepper.planned_before = throttle, frozenset(), True
        named = [name_sources(catalog.frames[names[0]], streams[names[0]].source_name) for names in together]
        frames = {name: frame for names, frame in zip(together, named, strict=True) for name in names}
        with source_evolution(engine.spark):
            writer = (
                unify(frames, catalog.streams, layout)
                .writeStream.foreachBatch(self._on_batch)
                .option("checkpointLocation", engine.store.path(commit.CHECKPOINT))
                .queryName(f"penstock-{id(self)}")
            )
            writer = writer.trigger(availableNow=True) if self.available_now else writer.trigger(processingTime=trigger)
            self.trigger_seconds = 0.0 if self.available_now else _seconds(engine.spark, trigger)
            self._query_started = time.time()
            self.turns.clear()
            throttle.query = writer.start()
            return throttle.query

    def _connect(self, registry: Registry, cursors: Mapping[str, int], step: int) -> None:
        """Group the sinks of all live queries; one that is new begins after `step`."""
        receivers = []
        for record in registry.live():
            target = self.engine.catalog.target(record)
            if target is not None:
                place = str(target) if isinstance(target, Path) else target
                schema = (*record.item_names, *record.item_types)
                line = tuple(r.id for r in self._continued(record))
                receivers.append(Receiver(record.id, record.name, place, schema, record.ordered, line))
        self.deliveries.sinks = group_sinks(receivers, cursors, step)

    def _continued(self, record: QueryRecord) -> list[QueryRecord]:
        """The record and those before it whose results go to the same sink in the same way, oldest first."""
        found: list[QueryRecord] = []
        for one in reversed(self.engine.catalog.lineage(record)):
            if (one.into, one.ordered) != (record.into, record.ordered):
                break
            found.insert(0, one)
        return found

    # -- what people call ---------------------------------------------------------------------------------------

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended; True if it has. Raises what stopped it."""
        ended = self._ended.wait(timeout)
        if ended and self.error is not None:
            raise self.error
        return ended

    def stop(self, *, final: bool = False) -> None:
        """Stop after the step that is running; with `final` the streams have ended: everything closes and is emitted."""
        self.final = self.final or final
        if self.active:
            with self.stepper.lock:  # the running step ends first
                self.stepper.closing = True
            self.spark_query.stop()
        self._ended.wait()
        if self.error is not None:
            raise self.error

    def change(self, change: Callable[[], None]) -> None:
        """Change what is declared, and let it take effect at this step boundary; all or nothing."""
        with self._changing:
            with self.stepper.lock:  # between two steps
                self.stepper.catch_up()  # who comes now reads the results of later steps only
                catalog, manifest = self.engine.catalog, self.stepper.manifest
                frames = dict(catalog.frames)
                try:
                    change()
                    catalog.check_streams()
                    if not catalog.frames:
                        raise RegistrationError("an engine that runs needs a stream; stop it instead")  # noqa: TRY301
                    registry, network = catalog.commit(manifest)
                except BaseException:
                    catalog.revert()
                    catalog.frames = frames
                    raise
                if catalog.frames.keys() == frames.keys():
                    if network.version != self.stepper.network.version:
                        self._adopt(registry, network)
                    return
                self._switching = self.stepper.closing = True
            self._switch(registry, network)

    def _adopt(self, registry: Registry, network: Network) -> None:
        manifest = self.stepper.manifest
        self.stepper.adopt(network, registry)
        self._connect(registry, {**manifest.cursors, **self.stepper.cursors}, manifest.step)
        self._take_over()
        self.stepper.forget_streams()

    def _switch(self, registry: Registry, network: Network) -> None:
        """Let Spark's query end between two steps, and start it with the streams that there are now."""
        try:
            self.spark_query.stop()
            with self.stepper.lock:
                self.stepper.layout = self._layout(network)
                self._adopt(registry, network)
                self.stepper.closing = False
                self.spark_query = self._start_query(self.trigger)
        except BaseException as error:
            self.error = self.error or error
            raise
        finally:
            self._switching = False

    def _layout(self, network: Network) -> Layout:
        return lay_out([s for n, s in network.streams.items() if n in self.engine.catalog.frames])

    def status(self) -> dict[str, Any]:
        """A picture of the run: steps, streams (rows, rates, lag), queries, state, sinks."""
        manifest = self.stepper.manifest
        return {
            "active": self.active,
            "step": manifest.step,
            "batch": manifest.last_batch,
            "streams": {name: self._stream_status(name, manifest) for name in self.stepper.layout.order},
            "queries": self._query_status(manifest),
            "state": {
                "rows": sum(r.rows for r in manifest.runs.values()),
                "bytes": sum(r.bytes for r in manifest.runs.values()),
                "runs": len(manifest.runs),
            },
            "results": {
                "files": len(manifest.results),
                "bytes": sum(f.bytes for f in manifest.results.values()),
            },
            "sinks": [{"sink": s.name, "delivered": s.delivered, "error": s.error} for s in self.deliveries.sinks],
            "delay": self._delay(),
            "interval": None if self.pace is None else self.pace.interval,
            "orders": {"checks": self.stepper.steering.checks, "seconds": dict(self.stepper.seconds)},
            "timings": {k: round(v, 4) for k, v in self.stepper.timings.items()},
            "warnings": list(self.warnings),
            "error": None if self.error is None else str(self.error),
        }

    # -- inside -------------------------------------------------------------------------------------------------

    def _on_batch(self, batch: DataFrame, batch_id: int) -> None:
        started = time.monotonic()
        try:
            self.stepper.run_batch(batch, batch_id)
        except Stopping:
            raise
        except BaseException as error:
            self.error = error
            raise
        brought = {n for report in self.stepper.last_reports for n, c in report["streams"].items() if c["rows"]}
        manifest = self.stepper.manifest
        newest = {name: progress.newest for name, progress in manifest.progress.items()}
        self._hold(leaders(self.stepper.network, manifest.progress_values(), newest, brought))
        seconds, done = time.monotonic() - started, time.time()
        if self.pace is not None:
            rows = sum(c["rows"] for report in self.stepper.last_reports for c in report["streams"].values())
            self.pace.observe(rows, seconds, started - self._last_start if self._last_start else seconds)
            until = time.monotonic() + self.pace.wait(seconds)
            while not self.stepper.closing and time.monotonic() < until:
                time.sleep(min(0.05, max(0.0, until - time.monotonic())))
        self._last_start = started
        # A batch that Spark had planned before it was started now has waited for that, not for a trigger.
        planned = max(commit.planned_at(self.engine.store, batch_id), self._query_started)
        self.turns.append(Turn(min(planned, done), done, max(done, time.time())))

    def _delay(self) -> dict[str, float | None]:
        """Seconds from arrival to results at most, of the last steps."""
        delays = longest_delays(list(self.turns), self.trigger_seconds)
        return {f"p{p}": percentile(delays, p / 100) for p in (50, 99)}

    def _hold(self, streams: frozenset[str]) -> None:
        """Read nothing of these streams until others have caught up with them."""
        before = self.throttle.held
        self.throttle.hold(streams)
        self.stepper.held = self.throttle.held
        # One that is read again has not been silent of itself.
        self.stepper.last_rows.update(dict.fromkeys(before - self.throttle.held, time.time()))

    def _go_on(self) -> bool:
        """Whether Spark's query, which has read all that it was let read, was started again for what was held back."""
        with self.stepper.lock:
            failed = self.error is not None or self.spark_query.exception() is not None
            if not self.available_now or not self.throttle.held or failed or self.stepper.closing:
                return False
            self.spark_query = self._start_query(self.trigger)
        return True

    def _take_over(self) -> None:
        """Let queries that begin from the state with the next step (also if the engine died before it) see the rows held."""
        manifest, queries = self.stepper.manifest, self.engine.catalog.registry.live()
        begun = [q for q in queries if q.start == "state" and q.since == manifest.step + 1]
        if begun and manifest.runs:
            self.stepper.take_over(frozenset(q.share or q.id for q in begun))

    def _record(self, query: int) -> QueryRecord:
        return next(q for q in self.engine.catalog.registry.queries if q.id == query)

    def _rows(self, queries: Sequence[int], part: Part, *, as_frame: bool) -> Any:
        """A part of the rows of queries that continue each other: as a DataFrame, or as an Arrow table (without a Spark job where possible)."""
        manifest, record = self.stepper.manifest, self._record(queries[-1])
        views = [self.engine.catalog.view(self._record(query)) for query in queries]
        table = None if as_frame or len(views) > 1 else views[0].table(manifest, part, ordered=record.ordered)
        if table is not None:
            return table
        frames = [view.frame(self.stepper.own_session(), manifest, part, time=record.ordered) for view in views]
        frame = reduce(DataFrame.union, frames)
        if record.ordered:
            frame = frame.orderBy("_time").drop("_time")
        return frame if as_frame else frame.toArrow()

    def _watch(self) -> None:
        """Tick while the Spark query lives; close down when it has ended."""
        warmed = time.monotonic()
        try:
            while self._switching or self.spark_query.isActive or self._go_on():
                time.sleep(TICK_SECONDS)
                take_requests(self)
                if self.stepper.lock.acquire(blocking=False):
                    try:
                        self._tick()
                    finally:
                        self.stepper.lock.release()
                idle = time.monotonic() - max(self.stepper.last_active, warmed)
                if idle > KEEP_WARM_SECONDS:
                    self._warm()
                    warmed = time.monotonic()
        except BaseException as error:  # noqa: BLE001  (must reach the user through the handle)
            self.error = self.error or error
        finally:
            self._close()

    def _tick(self) -> None:
        if time.monotonic() - self.stepper.last_active < QUIET_SECONDS:
            return  # the next batch will purge; a step of our own now would only delay it
        if self.throttle.held and not self.stepper.unread(self.spark_query):
            self._hold(frozenset())  # those that others were to catch up with bring nothing more
        if self.deliveries.owed:
            self.stepper.cursors = self.deliveries.deliver(self.stepper.manifest)
        manifest, names = self.stepper.manifest, self.stepper.layout.order
        unread = self.stepper.unread(self.spark_query)
        # What has come since Spark last looked is not read yet, whatever it says.
        looked = time.time() - self._between_looks()
        self.stepper.tick(None if unread else self.stepper.lulls(manifest.progress, names, looked))

    def _between_looks(self) -> float:
        """The seconds from one look of Spark for new rows to the next."""
        return self.trigger_seconds if self.pace is None else self.pace.interval or 0.0

    def advance(self, name: str, value: int) -> None:
        """No later row of the stream has a time below `value`: committed, with all that it closes, when this returns."""
        with self.stepper.lock:
            progress = self.stepper.manifest.progress
            moved = declare(progress.get(name, Progress(NEVER, NEVER)), value)
            if moved != progress.get(name):
                self.stepper.tick({**progress, name: moved})

    def _close(self) -> None:
        with self._closing:
            if self._ended.is_set():
                return
            try:
                if self.spark_query.isActive:
                    self.spark_query.stop()
                exception = self.spark_query.exception()
                if exception is not None and self.error is None and not self.stepper.closing:
                    self.error = _readable(exception)
                if self.error is None:
                    self.stepper.settle()
                    self.stepper.tick()
                    if self.final:
                        self.stepper.finish()
            except BaseException as error:  # noqa: BLE001  (must reach the user through the handle)
                self.error = self.error or error
            finally:
                self.active = False
                self._stack.close()
                self._ended.set()

    def _warm(self) -> None:
        """Start Python workers and load the compiled kernels in them, beside whatever else happens."""
        spark, tasks = self.engine.spark, self.engine.tasks

        def warm() -> None:
            # In the same way as a step: Spark keeps apart the workers of other kinds of jobs.
            with contextlib.suppress(Exception):
                spark.range(0, tasks, 1, tasks).mapInArrow(_load_kernels, "id long").collect()

        threading.Thread(target=warm, name="penstock-warm", daemon=True).start()

    def _stream_status(self, name: str, manifest: Manifest) -> dict[str, Any]:
        counts = manifest.counters.get(f"stream:{name}", {})
        progress = manifest.progress.get(name)
        rows = counts.get("rows", 0)
        now = time.monotonic()
        then, before, rate = self._rates.get(name, (now, rows, 0.0))
        if now - then >= 1.0:
            rate = (rows - before) / (now - then)
            self._rates[name] = (now, rows, rate)
        elif name not in self._rates:
            self._rates[name] = (now, rows, 0.0)
        known = progress is not None and progress.newest > NEVER
        integer = self.stepper.network.streams[name].integer_time
        return {
            "rows": rows,
            "accepted": counts.get("accepted", 0),
            "late": counts.get("late", 0),
            "bad": counts.get("bad", 0),
            "punctuations": counts.get("punctuations", 0),
            "rows_per_second": round(rate, 1),
            "throttled": name in self.throttle.held,
            "progress": progress.value if progress and progress.value > NEVER else None,
            "progress_kind": progress.kind if progress else None,
            "newest": progress.newest if progress and known else None,
            "lag_seconds": round(time.time() - progress.newest / 1e6, 3)
            if progress and known and not integer and progress.value < FOREVER
            else None,
        }

    def _query_status(self, manifest: Manifest) -> dict[str, dict[str, Any]]:
        found = {}
        sinks = {query: sink.name for sink in self.deliveries.sinks for query, _ in sink.queries}
        registry = self.engine.catalog.registry
        below = {q.owner: q.id for q in registry.live() if q.owner is not None}
        for query in registry.shown():
            own = [query.id, *([below[query.name]] if query.name in below else [])]  # with the join below it
            counts = [manifest.counters.get(f"query:{number}", {}) for number in own]
            suspended = [manifest.suspended[str(number)] for number in own if str(number) in manifest.suspended]
            found[query.name] = {
                "results": counts[0].get("results", 0),
                "errors": sum(c.get("errors", 0) for c in counts),
                "progress": progress if (progress := self.engine.catalog.released(query, manifest)) > NEVER else None,
                "suspended": suspended[0] if suspended else None,
                "sink": sinks.get(query.id),
            }
        return found


def _seconds(spark: SparkSession, trigger: str) -> float:
    """How long Spark takes this trigger to be: it knows more ways to write a length than we do."""
    jvm: Any = spark._jvm  # noqa: SLF001
    return float(jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(trigger).intervalMs()) / 1000


def _load_kernels(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import penstock.runtime.worker  # noqa: F401, PLC0415  (runs in the worker)

    yield from batches


def _check_runs(engine: Engine, manifest: Manifest) -> None:
    """Missing or truncated state is found before anything starts; damaged bytes when a run is first opened."""
    for run in manifest.runs.values():
        try:
            size = engine.store.size(run.name)
        except FileNotFoundError:
            size = None
        if size != run.bytes:
            state = "is missing" if size is None else f"has {size} bytes instead of {run.bytes}"
            msg = (
                f"state file {engine.store.path(run.name)} {state}; restore it from a backup, or remove the state directory "
                "and replay the sources"
            )
            raise StateError(msg)


def _readable(error: StreamingQueryException) -> PenstockError:
    text = str(error)
    return PenstockError(f"the Spark query ended with an error: {text.splitlines()[0] if text else error!r}")
