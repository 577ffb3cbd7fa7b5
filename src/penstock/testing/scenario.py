"""A scenario: streams, and events in order, as plain data, so that it can be repeated and reduced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model import Stream
from penstock.reference import Row


@dataclass(frozen=True)
class Batch:
    """Rows arrive, by stream."""

    rows: Mapping[str, tuple[Row, ...]]


@dataclass(frozen=True)
class Tick:
    """No rows arrive, and the engine checks whether there is something to do."""


@dataclass(frozen=True)
class Wait:
    """The clock goes on by some seconds."""

    seconds: int


@dataclass(frozen=True)
class Advance:
    """A declaration that no later row of a stream has a time below this."""

    stream: str
    to: int


@dataclass(frozen=True)
class Delay:
    """A stream gets another delay."""

    stream: str
    delay: int


@dataclass(frozen=True)
class Add:
    """A query begins, or replaces the one of that name. `kind` is its kind.

    Its results are delivered to a function (`sink`), or to a `folder`. `flush` limits the results of a step.
    """

    name: str
    sql: str
    kind: str
    start: str = "now"
    replace: bool = False
    sink: bool = False
    folder: bool = False
    flush: tuple[int, int] | None = None


@dataclass(frozen=True)
class Drop:
    """A query ends."""

    name: str


@dataclass(frozen=True)
class Restart:
    """The engine ends, abruptly or in order, and another one continues, with that many tasks."""

    tasks: int
    crash: bool = False


@dataclass(frozen=True)
class SinkFails:
    """The next deliveries to a query's sink fail."""

    query: str
    times: int


@dataclass(frozen=True)
class Pressure:
    """From now on each batch puts off about this share of its probes, by bucket."""

    share: float


@dataclass(frozen=True)
class CleanUp:
    """About this share of the owed probes is run, any of them."""

    share: float


@dataclass(frozen=True)
class Fault:
    """A fault during the next event: the process dies at a named point or store operation, or an operation fails.

    `kind` is a named point, 'operation' (dies there), 'error' (fails), 'unclear' (a put succeeds, and reports failure),
    or 'power' (dies, and loses what was not synced).
    """

    kind: str
    at: int = 0


Event = Batch | Tick | Wait | Advance | Delay | Add | Drop | Restart | SinkFails | Pressure | CleanUp | Fault


@dataclass(frozen=True)
class Options:
    """The configuration of the engine, which must not affect any answer."""

    strategy: str = "auto"
    chain: str = "auto"
    orders: str = "adaptive"
    plan: str = "auto"
    tasks: int = 1
    mappers: int = 0
    buckets: int = 256
    retried: float = 0.0
    shuffled: bool = False
    maps: bool = False
    balance: str = "auto"
    fan_in: int = 4
    upkeep: int = 64
    snapshots: int = 64
    expire_every: int = 1
    memory: int = 0  # bytes for the work of a task; 0: unlimited
    cold: float = -1.0  # the share of ages that are cold, at random; below 0: those that the engine chooses
    store: str = "memory"


@dataclass(frozen=True)
class Scenario:
    """A story with the same answers from engine and model; `seed` identifies it, and decides what is left open."""

    seed: int
    streams: tuple[Stream, ...]
    options: Options
    events: tuple[Event, ...] = field(default=())

    @property
    def rows(self) -> int:
        return sum(len(own) for event in self.events if isinstance(event, Batch) for own in event.rows.values())

    @property
    def queries(self) -> list[Add]:
        return [event for event in self.events if isinstance(event, Add)]

    @property
    def faults(self) -> list[Fault]:
        return [event for event in self.events if isinstance(event, Fault)]

    def __str__(self) -> str:
        """The statements and steps that repeat it."""
        return "\n".join(
            [f"-- scenario {self.seed}: {self.options}", *map(repr, self.streams), *(_line(e) for e in self.events)]
        )


def _line(event: Event) -> str:
    match event:
        case Add(name, sql, _, start, replaced):
            word = "CREATE OR REPLACE" if replaced else "CREATE"
            more = [f"to a {kind}" for kind, wanted in (("function", event.sink), ("folder", event.folder)) if wanted]
            more += [f"flush={event.flush}"] if event.flush is not None else []
            told = f"  -- {', '.join(more)}" if more else ""
            return f"{word} QUERY {name}{' FROM STATE' if start == 'state' else ''} AS {sql};{told}"
        case Drop(name):
            return f"DROP QUERY {name};"
        case Batch(rows):
            shown = [f"    {name}: {row}" for name, own in rows.items() for row in own]
            return "\n".join(["-- batch", *shown])
    return f"-- {event}"
