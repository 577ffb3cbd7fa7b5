"""The step: one Spark job over a micro-batch (or a tick without one), then one commit.

Workers write files and report their names; nothing they wrote exists until the manifest entry of the step is there. Steps run
one at a time under one lock; each sees the state exactly as the step before committed it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.core.broadcast import Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.errors import StateError, StepError
from penstock.kernels.aggregate.keep import horizon as horizon_of
from penstock.kernels.groups import closed_keys
from penstock.model.time import FOREVER, NEVER, SECOND
from penstock.planner import arranging
from penstock.planner.network import Network, StateTable
from penstock.planner.scans import Scans
from penstock.planner.segments import segment_count, segment_starts
from penstock.planner.steering import Steering
from penstock.runtime import commit, derived
from penstock.runtime.accounts import (
    counters_of,
    failure,
    flushed_by,
    results_of,
    runs_of,
    sides_of,
    suspended_by,
    with_dropped,
)  # fmt: skip
from penstock.runtime.closing import (
    ahead_by,
    all_closed,
    closed_by,
    closed_groups,
    held_back,
    is_unshown,
    panes_until,
    shown_by,
    shown_now,
)  # fmt: skip
from penstock.runtime.finish import finish_projection, finish_task
from penstock.runtime.handover import finished_joins, handover_schema
from penstock.runtime.ingest import Layout, project, truth_words
from penstock.runtime.lull import follow_clock
from penstock.runtime.parcels import PARCEL_SCHEMA
from penstock.runtime.points import reached
from penstock.runtime.retention import expired_results, horizon, merge_results
from penstock.runtime.scan import MOST_TASKS, batch_files, is_scannable
from penstock.runtime.task import Plan, Task
from penstock.runtime.types import arrow_types, handover_types
from penstock.runtime.worker import run_task
from penstock.state.compaction import choose_merges, choose_settling
from penstock.state.manifest import SNAPSHOT_EVERY, Entry, Manifest, ManifestLog, Progress, ResultFile
from penstock.state.orphans import collect_orphans
from penstock.state.progress import Seen, move, together
from penstock.state.registry import Registry
from penstock.state.run import RunEntry
from penstock.state.store import LocalStore

UPKEEP_EVERY = 64  # steps between two rounds of upkeep
SIDES_FOR = 256  # steps for which late and bad rows travel as text after the last one
FIRST_UPKEEP = 7  # the first round: when a few steps have shown which rows come
ENDED = "final"  # kind of the progress of a stream that has ended
REMEMBERED = (
    16  # joins whose choice of orders is stored with every step, at a few kB each; that of more, every few steps
)
MERGE_ROWS = 2_000_000  # rows rewritten per table and step at most: the budget that keeps a step's time even

_SESSION = {
    "spark.sql.adaptive.enabled": "false",  # one exchange with a known number of tasks: nothing to adapt
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(
        2**31 - 1
    ),  # any lower limit makes Spark add up all sizes for each row
    "spark.sql.execution.pandas.udf.buffer.size": str(4 << 20),  # Arrow batches are large: fewer, longer writes
    # Hashes every row to find out whether a repeated map task gave other rows; streams are refused if they can.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
}


class Stopping(Exception):  # noqa: N818  (not an error: the run is asked to end)
    """A batch came while the run was stopping."""


class Stepper:
    """Runs and commits steps for one network."""

    def __init__(
        self,
        spark: SparkSession,
        store: LocalStore,
        manifest: Manifest,
        network: Network,
        registry: Registry,
        layout: Layout,
        tasks: int,
        after_commit: Callable[[Manifest], Mapping[str, int]],
        cut: Callable[[Network, Manifest], Network],
        steer: Callable[[Network, Manifest], Steering],
        views: derived.Views,
    ) -> None:
        """`after_commit` delivers and returns the sinks' cursors; `cut` chooses the network's chains anew, `steer` its probe orders.

        `views` hold the results of the queries that others read.
        """
        self.spark, self.store, self.layout, self.tasks = spark, store, layout, tasks
        self.log = ManifestLog(store)
        self.manifest = manifest
        self.after_commit, self.cut, self.steer, self.views = after_commit, cut, steer, views
        self.lock = threading.RLock()
        self.closing = False
        self.cursors: Mapping[str, int] = {}
        self.next_upkeep = self._following_upkeep()
        self.owes: Callable[[ResultFile], bool] = lambda _: False  # whether a sink has yet to get rows of a file
        self.last_reports: list[dict[str, Any]] = []
        self.scans = Scans()  # what the last steps took, for tables without a key
        self.timings: dict[str, float] = {}
        self.sides = 0  # steps for which late and bad rows still travel as text
        self.plain = False  # all streams are Parquet files just as they are
        self.expire_every = 1  # steps between two rounds of dropping runs that are out of reach
        self.planning = 0.0  # seconds of the last step in which probe orders were looked at
        self.started = self.began = time.time()  # of the engine, and of the step that runs
        self.seconds = {"planning": 0.0, "probing": 0.0}  # of all steps, the slowest task of each
        self.last_rows: dict[str, float] = {}  # engine clock when the stream last had rows
        self.follows_clock = True  # whether event time may be compared with it; not while only present input is read
        self.planned_before = True  # the next batch may have been planned before Spark's query began
        self.held: frozenset[str] = frozenset()  # streams of which nothing is read for now
        self.warnings: list[str] = []
        self.last_active = time.monotonic()
        self.plan: Broadcast[Plan] | None = None
        self._session: SparkSession | None = None
        self.adopt(network, registry)

    def adopt(self, network: Network, registry: Registry) -> None:
        """Run this network from the next step on; the layout is that of the running Spark query's streams."""
        self.network, self.registry = network, registry
        self.steering = self.steer(network, self.manifest)
        self._prepared: set[int] = set()
        self.whole = derived.lay_out_all(self.layout, network)
        plan = Plan(
            network,
            {s: dict(self.whole.slots[s]) for s in self.whole.order},
            truth_words(network),
            arrow_types(self.spark, network),
            handover_types(self.spark, network),
        )
        if self.plan is not None:
            self.plan.unpersist()
        self.plan = self.spark.sparkContext.broadcast(plan)

    def forget_streams(self) -> None:
        """Give up the progress of streams that are gone: one that comes back begins anew."""
        known = {name: p for name, p in self.manifest.progress.items() if name in self.network.streams}
        if len(known) < len(self.manifest.progress):
            self._append(self._tick_entry(progress=known))

    def take_over(self, shares: frozenset[int]) -> None:
        """A step of its own: give the rows that are held the bits of new queries, and find the results among them."""
        with self.lock:
            step = self.manifest.step + 1
            task = replace(self._task(step), merges=(), taking_over=shares)
            reports = self._run(self._nothing(), task)
            numbers = {t.index for t in self.network.tables if any(e.query in shares for e in t.entries)}
            replaced = [run.name for index in numbers for run in task.runs.get(index, ())]
            entry = self._tick_entry(
                counters=counters_of(reports), runs_added=runs_of(reports), results=results_of(reports), runs_removed=tuple(replaced)
            )  # fmt: skip
            self.store.sync([f"{folder}/." for folder in ("runs", "results")])
            self._append(replace(entry, counters=with_dropped(entry, self.manifest)))

    def run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """What Spark calls for each micro-batch."""
        with self.lock:
            if self.closing:
                raise Stopping  # nothing of the batch was done; the next start gets it again
            started, self.began = time.perf_counter(), time.time()
            identity = commit.batch_identity(self.store, batch_id, batch_id - 1)
            if batch_id <= self.manifest.last_batch:
                self._check_replay(batch_id, identity)
                return
            self._prepare_session(batch.sparkSession)
            step = self.manifest.step + 1
            reached("before_job", step)
            task = self._task(step)
            planned = time.perf_counter()
            try:
                reports, projecting = self._run_sided(batch, task)
            except PySparkException as error:
                raise StepError(failure(step, error)) from error
            ran = time.perf_counter()
            reached("after_job", step)
            self._commit(step, batch_id, identity, task, reports)
            if step >= self.next_upkeep:  # ticks are steps too, so no step need be a multiple of anything
                self._upkeep()
                self.next_upkeep = self._following_upkeep()
            self.timings = {
                "plan": planned - started + projecting, "job": ran - planned - projecting, "commit": time.perf_counter() - ran
            }  # fmt: skip
            self.last_active = time.monotonic()
            self.planned_before = False

    def tick(self, progress: Mapping[str, Progress] | None = None, *, final: bool = False) -> bool:
        """A step without a batch: new progress, purge, delivery that is owed. False if there is nothing to do."""
        with self.lock:
            moved = dict(progress or self.manifest.progress)
            waiting = not final and bool(derived.waiting(self.network, self.manifest, self.views))
            if final:
                moved = {name: Progress(FOREVER, self._newest(name), ENDED) for name in self.network.streams}
            elif not waiting:
                moved |= derived.moved(self.network, self.manifest, self.manifest.progress)
            values = {name: p.value for name, p in moved.items()}
            expired = self._gone(all_closed(self.network, values) if final else self.manifest.reached())
            changed = moved != dict(self.manifest.progress)
            owed = any(self.manifest.cursors.get(sink, -1) != step for sink, step in self.cursors.items())
            ahead = self.manifest.reached() | values
            if (
                waiting
                or held_back(self.network, self.manifest, ahead, moved)
                or (not final and is_unshown(self.network, self.manifest))
            ):
                self._close(moved, ahead, final=final, waiting=waiting)
                return True
            if not (changed or expired or final or owed):
                return False
            entry = self._tick_entry(
                progress=moved, runs_removed=tuple(expired), final=final, closed=closed_by(self.network, values),
                closed_groups=closed_groups(self.network, moved),
            )  # fmt: skip
            self._append(replace(entry, counters=with_dropped(entry, self.manifest)))
            return True

    def catch_up(self) -> None:
        """Let derived streams take in all results so far, also those that this gives to others."""
        with self.lock:
            while derived.waiting(self.network, self.manifest, self.views):
                self.tick()

    def settle(self) -> None:
        """Catch up, and let the windows close that this has closed for those above; then only new rows bring anything."""
        with self.lock:
            for _ in range(self._most_ticks()):
                known = self.manifest.progress
                after = {**known, **derived.moved(self.network, self.manifest, known)}
                ahead = self.manifest.reached() | {name: p.value for name, p in after.items()}
                owing = held_back(self.network, self.manifest, ahead, after)
                if after == known and not owing and not derived.waiting(self.network, self.manifest, self.views):
                    break
                self.tick()

    def _most_ticks(self) -> int:
        """How many ticks the derived streams need at most: of each level rows come, windows close, progress is told."""
        count = len(self.network.derived_streams)
        return 3 * count + 2 if count else 0

    def finish(self) -> None:
        """The streams have ended: first those that are read, then level by level those that are derived; then all is final."""
        with self.lock:
            own = {d.name for d in self.network.derived_streams}
            ended = {n: Progress(FOREVER, self._newest(n), ENDED) for n in self.network.streams if n not in own}
            for _ in range(self._most_ticks()):
                if self._all_out(own):
                    break
                self.tick({**self.manifest.progress, **ended})
            self.tick(final=True)

    def _all_out(self, own: Collection[str]) -> bool:
        """Whether no derived stream has anything yet to come."""
        reached = self.manifest.reached()
        ended = all(reached.get(name, NEVER) >= FOREVER for name in own)
        return ended and not (
            derived.waiting(self.network, self.manifest, self.views)
            or held_back(self.network, self.manifest, reached, self.manifest.progress)
        )

    @property
    def ending(self) -> bool:
        """Whether the streams have ended, and not everything has come out of it yet."""
        return not self.manifest.final and any(p.kind == ENDED for p in self.manifest.progress.values())

    def _close(
        self, progress: Mapping[str, Progress], reached: Mapping[str, int], *, final: bool, waiting: bool = False
    ) -> None:
        """A tick with a job: rows that wait for this progress take part, and what they find is committed with it.

        If derived streams have rows `waiting`, it takes them in.
        """
        step = self.manifest.step + 1
        task = self._task(step, reached, progress)
        ended = {a.name for a in self.network.aggregates if task.ahead.moves(a)}
        task = replace(task, merges=() if final else tuple(m for m in task.merges if m.table in ended))
        rows = self._derived_rows(self.own_session()) if waiting else None
        if rows is not None:
            rows = project(
                rows, self.network, self.whole, task.progress, self.tasks, task.routes.replicated, sides=True
            )
        reports = self._run(self._nothing() if rows is None else rows, task)
        groups = closed_groups(self.network, progress)  # by which this step has closed, whatever it takes in
        if waiting:
            after, _ = self._moved(reports)
            own = {d.name for d in self.network.derived_streams}
            progress = {**progress, **{name: p for name, p in after.items() if name in own}}
        gone = self._gone(all_closed(self.network, reached) if final else reached)
        merged = [name for merge in task.merges for name in merge.runs]
        entry = self._tick_entry(
            progress=progress, counters=counters_of(reports), results=results_of(reports),
            closed=closed_by(self.network, reached, reports), flushed=flushed_by(reports),
            closed_groups=groups, runs_added=runs_of(reports), sides=sides_of(reports),
            runs_removed=tuple(dict.fromkeys([*gone, *merged])), final=final,
            suspended=suspended_by(self.network, reports, self.manifest.suspended),
            cursors={**self.cursors, **shown_by(task)}, **({"derived": self._taken()} if waiting else {}),
        )  # fmt: skip
        self.store.sync([f"{folder}/." for folder in ("runs", "results", "sides")])
        self._append(replace(entry, counters=with_dropped(entry, self.manifest)))

    def _nothing(self) -> DataFrame:
        """For a job without rows to receive: every task runs once."""
        return self.spark.range(0, self.tasks, 1, self.tasks)

    def unread(self, query: Any) -> bool:
        """True while Spark has seen offsets that no step has consumed yet, or has not looked (again) for any."""
        status = query.status
        looking = status["isTriggerActive"] or status["message"].startswith("Initializing")
        return bool(status["isDataAvailable"] or looking)

    def _following_upkeep(self) -> int:
        step = self.manifest.step
        return step - (step - FIRST_UPKEEP) % UPKEEP_EVERY + UPKEEP_EVERY

    def _upkeep(self) -> None:
        """Give up expired results, merge small files, and collect what no manifest names."""
        manifest = self.manifest
        progress = manifest.reached()
        retain = {q.id: q.retain for q in self.registry.queries}
        horizons = {q: horizon(self.network, q, keep, progress) for q, keep in retain.items()}
        below = [q.id for q in self.registry.queries if q.owner is not None]
        taken = derived.unread_since(self.network, manifest)
        settled = [f for f in manifest.results.values() if f.step <= taken and not self.owes(f)]
        gone = expired_results(settled, retain.keys(), horizons, below)
        merged = merge_results(self.store, [f for f in settled if f.name not in gone], manifest.step)
        if gone or merged:
            removed = [*gone, *(name for _, names in merged for name in names)]
            self._append(self._tick_entry(results=tuple(f for f, _ in merged), results_removed=tuple(removed)))
        collect_orphans(self.store, self.manifest)
        network = self.cut(self.network, self.manifest)
        if network != self.network:
            self.adopt(network, self.registry)

    def _tick_entry(self, **changes: Any) -> Entry:
        manifest = self.manifest
        entry = Entry(
            step=manifest.step + 1, batch=None, last_batch=manifest.last_batch, identity=manifest.identity,
            version=self.network.version, clock=time.time(), progress=manifest.progress, counters={"engine:": {"ticks": 1}},
            cursors=self.cursors, derived=derived.cursors(self.network, manifest),
        )  # fmt: skip
        return replace(entry, **changes)

    def _taken(self) -> dict[str, int]:
        """The cursors of derived streams after a step that takes in all results so far."""
        return {d.name: self.manifest.step for d in self.network.derived_streams}

    def _derived_rows(self, session: SparkSession) -> DataFrame | None:
        return derived.derived_rows(session, self.network, self.manifest, self.views, self.whole)

    def _check_replay(self, batch_id: int, identity: str) -> None:
        if batch_id == self.manifest.last_batch and identity == self.manifest.identity:
            return
        msg = (
            f"Spark offers batch {batch_id} again with other rows than the manifest's step {self.manifest.step} consumed "
            f"(state directory {self.store.root}): Spark's log has lost entries. Restore checkpoint/ and manifest/ from the "
            "same backup, or start with a new state directory and replay the sources"
        )
        raise StateError(msg)

    def _prepare_session(self, session: SparkSession) -> None:
        """Settings of the stream's own session (a clone, so nobody else sees them)."""
        key = id(session._jsparkSession)  # noqa: SLF001
        if key in self._prepared:
            return
        for name, value in {**_SESSION, **self.registry.settings}.items():
            session.conf.set(name, value)
        self._prepared = {key}

    def own_session(self) -> SparkSession:
        """A session like that of a batch, for steps that have none."""
        if self._session is None:
            clone = self.spark._jsparkSession.cloneSession()  # noqa: SLF001
            self._session = SparkSession(self.spark.sparkContext, clone)
            for name, value in {**_SESSION, **self.registry.settings}.items():
                self._session.conf.set(name, value)
        return self._session

    def _task(
        self, step: int, reached: Mapping[str, int] | None = None, moved: Mapping[str, Progress] | None = None
    ) -> Task:
        progress = self.manifest.reached() if reached is None else reached
        ahead = ahead_by(self.network, self.manifest, self.manifest.progress if moved is None else moved)
        number = {t.name: t.index for t in self.network.tables} | {a.name: a.home for a in self.network.aggregates}
        runs: dict[int, list[RunEntry]] = {}
        for run in self.manifest.runs.values():
            if run.table in number and not run.expired(progress):
                runs.setdefault(number[run.table], []).append(run)
        merges = [
            merge
            for t in self.network.tables
            if not t.grouped
            for merge in choose_merges(
                t.name, runs.get(t.index, ()), self.tasks, MERGE_ROWS, progress.get(t.stream, NEVER), self.registry.stale,
                progress, counted=bool(t.counted),
            )
        ]  # fmt: skip
        settled = [
            choose_settling(
                a.name, runs.get(a.home, ()), self.tasks, MERGE_ROWS, a.closed(progress)[a.flush is None], self.registry.stale,
                apart=horizon_of(a.plan, 0) is not None, ended=ahead.moves(a),
            )
            for a in self.network.aggregates
        ]  # fmt: skip
        merges += [merge for merge in settled if merge]
        return Task(
            step,
            self.tasks,
            self.store,
            progress,
            {t: tuple(r) for t, r in runs.items()},
            self.steering.routes,
            {t.index: self._segments(t, runs.get(t.index, ()), progress) for t in self.network.tables if t.timed},
            merges=tuple(merges),
            suspended=frozenset(int(q) for q in self.manifest.suspended),
            closed=closed_keys(self.network, self.manifest.progress),
            ahead=ahead,
            newest={stream: self._last(stream) for a in self.network.aggregates for stream in a.streams},
            panes=panes_until(self.network, self.manifest),
            early=shown_now(self.network, self.manifest),
            flushed=self.manifest.flushed,
        )

    def _segments(self, table: StateTable, runs: Sequence[RunEntry], progress: Mapping[str, int]) -> tuple[int, ...]:
        """Where each task's share of a table without a key begins."""
        scan = self.scans.scan(self.network, table, runs, progress, self.manifest.counters)
        return segment_starts(runs, segment_count(scan, self.tasks, self.scans.timing), self.tasks)

    def _run_sided(self, batch: DataFrame, task: Task) -> tuple[list[dict[str, Any]], float]:
        """The reports of the step's job, and the seconds it took to plan it. Whole rows as text, for the few that are late or bad, make every row dearer: they travel only once some were seen.

        Until then the first such row repeats the job with them; the files of the first attempt have no name in any manifest.
        """
        projecting = 0.0
        closed = {n: p.closed for n, p in self.manifest.progress.items() if p.kind != derived.KIND}
        added = self._derived_rows(batch.sparkSession) if self.network.derived_streams else None
        while True:
            sides, started = self.sides > 0, time.perf_counter()
            files = None if sides or added is not None else self._files()
            if files is None:
                whole = derived.widened(batch, self.layout, self.whole)
                rows = project(
                    whole if added is None else whole.unionByName(added), self.network, self.whole, task.progress, self.tasks, task.routes.replicated, sides=sides,
                    closed=closed,
                )  # fmt: skip
            else:
                rows = batch.sparkSession.range(0, self.tasks, 1, self.tasks)
            projecting += time.perf_counter() - started
            reports = self._run(rows, replace(task, files=files))
            if any(report["unreadable"] for report in reports):
                self.plain = False
            elif any(report["wants_sides"] for report in reports):
                self.sides = SIDES_FOR
            else:
                break
        put_aside = any(counts["late"] or counts["bad"] for r in reports for counts in r["streams"].values())
        self.sides = SIDES_FOR if put_aside and sides else max(0, self.sides - 1)
        return reports, projecting

    def _files(self) -> dict[str, tuple[str, ...]] | None:
        """What the workers shall read themselves; None if the batch's rows have to come from Spark."""
        told = self.layout.marked or self.layout.placed  # progress that rows tell is read in Spark
        if not self.plain or told or self.tasks > MOST_TASKS or not is_scannable(self.network, self.layout.order):
            return None
        return batch_files(self.spark, self.layout.order)

    def _run(self, projected: DataFrame, task: Task) -> list[dict[str, Any]]:
        plan = self.plan
        assert plan is not None

        def stage(number: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
            def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                from pyspark import TaskContext  # noqa: PLC0415  (runs in the worker)

                context = TaskContext.get()
                yield from run_task(batches, plan.value, task, context.partitionId() if context else 0, number)

            return work

        def finish(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from finish_task(batches, plan.value, task)

        for number in range(task.routes.exchanges):
            sent = projected.mapInArrow(stage(number), PARCEL_SCHEMA)
            projected = sent.repartitionById(self.tasks, F.col("_to"))
        last = stage(task.routes.exchanges)
        if finished_joins(self.network):
            handed = projected.mapInArrow(last, handover_schema(self.network))
            reported = finish_projection(handed, self.network).mapInArrow(finish, "report binary")
        else:
            reported = projected.mapInArrow(last, "report binary")
        rows = reported.collect()
        return [json.loads(bytes(row[0])) for row in rows]

    def _commit(self, step: int, batch_id: int, identity: str, task: Task, reports: Sequence[dict[str, Any]]) -> None:
        for report in reports:
            for stream, example in report["errors"].items():
                msg = f"stream {stream!r} got a row it must not get ({example}); its policy is 'error', so the step was not committed"
                raise StepError(msg)
        before = self.manifest.reached()
        removed = self._gone(before) if step % self.expire_every == 0 else []
        removed += [name for merge in task.merges for name in merge.runs]
        progress, ignored = self._moved(reports)
        counters = counters_of(reports)
        for name, count in ignored.items():
            counters[f"stream:{name}"]["ignored"] = count
        entry = Entry(
            step=step, batch=batch_id, last_batch=batch_id, identity=identity, version=self.network.version, clock=time.time(),
            progress=progress, counters=counters,
            runs_added=runs_of(reports), runs_removed=tuple(dict.fromkeys(removed)), results=results_of(reports),
            sides=sides_of(reports), derived=self._taken(), cursors={**self.cursors, **shown_by(task)},
            suspended=suspended_by(self.network, reports, self.manifest.suspended), closed=closed_by(self.network, before, reports),
            flushed=flushed_by(reports),
            closed_groups=closed_groups(self.network, self.manifest.progress),
        )  # fmt: skip
        entry = replace(entry, counters=with_dropped(entry, self.manifest), **self._steered(entry))
        entry = self._arranged(entry)
        self.store.sync(commit.durable_names(self.store, batch_id))
        self.store.sync([f"{folder}/." for folder in ("runs", "results", "sides")])
        reached("before_manifest", step)
        self.last_reports = list(reports)
        if any(table.timed for table in self.network.tables):
            self.scans.observe(self.network, task.routes.replicated, reports)
        self.seconds["planning"] += self.planning
        self.seconds["probing"] += max((report["phases"].get("probe", 0.0) for report in reports), default=0.0)
        for report in reports:
            self.last_rows.update((name, entry.clock) for name, c in report["streams"].items() if c["rows"])
        self._append(entry)
        if any(decision["mode"] == "panes" and decision["action"] == "changed" for decision in entry.decisions):
            self.adopt(arranging.arrange(self.network, self.manifest.panes), self.registry)

    def _steered(self, entry: Entry) -> dict[str, Any]:
        """What the choice of orders made of the step: decisions, and what to remember of them."""
        fresh = [run for run in entry.runs_added if run.level == 0]
        started = time.perf_counter()
        decisions = self.steering.observe(
            entry.counters, self.manifest.counters, list(self.manifest.runs.values()), fresh
        )
        self.planning = time.perf_counter() - started
        plain = tuple({"step": entry.step, **decision.to_json()} for decision in decisions)
        # Counts since the last check are remembered too, or a job that is often restarted would never come to one.
        often = 1 + len(self.steering.modes) // REMEMBERED
        orders = self.steering.states if plain or entry.step % often == 0 else {}
        return {"orders": {} if orders == self.manifest.orders else orders, "decisions": plain}

    def _arranged(self, entry: Entry) -> Entry:
        """The entry with what the choice of pane sets made of the step."""
        newest = {name: p.newest for name, p in self.manifest.progress.items() if p.newest > NEVER}
        advanced = {name: p.newest - newest[name] for name, p in entry.progress.items() if name in newest}
        if not self.network.aggregates or not advanced:
            return entry
        known, decisions = arranging.check(
            self.network, arranging.observe(self.network, self.manifest.panes, entry.counters, advanced)
        )
        plain = tuple({"step": entry.step, **decision.to_json()} for decision in decisions)
        return replace(entry, panes=known, decisions=(*entry.decisions, *plain))

    def _append(self, entry: Entry) -> None:
        self.log.append(entry)
        self.manifest = self.manifest.apply(entry)
        reached("after_manifest", entry.step)
        self.cursors = self.after_commit(self.manifest)
        reached("after_delivery", entry.step)
        for name in entry.runs_removed:
            self.store.delete(name)
        for name in entry.results_removed:
            self.store.touch(name)
        if entry.step % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1 or entry.final:
            self.log.snapshot(self.manifest)

    def lulls(self, progress: Mapping[str, Progress], names: Iterable[str], now: float) -> dict[str, Progress]:
        """Progress with that of these streams by the clock: of none while one is not read, or while only present input is."""
        if not self.follows_clock:
            return dict(progress)
        streams = [self.network.streams[n] for n in names if n in self.network.streams and n not in self.held]
        # What is derived follows these streams, and not the other way round.
        read = {name: p for name, p in progress.items() if name in self.layout.order}
        moved, warnings = follow_clock(streams, read, now, self.last_rows, self.started)
        self.warnings += [warning for warning in warnings if warning not in self.warnings]
        return {**progress, **moved}

    def _moved(self, reports: Sequence[dict[str, Any]]) -> tuple[dict[str, Progress], dict[str, int]]:
        """Progress after the step, and how many punctuations of each stream found no room."""
        # The clock at the beginning: what arrived while the step ran is yet to be read.
        timely = self.follows_clock and not self.planned_before
        clock = int(self.began * SECOND) if timely else None
        moved, ignored = dict(self.manifest.progress), {}
        for name, stream in self.network.streams.items():
            parts = [Seen.from_json(r["saw"][name]) for r in reports if name in r["saw"]]
            if parts:
                old = moved.get(name, Progress(NEVER, NEVER))
                after, left = move(stream, old, together(parts, stream.delay_rows), clock)
                if after != Progress(NEVER, NEVER):
                    moved[name] = after
                if left:
                    ignored[name] = left
        # A batch without rows of a stream shows that nothing of it waited when the batch was planned.
        silent = [n for n in self.layout.order if not any(r["streams"].get(n, {}).get("rows") for r in reports)]
        moved = self.lulls(moved, silent if timely else [], self.began)
        return {**moved, **derived.moved(self.network, self.manifest, moved)}, ignored

    def _gone(self, progress: Mapping[str, int]) -> list[str]:
        """Runs of which no row can be of use any more."""
        tables = {table.name for table in self.network.tables} | {a.name for a in self.network.aggregates}
        return [r.name for r in self.manifest.runs.values() if r.table not in tables or r.expired(progress)]

    def _last(self, name: str) -> int:
        """The newest time that a window at the end of the streams has to hold."""
        joined = next((d for d in self.network.derived_streams if d.name == name and d.joined), None)
        below = () if joined is None else (role.stream for role in joined.definition.roles)
        return max([self._newest(name), *map(self._newest, below)])

    def _newest(self, name: str) -> int:
        found = self.manifest.progress.get(name)
        return found.newest if found else NEVER
