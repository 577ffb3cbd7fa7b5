"""How a step advances the progress of a stream: the greatest of all the bounds that the stream has.

Pure functions of what a step saw (decision 0005). What the next step needs is in `Progress`, so it is committed with
the manifest; the number of times is bounded, and dropping some only makes progress slower, never wrong. Punctuations of
groups are all kept until the stream has passed them: without one, a row could enter a group that is already closed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from penstock.model import Punctuation, Stream
from penstock.model.punctuation import punctuation_of
from penstock.model.time import FOREVER, NEVER
from penstock.state.manifest import Patterns, Progress

MOST_STAIRS = 256  # times that are kept for the last rows
EVERYTHING = "{}"  # the pattern of a punctuation about all rows


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a step saw of one stream, in one task or in all.

    `said` are its punctuations as (pattern, until); `last` the last rows by sequence as (sequence, time), as many as
    the delay in rows needs, and `earlier` the newest time of the rows before them.
    """

    newest: int = NEVER
    said: tuple[tuple[str, int], ...] = ()
    rows: int = 0
    last: tuple[tuple[int, int], ...] = ()
    earlier: int = NEVER


def together(parts: Iterable[Seen], delay_rows: int | None) -> Seen:
    """What all tasks of a step saw."""
    known = list(parts)
    last = sorted(pair for part in known for pair in part.last)
    cut = max(0, len(last) - (delay_rows or 0))
    return Seen(
        max((part.newest for part in known), default=NEVER),
        tuple(said for part in known for said in part.said),
        sum(part.rows for part in known),
        tuple(last[cut:]),
        max([part.earlier for part in known] + [time for _, time in last[:cut]], default=NEVER),
    )


def move(stream: Stream, old: Progress, seen: Seen, clock: int | None = None) -> Progress:
    """Progress after a step.

    `clock` is that of the step, None if it does not apply. A stream with a heartbeat follows it unless the step shows
    that its rows come later than promised, as when it is read after a pause.
    """
    newest = max(old.newest, seen.newest)
    bounds = [(until, "punctuation") for pattern, until in seen.said if pattern == EVERYTHING]
    if stream.delay is not None:
        bounds.append((newest - stream.delay, "delay"))
    if stream.heartbeat is not None and clock is not None and clock - seen.newest <= stream.heartbeat:
        bounds.append((clock - stream.heartbeat, "heartbeat"))
    stairs: tuple[tuple[int, int], ...] = ()  # those of an earlier delay in rows would not count rows since then
    if stream.delay_rows is not None:
        passed, stairs = _climb(old.stairs, seen, stream.delay_rows)
        bounds.append((passed, "rows"))
    value, kind = max(bounds, key=lambda bound: bound[0], default=(NEVER, old.kind))
    if value <= old.value:
        value, kind = old.value, old.kind
    closed, grown = _close(old.closed, seen.said, value)
    return replace(old, value=value, newest=newest, kind=kind, stairs=stairs, closed=closed, grown=grown)


def follow_delay(stream: Stream, old: Progress) -> Progress:
    """Progress between two steps by the present delay: a shortened one advances it, any other does not change it."""
    return move(stream, old, Seen())


def declare(old: Progress, value: int) -> Progress:
    """Progress after a declaration that no later row has a time below `value`; it never falls."""
    if value <= old.value:
        return old
    return replace(old, value=value, kind="declared", closed=_close(old.closed, (), value)[0], grown=())


def closed_groups(stream: Stream, progress: Progress) -> list[Punctuation]:
    """The punctuations of groups that are ahead of the progress of the whole stream."""
    return list(punctuations(stream, progress.closed))


@lru_cache(maxsize=64)
def punctuations(stream: Stream, closed: Patterns) -> tuple[Punctuation, ...]:
    """Stored punctuations of groups."""
    return tuple(punctuation_of(stream, until, json.loads(pattern)) for pattern, until in closed)


def group_progress(stream: Stream, progress: Progress, values: Mapping[str, object]) -> int:
    """No later row of the stream with these values has a time below this."""
    found = [p.until for p in closed_groups(stream, progress) if p.covers(values)]
    return max([progress.value, *(FOREVER if until is None else until for until in found)])


def _climb(stairs: Sequence[tuple[int, int]], seen: Seen, delay_rows: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """(newest time of all rows but the last `delay_rows`, the stairs to keep).

    A stair is (later rows, time): it counts once `delay_rows` came after it. One that is no newer than an older one
    never matters. If there are too many, some are dropped, and progress reaches the next one slightly later.
    """
    ahead = [(after + seen.rows, time) for after, time in stairs]
    fresh = [(len(seen.last) - 1 - place, time) for place, (_, time) in enumerate(seen.last)]
    passed = max([seen.earlier, *(time for after, time in (*ahead, *fresh) if after >= delay_rows)], default=NEVER)
    kept: list[tuple[int, int]] = []
    for after, time in (*ahead, *fresh):
        if after < delay_rows and time > max(passed, kept[-1][1] if kept else NEVER):
            kept.append((after, time))
    every = -(-len(kept) // MOST_STAIRS)
    return passed, tuple(kept[::-1][:: max(1, every)][::-1])  # the last one stays


def _close(closed: Patterns, said: Sequence[tuple[str, int]], value: int) -> tuple[Patterns, Patterns]:
    """The groups that are ahead of their stream, and those among them that were just added or moved."""
    known = {pattern: until for pattern, until in closed if until > value}
    grown: dict[str, int] = {}
    for pattern, until in said:
        if pattern != EVERYTHING and until > max(value, known.get(pattern, NEVER)):
            known[pattern] = grown[pattern] = until
    return tuple(known.items()), tuple(grown.items())
