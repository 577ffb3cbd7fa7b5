"""A view as users hold it: read it, refresh it, ask how fresh it is and why it is refreshed the way it is.

A refresh computes the change of the joined rows (`maintain`) and installs a version (`store`); plans learn from it.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.errors import ChangesLostError, PenstockError, RegistrationError
from penstock.model.time import SECOND, duration
from penstock.model.view import View
from penstock.planner.views.choice import Choice, Chooser
from penstock.planner.views.initial_load import Machine
from penstock.planner.views.plan import MaintenancePlan
from penstock.planner.views.statistics import Statistics, learned, recalled, remembered
from penstock.planner.views.strategies import STRATEGIES, batch
from penstock.storage.store import Store
from penstock.views.explain import explain_graph, explain_whole
from penstock.views.refresh.aggregate import grouping_of
from penstock.views.refresh.maintain import Refreshed, compute, graph_of, maintain
from penstock.views.refresh.spark import Computed
from penstock.views.refresh.whole import COMPUTED_BY, OnSpark, Whole
from penstock.views.rows.evaluate import column
from penstock.views.rows.types import schema_of
from penstock.views.sources.change_audit import PREFIX, Told, all_told, refuse, telling
from penstock.views.sources.snapshot import SnapshotReader
from penstock.views.sources.source import LiveReader
from penstock.views.store import ViewStore, repeated
from penstock.views.timer import Timer

# Changes that do not affect the view are fetched by every refresh, until there are so many rows or refreshes of them.
_MANY_ROWS, _MANY_TIMES = 1_000, 50


@dataclass
class Parts:
    """The parts of a view; other views may share the readers."""

    view: View
    readers: Mapping[str, LiveReader]
    store: Store
    folder: str
    on_spark: OnSpark | None = None
    machine: Callable[[], Machine] = Machine
    settled: Callable[[], None] = lambda: None
    to_frame: Callable[[pa.Table], DataFrame] | None = None
    identity: str | None = None  # of its definition


class ViewHandle:
    """One materialized view."""

    def __init__(self, parts: Parts, *, strategy: str = "auto", computed: str = "auto") -> None:
        if strategy not in ("auto", *STRATEGIES):
            raise RegistrationError(f"there is no strategy {strategy!r}; known: {', '.join(('auto', *STRATEGIES))}")
        if strategy == "adjacent" and len(parts.view.nodes) < 4:
            raise RegistrationError(
                "adjacent puts neighbours of four sources or more together; take 'conditional' or 'auto'"
            )
        if computed not in COMPUTED_BY:
            raise RegistrationError(f"computed must be one of {', '.join(COMPUTED_BY)}, not {computed!r}")
        self.parts, self.view, self.name = parts, parts.view, parts.view.name
        self.strategy = strategy
        self.schema = _outputs(parts.view, parts.readers)
        self.grouping = grouping_of(self.view, self.schema) if self.view.aggregated else None
        self.store = ViewStore(parts.store, parts.folder, self.schema, self.grouping, parts.identity)
        self._graph = graph_of(self.view)
        self._chooser: Chooser | None = None
        self._choice: Choice | None = None
        self._refreshing = threading.Lock()
        self._pool = ThreadPoolExecutor(2 * len(self.view.nodes), thread_name_prefix=f"penstock-view-{self.name}")
        self.whole = Whole(self.view, parts.readers, self._pool, parts.on_spark, parts.machine, computed)
        self._timer: Timer | None = None
        self._error: str | None = None  # of the last refresh
        self._checked: float | None = None  # when a refresh last read the positions of its sources
        self._passed = 0  # refreshes since the last version that fetched changes
        self._seconds: float | None = None  # of the last version, with its installation

    def __repr__(self) -> str:
        return f"ViewHandle({self.name!r})"

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self) -> DataFrame:
        """The rows of the newest version, as a DataFrame that later refreshes do not change."""
        assert self.parts.to_frame is not None
        return self.parts.to_frame(self.to_arrow())

    def to_arrow(self) -> pa.Table:
        """The rows of the newest version, each as often as it occurs."""
        if not self.store.newest.number:
            raise PenstockError(f"view {self.name!r} was never computed; call refresh() first")
        rows = repeated(self.store.read()[0])
        if not self.view.aggregated:
            return rows.rename_columns([str(item.name) for item in self.view.items])
        return pa.table(
            [column(rows, item.expression, lambda ref: ref.column) for item in self.view.items],
            names=[str(item.name) for item in self.view.items],
        )

    def status(self) -> dict[str, Any]:
        """How fresh the view is, what the last refresh that changed it cost, and which plan it used.

        `age` are the seconds since a refresh last read the sources, whether anything had changed or not; `error` is why
        the last refresh failed, if it did.
        """
        version, timer = self.store.newest, self._timer
        last = dict(version.facts[-1]) if version.facts else None
        if last is not None and self._seconds is not None:
            last["seconds"] = self._seconds
        changed = None if last is None else last["at"]
        checked = changed if self._checked is None else self._checked
        files = [f for found in version.bags.values() for f in found]
        return {
            "name": self.name,
            "version": version.number,
            "changed_at": changed,
            "refreshed_at": checked,
            "age": None if checked is None else time.time() - checked,
            "marks": dict(version.marks),
            "files": len(files),
            "bytes": sum(f.bytes for f in files),
            "last": last,
            "strategy": self.strategy,
            "every": None if timer is None else timer.seconds,
            "error": self._error,
        }

    def explain(self) -> str:
        """The join graph, how the view is computed whole, and the plan of the last refresh with others' prices."""
        facts = self.store.newest.facts
        found = self.whole.first(facts) if len(self.view.nodes) > 1 else None
        lines = [*explain_graph(self.view), *explain_whole(self.view, facts, found)]
        if self._choice is not None:
            lines += [
                "last refresh:",
                *(f"  {line}" for line in self._choice.explain([n.alias for n in self.view.nodes]).splitlines()),
            ]
        return "\n".join(lines)

    # -- refreshing -------------------------------------------------------------------------------------------------

    def refresh(self, *, full: bool = False) -> dict[str, Any]:
        """Bring the view up to date, by its changes or (`full`) from its whole sources; returns the costs.

        Without changes that affect the view, nothing is written, or only the positions of its sources. If a source has
        lost changes, the view is recomputed, and `reason` says so.
        """
        try:
            facts = self._refresh(full=full)
        except Exception as error:
            self._error = str(error) or type(error).__name__
            raise
        self._error = None
        return facts

    def start(self, every: str | int = "1 second") -> ViewHandle:
        """Refresh again and again, each time so long after the last one began."""
        seconds = duration(every) / SECOND
        if seconds <= 0:
            raise RegistrationError(f"view {self.name!r}: every must be longer than nothing, not {every!r}")
        self.stop()
        self._timer = Timer(self.name, self.refresh, seconds)
        self._timer.start()
        return self

    def stop(self) -> None:
        """Refresh no more by itself."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.finish()

    def close(self) -> None:
        self.stop()
        self._pool.shutdown()

    def positions(self) -> dict[str, int]:
        """Up to which position of each source the view goes."""
        return {name: self.parts.readers[name].resume(mark) for name, mark in self.store.newest.marks.items()}

    # -- inside -----------------------------------------------------------------------------------------------------

    def _refresh(self, *, full: bool) -> dict[str, Any]:
        with self._refreshing:
            began, looked = time.perf_counter(), time.time()
            made = reason = None
            for reader in self.parts.readers.values() if full else ():
                if isinstance(reader, SnapshotReader):
                    reader.distrust()
            try:
                whole = full or not self.store.newest.number
                found, sizes, made = self._maintain() if not whole else (None, (), None)
            except ChangesLostError as lost:
                found, reason = None, f"{lost}; the view was recomputed"
            if found is None:
                self._choice = None
                found, sizes, made = self._compute()
            told = self._told(found)
            marks = {name: self.parts.readers[name].mark(position) for name, position in found.positions.items()}
            facts = self._facts(found, sizes, began, made)
            if not found.whole and not any(sizes):
                self._pass_over(found, marks, told)
                self._checked = looked
                return facts
            if reason is not None:
                facts["reason"] = reason
                warnings.warn(f"view {self.name!r}: {reason}", stacklevel=3)
            known = None if self._chooser is None else remembered(self._chooser.statistics)
            self.store.install(found.rows, marks, facts, whole=found.whole, told=told, learned=known)
            seconds = time.perf_counter() - began
            self._checked, self._seconds, self._passed = looked, seconds, 0
            self._learn(found, sizes, seconds)
        self.parts.settled()
        return {**facts, "seconds": seconds}

    def _compute(self) -> tuple[Refreshed, tuple[int, ...], Computed | None]:
        found, made = self.whole.compute(self.store.newest.facts)
        return found, tuple(0 for _ in self.view.nodes), made

    def _maintain(self) -> tuple[Refreshed, tuple[int, ...], Computed | None]:
        sizes: tuple[int, ...] = ()
        made: Computed | None = None

        def choose(changed: tuple[int, ...]) -> MaintenancePlan:
            nonlocal sizes
            sizes = changed
            if not any(changed) or len(self.view.nodes) == 1:
                return batch(self._graph)
            self._choice = self._prepared(changed).choose(changed)
            return self._choice.plan

        def recomputed(plan: MaintenancePlan) -> Refreshed:
            """As the first computation, if Spark is to make it."""
            nonlocal made
            rows = None if self._chooser is None else self._chooser.statistics.rows
            if not self.whole.for_spark(self.store.newest.facts, rows):
                return compute(self.view, self.parts.readers, self._pool, plan)
            found, _, made = self._compute()
            return replace(found, plan=plan)

        positions = self.positions()
        foreseen = self._chooser.foreseen() if self._chooser is not None else None
        if foreseen is not None and positions == self._now(sorted(positions)):
            foreseen = None  # without changes, fetching them is cheaper than a recompute
        self._choice = self._choice if foreseen is not None else None
        found = maintain(self.view, self.parts.readers, positions, choose, self._pool, foreseen, recomputed)
        return found, sizes, made

    def _pass_over(self, found: Refreshed, marks: Mapping[str, str], told: Told) -> None:
        """Changes that do not affect the view: once there are many, skip them, so that sources may drop them."""
        self._passed += found.fetched > 0
        if found.fetched <= _MANY_ROWS and self._passed < _MANY_TIMES:
            return
        self.store.install(found.rows, marks, told=told)
        self._passed = 0
        self.parts.settled()

    def _told(self, found: Refreshed) -> Told:
        """What sources reported up to these positions; refused if it includes the deletion of an absent row."""
        bags = self.store.newest.bags
        if not found.told.whole and any(bag not in bags for bag in found.told.coded):
            # A version from before such rows were counted.
            return all_told(telling(self.view, self.parts.readers), self.parts.readers, found.positions)
        if not found.told.whole:
            for bag, codes in found.told.coded.items():
                name = bag.removeprefix(PREFIX)
                refuse(self.parts.readers[name].source, found.told.rows[name], self.store.absent(bag, codes))
        return found.told

    def _now(self, names: Sequence[str]) -> dict[str, int]:
        return dict(zip(names, self._pool.map(lambda n: self.parts.readers[n].position(), names), strict=True))

    def _prepared(self, changed: Sequence[int]) -> Chooser:
        """The chooser, from what an earlier process learned, or what the first computation counted."""
        if self._chooser is None:
            counted = [fact for fact in self.store.newest.facts if fact.get("scanned")]
            rows = counted[-1]["scanned"] if counted else [100.0 * (size + 1) for size in changed]
            statistics = Statistics(
                tuple(float(r) for r in rows),
                tuple(len(self.view.columns(node)) for node in range(len(self.view.nodes))),
                {},
                recompute=counted[-1]["seconds"] if counted else None,
                connections=tuple(self.parts.readers[n.source].connections for n in self.view.nodes),
            )
            if self.store.newest.learned is not None:
                statistics = recalled(statistics, self.store.newest.learned)
            allowed = STRATEGIES if self.strategy == "auto" else (self.strategy,)
            self._chooser = Chooser(self._graph, statistics, allowed)
        return self._chooser

    def _learn(self, found: Refreshed, sizes: Sequence[int], seconds: float) -> None:
        if self._choice is not None and self._chooser is not None:
            self._chooser.learn(self._choice, sizes, found.samples, seconds)
        elif found.whole:
            chooser = self._prepared(sizes)
            chooser.statistics = learned(chooser.statistics, found.samples)

    def _facts(self, found: Refreshed, sizes: Sequence[int], began: float, made: Computed | None) -> dict[str, Any]:
        """What is stored about a refresh; its seconds exclude the writing of the facts themselves."""
        facts: dict[str, Any] = {
            "at": time.time(),
            "strategy": found.plan.strategy,
            "changed": list(sizes),
            "rows": found.rows.num_rows,
            "requests": found.requests,
            "physical": found.physical,
            "rounds": found.plan.rounds,
            "seconds": time.perf_counter() - began,
        }
        if found.whole and found.samples:  # a database that computed it by itself has no samples
            scanned = {sample.node: sample.rows for sample in found.samples}
            facts["scanned"] = [scanned.get(node, 0) for node in range(len(self.view.nodes))]
        return facts if made is None else {**facts, **made.facts}


def _outputs(view: View, readers: Mapping[str, LiveReader]) -> pa.Schema:
    """The types of the joined rows, from evaluating their expressions over no rows."""
    fields = []
    empty = {}
    for number, node in enumerate(view.nodes):
        source = readers[node.source].source
        for field in schema_of(source.name, source.columns):
            empty[f"{number}.{field.name}"] = pa.array([], field.type)
    table = pa.table(empty)
    for name, expression in view.outputs:
        fields.append(pa.field(name, column(table, expression, lambda ref: f"{ref.role}.{ref.column}").type))
    return pa.schema(fields)
