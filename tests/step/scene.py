"""Steps in one process: a plan, mappers and workers by hand, and the record, in a store in memory."""

from dataclasses import replace

import pyarrow as pa

from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.planner.routes import build_routes
from penstock.planner.scans import Scans
from penstock.sql import parse_query
from penstock.state.manifest import Manifest
from penstock.state.registry import Registry
from penstock.step.heard import Heard
from penstock.step.layout import lay_out
from penstock.step.mapper import truth_words
from penstock.step.phases import fold
from penstock.step.plan import State, plan_step
from penstock.step.report import Report
from penstock.step.run_mapper import run_mapper
from penstock.step.task import Plan
from penstock.step.worker import run_task
from penstock.storage.memory import MemoryStore

COLUMNS = (Column("t", "bigint"), Column("k", "bigint"), Column("v", "bigint"))
STREAMS = {name: Stream(name, COLUMNS, "t", delay=0, late="drop", bad="drop") for name in "ab"}
LAYOUT = lay_out(list(STREAMS.values()))


def state_of(*queries, tasks=2):
    """An engine that has not made a step yet."""
    standing = [StandingQuery(n, f"q{n}", parse_query(text, STREAMS)) for n, text in enumerate(queries, 1)]
    network = build_network(standing, STREAMS)
    return State(
        Manifest(), network, Registry(), MemoryStore(), tasks, build_routes(network), lambda _: (), Heard(0.0,
        read=LAYOUT.order), {}, Scans(),
    )  # fmt: skip


def work(state, plan, rows=()):
    """What mappers and workers report of rows (stream, t, k, v)."""
    if plan.task is None:
        return []
    network = state.network
    types = {name: {c.name: pa.int64() for c in COLUMNS} for name in STREAMS}
    known = Plan(network, {s: dict(LAYOUT.slots[s]) for s in LAYOUT.order}, truth_words(network), types)
    columns = [pa.array([LAYOUT.order.index(row[0]) for row in rows], pa.int32())]
    columns += [pa.array([row[place] for row in rows], pa.int64()) for place in (1, 1, 2, 3)]
    names = ["_stream", "_ts", *(LAYOUT.slots["a"][c.name] for c in COLUMNS)]
    sent = list(run_mapper([(pa.RecordBatch.from_arrays(columns, names), ())], known, plan.task.asked)) if rows else []
    reports = []
    for task in range(state.tasks):
        own = [parcel for parcel in sent if parcel.column("_to")[0].as_py() == task]
        *_, last = run_task(iter(own), known, plan.task, task)
        reports.append(Report.decode(last.column("report")[0].as_py()))
    return reports


def step(state, event, rows=(), now=1.0):
    """The state after a step, and its record; None if the event changes nothing."""
    plan = plan_step(state, event, now)
    if plan is None:
        return state, None
    record, _ = fold(state, plan, work(state, plan, rows), now, now)
    return replace(state, manifest=state.manifest.apply(record)), record
