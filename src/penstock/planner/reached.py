"""What decides which rows and windows are over: how far streams have come, and up to where they have been closed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


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
