"""What a step asks of its tasks, and what they report: plain data between the driver and the Python workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.kernels.aggregate.ahead import Ahead
from penstock.kernels.groups import Closed
from penstock.model.memory import Limits
from penstock.planner.join import Join
from penstock.planner.network import Network
from penstock.planner.reached import Reached
from penstock.planner.routes import Routes
from penstock.state.buckets import BucketMap
from penstock.state.compaction import Merge
from penstock.state.flushed import Flushed
from penstock.state.manifest import Patterns
from penstock.state.owed import Owed
from penstock.state.run import RunEntry
from penstock.step.bound import Bound
from penstock.step.mapper import Asked
from penstock.step.pieces import Piece
from penstock.step.report import Report
from penstock.step.results import ResultWriter
from penstock.storage.store import Store


@dataclass(frozen=True)
class Plan:
    """The constant part of many steps, sent to the workers once."""

    network: Network
    names: Mapping[str, Mapping[str, str]]  # stream -> declared column -> exchange column
    truths: Mapping[str, tuple[int, int]]  # computed predicate -> (word, shift)
    types: Mapping[str, Mapping[str, pa.DataType]]  # stream -> declared column -> type
    handover: pa.Schema | None = None  # rows for Spark to finish; None if no query needs that
    listed: Mapping[int, pa.Schema] = field(default_factory=dict)  # query -> its select list, if written in that form


@dataclass(frozen=True)
class Task:
    """What one step asks of every task."""

    step: int
    buckets: BucketMap
    store: Store
    progress: Reached  # and, under separate names, what the previous step closed
    runs: Mapping[int, tuple[RunEntry, ...]]
    routes: Routes
    # Timed table -> where each task's share of time begins.
    segments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    merges: tuple[Merge, ...] = ()
    suspended: frozenset[int] = frozenset()
    # Punctuations of groups that are ahead of their stream.
    groups: Mapping[str, Patterns] = field(default_factory=dict)
    closed: Mapping[int, Closed] = field(default_factory=dict)  # by table: keys that other streams have closed
    ahead: Ahead = field(default_factory=Ahead)  # groups whose windows close before those of their stream
    newest: Mapping[str, int] = field(default_factory=dict)  # the newest time of each stream, if aggregates read it
    taking_over: frozenset[int] = frozenset()  # queries that begin from stored rows; then no rows are received
    panes: Mapping[int, int] = field(default_factory=dict)  # query -> start of the panes that are not results yet
    # Query whose open windows are shown -> step that last did so.
    early: Mapping[int, int] = field(default_factory=dict)
    flushed: Mapping[str, tuple[Flushed, ...]] = field(default_factory=dict)  # as in the manifest
    pieces: tuple[Piece, ...] = ()  # what every task reads itself, beside the rows that it is sent
    bound: Bound = field(default_factory=Bound)
    folded: frozenset[int] = frozenset()  # aggregates of whose rows mappers send partials
    # Those whose partials they make of another one's, and whose.
    rolled: Mapping[int, int] = field(default_factory=dict)
    limits: Limits | None = None  # of memory
    deferred: tuple[Owed, ...] = ()  # the probes that this step puts off
    owed: tuple[Owed, ...] = ()  # those that it runs; then no rows are received
    kept: Reached | None = None  # by which state expires, if owed probes may still need it: not `progress`
    apart: int | None = None  # merged runs tell the steps of rows from this one on

    @property
    def asked(self) -> Asked:
        """The step's request to its mappers."""
        return Asked(
            self.step,
            self.buckets,
            self.store,
            self.progress,
            self.routes.replicated,
            self.routes.shared,
            self.suspended,
            self.groups,
            self.bound,
            self.panes,
            self.folded,
            self.rolled,
            self.limits,
        )


Reports = Sequence[Report]  # of the tasks of a step


def result_writer(plan: Plan, task: Task, join: Join) -> ResultWriter:
    """The writer of a join's results in this task."""
    return ResultWriter(plan.network, join, task.store, task.step, plan.listed, task.bound, task.limits)


def report_batch(report: Report) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([report.encode()], pa.binary())], ["report"])
