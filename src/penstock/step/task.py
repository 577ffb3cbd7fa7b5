"""What a step asks of its tasks, and what they answer: plain data that travels between the driver and the Python workers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.kernels.aggregate.ahead import Ahead
from penstock.kernels.groups import Closed
from penstock.planner.network import Join, Network
from penstock.planner.routes import Routes
from penstock.state.buckets import BucketMap
from penstock.state.compaction import Merge
from penstock.state.manifest import Patterns
from penstock.state.run import RunEntry
from penstock.step.account import add_counts
from penstock.step.bound import Bound
from penstock.step.mapper import Asked
from penstock.step.pieces import Piece
from penstock.step.results import Facts, ResultWriter
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
    flushed: Mapping[str, tuple[tuple[int, int | None, int, int], ...]] = field(
        default_factory=dict
    )  # as in the manifest
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


Reports = list[dict[str, Any]]  # of the tasks of a step, as they come back: see `Report`


@dataclass
class Report:
    """What a task did: the files it wrote, and counts by stream, table and query."""

    partition: int
    runs: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    sides: list[dict[str, Any]] = field(default_factory=list)
    streams: dict[str, dict[str, int]] = field(default_factory=dict)
    saw: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # what rows say of the progress of their stream
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    queries: dict[str, dict[str, int]] = field(default_factory=dict)
    joins: dict[str, dict[str, int]] = field(default_factory=dict)  # composites as 'start:positions'
    flushed: dict[str, tuple[int, int | None, int, int]] = field(default_factory=dict)  # aggregate -> how far it is out
    leading: dict[str, dict[str, list[int]]] = field(
        default_factory=dict
    )  # query -> rows kept of each window, see `lead`
    errors: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # query -> why it cannot be answered any more
    unreadable: dict[str, str] = field(
        default_factory=dict
    )  # stream -> why Spark has to read it after all: the step must be repeated
    phases: dict[str, float] = field(default_factory=dict)
    mapping: dict[str, float] = field(default_factory=dict)  # phases of mappers
    sent: tuple[int, int] = 0, 0  # rows or partials, and bytes, that mappers sent through the exchange

    def absorb(self, account: Mapping[str, Any]) -> None:
        """Add what a mapper says of its rows."""
        for mine, more in ((self.streams, "streams"), (self.tables, "tables"), (self.queries, "queries")):
            add_counts(mine, account[more])
        for stream, parts in account["saw"].items():
            self.saw.setdefault(stream, []).extend(parts)
        self.sides += account["sides"]
        self.add_files(account["results"])
        self.refused |= account["refused"]
        self.errors = {**account["errors"], **self.errors}
        self.sent = self.sent[0] + account["sent"][0], self.sent[1] + account["sent"][1]
        self.unreadable |= account["unreadable"]
        for phase, seconds in account["phases"].items():
            self.mapping[phase] = self.mapping.get(phase, 0.0) + seconds

    def count(self, query: int, name: str, number: int) -> None:
        own = self.queries.setdefault(str(query), {})
        own[name] = own.get(name, 0) + number

    def add_results(
        self, counts: Sequence[tuple[int, int]], *, names: Mapping[int, str] | None = None, **facts: Any
    ) -> None:
        """A file with so many results of each query, counted as such but for those that are to be counted by other `names` ('': not here)."""
        self.results.append({**facts, "counts": counts})
        for query, results in counts:
            name = (names or {}).get(query, "results")
            if name:
                self.count(query, name, results)

    def add_files(self, files: Facts) -> None:
        """Files that somebody else has written."""
        for counts, facts in files:
            self.add_results(counts, **facts)

    def end(self, writer: ResultWriter) -> None:
        """End a writer, and say what it has written."""
        self.add_files(writer.close())
        self.refused |= {str(query): why for query, why in writer.refused.items()}

    def lead(self, query: int, most: int, ends: Sequence[int], rows: Sequence[int]) -> None:
        """The task has kept so many rows of the windows with these ends; of each window, `most` of all tasks' rows are results."""
        self.leading[str(query)] = {"most": [most], "ends": list(ends), "rows": list(rows)}

    def encode(self) -> bytes:
        return json.dumps(self.__dict__).encode()

    def resume(self, encoded: bytes) -> None:
        """Go on with what an earlier stage of the task has reported."""
        self.__dict__.update(json.loads(encoded))


def result_writer(plan: Plan, task: Task, join: Join) -> ResultWriter:
    """What writes the results of a join in this task."""
    return ResultWriter(plan.network, join, task.store, task.step, plan.listed, task.bound)


def report_batch(report: Report) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([report.encode()], pa.binary())], ["report"])
