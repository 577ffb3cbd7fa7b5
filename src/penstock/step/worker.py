"""One task of a step, in a Python worker: receive rows, probe, write results and runs, report.

A task is a pure function of (rows, runs, plan): files have globally unique names and count only once the manifest names
them, so a retried or speculative attempt changes nothing. Its only output is one report.

Routes that change the key need further stages in the same job (decision 0011). Between two stages travel parcels of
composites, the names of new runs (of the winning attempts, since the exchange takes them from there), and the report so
far.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa

from penstock.columns.hash import bytes_of
from penstock.kernels.adopt import adopt
from penstock.kernels.delta import Delta
from penstock.kernels.join import PutOff, join_deltas, join_owed, resume
from penstock.kernels.matches import Matches
from penstock.kernels.merge import lay_out, merge_runs
from penstock.kernels.owed import inside_any, that_owe
from penstock.kernels.parcel import pack, probers, unpack
from penstock.kernels.ranks import closed
from penstock.kernels.streamed import parts_of
from penstock.kernels.walk import Slices, Work
from penstock.planner.counters import JoinCounters, TableCounters, bits_of
from penstock.planner.join import Join
from penstock.planner.routes import Route
from penstock.planner.state_table import StateTable
from penstock.state.bucket_counters import BucketCounters, BucketTally
from penstock.state.cold import Cold
from penstock.state.run import Rows, RunEntry
from penstock.step.envelope import COMPOSITES, FRESH, REPORT, parcel
from penstock.step.frugal import frugal
from penstock.step.handover import candidates, report_row
from penstock.step.held import Held
from penstock.step.owing import starts_of
from penstock.step.partials import aggregate_rows, settle_runs
from penstock.step.receive import Receiver
from penstock.step.report import Report, Watch
from penstock.step.results import ResultWriter, result_table
from penstock.step.scratch import Bodies, Scratch
from penstock.step.task import Plan, Task, report_batch, result_writer


def run_task(
    batches: Iterator[pa.RecordBatch], plan: Plan, task: Task, partition: int, stage: int = 0
) -> Iterator[pa.RecordBatch]:
    """Do one stage of the task. Yields parcels for the next stage; the last yields rows for Spark, and the report."""
    with frugal(task.limits):
        worker = _Worker(plan, task, partition, stage)
        yield from worker.run(batches) if stage == 0 else worker.run_stage(batches)
        del worker


class _Worker:
    def __init__(self, plan: Plan, task: Task, partition: int, stage: int) -> None:
        self.plan, self.task, self.network = plan, task, plan.network
        self.partition, self.last = partition, stage == task.routes.exchanges
        self.report = Report(partition)
        self.begun = time.process_time()
        self.low, high = task.buckets.ranges[partition]
        self.tally = BucketTally(task.buckets.buckets)
        self.work = Work(tally=self.tally)
        self.scratch = Scratch()
        self.receiver = Receiver(plan, task, self.report, self.tally, scratch=self.scratch)
        self.held = Held(
            plan.network, task, self.report, partition, self.low, high, plan.listed, self.scratch, self.tally
        )  # fmt: skip
        self.writers: dict[int, ResultWriter] = {}

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        watch = Watch(self.report.phases)
        fresh = self.receiver.deltas(batches, watch)
        if self.task.taking_over:
            yield from self._take_over(watch)
        elif self.task.owed:
            yield from self._clean_up(watch)
        else:
            # Rows that wait for progress may start anywhere, so every task needs those that all tasks start from.
            waits = any(join.closes for join in self.network.joins)
            stored, seen = _rows_of(fresh.stored), _rows_of(fresh.seen)
            if waits or fresh.probing or seen:  # else nothing looks up anything
                slices = replace(
                    self.held.open_runs(every=self.task.routes.replicated if waits else ()),
                    fresh=stored,
                    every=seen,
                    lent_fresh=self._lent(seen),
                    probing=_rows_of(fresh.probing),
                )
                watch.lap("open")
                yield from self._join(slices, self.task.suspended, watch)
            for index, pieces in stored.items():
                if not self.network.tables[index].grouped:
                    self.held.store(self.network.tables[index], pieces)
            watch.lap("store")
            for aggregate in self.network.aggregates:
                aggregate_rows(self.held, aggregate, stored, self.receiver.partials)
            watch.lap("aggregate")
            for merge in self.task.merges:
                settled = next((a for a in self.network.aggregates if a.name == merge.table), None)
                if settled is None:
                    self.held.merge(merge)
                else:
                    settle_runs(self.held, settled, merge)
            watch.lap("merge")
        for entry in self.held.fresh:
            body = msgspec.json.encode(entry)
            body += b" " * (-len(body) % 8)  # so that later parcels start at whole words
            index = next(t.index for t in self.network.tables if t.name == entry.table)
            buckets = self.task.buckets
            all_tasks = index in self.task.routes.whole
            for to in range(buckets.tasks) if all_tasks else [self.partition, *buckets.sharers(self.partition)]:
                yield parcel(to, FRESH, body, start=self.partition)
        yield self._finish(watch)

    def run_stage(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A later stage: the composites from the exchange, with the runs that the first stage wrote."""
        parcels: dict[tuple[int, int, int], Bodies] = {}
        fresh: dict[int, list[Rows]] = {}
        every: dict[int, list[Rows]] = {}
        number = {t.name: t.index for t in self.network.tables}
        passed = []
        most = sys.maxsize if self.task.limits is None else self.task.limits.piece
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("_kind", "_join", "_start", "_done"))
            whole_body, ends = bytes_of(batch.column("_body"))
            for kind, join, start, done, low, high in zip(*columns, ends[:-1], ends[1:], strict=True):
                body = pa.py_buffer(whole_body[low:high])
                if kind == REPORT:
                    self.report.absorb(Report.decode(body))
                elif kind == FRESH:
                    entry = msgspec.json.decode(body, type=RunEntry)
                    rows = self.held.open(entry)
                    every.setdefault(number[entry.table], []).extend(rows)
                    if start == self.partition:
                        fresh.setdefault(number[entry.table], []).extend(rows)
                    if not self.last:
                        passed.append(parcel(self.partition, FRESH, body, start=start))
                else:
                    place = join, start, done
                    parcels.setdefault(place, Bodies(self.scratch, most)).add(body)
        watch = Watch(self.report.phases)
        slices = replace(self.held.open_runs(), fresh=fresh, every=every, lent_fresh=self._lent(every))
        watch.lap("open")
        suspended = self._suspended()
        for (join, start, done), bodies in parcels.items():
            of = self.network.joins[join]
            route = self.task.routes.joins[join][start]
            pieces = (unpack(body, (start, *route.order[:done])) for body in bodies.all())
            seen, limits = self._seen(of, slices), self.task.limits
            found = resume(self.network, of, route, done, pieces, seen, self.work, suspended, limits)
            yield from self._handle(of, found, watch)
        yield from passed
        yield self._finish(watch)

    def _finish(self, watch: Watch) -> pa.RecordBatch:
        for writer in self.writers.values():
            for file in writer.close():
                self.report.add_file(file)
            self.report.refused.update(writer.refused)
        watch.lap("write")
        self.report.counters.engine.aside_bytes += self.scratch.bytes
        self._count_work()
        self.report.cpu.append(round(time.process_time() - self.begun, 4))
        if not self.last:
            return parcel(self.partition, REPORT, self.report.encode())
        handover = self.plan.handover
        return report_batch(self.report) if handover is None else report_row(self.report, handover)

    def _suspended(self) -> frozenset[int]:
        """Queries without results in this step: when new ones take over stored rows, all others."""
        shares = self.task.taking_over
        if not shares:
            return self.task.suspended
        others = {entry.query for table in self.network.tables for entry in table.entries} - shares
        return frozenset(others | self.task.suspended)

    def _join(self, slices: Slices, suspended: Collection[int], watch: Watch) -> Iterator[pa.RecordBatch]:
        for join in self.network.joins:
            routes = self.task.routes.joins[join.index]
            seen, limits, put_off = self._seen(join, slices), self.task.limits, self._put_off(join)
            found = join_deltas(self.network, join, routes, seen, self.work, suspended, put_off, limits)
            yield from self._handle(join, found, watch)

    def _put_off(self, join: Join) -> PutOff:
        """By start, whether new rows of each bucket do not probe in this step."""
        buckets = self.task.buckets.buckets
        owed = starts_of(self.task.deferred, join.name)
        return {start: inside_any(own, buckets) for start, own in owed.items()}

    def _clean_up(self, watch: Watch) -> Iterator[pa.RecordBatch]:
        """Run the probes that earlier steps have put off, as of these steps."""
        slices = replace(self.held.open_runs(), lent={})  # rows that owe are where they are stored
        watch.lap("open")
        own, buckets = slices.own, self.task.buckets.buckets
        for join in self.network.joins:
            owed = starts_of(self.task.owed, join.name)
            for route in self.task.routes.joins[join.index]:
                runs = (rows for rows in own.get(route.table, ()) if isinstance(rows, Rows))  # none is cold here
                late = [that_owe(rows, owed[route.start], buckets) for rows in runs]
                found = join_owed(
                    self.network, join, route, late, slices, self.work, self.task.suspended, self.task.limits
                )
                yield from self._handle(join, found, watch)

    def _seen(self, join: Join, slices: Slices) -> Slices:
        """The rows for a join: all, or what progress has closed; none if others take over stored rows."""
        if not join.closes:
            return slices
        return Slices() if self.task.taking_over else closed(slices, *join.closed(self.task.progress))

    def _handle(
        self, join: Join, found: Iterator[tuple[Route, int, Matches]], watch: Watch
    ) -> Iterator[pa.RecordBatch]:
        """Write results; yields composites for the next stage and, in the last one, results for Spark to finish."""
        limits = self.task.limits
        if limits is not None:
            most = limits.work
            found = ((route, done, part) for route, done, whole in found for part in parts_of(whole, most))
        for route, done, matches in found:
            watch.lap("probe")
            complete = done == len(route.hops)
            if not complete or (join.finished_by_spark and not self.last):
                # Complete matches stay with this task, to be finished after its last stage.
                own = np.full(len(matches), self.partition, dtype=np.int32)
                tasks = own if complete else probers(matches, self.task.buckets)
                for to, body in pack(self.network, join, route, done, matches, tasks):
                    yield parcel(to, COMPOSITES, body, join.index, route.start, done)
                watch.lap("ship")
                continue
            writer = self.writers.get(join.index)
            if writer is not None and writer.is_full:
                break
            if route.hops and route.hops[-1].source is not None:
                self.tally.add_keys("results", matches.keys)
            table = result_table(self.network, join, matches, self.plan.types, self.work, self.task.step)
            if join.finished_by_spark:
                assert self.plan.handover is not None
                yield from candidates(join, table, self.plan.handover)
                watch.lap("hand over")
            else:
                if join.index not in self.writers:
                    self.writers[join.index] = result_writer(self.plan, self.task, join)
                self.writers[join.index].write(table, matches.bits)
                watch.lap("write")
        watch.lap("probe")

    def _take_over(self, watch: Watch) -> Iterator[pa.RecordBatch]:
        """Set the bits of new queries on stored rows, and find the new queries' results among them."""
        shares = self.task.taking_over
        slices = self.held.open_runs(every=self.task.routes.replicated)
        own, whole = slices.own, slices.whole
        held, every = {}, {}
        for table in self.network.tables:
            if any(entry.query in shares for entry in table.entries):
                merged = self._adopted(table, own.get(table.index, ()))
                if merged is not None:
                    held[table.index] = merged
                    for life, rows in lay_out(table, merged):
                        self.held.keep_fresh(table, self.held.write_run(table, rows, 1, life))
                if table.index in self.task.routes.replicated:
                    all_rows = self._adopted(table, whole.get(table.index, ()))
                    if all_rows is not None:
                        every[table.index] = all_rows
        watch.lap("store")
        yield from self._join(Slices({}, _each(held), {}, _each(every)), self._suspended(), watch)

    def _adopted(self, table: StateTable, runs: Sequence[Rows | Cold]) -> Rows | None:
        hot = (rows for rows in runs if isinstance(rows, Rows))  # all are, in such a step
        return merge_runs(table, [adopt(table, rows, self.task.taking_over) for rows in hot], self.task.progress)

    def _lent(self, seen: Mapping[int, Sequence[Rows]]) -> dict[int, list[Rows]]:
        """Of the new rows that several tasks see, those in the split buckets that this one is lent."""
        ranges = self.task.buckets.lent(self.partition)
        tables = [table.index for table in self.network.tables if table.key and table.index in seen] if ranges else ()
        return {index: [rows.between(*own) for rows in seen[index] for own in ranges] for index in tables}

    def _count_work(self) -> None:
        if (told := self.tally.told()) != BucketCounters():
            self.report.buckets.append(told)
        for index, counts in self.work.counts.items():
            work = TableCounters(probed=counts.probed, candidates=counts.candidates, compared=counts.compared)
            self.report.table(self.network.tables[index].name).add(work)
        for kind in ("deferred", "cleaned"):
            for index, count in getattr(self.work, kind).items():
                self.report.table(self.network.tables[index].name).add(TableCounters(**{kind: count}))
        for (index, (begin, end)), count in self.work.probes.items():
            self.report.table(self.network.tables[index].name).add(TableCounters(probes={begin: {end: count}}))
        for (index, (begin, end)), count in self.work.results.items():
            self.report.table(self.network.tables[index].name).add(TableCounters(results={begin: {end: count}}))
        for (index, age), count in self.work.ages.items():
            self.report.table(self.network.tables[index].name).add(TableCounters(ages={age: count}))
        for index in self.work.blocks.keys() | self.work.skipped.keys():
            counted = TableCounters(blocks=self.work.blocks[index], skipped=self.work.skipped[index])
            self.report.table(self.network.tables[index].name).add(counted)
        for query, errors in self.work.errors.items():
            if errors:
                self.report.query(query).errors += errors
        for (join, start, positions), count in self.work.flows.items():
            flows = JoinCounters({start: {bits_of(positions): count}})
            self.report.join(self.network.joins[join].name).add(flows)


def _rows_of(deltas: Mapping[int, Sequence[Delta]]) -> dict[int, list[Rows]]:
    return {index: [delta.rows for delta in own] for index, own in deltas.items()}


def _each(rows: Mapping[int, Rows]) -> dict[int, list[Rows]]:
    return {index: [own] for index, own in rows.items()}
