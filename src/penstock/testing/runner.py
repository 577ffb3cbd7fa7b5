"""Runs a scenario on the engine in one process and on the model beside it, and reports differences.

A process that dies is followed by another one, which finds the store as the dead one left it, and the rows at the
source.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory

from penstock.catalog.choices import Choices
from penstock.errors import PenstockError
from penstock.model.memory import Limits
from penstock.state.balance.decision import Parameters as Balancing
from penstock.storage.crash_points import POINTS, watched
from penstock.storage.faulty import NONE, Died, Faults, FaultyStore
from penstock.storage.local import LocalStore
from penstock.storage.store import Store
from penstock.testing.engine import Engine
from penstock.testing.executor import Manner
from penstock.testing.invariants import Sink, Told
from penstock.testing.model import Judged, Model
from penstock.testing.scenario import (
    Add,
    Advance,
    Batch,
    CleanUp,
    Delay,
    Drop,
    Event,
    Fault,
    Pressure,
    Restart,
    SinkFails,
    Tick,
    Wait,
)
from penstock.testing.settings import constants, some_buckets, some_owed
from penstock.testing.source import HandedOver
from penstock.testing.stores import MEMORY, STORES

FAILING = ("error", "unclear")  # faults that the process survives, but that end its run
SHARE_FAILING = 0.05  # of the operations of a store that fails


@dataclass
class Story(Told):
    """A scenario in execution."""

    fault: Fault | None = None
    tasks: int = 1
    pressure: float = 0.0  # the share of probes that batches put off
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
        self.check_counts()
        self.check_slow()
        if isinstance(event, Tick):
            self.check_clock()
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
            into = self.path_of(query.name)
        self.engine.query(query.sql, name=query.name, into=into, replace=query.replace, start=query.start, **options)

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
        eager = Balancing(theta_r=1.0, tau_m=1e-9, least=1e-12)  # a new map with almost every step
        choices = Choices(
            options.strategy, options.chain, options.orders, None, options.plan, options.balance, eager
        )  # fmt: skip
        manner = Manner(options.mappers, options.retried, options.shuffled, options.maps)
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
        self.check_files()

    def _end(self) -> None:
        self.engine.stop(final=True)
        for name in self.model.lives:
            self.check_answer(name)
        self.check_counts(final=True)
        self.check_files()
        self.check_nothing_is_left()
        self.check_sinks()

    # -- invariants ---------------------------------------------------------------------------------------------------

    def _freeze(self, name: str) -> None:
        """A query ends, or is replaced: its answer so far is final."""
        if name in self.known:
            self.frozen[name] = self.check_answer(name, self.closed())
