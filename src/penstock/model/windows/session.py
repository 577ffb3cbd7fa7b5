"""`[SESSION gap]`: rows of a group that follow each other closely."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Extent = tuple[int, int]


@dataclass(frozen=True)
class Session:
    """A row less than `gap` after the one before continues its session; one `gap` after it starts a new one.

    A session extends from its first row to `gap` after its last, and that pair is its id. Predicates and GROUP BY
    decide what the rows of a group are, so sessions are built after both.
    """

    gap: int

    def windows(self, times: Iterable[int]) -> list[Extent]:
        """The sessions of these times, ascending."""
        found: list[Extent] = []
        for time in sorted(times):
            if found and time < found[-1][1]:
                found[-1] = found[-1][0], time + self.gap
            else:
                found.append((time, time + self.gap))
        return found

    def extent(self, session: Extent) -> Extent:
        return session

    def wids(self, time: int, windows: Iterable[Extent]) -> Sequence[Extent]:
        """The session that holds this time."""
        return [session for session in windows if session[0] <= time < session[1]]

    def closed(self, session: Extent, progress: int) -> bool:
        """Whether no later row can extend it."""
        return session[1] <= progress
