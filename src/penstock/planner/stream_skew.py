"""Which streams have run so far ahead of others in event time that their new rows would only wait in state.

A row waits for the streams it can still join. If one of these replays an older time, the other's rows pile up until it
has caught up, however short the windows are. Here leaders are found from progress alone; the run decides to read less
of them, and no answer depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.model.time import FOREVER, NEVER
from penstock.model.windows import PerRow, Session, Sliding
from penstock.planner.network import Network

LIVES = 4  # a stream may be ahead by this multiple of the time for which its rows are needed anyway


def waits(network: Network) -> dict[tuple[str, str], int]:
    """For each stream and another one: the longest time past its own that a row of the first is kept for the second.

    Pairs that wait for ever (`[RANGE ALL]`, landmarks) are left out: reading later would not shorten that.
    """
    found: dict[tuple[str, str], int] = {}

    def add(one: str, other: str, life: int) -> None:
        if one != other and life < FOREVER:
            found[one, other] = max(life, found.get((one, other), 1))

    for table in network.tables:
        for entry in table.entries if not table.grouped else ():
            for other, life in entry.lives:
                add(table.stream, other, life)
    for aggregate in network.aggregates:
        for query in aggregate.plan.queries:
            match query.window:
                case Sliding(length) | Session(length) | PerRow(length):
                    for one in aggregate.streams:
                        for other in aggregate.streams:
                            add(one, other, length)
    return found


def leaders(
    network: Network, progress: Mapping[str, int], newest: Mapping[str, int], active: Collection[str]
) -> frozenset[str]:
    """The streams whose progress is too far ahead of the newest row of an `active` stream that they wait for.

    No stream waits here for one without new rows: it has nothing to catch up with. A leader is judged by its progress,
    since a single row of a distant future must not keep a stream from being read.
    """
    return frozenset(
        one
        for (one, other), life in waits(network).items()
        if other in active
        and progress.get(one, NEVER) > NEVER
        and newest.get(other, NEVER) > NEVER
        and progress[one] - newest[other] > LIVES * life
    )
