"""The queue of a run: any thread puts events, one thread takes them (decision 0038).

Nobody waits for ever: an event that will not be taken is answered with the reason, and who waits for an outcome also
looks whether the thread that takes events still lives.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, wait
from time import monotonic
from typing import TypeVar

from penstock.errors import StateError
from penstock.step.happened import AdvanceAsked, BatchArrived, ChangeAsked, Event, ResumeAsked, StopAsked

PATIENCE = 1.0  # seconds between two looks at the thread that takes events

T = TypeVar("T")
E = TypeVar("E", BatchArrived, StopAsked)


class Stopping(Exception):  # noqa: N818  (not an error: the batch comes again)
    """A batch came while none is taken. Nothing of it was done, and the next start gets it again."""


class Inbox:
    """Events in the order in which they came. Its mutex is never held while something is done about an event."""

    def __init__(self) -> None:
        self.taker: threading.Thread | None = None  # once it was started
        self._events: deque[Event] = deque()
        self._changed = threading.Condition()
        self._refusing = False
        self._closed: str | None = None  # why

    def put(self, event: Event) -> None:
        """Bring an event. If it is refused, its outcome says so at once."""
        with self._changed:
            refused, closed = self._refusing, self._closed
            if closed is None and not (refused and isinstance(event, BatchArrived)):
                self._events.append(event)
                self._changed.notify_all()
                return
        _answer(event, closed)

    def take(self, seconds: float) -> Event | None:
        """The next event; None if there is none for so long."""
        until = monotonic() + seconds
        with self._changed:
            while self._changed.wait_for(lambda: self._events, until - monotonic()):
                event = self._events.popleft()
                future = outcome_of(event)
                if future is None or future.set_running_or_notify_cancel():  # else nobody waits for it any more
                    return event
        return None

    def refuse_batches(self) -> None:
        """Refuse batches that wait and those that come from now on: what hands them over can only then be stopped."""
        with self._changed:
            self._refusing = True
        for event in self.remove(BatchArrived):
            _answer(event, None)

    def accept_batches(self) -> None:
        """Take batches again."""
        with self._changed:
            self._refusing = False

    def remove(self, kind: type[E]) -> list[E]:
        """Events of one kind that were not taken yet."""
        found: list[E]
        with self._changed:
            found = [event for event in self._events if isinstance(event, kind)]
            self._events = deque(event for event in self._events if not isinstance(event, kind))
            self._changed.notify_all()
        return found

    def close(self, why: str) -> None:
        """Take nothing any more: all who wait, and those who come, are told why, and batches get `Stopping`."""
        with self._changed:
            self._closed, rest = why, list(self._events)
            self._events.clear()
            self._changed.notify_all()
        for event in rest:
            _answer(event, why)

    def pause(self, seconds: float) -> None:
        """Wait, but only while batches are taken."""
        with self._changed:
            self._changed.wait_for(lambda: self._refusing or self._closed is not None, seconds)

    def wait(self, future: Future[T], timeout: float | None = None) -> bool:
        """Wait until something has an outcome; False if it has none in time."""
        until = None if timeout is None else monotonic() + timeout
        while True:
            left = PATIENCE if until is None else min(PATIENCE, until - monotonic())
            if wait([future], max(0.0, left)).done:
                return True
            if self.taker is not None and not self.taker.is_alive() and not future.done():
                raise StateError(
                    "the thread of the run has died; start the program again: it goes on from all that was committed"
                )
            if until is not None and monotonic() >= until:
                return False

    def outcome(self, future: Future[T]) -> T:
        """Wait for what an event leads to. Who is interrupted takes back an event that nobody has taken yet."""
        try:
            self.wait(future)
        except BaseException:
            future.cancel()
            raise
        return future.result()


def outcome_of(event: Event) -> Future[float] | Future[None] | None:
    """What somebody waits for, if anybody does."""
    return event.outcome if isinstance(event, BatchArrived | ChangeAsked | AdvanceAsked | ResumeAsked) else None


def _answer(event: Event, closed: str | None) -> None:
    """Tell who waits for an event that it is not taken."""
    future = outcome_of(event)
    if future is None or not future.set_running_or_notify_cancel():
        return
    future.set_exception(Stopping() if closed is None or isinstance(event, BatchArrived) else StateError(closed))
