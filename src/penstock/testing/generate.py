"""Random scenarios, reproducible from a seed: streams, disorder, changing queries, restarts, crashes, faults."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from penstock.model import Column, Stream
from penstock.model.time import DAY, LATEST, SECOND
from penstock.planner.build import STRATEGIES
from penstock.reference import Row
from penstock.storage.crash_points import POINTS
from penstock.testing.queries import (
    COLUMNS,
    FROM_STATE,
    IN_STEP,
    KINDS,
    LATER,
    LENGTHS,
    LISTED,
    OVER,
    PUNCTUATION,
    SEQUENCE,
    SLOW,
    TIME,
    UNLIMITED,
    VALUES,
    Draw,
    over_query,
    stream_columns,
)
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

FAULTS = (*POINTS, "operation", "power", "error", "unclear")
LINKED = "after_link"  # which only folders reach
FOLDERS = 0.08  # of all scenarios have sinks that are folders, which cost most
BATCHES = (6, 6, 6, 6, 7, 8)
TASKS = (1, 1, 1, 1, 1, 1, 2, 2, 3, 4)
KEYS = (4, 8, 8, 16)
RARE_KEYS = (None, -1, 2**53 + 1, 2**63 - 1, -(2**63))
_LENGTH = re.compile(r"\[(RANGE|TUMBLING|ROWS|SESSION) (\d+)")
LARGE = (
    "join of 4",
    "key classes",
    "no equality",
    "ROWS join",
)  # of which results, or the reference's work, grow fast: few rows


def scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    chance = random.Random(seed)
    streams = _streams(chance)
    draw = Draw(chance, streams)
    start = _first_queries(draw)
    few = any(query.kind in LARGE for query in start)
    rows = _Rows(chance, streams, chance.choice(KEYS[1:] if few else KEYS))
    events: list[Event] = [*start]
    known = {query.name: query for query in start}
    batches = chance.choice(BATCHES)
    total = chance.choice((190, 230, 250, 260) if few else (160, 240, 255, 270, 310))
    restart = chance.randrange(2, batches)
    for number in range(batches):
        for _ in range(chance.choice((0, 0, 1))):
            events += _between(draw, known, number)
        if number == restart or chance.random() < 0.03:
            events.append(Restart(chance.choice(TASKS), crash=chance.random() < 0.5))
        if chance.random() < 0.16:
            events.append(_fault(chance, known.values()))
        batch, seconds = rows.batch(total // batches)
        events += [Wait(seconds), batch]
    return Scenario(seed, streams, _options(chance), tuple(_pressed(random.Random(f"pressure {seed}"), events)))


def _pressed(chance: random.Random, events: Sequence[Event]) -> list[Event]:
    """The events, with pressure that comes and goes, and owed probes that are cleaned up, in half of the scenarios."""
    if chance.random() < 0.5:
        return list(events)
    found: list[Event] = []
    for event in events:
        if isinstance(event, Batch):
            if chance.random() < 0.6:
                found.append(Pressure(chance.choice((0.0, 0.3, 0.5, 1.0))))
            found.append(event)
            if chance.random() < 0.3:
                found.append(CleanUp(chance.choice((0.3, 0.7, 1.0))))
        else:
            found.append(event)
    return found


def _options(chance: random.Random) -> Options:
    return Options(
        strategy=chance.choice(STRATEGIES),
        chain=chance.choice(("auto", "mem_opt", "cpu_opt")),
        orders=chance.choice(("adaptive", "adaptive", "static", "random", "worst")),
        plan=chance.choice(("auto", "auto", "auto", "buffered")),
        tasks=chance.choice(TASKS),
        mappers=chance.choice((0, 1, 2)),
        buckets=chance.choice((4, 256, 256)),
        retried=chance.choice((0.0, 0.0, 0.0, 0.3)),
        shuffled=chance.random() < 0.5,
        fan_in=chance.choice((1, 2, 4)),
        upkeep=chance.choice((2, 5, 64, 64)),
        snapshots=chance.choice((3, 64, 64)),
        expire_every=chance.choice((1, 1, 3)),
        memory=chance.choice((0, 0, 1 << 9, 1 << 12, 1 << 15)),
        cold=chance.choice((-1.0, 0.5, 1.0)),
        maps=chance.random() < 0.4,
        balance=chance.choice(("weighted", "weighted", "pairwise", "off")),
    )


def _streams(chance: random.Random) -> tuple[Stream, ...]:
    time = chance.choice(("bigint", "timestamp"))
    unit = 1 if time == "bigint" else SECOND
    found = []
    rules = ["delay", "delay", "delay", "ordered", "rows", "punctuation", "patterns"]
    if unit == SECOND:  # only such times follow the clock
        rules += ["idle", "idle", "heartbeat"]
    chosen = chance.choices(rules, k=chance.choice((1, 2, 2, 3)))
    # The same for all, or no union could be made.
    sequence = SEQUENCE if "rows" in chosen or chance.random() < 0.2 else None
    for name, rule in zip("abc", chosen, strict=False):
        delay = {"delay": chance.choice((1, 3, 10)) * unit, "idle": 10 * unit, "ordered": 0}.get(rule)
        found.append(
            Stream(
                name,
                stream_columns(time),
                TIME,
                delay,
                late=chance.choice(("side", "side", "drop")),
                bad=chance.choice(("side", "side", "drop")),
                idle=chance.choice((2, 6)) * unit if rule == "idle" else None,
                heartbeat=chance.choice((2, 6)) * unit if rule == "heartbeat" else None,
                sequence=sequence,
                delay_rows=chance.randint(2, 9) if rule == "rows" else None,
                punctuation=PUNCTUATION if rule in ("punctuation", "patterns") else None,
                patterns=(Column("k", "bigint"),) if rule == "patterns" else (),
            )
        )
    return tuple(found)


def _first_queries(draw: Draw) -> list[Add]:
    """At least three kinds, so that different plans share state."""
    kinds = draw.chance.sample([*_possible(draw, KINDS), OVER], draw.chance.choice((3, 3, 3, 3, 4)))
    folder = draw.chance.random() < FOLDERS
    if folder and not LISTED & {*kinds}:
        kinds[0] = draw.chance.choice(sorted(LISTED))
    found: list[Add] = []
    for kind in kinds:
        name = f"q{len(found)}"
        sink = draw.chance.random() < 0.2
        if kind == OVER:
            below, above = over_query(draw, name)
            found += [Add(name, below, "join of 2", sink=sink), Add(f"q{len(found) + 1}", above, OVER)]
        else:
            listed = folder and kind in LISTED
            found.append(_add(draw, name, kind, sink=sink and not listed, folder=listed))
    return found


def _between(draw: Draw, known: dict[str, Add], number: int) -> list[Event]:
    """An event between two batches."""
    chance = draw.chance
    base = {name for name in known if any(re.search(rf"FROM {name}\b", query.sql) for query in known.values())}
    match chance.choice(("tick", "tick", "advance", "add", "add", "drop", "replace", "sink", "delay")):
        case "tick":
            return [Wait(chance.choice((0, 1, 4))), Tick()]
        case "advance":
            stream = chance.choice(draw.streams)
            return [Advance(stream.name, chance.randint(0, 9 * (number + 1)) * draw.unit)]
        case "add":
            kind = chance.choice(sorted(_possible(draw, LATER)))
            start = "state" if kind in FROM_STATE and chance.random() < 0.4 else "now"
            return [
                _known(
                    known,
                    _add(draw, f"l{number}{chance.randrange(10**6)}", kind, start, sink=chance.random() < 0.2),
                )
            ]
        case "drop":
            free = [name for name in known if name.startswith("l") or (name not in base and known[name].kind != OVER)]
            if len(known) > 3 and free:
                name = chance.choice(free)
                del known[name]
                return [Drop(name)]
        case "replace":
            free = [name for name in known if name not in base and known[name].kind in LATER]
            if free:
                query = _replaced(draw, known[chance.choice(free)])
                return [_known(known, query)] if query.sql != known[query.name].sql else []
        case "sink":
            with_sink = [name for name, query in known.items() if query.sink]
            if with_sink:
                return [SinkFails(chance.choice(with_sink), chance.randint(1, 3))]
        case "delay":
            able = [s for s in draw.streams if s.delay is not None]
            if able:
                return [Delay(chance.choice(able).name, chance.choice((0, 1, 3, 10)) * draw.unit)]
    return []


def _possible(draw: Draw, kinds: Iterable[str]) -> list[str]:
    """The kinds of queries that there are over these streams."""
    grouped = all(stream.patterns for stream in draw.streams)
    return [kind for kind in kinds if not (grouped and kind in IN_STEP)]


def _add(draw: Draw, name: str, kind: str, start: str = "now", *, sink: bool = False, folder: bool = False) -> Add:
    flush = (draw.chance.randint(1, 6), draw.chance.choice((0, 1, 3, UNLIMITED))) if kind == SLOW else None
    return Add(name, KINDS[kind](draw), kind, start, sink=sink, folder=folder, flush=flush)


def _known(known: dict[str, Add], query: Add) -> Add:
    known[query.name] = query
    return query


def _replaced(draw: Draw, old: Add) -> Add:
    """The same query with other windows: its columns stay, so that its results continue under its name."""
    length = draw.chance.choice(LENGTHS)

    def other(found: re.Match[str]) -> str:
        return f"[{found[1]} {length if found[1] == 'TUMBLING' else draw.chance.choice(LENGTHS)}"

    return replace(old, sql=_LENGTH.sub(other, old.sql), replace=True, start="now")


def _fault(chance: random.Random, known: Iterable[Add]) -> Fault:
    folders = any(query.folder for query in known)
    kind = LINKED if folders and chance.random() < 0.7 else chance.choice([f for f in FAULTS if folders or f != LINKED])
    return Fault(kind, 0 if kind in POINTS else chance.randrange(40))


@dataclass
class _Rows:
    """Rows of all streams, whose time advances with each batch: disorder, ties, late and invalid rows, idle times."""

    chance: random.Random
    streams: Sequence[Stream]
    keys: int
    sequence: int = 0
    silent: dict[str, int] = field(default_factory=dict)  # by stream: coming batches without rows
    now: int = 0

    def batch(self, count: int) -> tuple[Batch, int]:
        """The next batch, and the seconds that pass before it."""
        chance, unit = self.chance, 1 if self.streams[0].integer_time else SECOND
        before, self.now = self.now, self.now + chance.choice((1, 4, 8, 8, 12))
        lag = chance.choice((0, 0, 0, 0, 2, -2))  # of the clock; at times it is far ahead
        seconds = max(0, self.now - before + lag) + (DAY // SECOND if chance.random() < 0.01 else 0)
        moments = [chance.randint(before, self.now) for _ in range(max(2, count // 6))]
        found: dict[str, tuple[Row, ...]] = {}
        for stream in self.streams:
            if self.silent.get(stream.name, 0):
                self.silent[stream.name] -= 1
                continue
            if chance.random() < 0.06:
                self.silent[stream.name] = chance.randint(1, 3)
            burst = chance.random() < 0.1
            own = max(1, round(count / len(self.streams) * chance.choice((0.3, 1, 1, 1.5))))
            rows = [self._row(stream, self._time(moments, burst=burst, unit=unit)) for _ in range(own)]
            if chance.random() < 0.2:
                rows[-1] = dict(rows[0])  # the same values twice are two rows
            if stream.punctuation is not None:
                rows.insert(chance.randrange(len(rows) + 1), self._punctuation(stream, unit))
            found[stream.name] = tuple(rows)
        return Batch(found), seconds

    def _time(self, moments: Sequence[int], *, burst: bool, unit: int) -> int | None:
        chance = self.chance
        if chance.random() < 0.02:
            return None if unit > 1 else chance.choice((None, LATEST + 1))
        time = chance.choice(moments)
        if burst and chance.random() < 0.7:
            time = max(0, time - chance.randint(3, 20))
        elif chance.random() < 0.2:
            time = max(0, time - chance.randint(0, 4))
        return time * unit

    def _row(self, stream: Stream, time: int | None) -> Row:
        chance = self.chance
        self.sequence += 1
        row: Row = {TIME: time}
        row["k"] = chance.choice(RARE_KEYS) if chance.random() < 0.05 else chance.randrange(self.keys)
        for name, _ in COLUMNS[1:]:
            values = VALUES[name]
            row[name] = chance.choice(values if chance.random() < 0.3 else values[:4])
        row[SEQUENCE] = (
            None if stream.delay_rows is not None and chance.random() < 0.02 else self.sequence - chance.randrange(4)
        )
        row[PUNCTUATION] = None
        return row

    def _punctuation(self, stream: Stream, unit: int) -> Row:
        """A row that states the progress of the stream; later rows may violate it, and are late then."""
        chance = self.chance
        until = max(0, self.now - chance.randint(0, 6))
        if stream.patterns and chance.random() < 0.6:
            key: object = chance.randrange(self.keys)
            until += chance.randint(0, 8)
        else:
            key = None
        row: Row = {column.name: None for column in stream.columns}
        return row | {"k": key, PUNCTUATION: until * unit if unit > 1 or chance.random() > 0.03 else LATEST + 1}
