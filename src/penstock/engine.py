"""The facade: register streams and queries, start, watch, read results.

Every function of an engine has one method here, which documents it; `step`, `spark` and `views` do the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.catalog.catalog import Catalog
from penstock.catalog.check_query import standing_alone
from penstock.catalog.check_sink import Into
from penstock.catalog.check_stream import read_length
from penstock.catalog.choices import Choices
from penstock.catalog.compiled import ParsedSelect
from penstock.catalog.lineage import complete_from, lineage
from penstock.catalog.listing import counts_of, coverage, listed_queries, listed_streams
from penstock.errors import PenstockError, RegistrationError, StateError
from penstock.handle import QueryHandle
from penstock.model import Column, Source, UserAggregate
from penstock.model.limits import MOST_BYTES, MOST_ROWS
from penstock.model.memory import read_size
from penstock.model.time import SECOND
from penstock.model.view import CAPTURES
from penstock.planner.build import build_network
from penstock.planner.deferral.overload import Overload
from penstock.planner.deferral.overload import Parameters as Deferral
from penstock.planner.explain import explain_network
from penstock.planner.network import Network
from penstock.planner.orders.decision import Parameters
from penstock.planner.ways import Way
from penstock.results.part import Part
from penstock.results.views import part_of, view_of
from penstock.run import Run
from penstock.spark.analysis import SparkAnalysis
from penstock.spark.executor_memory import budget_of
from penstock.spark.inputs import Inputs
from penstock.spark.open_stream import open_stream
from penstock.spark.registration import Registration
from penstock.spark.result_frames import result_frame, side_rows, united
from penstock.spark.schedule import Schedule
from penstock.spark.session import local_session, refuse_gone
from penstock.spark.sources import with_settings
from penstock.spark.stream_arguments import changed_stream, given_stream, punctuated, time_to_advance
from penstock.spark.user_aggregates import Travelling
from penstock.spark.workers import check_workers
from penstock.sql import (
    AdvanceStream,
    AlterQuery,
    AlterStream,
    CreateQuery,
    CreateStream,
    DropQuery,
    DropStream,
    Explain,
    ResumeQuery,
    ShowQueries,
    ShowStreams,
    Statement,
    altered,
    emit_length,
    parse_script,
)
from penstock.state.balance.decision import Parameters as Balancing
from penstock.state.fence import fenced
from penstock.state.manifest import Manifest, ManifestLog
from penstock.state.registry import QueryRecord
from penstock.step.bound import Bound
from penstock.step.relief import Relief
from penstock.step.upkeep import resumed
from penstock.storage.faults import told_plainly
from penstock.storage.open_store import open_store
from penstock.storage.store import refuse_beside_owner
from penstock.views.catalog import ViewCatalog
from penstock.views.sources.results import QueryResults
from penstock.views.statements import ViewStatement, execute_view_statement
from penstock.views.view import ViewHandle

OVERLOAD = ("off", "defer")


class Engine:
    """Answers standing queries over streams from one shared state, stored in `state_dir`."""

    def __init__(
        self,
        spark: SparkSession,
        state_dir: str | Path,
        *,
        tasks: int | None = None,
        durable: bool = True,
        strategy: str = "auto",
        chain: str = "auto",
        orders: str = "adaptive",
        order_options: Mapping[str, Any] | None = None,
        expire_every: int = 1,
        plan: str = "auto",
        balance: str = "auto",
        balance_options: Mapping[str, Any] | None = None,
        result_rows: int = MOST_ROWS,
        result_bytes: int = MOST_BYTES,
        overload: str = "off",
        overload_options: Mapping[str, Any] | None = None,
        memory: str | int | None = None,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        """`state_dir` is a folder of this machine, or a URL in an object store ('s3://bucket/app', 'gs://..',
        'az://..'); `storage` is what the environment does not say of that, such as {'endpoint': 'http://..'}.

        `tasks`: parallel tasks per step (default: the session's cores). `durable=False` skips syncs to disk.

        `strategy` is how queries share: 'state_slice', 'push_down', 'pull_up', 'isolated', or 'auto'; `chain` where
        state is cut: 'mem_opt' (fewest rows), 'cpu_opt' (least work), or 'auto'. `orders` is how the probe orders of
        joins of three and more streams are chosen: 'adaptive', 'static', 'pop', 'card', 'random', 'worst', 'oracle';
        `order_options` are its parameters, such as `period` (rows between two checks). `expire_every`: steps between
        two rounds that drop expired state. `plan` is how window aggregates are computed: 'paned' (shared panes, merged
        with two stacks), 'differential' (their sums by difference), 'wid' (panes per query), 'buffered' (rows are
        stored), 'adapt' (rows or panes per bucket), or 'auto', by the counts of steps. The answers are always the same.
        `balance` is how buckets of keys move between tasks: 'weighted' (also 'auto': consecutive buckets of equal cost,
        with hot ones split), 'pairwise' (one pair of tasks at a time), or 'off'; `balance_options` are its parameters,
        such as `theta_r` (loads are even if the least is that share of the largest) and `tau_m` (seconds between two
        changes). `result_rows` and `result_bytes`: a query with more stored results in one step is suspended.

        With `overload` 'defer', buckets of keys put off their probes while steps take longer than the trigger allows,
        and their results come later, exactly; `overload_options` are its parameters, such as `selector` and `share`.

        `memory`, such as '4 GB', is what an executor may use: its Java process with its heap, and its Python workers.
        What does not fit is put aside on local disks. Without it, what a step needs grows with its input.
        """
        self.spark = spark
        self.store = open_store(state_dir, durable=durable, storage=storage)
        if expire_every < 1:
            raise RegistrationError(f"expire_every must be at least 1 step, not {expire_every}")
        if tasks is not None and tasks < 1:
            raise RegistrationError(f"tasks must be at least 1, not {tasks}")
        if result_rows < 1 or result_bytes < 1:
            raise RegistrationError(
                f"result_rows and result_bytes must be at least 1, not {result_rows} and {result_bytes}"
            )
        self.expire_every, self.bound = expire_every, Bound(result_rows, result_bytes)
        refuse_gone(spark, self.store.root)
        check_workers(spark)
        self.limits = None if memory is None else budget_of(spark, read_size(memory)).limits
        self.tasks = tasks or spark.sparkContext.defaultParallelism
        try:
            parameters = Parameters(**(order_options or {}))
        except (TypeError, ValueError) as error:
            raise RegistrationError(f"order_options: {error}") from None
        try:
            balancing = Balancing(**(balance_options or {}))
        except (TypeError, ValueError) as error:
            raise RegistrationError(f"balance_options: {error}") from None
        choices = Choices(strategy, chain, orders, parameters, plan, balance, balancing)
        with told_plainly():
            self.catalog = Catalog(self.store, SparkAnalysis(spark), choices)
        if overload not in OVERLOAD:
            raise RegistrationError(f"overload must be one of {', '.join(OVERLOAD)}, not {overload!r}")
        try:
            self._overload = Overload(Deferral(**(overload_options or {})))
        except (TypeError, ValueError) as error:
            raise RegistrationError(f"overload_options: {error}") from None
        self._defers = overload == "defer"
        self.inputs = Inputs(spark, self.catalog)
        self._registration = Registration(self.catalog, self.inputs, self._change)
        self._run: Run | None = None
        self._views: ViewCatalog | None = None

    @classmethod
    def local(
        cls,
        state_dir: str | Path,
        *,
        cores: int | None = None,
        tasks: int | None = None,
        durable: bool = True,
        strategy: str = "auto",
        chain: str = "auto",
        orders: str = "adaptive",
        order_options: Mapping[str, Any] | None = None,
        expire_every: int = 1,
        plan: str = "auto",
        balance: str = "auto",
        balance_options: Mapping[str, Any] | None = None,
        result_rows: int = MOST_ROWS,
        result_bytes: int = MOST_BYTES,
        overload: str = "off",
        overload_options: Mapping[str, Any] | None = None,
        memory: str | int | None = None,
        storage: Mapping[str, str] | None = None,
        **settings: str,
    ) -> Engine:
        """An engine on a well-configured local Spark session, made if there is none.

        `settings` are Spark's, with `__` for each dot. With `memory` the heap is half of it, and at most 2 GB, unless
        `spark__driver__memory` says otherwise.
        """
        if memory is not None and not {"spark__driver__memory", "spark.driver.memory"} & settings.keys():
            settings["spark__driver__memory"] = f"{min(2 << 10, read_size(memory) >> 21)}m"
        return cls(
            local_session(cores, **settings), state_dir, tasks=tasks, durable=durable, strategy=strategy, chain=chain,
            orders=orders,
            order_options=order_options, expire_every=expire_every, plan=plan, balance=balance,
            balance_options=balance_options, result_rows=result_rows, result_bytes=result_bytes,
            memory=memory, storage=storage, overload=overload, overload_options=overload_options,
        )  # fmt: skip

    # -- registration: before the start, or while running at the next step boundary -------------------------------

    def stream(
        self,
        name: str,
        frame: DataFrame,
        *,
        event_time: str,
        delay: str | int | None = None,
        late: str = "side",
        bad: str = "side",
        idle: str | None = None,
        idle_skew: str = "1 hour",
        heartbeat: str | None = None,
        sequence: str | None = None,
        ordered: bool = False,
        punctuation: str | DataFrame | None = None,
        patterns: Sequence[str] = (),
        side_retain: str = "7 days",
    ) -> None:
        """Register a streaming DataFrame under a name.

        `delay` bounds how far rows may be behind the newest event time or, with '100 rows', how many positions by
        `sequence`; a row further behind is late. `ordered` means that no row is behind. `late` and `bad` are the
        policies for late and invalid rows: 'side' (kept for `side_retain` of the clock, or 'forever'; see `late()` and
        `bad()`), 'drop', or 'error'. `idle` lets the stream's progress follow the clock once it has been idle for that
        long. `heartbeat` promises that a row is read at most that long after its event time, so that progress follows
        the clock at every step.

        `punctuation` names the column in which a row states that no later row has a time below its value (such a row is
        not data), or it is a DataFrame, or the name of a stream, with rows that state it: its event time is the bound;
        a column with the name of a column of this stream restricts it to rows with that value, `<column>_from` and
        `<column>_to` to a range, NULL does not restrict it. Then there is no other delay than the one given. A
        punctuation in a column of this stream is restricted by the columns `patterns` of its row: those that are not
        NULL restrict it to rows with that value.
        """
        refuse_gone(self.spark, self.store.root)
        stream = given_stream(
            name, frame, event_time=event_time, delay=delay, late=late, bad=bad, idle=idle, idle_skew=idle_skew,
            heartbeat=heartbeat,
            sequence=sequence, ordered=ordered, told=punctuation is not None, side_retain=side_retain,
        )  # fmt: skip
        stream, other = punctuated(stream, punctuation, patterns, self.catalog.streams)
        self._registration.declare(stream, frame, other)

    def query(
        self,
        sql: str,
        *,
        name: str,
        into: Into | None = None,
        on_error: str = "skip",
        retain: str | int | None = None,
        start: str = "now",
        ordered: bool = False,
        replace: bool = False,
        emit: str | None = None,
        flush: int | None = None,
        behind: int = 2,
    ) -> QueryHandle:
        """Register a standing query; while the engine runs it takes effect with the next step.

        With start='now' rows of that step and later ones take part, with 'state' also the stored rows. `ordered`
        delivers the results in the order of their times, as progress passes them (the same as ORDER BY result_time).
        `replace` replaces a query of that name. `emit` ('10 seconds') shows open windows of an aggregate too, again
        after that time if something has changed (the same as EMIT EARLY EVERY ..): results then have `_revision`, the
        greatest of a window being its newest, and `_final`. `flush` is the maximal number of results per step, so that
        the end of a window with many groups is no burst; this delays a result by at most `behind` windows, and output
        progress waits for it.
        """
        refuse_gone(self.spark, self.store.root)
        kept = read_length(retain, f"query {name!r}, retain") if isinstance(retain, str) else retain
        slow = None if flush is None else (flush, behind)
        every = None if emit is None else emit_length(emit)
        record = QueryRecord(0, name, sql.strip(), on_error, kept, ordered=ordered, start=start, flush=slow, emit=every)
        self._registration.add(record, into, instead=replace)
        return QueryHandle(self, name)

    def aggregate(self, name: str, function: UserAggregate) -> None:
        """Declare an aggregate of your own for queries, by this name; every program on this state must declare it.

        `function` has the methods `zero()`, `add(state, value)`, `merge(left, right)` and `finish(state)`, and in
        `type` the Spark type of the result; `merge` must not depend on order. States are stored between steps, as data
        that is never executed: they consist of None, bool, int, float, str, bytes, Decimal, date, datetime, timedelta,
        list, tuple, set and dict, or `function` also has the methods `encode(state)`, which returns bytes, and
        `decode(bytes)`.
        """
        self.catalog.add_aggregate(name, Travelling(function))

    def source(
        self,
        name: str,
        frame: DataFrame | Callable[[], DataFrame] | None = None,
        *,
        using: str | None = None,
        columns: Mapping[str, str] | None = None,
        key: Sequence[str] = (),
        changes: str | None = None,
        change_table: str | None = None,
        **options: object,
    ) -> Source:
        """Declare a relation that views may join.

        `using` is its system: 'postgres' (options `url`, `table`), 'parquet' (`path`), 'query' (`query`: the results of
        a standing query of this engine), or 'dataframe': then `frame` is a batch DataFrame, or better a function that
        makes one, since a DataFrame over files does not see later files. `changes` is how its changes are captured: by
        'trigger' (PostgreSQL; the default there), 'table' (a change table of your own, `change_table`), 'snapshot'
        (each look is compared with the last) or 'stream' (the results of the query are themselves changes, with a
        column `sign` of 1 and -1). Two rows of the same `key` are refused.
        """
        system = using or ("dataframe" if frame is not None else None)
        if system is None:
            raise RegistrationError(f"source {name!r} needs using='postgres', 'parquet' or 'query', or a DataFrame")
        told = changes or ("table" if change_table else CAPTURES.get(system, ("snapshot",))[0])
        declared = tuple(Column(n, t) for n, t in (columns or {}).items())
        given = tuple(sorted((k, str(v)) for k, v in options.items()))
        return self.view_catalog.add_source(
            Source(name, declared, system, given, tuple(key), told, change_table), frame
        )

    def view(self, sql: str, *, name: str, strategy: str = "auto", computed: str = "auto") -> ViewHandle:
        """Declare a materialized view over sources. Its first `refresh()` computes it, later ones update it.

        `strategy` is how ('auto' chooses by measured cost), `computed` where the first computation runs: 'local',
        'spark' or 'auto'.
        """
        return self.view_catalog.add_view(sql, name, strategy=strategy, computed=computed)

    def views(self) -> list[dict[str, Any]]:
        """The declared views: how fresh they are, and the cost of their last refresh."""
        return [{**view.status(), "sql": view.view.sql} for view in self.view_catalog.views.values()]

    def sources(self) -> list[dict[str, Any]]:
        """The declared sources."""
        return [
            {"name": s.name, "using": s.system, "changes": s.changes, "columns": {c.name: c.type for c in s.columns}}
            for s in self.view_catalog.sources.values()
        ]

    @property
    def view_catalog(self) -> ViewCatalog:
        """Sources and views, created on first use."""
        if self._views is None:
            self._views = ViewCatalog(self.spark, self.store, self._query_results, self._refuse_beside_others)
        return self._views

    def drop_stream(self, name: str) -> None:
        """Stop reading a stream that no query reads. A running engine restarts Spark's query without the stream."""
        self._registration.drop_stream(name)

    def alter_stream(self, name: str, *, delay: str | int | None = None, path: str | Path | None = None) -> None:
        """Change the delay of a stream, or the path of one declared in SQL, on an existing state directory.

        It takes effect at a step boundary, or at the start. Progress never falls: with a longer delay it waits until
        the newest time less that delay has passed it; a shorter one advances it at once. All files of a new path are
        new to the stream, and unread files of the old one are skipped. From then on this is the stream's declaration.
        """
        self._registration.alter_stream(changed_stream(self.catalog.live_stream(name), delay, path))

    def advance(self, name: str, to: int | str | datetime) -> None:
        """Declare that no later row of a stream has a time below `to`; such a row, even if waiting to be read, is late.

        It is committed when this returns, and all results that waited for it are computed. Progress never falls: an
        earlier time has no effect.
        """
        stream = self.catalog.stream(name)
        value = time_to_advance(stream, to)
        if self._present is None:
            self._refuse_beside_others()
            raise StateError(f"stream {stream.name!r} can be advanced while the engine runs; start it first")
        self._present.advance(stream.name, value)

    def drop(self, name: str, *, purge: bool = False) -> None:
        """Stop answering a query. Its results stay readable; `purge` deletes them too."""
        self._registration.drop(name, purge=purge)

    @told_plainly()
    def resume(self, name: str) -> None:
        """Resume a suspended query with the next step. Results that it missed meanwhile are not made up for."""
        record = self.catalog.live(name)
        if self._present is not None:
            self._present.resume(record)
            return
        self._refuse_beside_others()
        with self.store.owner_lock():
            log = ManifestLog(self.store)
            manifest = fenced(log)
            if entry := resumed(self.catalog.registry, manifest, record):
                log.append(entry)

    def execute(self, script: str) -> list[Any]:
        """Run SQL statements; returns what SHOW and EXPLAIN print, one entry each."""
        return [shown for statement in parse_script(script) for shown in self.execute_statement(statement, script)]

    def execute_statement(self, statement: Statement, script: str, parsed: ParsedSelect | None = None) -> list[Any]:
        """Run one statement of a script, with its `parsed` SELECT, if any; returns what SHOW and EXPLAIN print."""
        refuse_gone(self.spark, self.store.root)
        if isinstance(statement, ViewStatement):
            return execute_view_statement(self.view_catalog, statement, script)
        match statement:
            case CreateStream(stream):
                self._registration.declare(stream.stored, open_stream(self.spark, stream), altered=statement.altered)
            case CreateQuery():
                record = QueryRecord(
                    0, statement.name, statement.select.strip(), statement.on_error, statement.retain,
                    start=statement.start
                )  # fmt: skip
                self._registration.add(
                    record, statement.into, instead=statement.replace, at=(script, statement), parsed=parsed
                )
            case AlterQuery():
                record, target = self._registration.altered(statement)
                self._registration.add(record, target, instead=True, at=(script, statement), parsed=parsed)
            case ResumeQuery(name):
                self.resume(name)
            case DropQuery(name, purge, if_exists):
                if not if_exists or self.catalog.registry.find(name):
                    self.drop(name, purge=purge)
            case DropStream(name):
                self.drop_stream(name)
            case AlterStream(name):
                self._registration.alter_stream(altered(self.catalog.live_stream(name), statement))
            case AdvanceStream(name, to):
                self.advance(name, to)
            case ShowQueries():
                return [self.queries()]
            case ShowStreams():
                return [self.streams()]
            case Explain(name, None):
                return [self.explain(name)]
            case Explain(_, select):
                return [self.explain_select(str(select))]
        return []

    # -- running ------------------------------------------------------------------------------------------------

    def start(
        self,
        trigger: str = "1 second",
        *,
        latency: str = "5 seconds",
        available_now: bool = False,
        final: bool = False,
    ) -> Run:
        """Start answering. `available_now` stops when all present input is read; `final` then ends the streams.

        `trigger` is the least time from one step to the next. With 'auto' it adapts: as long as possible, since fewer
        steps cost less in all, but so that a row waits for its results no longer than `latency`.
        """
        refuse_gone(self.spark, self.store.root)
        if final and not available_now:
            raise PenstockError("final=True needs available_now=True; a running engine ends with run.stop(final=True)")
        if self._present is not None:
            raise StateError(f"this engine already runs on {self.store.root}; stop it first")
        self.catalog.check_streams()
        if not self.inputs.frames:
            raise RegistrationError("no stream is declared; use engine.stream(..) or CREATE STREAM")
        bound = read_length(latency, "latency") / SECOND
        if trigger != "auto":
            read_length(trigger, "trigger")
        schedule = Schedule(trigger, bound)
        run = Run(
            self.spark, self.store, self.catalog, self.inputs, self.execute, tasks=self.tasks, bound=self.bound,
            limits=self.limits, expire_every=self.expire_every, schedule=schedule,
            available_now=available_now, final=final, relief=self._relief(lambda: schedule.longest_step),
        )  # fmt: skip
        before, self._run = self._run, run
        try:
            run.begin()
        except BaseException:
            self._run = before
            raise
        return run

    # -- reading ------------------------------------------------------------------------------------------------

    @told_plainly()
    def results(self, name: str, *, step: bool = False, since_step: int | None = None) -> DataFrame:
        """The committed results of a query, even of a dropped one. Those of an ordered query come in order."""
        refuse_gone(self.spark, self.store.root)
        manifest = self.manifest()
        since = -1 if since_step is None else since_step
        newest = self.catalog.record(name)
        frames = []
        # Expressions keep the meaning of the registration, whatever the time zone of the reader.
        with with_settings(self.spark, self.catalog.registry.settings):
            for record in lineage(self.catalog.registry, newest):
                part = part_of(self.catalog, record, manifest, since=since, ordered=newest.ordered)
                view = view_of(self.catalog, record)
                frames.append(result_frame(view, self.spark, manifest, part, step=step, time=newest.ordered))
            return united(frames, ordered=newest.ordered)

    @told_plainly()
    def late(self, stream: str) -> DataFrame:
        """Rows behind their stream's progress, whole, with `_step`, `_reason`, `_progress`."""
        refuse_gone(self.spark, self.store.root)
        return side_rows(self.spark, self.store, self.manifest(), self.catalog.stream(stream), "late")

    @told_plainly()
    def bad(self, stream: str) -> DataFrame:
        """Rows without a usable event time, whole, with `_step`, `_reason`, `_progress`."""
        refuse_gone(self.spark, self.store.root)
        return side_rows(self.spark, self.store, self.manifest(), self.catalog.stream(stream), "bad")

    def queries(self) -> list[dict[str, Any]]:
        """The registered queries: name, SQL, sink, what happens on errors, how they began."""
        return listed_queries(self.catalog.registry.shown())

    def streams(self) -> list[dict[str, Any]]:
        """The declared streams."""
        return listed_streams(self.catalog.streams.values())

    def coverage(self, name: str) -> dict[str, Any]:
        """From when on a query's answer equals that of a query that was always registered.

        `complete_from`: per stream the time from which all its rows take part (missing streams: all rows).
        `exact_from`: results of that time and later are complete (None: all results; `FOREVER` of
        `penstock.model.time`: rows that the query missed may be part of any later result). `covered`: progress has
        passed it.
        """
        record = self.catalog.record(name)
        return coverage(
            record,
            self.catalog.compiled(record).whole,
            complete_from(self.catalog.registry, record),
            self.manifest().progress_values(),
        )

    def explain(self, name: str | None = None) -> str:
        """The running plan as text: of the whole network, or of one query, with the last decision about each join."""
        if name is not None:
            self.catalog.record(name)
        manifest = self.manifest()
        network = self.network()
        running = self._running
        steering = self.catalog.steer(network, manifest, self.tasks) if running is None else running.stepper.steering
        routes = steering.routes if steering.network == network else None
        way = Way(self.tasks) if self._run is None else self._run.executor.way(self.tasks)
        return explain_network(
            network, manifest.counters, list(manifest.runs.values()), name, routes, manifest.decisions, steering.checks,
            manifest.folding, manifest.panes, way, () if running is None else running.seen.explained,
        )  # fmt: skip

    def decisions(self) -> list[dict[str, Any]]:
        """The last decisions about probe orders, routes, chains, pane sets, partials in mappers and maps of buckets.

        The oldest comes first. Each has what was checked and changed, why, and the numbers.
        """
        return [decided.shown() for decided in self.manifest().decisions]

    def explain_select(self, sql: str) -> str:
        """The plan of an unregistered query."""
        standing, streams = standing_alone(self.catalog, QueryRecord(0, "(this query)", sql))
        return explain_network(build_network(standing, streams, plan=self.catalog.choices.aggregate_plan))

    def network(self) -> Network:
        """The running plan, or the one that would run: all live queries compiled."""
        if self._running is not None:
            return self._running.stepper.network
        return self.catalog.cut(self.catalog.network(), self.manifest())

    @told_plainly()
    def manifest(self) -> Manifest:
        """The last committed state."""
        return ManifestLog(self.store).load() if self._running is None else self._running.stepper.manifest

    # -- inside -------------------------------------------------------------------------------------------------

    def _relief(self, allowed: Callable[[], float] = lambda: inf) -> Relief:
        """What a run does under pressure, if a step may take that long."""
        return Relief(self._overload, self._defers, allowed)

    @property
    def _running(self) -> Run | None:
        """The run that has begun and not ended."""
        return self._run if self._run is not None and self._run.active else None

    @property
    def _present(self) -> Run | None:
        """The run that owns the state directory, also while it begins and ends: all changes are its events."""
        return self._run if self._run is not None and not self._run.ended else None

    def _change(self, change: Callable[[], None]) -> None:
        """Apply a change now, or at the next step boundary of the run."""
        if self._present is None:
            self._refuse_beside_others()
            change()
        else:
            self._present.change(change)

    @told_plainly()
    def _refuse_beside_others(self) -> None:
        """Refuse a change while another engine runs on the directory, which would not notice it."""
        if self._present is None:
            refuse_beside_owner(self.store)

    def _query_results(self, name: str) -> QueryResults:
        record = self.catalog.record(name)
        line = lineage(self.catalog.registry, record)
        columns = tuple(Column(n, t) for n, t in zip(record.item_names, record.item_types, strict=True))
        # Results that expire, or wait for progress, do not only grow by steps.
        growing = all(one.retain is None for one in line) and not record.ordered

        def count(since: int) -> int:
            manifest = self.manifest()
            return sum(view_of(self.catalog, one).count(manifest, Part(since=since)) for one in line)

        return QueryResults(columns, partial(self.results, name), count, growing, tuple(one.id for one in line))

    def _query_stats(self, name: str) -> dict[str, int | None]:
        return counts_of(lineage(self.catalog.registry, self.catalog.record(name)), self.manifest())
