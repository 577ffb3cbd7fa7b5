"""What decides which rows and windows are over: how far streams have come, and up to where they have been closed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.model import Landmark, Query, Rows, Session, Sliding, Tumbling
from penstock.model.time import FOREVER, NEVER


class Closing(msgspec.Struct, frozen=True, array_like=True):
    """Up to where the step before closed windows of a stream: those that count rows, and those of aggregates.

    Of one query alone where its results are let out slowly, since these lie behind.
    """

    stream: str
    query: int | None = None


Clock = str | Closing  # a stream stands for its progress
Reached = Mapping[Clock, int]


def as_answered(reached: Reached, query: int) -> Reached:
    """What was reached as one query has been answered: one whose results are let out slowly lies behind."""
    own = {clock: value for clock, value in reached.items() if isinstance(clock, Closing) and clock.query == query}
    return {**reached, **{Closing(clock.stream): value for clock, value in own.items()}}


def output_progress(query: Query, progress: Reached) -> int:
    """No later result has a time below this; windows that count rows delay results until a step has closed them.

    The result time of an aggregate is the end of its window, so this is the end of the first open window.
    """
    if query.aggregation is not None:
        sources = (query.roles[0].stream, *query.roles[0].union)
        reached = min(progress.get(Closing(stream), NEVER) for stream in sources)
        if abs(reached) >= FOREVER:
            return reached
        match query.aggregation.window:
            case Sliding() | Landmark() as sliding:
                return sliding.extent(sliding.closed(reached))[1]
            case Session():
                return reached + 1
        return reached
    counted: list[Clock] = [Closing(role.stream) for role in query.roles if isinstance(role.window, Rows)]
    least = min(progress.get(name, NEVER) for name in [*counted, *(s for role in query.roles for s in role.streams)])
    window = query.roles[0].window
    if isinstance(window, Tumbling) and len(query.roles) > 1 and NEVER < least < FOREVER:
        return window.start(least)
    return least
