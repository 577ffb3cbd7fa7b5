"""A task's report of a step: the files it wrote, counts, what its rows say of progress, where its time went.

A mapper's report travels with its rows to one task and is added to that one's, so that a retried mapper is counted
once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence

import msgspec
import pyarrow as pa

from penstock.planner.counters import Counters, JoinCounters, QueryCounters, StreamCounters, TableCounters
from penstock.state.bucket_counters import BucketCounters
from penstock.state.flushed import Flushed
from penstock.state.progress import Seen
from penstock.state.result_files import ResultFile
from penstock.state.run import RunEntry
from penstock.state.side_files import SideFile
from penstock.state.suspension import Suspension


class Leading(msgspec.Struct, frozen=True):
    """Rows kept of the windows of a query with these ends; of each, the first `most` of all tasks' rows are results."""

    most: int
    ends: tuple[int, ...]
    rows: tuple[int, ...]


class Report(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A task's report, with those of its mappers.

    `saw`: by stream, what parts of its rows say of progress; `flushed`: by aggregate, how far it is emitted. `errors`:
    by stream, an example of a row that violates its declaration; `refused`: queries that can no longer be answered, and
    why; `unreadable`: streams that Spark must read after all, so that the step must be repeated. `phases` and `mapping`
    are seconds of tasks and of mappers. `buckets` is the work with each bucket of keys, and `cpu` seconds of
    the processor, by stage of the task.
    """

    partition: int = 0
    counters: Counters = msgspec.field(default_factory=Counters)
    runs: list[RunEntry] = []
    results: list[ResultFile] = []
    sides: list[SideFile] = []
    saw: dict[str, list[Seen]] = {}
    flushed: dict[str, Flushed] = {}
    leading: dict[int, Leading] = {}
    errors: dict[str, str] = {}
    refused: dict[int, Suspension] = {}
    unreadable: dict[str, str] = {}
    phases: dict[str, float] = {}
    mapping: dict[str, float] = {}
    buckets: list[BucketCounters] = []
    cpu: list[float] = []

    def stream(self, name: str) -> StreamCounters:
        """The counters of a stream, to be added to; so are those below."""
        return self.counters.streams.setdefault(name, StreamCounters())

    def table(self, name: str) -> TableCounters:
        return self.counters.tables.setdefault(name, TableCounters())

    def query(self, number: int) -> QueryCounters:
        return self.counters.queries.setdefault(number, QueryCounters())

    def join(self, name: str) -> JoinCounters:
        return self.counters.joins.setdefault(name, JoinCounters())

    def count_sent(self, rows: int = 0, size: int = 0) -> None:
        """Add what a mapper sends through the exchange."""
        self.counters.engine.sent_rows += rows
        self.counters.engine.sent_bytes += size

    def add_file(self, file: ResultFile, apart: Collection[int] = ()) -> None:
        """A file of results; they are counted, except those of queries that are counted `apart`."""
        self.results.append(file)
        for query, rows in file.counts:
            if query not in apart:
                self.query(query).results += rows

    def lead(self, query: int, most: int, ends: Sequence[int], rows: Sequence[int]) -> None:
        """The task has kept that many rows of the windows with these ends."""
        self.leading[query] = Leading(most, tuple(ends), tuple(rows))

    def absorb(self, more: Report) -> None:
        """Add the report of a mapper, or of an earlier stage of the task."""
        self.counters.add(more.counters)
        self.runs.extend(more.runs)
        self.results.extend(more.results)
        self.sides.extend(more.sides)
        for stream, parts in more.saw.items():
            self.saw.setdefault(stream, []).extend(parts)
        self.flushed.update(more.flushed)
        self.leading.update(more.leading)
        for stream, example in more.errors.items():
            self.errors.setdefault(stream, example)
        self.refused.update(more.refused)
        self.unreadable.update(more.unreadable)
        self.buckets.extend(more.buckets)
        self.cpu.extend(more.cpu)
        for mine, seconds in ((self.phases, more.phases), (self.mapping, more.mapping)):
            for phase, own in seconds.items():
                mine[phase] = mine.get(phase, 0.0) + own

    def encode(self) -> bytes:
        text = msgspec.json.encode(self)
        return text + b" " * (-len(text) % 8)  # so that later parcels start at whole words

    @classmethod
    def decode(cls, encoded: bytes | pa.Buffer) -> Report:
        return _DECODER.decode(encoded)


_DECODER = msgspec.json.Decoder(Report)


def summed(reports: Iterable[Report]) -> Counters:
    """The counts of all tasks of a step."""
    totals = Counters()
    for report in reports:
        totals.add(report.counters)
    return totals


class Watch:
    """Adds up the seconds of each phase."""

    def __init__(self, phases: dict[str, float]) -> None:
        self.phases, self.last = phases, time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self.last
        self.last = now
