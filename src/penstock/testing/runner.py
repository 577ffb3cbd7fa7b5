"""Runs a scenario on the engine in one process and on the model beside it, and reports differences.

A process that dies is followed by another one, which finds the store as the dead one left it, and the rows at the
source.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from penstock.catalog.choices import Choices
from penstock.catalog.lineage import complete_from
from penstock.errors import PenstockError
from penstock.model.memory import Limits
from penstock.model.time import NEVER, SECOND
from penstock.planner.network import Network
from penstock.planner.reached import Closing, as_answered
from penstock.state.manifest import Manifest
from penstock.state.orphans import FOLDERS, collect_orphans
from penstock.state.owed import Owed, numbers_in, ranges_of
from penstock.state.tiers import Tiers
from penstock.step.owing import Chosen
from penstock.step.stepper import Stepper
from penstock.storage.crash_points import POINTS, watched
from penstock.storage.faulty import NONE, Died, Faults, FaultyStore
from penstock.storage.local import LocalStore
from penstock.storage.store import Store
from penstock.testing.engine import Engine, tuples
from penstock.testing.executor import Manner
from penstock.testing.model import Bag, Judged, Life, Model, alike, bag, parsed_once, same
from penstock.testing.queries import EARLY, OVER, SLOW, UNLIMITED
from penstock.testing.scenario import (
    Add,
    Advance,
    Batch,
    CleanUp,
    Delay,
    Drop,
    Event,
    Fault,
    Options,
    Pressure,
    Restart,
    Scenario,
    SinkFails,
    Tick,
    Wait,
)
from penstock.testing.source import HandedOver
from penstock.testing.stores import MEMORY, STORES

FAILING = ("error", "unclear")  # faults that the process survives, but that end its run
SHARE_FAILING = 0.05  # of the operations of a store that fails


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
class Story:
    """A scenario in execution."""

    scenario: Scenario
    store: FaultyStore = field(init=False)
    engine: Engine = field(init=False)
    model: Model = field(init=False)
    sinks: dict[str, list[Sink]] = field(default_factory=dict)  # by query: one for each engine that has delivered
    frozen: dict[str, Bag] = field(default_factory=dict)  # answers of ended lives, by name
    known: dict[str, Add] = field(default_factory=dict)  # the live queries
    fault: Fault | None = None
    tasks: int = 1
    pressure: float = 0.0  # the share of probes that batches put off
    progress: dict[str, int] = field(default_factory=dict)
    clock: float = 0.0
    came: dict[str, float] = field(default_factory=dict)  # by stream the clock of its last rows, or of the last start
    steps: list[tuple[int, int]] = field(default_factory=list)  # after each event: the last step, and all batches
    numbers: dict[str, int] = field(default_factory=dict)  # of the live queries, by name
    # Queries that another number of tasks has taken over: where these shared a window unevenly, it is given whole.
    uneven: set[str] = field(default_factory=set)
    given: dict[str, int] = field(default_factory=dict)  # results of queries that give them slowly
    early: int = 0  # steps with early results
    cells: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # kind of query, fault, strategy

    def __post_init__(self) -> None:
        self.chance = random.Random(self.scenario.seed)
        self.model = Model({s.name: Judged(s) for s in self.scenario.streams})
        self.tasks = self.scenario.options.tasks
        self.source = HandedOver()
        self.beginning: list[Add] = []

    def tell(self) -> None:
        """All events, and the end of the streams. Raises the first violation."""
        folders = any(query.folder for query in self.scenario.queries)
        with constants(self.scenario.options), TemporaryDirectory() if folders else nullcontext() as self.folder:
            self.store = FaultyStore(self._inner(), self.chance)
            self._open(self.scenario.events)
            for event in self.scenario.events:
                if isinstance(event, Fault):
                    self.fault = event
                else:
                    self._happen(event)
            self.fault = None
            self._end()

    def _inner(self) -> Store:
        """The store under its faults. Folders get links to files on a disk, and copies of objects."""
        kind = self.scenario.options.store
        if kind == MEMORY and self.folder is not None:
            return LocalStore(f"{self.folder}/state", durable=False)
        return STORES[kind]()

    # -- events -------------------------------------------------------------------------------------------------------

    def _happen(self, event: Event) -> None:
        """Execute an event, even if the engine dies of it: then another one continues, and the event is completed."""
        self.beginning = [event] if isinstance(event, Add) else []
        match event:
            case Batch(rows):
                self.source.given.append(rows)
            case SinkFails(query, times):
                if query in self.sinks:
                    self.sinks[query][-1].failing = times
                return
            case Wait(seconds):
                self.clock += seconds
                return
            case Pressure(share):
                self.pressure = share
                return
        if not self._tried(lambda: self._do(event)):
            self._tried(lambda: self._do(event))
        self._learn(event)
        self._check_counts()
        self._check_slow()
        if isinstance(event, Tick):
            self._check_clock()
        self.steps.append((self.engine.manifest.step, self.model.batches))

    def _tried(self, work: Callable[[], None]) -> bool:
        """Do something under the pending fault; False if the engine has died of it, and another one has begun."""
        fault, self.fault = self.fault, None
        try:
            with self._failing(fault):
                work()
        except (Died, OSError, PenstockError) as error:
            failing = fault is not None and fault.kind in FAILING
            if fault is None or not (failing or isinstance(error, Died)):
                raise
        else:
            if fault is None or not self.store.dead:  # it is dead even if the death was taken for an error of a sink
                return True
        kinds = {query.kind for query in (*self.known.values(), *self.beginning)}
        self.cells.update((kind, fault.kind, self.scenario.options.strategy) for kind in kinds)
        self._reopen(power=fault.kind == "power")
        return False

    @contextmanager
    def _failing(self, fault: Fault | None) -> Iterator[None]:
        """Let it happen inside. Afterwards the store works as before."""
        store = self.store
        with ExitStack() as stack:
            if fault is not None and fault.kind in POINTS:
                stack.enter_context(watched(self._dying(fault.kind)))
            elif fault is not None:
                share = SHARE_FAILING
                store.faults = {
                    "operation": Faults(dies_at=len(store.changes) + 1 + fault.at),
                    "power": Faults(dies_at=len(store.changes) + 1 + fault.at),
                    "error": Faults(fails=share),
                    "unclear": Faults(unclear=4 * share),
                }[fault.kind]
            try:
                yield
            finally:
                store.faults = NONE

    def _dying(self, wanted: str) -> Callable[[str, int], None]:
        def at(point: str, _step: int) -> None:
            if point == wanted:
                self.store.die()
                raise Died

        return at

    def _do(self, event: Event) -> None:
        """The request to the engine; a repeated one does what is left of it."""
        engine = self.engine
        match event:
            case Batch():
                if engine.run is not None:
                    engine.run.stepper.put_off = some_buckets(self.chance, self.pressure, engine.run.stepper)
                    engine.run.take_planned()
            case CleanUp(share):
                if engine.run is not None:
                    engine.run.stepper.clean_up(some_owed(self.chance, share, engine.manifest.owed))
            case Tick():
                engine.tick()
            case Advance(stream, to):
                engine.advance(stream, to)
            case Delay(stream, delay):
                engine.alter_stream(replace(engine.catalog.streams[stream], delay=delay))
            case Add():
                live = engine.catalog.registry.find(event.name)
                if live is None or live.sql != event.sql:
                    self._register(event)
            case Drop(name):
                if engine.catalog.registry.find(name) is not None:
                    engine.drop(name)
            case Restart(tasks, crash):
                self.uneven |= {*self.known} if tasks != self.tasks else set()
                self.tasks = tasks
                if not crash:
                    engine.stop()
                self._reopen()

    def _register(self, query: Add) -> None:
        options = {} if query.flush is None else {"flush": query.flush}
        into: Sink | str | None = self._sink(query.name) if query.sink else None
        if query.folder:
            into = self._path(query.name)
        self.engine.query(query.sql, name=query.name, into=into, replace=query.replace, start=query.start, **options)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _sink(self, name: str) -> Sink:
        self.sinks.setdefault(name, []).append(Sink())
        return self.sinks[name][-1]

    def _learn(self, event: Event) -> None:
        """Let the model do the same."""
        model = self.model
        match event:
            case Batch(rows):
                model.take(rows)
                self.came.update(dict.fromkeys((name for name, own in rows.items() if own), self.clock))
            case Advance(stream, to):
                model.streams[stream].move([to])
            case Delay(stream, delay):
                judged = model.streams[stream]
                judged.stream = replace(judged.stream, delay=delay)
                judged.move()
            case Add():
                self._freeze(event.name)
                model.begin(event.name, event.sql, event.kind, event.start)
                self.known[event.name] = event
                self.numbers[event.name] = self.engine.catalog.record(event.name).id
                self.given.pop(event.name, None)
                self.uneven.discard(event.name)
            case Drop(name):
                self._freeze(name)
                model.end(name)
                del self.known[name]

    # -- engines ------------------------------------------------------------------------------------------------------

    def _open(self, first: tuple[Event, ...]) -> None:
        """The first engine, with the queries that precede all events."""
        self._declare(self.model.declared.values())
        for event in first:
            if not isinstance(event, Add) or event.replace:
                break
            self._register(event)
        self.engine.start()

    def _declare(self, streams: object) -> None:
        options = self.scenario.options
        choices = Choices(options.strategy, options.chain, options.orders, None, options.plan)
        manner = Manner(options.mappers, options.retried, options.shuffled)
        self.engine = Engine(
            self.store, source=self.source, tasks=self.tasks, choices=choices, expire_every=options.expire_every,
            manner=manner, limits=self._limits(),
            chance=self.chance, clock=lambda: self.clock,
        )  # fmt: skip
        self.came = dict.fromkeys(self.model.streams, self.clock)
        for stream in streams:  # type: ignore[attr-defined]
            self.engine.stream(stream)

    def _limits(self) -> Limits | None:
        """Not every engine on a state need be limited."""
        memory = self.scenario.options.memory
        return Limits.of(memory, memory) if memory and self.chance.random() < 0.8 else None

    def _reopen(self, *, power: bool = False) -> None:
        """The process has died, and another one begins on its store."""
        self.store = self.store.restarted(power_cut=power)
        self._declare(())
        for stream in list(self.engine.catalog.streams.values()) or self.model.declared.values():
            self.engine.stream(stream)
        for query in (*self.known.values(), *self.beginning):
            live = self.engine.catalog.registry.find(query.name)
            if query.sink and live is not None and live.sql == query.sql:
                self._register(replace(query, replace=False))
        self.engine.start()
        self._check_files()

    def _end(self) -> None:
        self.engine.stop(final=True)
        for name in self.model.lives:
            self._check_answer(name)
        self._check_counts(final=True)
        self._check_files()
        if self.engine.manifest.runs:
            raise Wrong(f"state is left behind the end: {[r.table for r in self.engine.manifest.runs.values()]}")
        self._check_owed()
        self._check_sinks()

    # -- invariants ---------------------------------------------------------------------------------------------------

    def _freeze(self, name: str) -> None:
        """A query ends, or is replaced: its answer so far is final."""
        if name in self.known:
            self.frozen[name] = self._check_answer(name, self._closed())

    def _closed(self) -> dict[str, int]:
        """The times up to which windows that wait for progress are closed."""
        reached = self.engine.manifest.reached()
        return {name: reached.get(Closing(name), NEVER) for name in self.model.streams}

    def _check_all(self) -> None:
        """The answers so far of all live queries."""
        for name in self.known:
            self._check_answer(name, self._closed())

    def _check_answer(self, name: str, closed: Mapping[str, int] | None = None) -> Bag:
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
        """Each early result is what its window held after the step that has shown it."""
        by_step: dict[int, Bag] = {}
        for row, count in found.items():
            if not row[-1]:
                by_step.setdefault(row[-2], Bag())[row[:-2]] += count  # type: ignore[arg-type]
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

    def _check_counts(self, *, final: bool = False) -> None:
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

    def _check_clock(self) -> None:
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

    def _check_slow(self) -> None:
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

    def _check_files(self) -> None:
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

    def _check_owed(self) -> None:
        """Nothing is owed any more, and every probe that was put off has been run once."""
        manifest = self.engine.manifest
        if manifest.owed:
            raise Wrong(f"probes are owed behind the end: {manifest.owed}")
        for name, counts in manifest.counters.tables.items():
            if counts.deferred != counts.cleaned:
                raise Wrong(f"table {name}: {counts.deferred} probes were put off, and {counts.cleaned} cleaned up")

    def _check_sinks(self) -> None:
        """Each result was delivered, and repeated deliveries were equal."""
        for name, sinks in self.sinks.items():
            steps: dict[int, list[tuple[object, ...]]] = {}
            for sink in sinks:
                steps |= sink.steps
            self._check_delivered(name, bag(row for rows in steps.values() for row in rows))
        for name in {query.name for query in self.scenario.queries if query.folder}:
            files = sorted(Path(self._path(name)).glob("part-*.parquet"))
            self._check_delivered(name, bag(row for file in files for row in tuples(pq.read_table(file))))

    def _check_delivered(self, name: str, got: Bag) -> None:
        assert self.engine.ended is not None
        owed = [s.name for s in self.engine.ended.delivery.sinks if s.error is not None]
        wanted = bag(self.engine.results(name))
        missing, extra = wanted - got, got - wanted
        if (extra or (missing and not owed and name in self.known)) and not same(missing, extra):
            raise Wrong(f"the sink of query {name} misses {_few(missing)} and has {_few(extra)} too many")


@contextmanager
def constants(options: Options) -> Iterator[None]:
    """Intervals of the engine's periodic work."""
    with ExitStack() as stack:
        for name, value in {
            "penstock.state.compaction.FAN_IN": options.fan_in,
            "penstock.state.registry.BUCKETS": options.buckets,
            "penstock.state.manifest.SNAPSHOT_EVERY": options.snapshots,
            "penstock.results.retention.UPKEEP_EVERY": options.upkeep,
            "penstock.results.retention.FIRST_UPKEEP": min(options.upkeep, 7),
            "penstock.results.retention.MANY_FILES": 2 if options.upkeep < 7 else 64,
            "penstock.results.delivery.FIRST_RETRY": 0.0,
            "penstock.kernels.walk.LEAST_PAIRS": 1,
            "penstock.kernels.streamed.COLD_BLOCK": 1 << 8,
            "penstock.state.tiers.EVERY": 2,
            "penstock.catalog.compiled.parse_query": parsed_once,
            "penstock.catalog.check_query.parse_query": parsed_once,
        }.items():
            stack.enter_context(patch(name, value))
        if options.cold >= 0:
            stack.enter_context(patch("penstock.step.stepper.choose_tiers", partial(_at_random, options.cold)))
        yield


def _at_random(share: float, tiers: Tiers, network: Network, manifest: Manifest, hot: int) -> Tiers:  # noqa: ARG001
    """Tiers that nobody would choose: answers do not depend on them."""
    chance = random.Random(manifest.step)
    ages = ((table.name, age) for table in network.tables for age in range(64))
    return replace(tiers, cold=frozenset(age for age in ages if chance.random() < share))


def some_buckets(chance: random.Random, share: float, stepper: Stepper) -> Chosen:
    """For each state table about this share of its buckets, or none."""
    count = stepper.registry.buckets
    tables = [t.name for t in stepper.network.tables] if share else []
    return Chosen({name: ranges_of([b for b in range(count) if chance.random() < share]) for name in tables})


def some_owed(chance: random.Random, share: float, owed: Sequence[Owed]) -> tuple[Owed, ...]:
    """Parts of what is owed: some steps of some entries, and some of their buckets."""
    found = []
    for own in owed:
        buckets = ranges_of([b for b in sorted(numbers_in(own.buckets)) if chance.random() < share])
        first = chance.randint(own.first, own.last) if chance.random() < 0.5 else own.first
        if buckets and chance.random() < 0.8:
            found.append(structs.replace(own, first=first, last=chance.randint(first, own.last), buckets=buckets))
    chance.shuffle(found)
    return tuple(found)


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
