"""The computation of a whole view: every source is read once, and joined here or by Spark, by estimated time.

Rows in files of a reader's own are read by Spark's tasks directly; only those of a database come through this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.errors import StateError
from penstock.model import Expression
from penstock.model.view import Source, View
from penstock.planner.views.initial_load import Estimate, First, Machine, corrected, estimated, first, handled
from penstock.planner.views.relations import Counted
from penstock.planner.views.statistics import Sample
from penstock.planner.views.strategies import recompute
from penstock.views.refresh.maintain import Refreshed, compute, graph_of
from penstock.views.refresh.spark import Computed, Given
from penstock.views.rows.bag import COUNT
from penstock.views.rows.evaluate import select
from penstock.views.sources.change_audit import Told, telling
from penstock.views.sources.snapshot import SnapshotReader
from penstock.views.sources.source import Answer, EstimatingReader

COMPUTED_BY = ("auto", "local", "spark")
SPARK_ROWS = 100_000  # rows up to which Spark is not considered
_RUNS = 5  # of each kind, by which estimates are corrected

OnSpark = Callable[[View, Mapping[str, Given], Machine], Computed]
Estimating = Callable[[str, Sequence[str]], Estimate | None]  # of a source by name, for some columns
Facts = Sequence[Mapping[str, Any]]  # of earlier refreshes, newest last


@dataclass
class Whole:
    """How one view is computed from scratch. `machine` has Spark's costs; those of computing here are in its facts."""

    view: View
    readers: Mapping[str, EstimatingReader]
    pool: Executor
    on_spark: OnSpark | None = None
    machine: Callable[[], Machine] = Machine
    computed: str = "auto"

    def compute(self, facts: Facts) -> tuple[Refreshed, Computed | None]:
        """All rows of the view, and Spark's part, if there was one."""
        began, asked = time.perf_counter(), sum(r.requests for r in self.readers.values())
        with ExitStack() as held:
            if self.on_spark is not None and self.for_spark(facts):
                read = {name: self._held(name, held) for name in needed(self.view)}
                given: dict[str, Given] = {
                    name: r.given if isinstance(r, _Held) else r.rows for name, r in read.items()
                }
                made = self.on_spark(self.view, given, shown(self.machine(), facts))
                rows = made.rows
            else:
                made = None
                names = list(needed(self.view))
                read = dict(zip(names, self.pool.map(self._scan, names), strict=True))
                rows = compute(self.view, {n: r for n, r in read.items() if isinstance(r, _Scanned)}, self.pool).rows
        told = {name: r.told for name, r in read.items() if isinstance(r, _Scanned) and name in self._telling}
        samples = (Sample(k, (), 0, 0, read[n.source].count, 0, 0, 0.0) for k, n in enumerate(self.view.nodes))
        found = Refreshed(
            rows,
            {name: r.position() for name, r in read.items()},
            recompute(graph_of(self.view)),
            len(read),
            sum(r.requests for r in self.readers.values()) - asked,
            tuple(samples),
            time.perf_counter() - began,
            whole=True,
            told=Told(told, whole=True),
        )
        return found, made

    def for_spark(self, facts: Facts, rows: Sequence[float] | None = None) -> bool:
        """Whether Spark should join the sources, with so many rows, if known."""
        if self.on_spark is None or self.computed == "local":
            return False
        if self.computed == "spark":
            return True
        counts = rows or [
            0.0 if (e := self.readers[n.source].estimate(())) is None else e.rows for n in self.view.nodes
        ]
        known = {node.source: count for node, count in zip(self.view.nodes, counts, strict=True)}
        if len(self.view.nodes) == 1 or sum(known.values()) <= SPARK_ROWS:
            return False
        found = self.first(facts)
        return found is not None and found.on_spark

    def first(self, facts: Facts) -> First | None:
        """The ways to compute the view, priced; None if too little is known of its sources."""
        sources = {name: reader.source for name, reader in self.readers.items()}
        return priced(
            self.view, sources, lambda name, columns: self.readers[name].estimate(columns), facts, self.machine()
        )

    @property
    def _telling(self) -> list[str]:
        return telling(self.view, self.readers)

    def _scan(self, name: str) -> _Scanned:
        # Nodes of one source may have different filters; then all its rows are read.
        nodes = [k for k, node in enumerate(self.view.nodes) if node.source == name]
        filters = self.view.local(nodes[0]) if len(nodes) == 1 else ()
        reader, columns = self.readers[name], needed(self.view)[name]
        if name not in self._telling:
            return _Scanned(reader.source, reader.scan(columns, filters))
        answer = reader.scan([c.name for c in reader.source.columns], ())
        kept = select(answer.rows, filters, lambda ref: ref.column).select([*columns, COUNT])
        return _Scanned(reader.source, replace(answer, rows=kept), answer.rows)

    def _held(self, name: str, until: ExitStack) -> _Held | _Scanned:
        reader = self.readers[name]
        if not isinstance(reader, SnapshotReader):
            return self._scan(name)
        files, position = until.enter_context(reader.files(needed(self.view)[name]))
        return _Held(files, files.rows, position)


def needed(view: View) -> dict[str, list[str]]:
    """The columns of each source that joins, filters and outputs read."""
    found: dict[str, dict[str, None]] = {}
    for number, node in enumerate(view.nodes):
        filtered = (ref.column for e in view.local(number) for ref in e.refs)
        found.setdefault(node.source, {}).update(dict.fromkeys((*view.columns(number), *filtered)))
    return {name: list(columns) for name, columns in found.items()}


def priced(
    view: View, sources: Mapping[str, Source], estimate: Estimating, facts: Facts, machine: Machine
) -> First | None:
    """The ways to compute a view, by the last counts, else by its sources' estimates; None if there are none."""
    counts = [fact["counted"] for fact in facts if fact.get("counted")]
    if counts:
        return first(view, [Counted(*node) for node in counts[-1]], shown(machine, facts))
    known: dict[str, Estimate] = {}
    for name, columns in needed(view).items():
        found = estimate(name, columns)
        if found is None:
            return None
        known[name] = found
    return first(view, estimated(view, sources, known), shown(machine, facts), really=False)


def shown(machine: Machine, facts: Facts) -> Machine:
    """The machine with the costs measured in the last computations of a view."""
    here = [
        fact["seconds"] / handled(fact["scanned"], fact["rows"])
        for fact in facts
        if fact.get("scanned") and not fact.get("shape") and handled(fact["scanned"], fact["rows"])
    ][-_RUNS:]
    runs = [(fact["estimated"], fact["seconds"]) for fact in facts if fact.get("estimated")][-_RUNS:]
    if here and machine.here == Machine.here:
        machine = replace(machine, here=sorted(here)[len(here) // 2])
    return replace(machine, costs=corrected(machine.costs, runs))


@dataclass(frozen=True)
class _Held:
    """A source whose rows Spark reads."""

    given: Given
    count: int
    at: int

    def position(self) -> int:
        return self.at


class _Scanned:
    """A source whose rows have been read: it answers scans, all at one position. `told`: all its rows, for audits."""

    connections = 1

    def __init__(self, source: Source, answer: Answer, told: pa.Table | None = None) -> None:
        self.source, self.rows, self.requests = source, answer.rows, 0
        self.told = answer.rows if told is None else told
        self.count = answer.rows.num_rows
        self._position = answer.position

    def position(self) -> int:
        return self._position

    def scan(self, columns: Sequence[str], filters: Sequence[Expression]) -> Answer:
        rows = select(self.rows, filters, lambda ref: ref.column)
        return Answer(rows.select([*columns, COUNT]), self._position)

    def changes(self, after: int, until: int | None = None) -> tuple[pa.Table, int]:
        raise StateError(f"{self.source.name} was read at {self._position} only, not from {after} to {until}")

    def lookup(self, columns: Sequence[str], keys: pa.Table, filters: Sequence[Expression]) -> Answer:
        del keys  # additional rows do no harm
        return self.scan(columns, filters)

    def close(self) -> None: ...
