"""Takes requests that other processes write to the state directory, lets the engine execute them, and answers.

No request can harm the run. A request that was taken when the engine died is taken again: an existing query is not
added twice, and a query that the request has dropped is not missed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.catalog.requests import Answer, Change, Request, RequestLog, change_of
from penstock.errors import PenstockError, SessionError
from penstock.sql import DropQuery, ResumeQuery

if TYPE_CHECKING:
    from penstock.run import Run


def take_requests(run: Run) -> list[str]:
    """Execute and answer every waiting request, each at a step boundary; returns the failures in words."""
    log = RequestLog(run.engine.store)
    failed = []
    with contextlib.suppress(Exception):  # what cannot be read or written now is tried again at the next tick
        for key in [] if run.closing else log.waiting():
            answer = do_request(run, log, key)
            log.answer(key, answer)
            if not answer.ok:
                failed.append(f"a request failed: {answer.text}")
    return failed


def do_request(run: Run, log: RequestLog, key: str) -> Answer:
    """Execute one request, and return its outcome."""
    try:
        request = log.read(key)
        change = change_of(request.statement)
        known = run.engine.catalog.registry.find(change.name)
        aim = log.take(key, known.id if known else None)
        return Answer(ok=True, text=_execute(run, request, change, aim))
    except SessionError:
        raise  # unrelated to the request, which the next run takes
    except Exception as error:  # noqa: BLE001  (whatever it is, the requester gets it and the run continues)
        return Answer(ok=False, text=_words(error))


def _execute(run: Run, request: Request, change: Change, aim: int | None) -> str:
    catalog = run.engine.catalog
    if isinstance(change, DropQuery):
        gone = aim is not None and all(q.id != aim for q in catalog.registry.live())
        if not gone:  # else this very request has dropped it, before the engine died
            _change(run, request.statement)
        return f"query {change.name!r} is dropped"
    if isinstance(change, ResumeQuery):
        run.resume(catalog.live(change.name))
        return f"query {change.name!r} goes on"
    _change(run, request.statement)
    return f"query {change.name!r} is answered from step {catalog.live(change.name).since} on"


def _change(run: Run, statement: str) -> None:
    def execute() -> None:
        run.engine.execute(statement)

    if run.engine.runs(run):
        execute()  # checked beside the running step, and only then at a step boundary
    else:
        run.change(execute)  # the run is still starting: the engine does not know it yet


def _words(error: Exception) -> str:
    if isinstance(error, PenstockError):
        return str(error)
    return f"{type(error).__name__}: {error}".splitlines()[0]
