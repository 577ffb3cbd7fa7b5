"""Takes requests that other processes write to the state directory, lets the engine execute them, and answers.

No request can harm the run. A request that was taken when the engine died is taken again: an existing query is not
added twice, and a query that the request has dropped is not missed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.catalog.catalog import Catalog
from penstock.catalog.requests import Answer, Change, RequestLog, change_of
from penstock.errors import PenstockError, SessionError
from penstock.sql import DropQuery, ResumeQuery


@dataclass(frozen=True)
class Requests:
    """The requests to one run, see `step.ports.Requests`; the engine's `execute` runs a statement."""

    log: RequestLog
    catalog: Catalog
    execute: Callable[[str], object]

    def waiting(self) -> Sequence[str]:
        return self.log.waiting()

    def answer(self, key: str, answer: Answer) -> None:
        self.log.answer(key, answer)

    def do(self, key: str) -> Answer:
        """Execute one request, and return its outcome."""
        try:
            request = self.log.read(key)
            change = change_of(request.statement)
            known = self.catalog.registry.find(change.name)
            aim = self.log.take(key, known.id if known else None)
            return Answer(ok=True, text=self._execute(request.statement, change, aim))
        except SessionError:
            raise  # unrelated to the request, which the next run takes
        except Exception as error:  # noqa: BLE001  (whatever it is, the requester gets it and the run continues)
            return Answer(ok=False, text=_words(error))

    def _execute(self, statement: str, change: Change, aim: int | None) -> str:
        if isinstance(change, DropQuery):
            gone = aim is not None and all(q.id != aim for q in self.catalog.registry.live())
            if not gone:  # else this very request has dropped it, before the engine died
                self.execute(statement)
            return f"query {change.name!r} is dropped"
        self.execute(statement)
        if isinstance(change, ResumeQuery):
            return f"query {change.name!r} goes on"
        return f"query {change.name!r} is answered from step {self.catalog.live(change.name).since} on"


def _words(error: Exception) -> str:
    if isinstance(error, PenstockError):
        return str(error)
    return f"{type(error).__name__}: {error}".splitlines()[0]
