"""The expected answer of every query: rows judged and queries evaluated by the reference, step by step.

It knows the engine's input, and nothing of its implementation: only the progress of waiting results is the engine's.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from penstock.model import Expression, Item, Landmark, PerRow, Punctuation, Query, Ref, Rows, Session, Sliding, Stream
from penstock.model.expression import PSEUDO_ROLE, RESULT_TIME, WINDOW_END, WINDOW_START
from penstock.model.punctuation import punctuation_of
from penstock.model.time import EARLIEST, LATEST, NEVER
from penstock.reference import Row, aggregate_results, results
from penstock.sql import Results, parse_query, results_of

Tuples = list[tuple[object, ...]]
Bag = Counter[tuple[object, ...]]
_TIME = Ref(PSEUDO_ROLE, RESULT_TIME)
_RESULT_TIME = Item(None, Expression((_TIME,), _TIME, total=True))


@dataclass
class Judged:
    """One stream as the reference judges it: the accepted rows of each batch, and what is known of later rows."""

    stream: Stream
    accepted: list[list[Row]] = field(default_factory=list)  # by batch
    counts: Counter[str] = field(default_factory=Counter)
    progress: int = NEVER
    newest: int = NEVER
    closed: list[Punctuation] = field(default_factory=list)
    placed: list[int] = field(default_factory=list)  # times by batch and sequence

    def take(self, rows: Sequence[Row]) -> None:
        """Judge the rows of a batch by the state before it, and then let them advance progress."""
        stream, accepted, timed, said = self.stream, list[Row](), list[Row](), list[Punctuation]()
        for row in rows:
            self.counts["rows"] += 1
            if stream.punctuation is not None and row[stream.punctuation] is not None:
                until = row[stream.punctuation]
                fixed = {c.name: row[c.name] for c in stream.patterns}
                if usable(until):
                    said.append(punctuation_of(stream, until, fixed))  # type: ignore[arg-type]
                self.counts["punctuations" if usable(until) else "bad"] += 1
                continue
            time = row[stream.event_time]
            if not usable(time) or (stream.delay_rows is not None and row[str(stream.sequence)] is None):
                self.counts["bad"] += 1
            elif time < self.progress or any(p.matches(time, row) for p in self.closed):  # type: ignore[operator,arg-type]
                self.counts["late"] += 1
                timed.append(row)
            else:
                self.counts["accepted"] += 1
                accepted.append(row)
                timed.append(row)
        self.accepted.append(accepted)
        times = [row[stream.event_time] for row in timed]
        self.newest = max([self.newest, *times])  # type: ignore[type-var,assignment]
        if stream.delay_rows is not None:
            self.placed += [t for _, t in sorted((row[str(stream.sequence)], row[stream.event_time]) for row in timed)]  # type: ignore[misc]
        self.closed += [p for p in said if not p.linear]
        self.move([p.until for p in said if p.linear and p.until is not None])

    @property
    def by_clock(self) -> int | None:
        """How far progress may follow behind the clock, if it does."""
        return self.stream.idle if self.stream.heartbeat is None else self.stream.heartbeat

    def follow(self, value: int, clock: int, others: Iterable[int]) -> bool:
        """Progress by the clock is what the engine has committed, if no more than the clock allows; else False."""
        lags = clock - self.newest > self.stream.idle_skew
        known = [self.progress, clock - (self.by_clock or 0), *([min(others, default=NEVER)] if lags else [])]
        allowed = self.progress <= value <= max(known)
        self.progress = value if allowed else self.progress
        return allowed

    def move(self, bounds: Iterable[int] = ()) -> None:
        """Advance progress by what is known."""
        known = [self.progress, *bounds]
        if self.stream.delay is not None and self.newest > NEVER:
            known.append(self.newest - self.stream.delay)
        if self.stream.delay_rows is not None:
            known += self.placed[: max(0, len(self.placed) - self.stream.delay_rows)]
        self.progress = max(known)


@dataclass(frozen=True)
class Life:
    """A query from its first batch to its last one. `since` = stream -> newest time before it began."""

    sql: str
    kind: str
    start: str
    first: int
    since: Mapping[str, int]
    end: int | None = None


@dataclass
class Model:
    """All streams, and the lives of each query, oldest first: one of the same name and columns continues it."""

    streams: dict[str, Judged]
    lives: dict[str, list[Life]] = field(default_factory=dict)
    batches: int = 0

    def take(self, rows: Mapping[str, Sequence[Row]]) -> None:
        for name, judged in self.streams.items():
            judged.take(rows.get(name, ()))
        self.batches += 1

    def begin(self, name: str, sql: str, kind: str, start: str) -> None:
        self.end(name)
        since = {stream: judged.newest for stream, judged in self.streams.items()}
        self.lives.setdefault(name, []).append(Life(sql, kind, start, self.batches, since))

    def end(self, name: str) -> None:
        known = self.lives.get(name)
        if known and known[-1].end is None:
            known[-1] = replace(known[-1], end=self.batches)

    @property
    def declared(self) -> dict[str, Stream]:
        return {name: judged.stream for name, judged in self.streams.items()}

    def rows(self, life: Life) -> dict[str, list[Row]]:
        """The accepted rows that a query has seen."""
        return {n: [row for own in j.accepted[life.first : life.end] for row in own] for n, j in self.streams.items()}

    def so_far(self, life: Life, batches: int) -> Tuples:
        """All windows of a query, open ones too, over the rows of the first batches."""
        seen = replace(life, end=batches)
        return aggregate_results(parsed(life.sql, self.declared.values()), self.declared, self.rows(seen))

    def answer(self, life: Life, closed: Mapping[str, int] | None = None) -> Tuples:
        """The answer of a query when windows are closed up to these times, by stream; by default all are."""
        query = parsed(life.sql, self.declared.values())
        rows = self.rows(life)
        if query.aggregation is None:
            found = joined(query, self.declared, rows)
            counted = [role.stream for role in query.roles if isinstance(role.window, Rows)]
            if closed is None or not counted:
                return [row for row, _ in found]
            until = min(closed.get(stream, NEVER) for stream in counted)
            return [row for row, time in found if time < until]
        return self._aggregated(query, life, rows, closed)

    def _aggregated(
        self, query: Query, life: Life, rows: Mapping[str, list[Row]], closed: Mapping[str, int] | None
    ) -> Tuples:
        assert query.aggregation is not None
        names = [name for role in query.roles for name in role.streams]
        reached = None if closed is None else {name: closed.get(name, NEVER) for name in names}
        found = aggregate_results(query, self.declared, rows, reached)
        if reached is None and isinstance(query.aggregation.window, Landmark):
            found += self._behind_the_last(query, rows, found)
        first = max(life.since[name] for name in names)
        if first == NEVER:
            return found
        start = next(
            (n for n, item in enumerate(query.items) if item.expression.parts == (Ref(PSEUDO_ROLE, WINDOW_START),)),
            None,
        )
        match query.aggregation.window:
            case Sliding() | PerRow():
                return [row for row in found if row[start or 0] > first]  # type: ignore[operator]
            case Session(gap):
                return [row for row in found if row[start or 0] >= first + gap]  # type: ignore[operator]
        return found

    def _behind_the_last(self, query: Query, rows: Mapping[str, list[Row]], found: Tuples) -> Tuples:
        """The windows of a landmark that progress has closed before the end, after its last row."""
        progress = {name: judged.progress for name, judged in self.streams.items()}
        end = next(n for n, item in enumerate(query.items) if item.expression.parts == (Ref(PSEUDO_ROLE, WINDOW_END),))
        last = max((row[end] for row in found), default=NEVER)  # type: ignore[type-var]
        return [row for row in aggregate_results(query, self.declared, rows, progress) if row[end] > last]  # type: ignore[operator]

    def above(self, life: Life) -> Tuples:
        """The answer of a query over another one at the end of all streams."""
        base = next(name for name in self.lives if re.search(rf"FROM {name}\b", life.sql))
        below = self.lives[base][-1]
        query = parsed(below.sql, self.declared.values())
        known = {base: results_of(query, self.declared, {})}
        names = [str(item.name) for item in query.items]
        time = known[base].usual or known[base].times[0]
        streams = self.declared | {base: Stream(base, known[base].columns, time, delay=0)}
        rows = self.rows(life) | {base: [dict(zip(names, row, strict=True)) for row in self.answer(below)]}
        upper = parsed(life.sql, self.declared.values(), known)
        if upper.aggregation is not None:
            return aggregate_results(upper, streams, rows)
        return [row for row, _ in joined(upper, streams, rows)]

    def between(self, life: Life, complete_from: Mapping[str, int]) -> tuple[Tuples, Tuples]:
        """For a query that began from state: its least and its greatest possible answer."""
        query = parsed(life.sql, self.declared.values())
        whole = {n: [row for own in j.accepted[: life.end] for row in own] for n, j in self.streams.items()}
        sure = {}
        for name, judged in self.streams.items():
            before = [row for own in judged.accepted[: life.first] for row in own]
            held = [row for row in before if row[judged.stream.event_time] >= complete_from.get(name, NEVER)]  # type: ignore[operator]
            sure[name] = held + self.rows(life)[name]
        return [row for row, _ in joined(query, self.declared, sure)], [
            row for row, _ in joined(query, self.declared, whole)
        ]


def usable(time: object) -> bool:
    return isinstance(time, int) and EARLIEST <= time <= LATEST


def parsed(sql: str, streams: Iterable[Stream], queries: Mapping[str, Results] | None = None) -> Query:
    """A query over these streams and queries; each is parsed once, by engines and model alike."""
    # What a query means does not depend on the delays of its streams, which change.
    meant = sorted((replace(s, delay=None) for s in streams), key=lambda s: s.name)
    return _parsed(sql, tuple(meant), tuple((queries or {}).items()))


@lru_cache(maxsize=256)
def _parsed(sql: str, streams: tuple[Stream, ...], queries: tuple[tuple[str, Results], ...]) -> Query:
    return parse_query(sql, {stream.name: stream for stream in streams}, queries=dict(queries))


def parsed_once(
    sql: str,
    streams: Mapping[str, Stream],
    *,
    queries: Mapping[str, Results] | None = None,
    own: object = None,
    **place: object,
) -> Query:
    """The result of `parse_query`, without its place in a script."""
    del own, place
    return parsed(sql, streams.values(), queries)


def joined(
    query: Query, streams: Mapping[str, Stream], rows: Mapping[str, Sequence[Row]]
) -> list[tuple[tuple[object, ...], int]]:
    """The bag of a join's answer, each row with its result time."""
    timed = replace(query, items=(*query.items, _RESULT_TIME))
    return [(row[:-1], row[-1]) for row in results(timed, streams, rows)]  # type: ignore[misc]


def bag(rows: Iterable[Sequence[object]]) -> Bag:
    """Rows with their counts, so that answers can be compared; doubles with the digits of any summation order."""
    columns = [
        [_shown(value) for value in column] if {float, list} & {*map(type, column)} else column
        for column in zip(*rows, strict=True)
    ]
    return Counter(zip(*columns, strict=True))


def _shown(value: object) -> object:
    if isinstance(value, float):
        return math.nan if math.isnan(value) else float(f"{value:.9g}") + 0.0
    if isinstance(value, list):
        return tuple(_shown(each) for each in value)
    return value


def same(missing: Bag, extra: Bag) -> bool:
    """Whether these differ only in the last digits of doubles."""
    return missing.total() == extra.total() and alike(missing, extra)


def alike(some: Bag, among: Bag) -> bool:
    """Whether each of some rows is one of the others, but for the last digits of doubles."""
    left = list(among.elements())
    for row in some.elements():
        found = next(
            (n for n, other in enumerate(left) if len(row) == len(other) and all(map(_alike, row, other))), None
        )
        if found is None:
            return False
        del left[found]
    return True


def _alike(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-8, abs_tol=1e-12)
    return left == right
