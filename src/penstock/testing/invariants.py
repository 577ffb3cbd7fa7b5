"""What must hold of a scenario while it happens and after it: answers, counts, progress, files, deliveries.

Answers are compared with the model's. Progress by the clock is the engine's, as far as the clock allows it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.catalog.lineage import complete_from
from penstock.model.time import NEVER, SECOND
from penstock.planner.reached import Closing, as_answered
from penstock.state.orphans import FOLDERS, collect_orphans
from penstock.storage.faulty import FaultyStore
from penstock.testing.engine import Engine, tuples
from penstock.testing.model import Bag, Judged, Life, Model, alike, bag, same
from penstock.testing.queries import EARLY, OVER, SLOW, UNLIMITED
from penstock.testing.scenario import Add, Scenario


class Wrong(AssertionError):  # noqa: N818  (an assertion)
    """The engine has violated its specification."""


@dataclass
class Sink:
    """The delivered results of a query, by step: repeated deliveries must be equal."""

    steps: dict[int, list[tuple[object, ...]]] = field(default_factory=dict)
    failing: int = 0

    def __call__(self, table: pa.Table, step: int) -> None:
        if self.failing:
            self.failing -= 1
            self.steps.pop(step, None)
            raise ConnectionError("the sink does not answer")
        self.steps.setdefault(step, []).extend(tuples(table))


@dataclass
class Told:
    """A scenario so far, with what the engine and the model know of it."""

    scenario: Scenario
    store: FaultyStore = field(init=False)
    engine: Engine = field(init=False)
    model: Model = field(init=False)
    sinks: dict[str, list[Sink]] = field(default_factory=dict)  # by query: one for each engine that has delivered
    frozen: dict[str, Bag] = field(default_factory=dict)  # answers of ended lives, by name
    known: dict[str, Add] = field(default_factory=dict)  # the live queries
    progress: dict[str, int] = field(default_factory=dict)
    clock: float = 0.0
    came: dict[str, float] = field(default_factory=dict)  # by stream the clock of its last rows, or of the last start
    steps: list[tuple[int, int]] = field(default_factory=list)  # after each event: the last step, and all batches
    numbers: dict[str, int] = field(default_factory=dict)  # of the live queries, by name
    # Queries that another number of tasks has taken over: where these shared a window unevenly, it is given whole.
    uneven: set[str] = field(default_factory=set)
    given: dict[str, int] = field(default_factory=dict)  # results of queries that give them slowly
    early: int = 0  # steps with early results
    folder: str | None = None  # where folders are that get results

    def path_of(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def closed(self) -> dict[str, int]:
        """The times up to which windows that wait for progress are closed."""
        reached = self.engine.manifest.reached()
        return {name: reached.get(Closing(name), NEVER) for name in self.model.streams}

    def check_answer(self, name: str, closed: Mapping[str, int] | None = None) -> Bag:
        """A query's answer is the model's, with windows closed up to these times; by default at the end."""
        whole, life = bag(self.engine.results(name)), self.model.lives[name][-1]
        found, before = whole, self.frozen.get(name, Bag())
        if life.kind == EARLY:
            self._check_early(name, life, whole - before)
            found, before = _final(whole), _final(before)
        if life.end is not None:
            self._compare(name, life, found, before, before)
        elif life.start == "state":
            record = self.engine.catalog.record(name)
            least, most = self.model.between(life, complete_from(self.engine.catalog.registry, record))
            self._compare(name, life, found, before + bag(least), before + bag(most))
        elif life.kind == OVER or (closed is not None and life.kind == "over a join"):
            if closed is None:
                above = before + bag(self.model.above(life))
                self._compare(name, life, found, above, above)
        else:
            known = before + bag(self.model.answer(life, closed))
            # Punctuations may have ended single groups earlier; their windows are already final.
            ahead = closed is not None and any(judged.closed for judged in self.model.streams.values())
            out = before + bag(self.model.answer(life, self._let_out(name))) if closed and life.kind == SLOW else known
            self._compare(name, life, found, out, before + bag(self.model.answer(life)) if ahead else known)
        return whole

    def _let_out(self, name: str) -> dict[str, int]:
        """The times up to which all results of a query are let out, if they are let out slowly."""
        reached = as_answered(self.engine.manifest.reached(), self.numbers[name])
        return {stream: reached.get(Closing(stream), NEVER) for stream in self.model.streams}

    def _check_early(self, name: str, life: Life, found: Bag) -> None:
        """Each early result is what its window, which was open, held after the step that has shown it."""
        by_step: dict[int, Bag] = {}
        closed = {end: step for _, end, *_, step, final in found if final}
        for row, count in found.items():
            _, end, *_, step, final = row
            if not final:
                by_step.setdefault(step, Bag())[row[:-2]] += count  # type: ignore[arg-type]
                if end in closed and step >= closed[end]:  # type: ignore[operator]
                    raise Wrong(f"query {name} has shown early in step {step} what it has closed: {row}")
        self.early += len(by_step)
        held: dict[int, Bag] = {}
        for step, shown in by_step.items():
            place = bisect_left(self.steps, (step, 0))
            # Within one event, steps may come before the rows of its batch, and after them.
            batches = {self.steps[place - 1][1] if place else 0, *(own for _, own in self.steps[place : place + 1])}
            for number in batches | ({self.model.batches} if place == len(self.steps) else set()):
                if number not in held:
                    held[number] = bag(self.model.so_far(life, number))
                if not (extra := shown - held[number]) or alike(extra, held[number] - shown):
                    break
            else:
                raise Wrong(f"query {name} has shown early in step {step} what no window held: {_few(extra)}")

    def _compare(self, name: str, life: Life, found: Bag, least: Bag, most: Bag) -> None:
        missing, extra = least - found, found - most
        if (missing or extra) and not same(missing, extra):
            raise Wrong(f"query {name} ({life.kind}) misses {_few(missing)} and has {_few(extra)} too many: {life.sql}")

    def check_counts(self, *, final: bool = False) -> None:
        """Every row is accounted for; progress follows from the rows, and never falls."""
        manifest = self.engine.manifest
        for name, judged in self.model.streams.items():
            counts = manifest.counters.stream(name)
            told = Counter({k: getattr(counts, k) for k in ("rows", "accepted", "late", "bad", "punctuations")})
            if told != judged.counts or told["rows"] != told.total() - told["rows"]:
                raise Wrong(f"stream {name}: the engine has counted {dict(told)}, and the model {dict(judged.counts)}")
            found = manifest.progress.get(name)
            value = NEVER if found is None else found.value
            if value < self.progress.get(name, NEVER):
                raise Wrong(f"stream {name}: progress fell from {self.progress[name]} to {value}")
            if not (final or value == judged.progress or self._follows_clock(judged, value)):
                raise Wrong(f"stream {name}: progress is {value}, and by the model {judged.progress}")
            self.progress[name] = value

    def _follows_clock(self, judged: Judged, value: int) -> bool:
        if judged.by_clock is None:
            return False
        read = self.engine.layout
        others = [p.value for n, p in self.engine.manifest.progress.items() if n != judged.stream.name and n in read]
        return judged.follow(value, int(self.clock * SECOND), others)

    def check_clock(self) -> None:
        """After a tick the progress of a silent stream follows the clock, if its times are those of the clock."""
        now = int(self.clock * SECOND)
        for name, judged in self.model.streams.items():
            length, stream = judged.by_clock, judged.stream
            if length is None or name not in self.engine.layout or now - self.came[name] * SECOND < length:
                continue
            if judged.newest > NEVER and now - judged.newest > stream.idle_skew:
                continue
            if judged.progress <= now - length - SECOND:
                raise Wrong(f"stream {name} is silent, and its progress {judged.progress} is behind the clock {now}")

    def check_slow(self) -> None:
        """No step gives more results than allowed, of a query whose results may be late without end."""
        manifest = self.engine.manifest
        steps = manifest.step - (self.steps[-1][0] if self.steps else -1)
        for name, query in self.known.items():
            if query.flush is None or query.flush[1] < UNLIMITED or name in self.uneven:
                continue
            count = manifest.counters.query(self.numbers[name]).results
            if count - self.given.get(name, 0) > steps * query.flush[0]:
                raise Wrong(f"query {name} has given {count - self.given.get(name, 0)} results in {steps} steps")
            self.given[name] = count

    def check_files(self) -> None:
        """No name without a file; and unnamed files are deleted when they are old enough."""
        manifest = self.engine.manifest
        named = {run.name: run.bytes for run in manifest.runs.values()}
        named |= {file.name: file.bytes for file in manifest.results.values()}
        named |= {side.name: side.bytes for side in manifest.sides}
        for name, size in named.items():
            if not self.store.exists(name) or self.store.size(name) != size:
                raise Wrong(f"{name} is named by the manifest, and is not there as it was written")
        collect_orphans(self.store, manifest, grace=0)
        there = {f"{folder}/{file}" for folder in FOLDERS for file in self.store.names(folder)}
        left = [name for name in there - named.keys() if int(name.partition("/")[2].partition("-")[0]) <= manifest.step]
        if left:
            raise Wrong(f"{left[0]} has no name and stays")

    def check_nothing_is_left(self) -> None:
        """At the end there is no state, nothing is owed, and every probe that was put off has been run once."""
        manifest = self.engine.manifest
        if manifest.runs:
            raise Wrong(f"state is left behind the end: {[run.table for run in manifest.runs.values()]}")
        if manifest.owed:
            raise Wrong(f"probes are owed behind the end: {manifest.owed}")
        for name, counts in manifest.counters.tables.items():
            if counts.deferred != counts.cleaned:
                raise Wrong(f"table {name}: {counts.deferred} probes were put off, and {counts.cleaned} cleaned up")

    def check_sinks(self) -> None:
        """Each result was delivered, and repeated deliveries were equal."""
        for name, sinks in self.sinks.items():
            steps: dict[int, list[tuple[object, ...]]] = {}
            for sink in sinks:
                steps |= sink.steps
            self._check_delivered(name, bag(row for rows in steps.values() for row in rows))
        for name in {query.name for query in self.scenario.queries if query.folder}:
            files = sorted(Path(self.path_of(name)).glob("part-*.parquet"))
            self._check_delivered(name, bag(row for file in files for row in tuples(pq.read_table(file))))

    def _check_delivered(self, name: str, got: Bag) -> None:
        assert self.engine.ended is not None
        owed = [s.name for s in self.engine.ended.delivery.sinks if s.error is not None]
        wanted = bag(self.engine.results(name))
        missing, extra = wanted - got, got - wanted
        if (extra or (missing and not owed and name in self.known)) and not same(missing, extra):
            raise Wrong(f"the sink of query {name} misses {_few(missing)} and has {_few(extra)} too many")


def _final(rows: Bag) -> Bag:
    """The final ones among early and final results, without what tells them apart."""
    found = Bag()
    for row, count in rows.items():
        if row[-1]:
            found[row[:-2]] += count
    return found


def _few(rows: Bag) -> str:
    shown = [f"{row} x {count}" for row, count in list(rows.items())[:3]]
    return f"{rows.total()} row(s) [{', '.join(shown)}{', ..' if len(rows) > 3 else ''}]"
