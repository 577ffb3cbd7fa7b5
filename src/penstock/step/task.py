"""What a step asks of its tasks, and what they answer: plain data that travels between the driver and the Python workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.kernels.aggregate.ahead import Ahead
from penstock.kernels.groups import Closed
from penstock.planner.network import Join, Network
from penstock.planner.routes import Routes
from penstock.state.buckets import BucketMap
from penstock.state.compaction import Merge
from penstock.state.flushed import Flushed
from penstock.state.manifest import Patterns
from penstock.state.run import RunEntry
from penstock.step.bound import Bound
from penstock.step.mapper import Asked
from penstock.step.pieces import Piece
from penstock.step.report import Report
from penstock.step.results import ResultWriter
from penstock.storage.store import Store


@dataclass(frozen=True)
class Plan:
    """What stays the same over many steps, sent to the workers once."""

    network: Network
    names: Mapping[str, Mapping[str, str]]  # stream -> declared column -> exchange column
    truths: Mapping[str, tuple[int, int]]  # computed predicate -> (word, shift)
    types: Mapping[str, Mapping[str, pa.DataType]]  # stream -> declared column -> type
    handover: pa.Schema | None = None  # rows for Spark to finish; None if no query needs that
    listed: Mapping[int, pa.Schema] = field(default_factory=dict)  # query -> its select list, if rows are written so


@dataclass(frozen=True)
class Task:
    """What one step asks of every task."""

    step: int
    buckets: BucketMap
    store: Store
    progress: Mapping[str, int]  # and under names of their own what the step before has closed
    runs: Mapping[int, tuple[RunEntry, ...]]
    routes: Routes
    segments: Mapping[int, tuple[int, ...]] = field(
        default_factory=dict
    )  # timed table -> where each task's share of time begins
    merges: tuple[Merge, ...] = ()
    suspended: frozenset[int] = frozenset()
    groups: Mapping[str, Patterns] = field(
        default_factory=dict
    )  # punctuations of groups that are ahead of their stream
    closed: Mapping[int, Closed] = field(default_factory=dict)  # by table: keys that other streams have done with
    ahead: Ahead = field(default_factory=Ahead)  # groups whose windows are over before those of their stream
    newest: Mapping[str, int] = field(default_factory=dict)  # the newest time of each stream, where aggregates read it
    taking_over: frozenset[int] = frozenset()  # queries that take over the rows held; then there are no rows to receive
    panes: Mapping[int, int] = field(default_factory=dict)  # query -> where the panes begin that are no results yet
    early: Mapping[int, int] = field(
        default_factory=dict
    )  # query whose open windows are shown -> step that last did so
    flushed: Mapping[str, tuple[Flushed, ...]] = field(default_factory=dict)  # as in the manifest
    pieces: tuple[Piece, ...] = ()  # what every task reads itself, beside the rows that it is sent
    bound: Bound = field(default_factory=Bound)
    folded: frozenset[int] = frozenset()  # aggregates of whose rows mappers send partials
    rolled: Mapping[int, int] = field(
        default_factory=dict
    )  # those whose partials they make of another one's, and whose

    @property
    def asked(self) -> Asked:
        """What the step asks of its mappers."""
        return Asked(
            self.step,
            self.buckets,
            self.store,
            self.progress,
            self.routes.replicated,
            self.suspended,
            self.groups,
            self.bound,
            self.panes,
            self.folded,
            self.rolled,
        )


Reports = Sequence[Report]  # of the tasks of a step


def result_writer(plan: Plan, task: Task, join: Join) -> ResultWriter:
    """What writes the results of a join in this task."""
    return ResultWriter(plan.network, join, task.store, task.step, plan.listed, task.bound)


def report_batch(report: Report) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([report.encode()], pa.binary())], ["report"])
