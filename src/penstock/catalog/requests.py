"""Requests to change the queries of an engine from outside its process, and its answers: files under `requests/`.

All files of a request are named by its id, which begins with the time of the request: the requester writes `.request`,
the engine `.taken` before it does anything, and `.answer` at the end. `requests` executes a request.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError
from penstock.model import Sink
from penstock.model.secrets import literal_secrets
from penstock.sql import AlterQuery, CreateQuery, DropQuery, ResumeQuery, parse_script
from penstock.storage.codec import exact, plain
from penstock.storage.seal import seal, unseal
from penstock.storage.store import Store

FOLDER = "requests"
KEPT_SECONDS = 86_400.0  # after that an unread answer is deleted
POLL_SECONDS = 0.1

Change = CreateQuery | AlterQuery | ResumeQuery | DropQuery


@dataclass(frozen=True)
class Request:
    """One statement that changes the queries; `time` is when it was requested, in seconds."""

    id: str
    statement: str
    time: float


@dataclass(frozen=True)
class Answer:
    """The outcome of a request: what was done, or why it was not."""

    ok: bool
    text: str


def change_of(statement: str) -> Change:
    """The one statement of a request; it may only change queries."""
    found = parse_script(statement)
    if len(found) != 1 or not isinstance(found[0], Change):
        raise PenstockError("a request is one CREATE [OR REPLACE] QUERY, ALTER QUERY or DROP QUERY statement")
    return found[0]


def _refuse_secrets(change: Change) -> None:
    """A request is a file until it is answered, which must not contain a secret."""
    into = None if isinstance(change, DropQuery | ResumeQuery) else change.into
    given = literal_secrets(into.options) if isinstance(into, Sink) else {}
    for option in given:
        msg = (
            f"option {option!r} of the sink is a secret, and a request lies in a file until it is answered; "
            f"refer to it as ${{ENV:NAME}} or ${{file:/path}}"
        )
        raise PenstockError(msg)


class RequestLog:
    """The requests of one state directory, for requesters and for the engine that answers."""

    def __init__(self, store: Store) -> None:
        self.store = store

    # -- requesters ---------------------------------------------------------------------------------------------

    def ask(self, statement: str) -> Request:
        """Write a request; the running engine, or else the next one, takes it."""
        _refuse_secrets(change_of(statement))
        now = time.time()
        request = Request(f"{int(now * 1000):013d}-{uuid.uuid4().hex}", statement, now)
        self._put(f"{request.id}.request", {"statement": statement, "time": now})
        return request

    def wait(self, request: Request, seconds: float) -> Answer | None:
        """The answer, removed; None if there is none in time: then the request keeps waiting."""
        deadline = time.monotonic() + seconds
        while (answer := self._collect(request.id)) is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return answer

    # -- the engine ---------------------------------------------------------------------------------------------

    def waiting(self) -> list[str]:
        """Ids of unanswered requests, in order. Deletes what is old or was answered before a crash."""
        names = self.store.names(FOLDER)
        asked = {_id(name) for name in names if name.endswith(".request")}
        answered = {_id(name) for name in names if name.endswith(".answer")}
        for key in asked & answered:
            self._forget(key)
        due = asked - answered
        for name in names:
            if _id(name) not in due and _age(name) > KEPT_SECONDS:
                self.store.delete(f"{FOLDER}/{name}")
        return sorted(due)

    def read(self, key: str) -> Request:
        body = self._get(f"{key}.request")
        return Request(key, body["statement"], body["time"])

    def take(self, key: str, query: int | None) -> int | None:
        """Record that a request is about to be executed, and for which query (its id; None: there is none yet).

        Returns what was recorded when the request was first taken: after a crash before the answer it is taken again.
        """
        name = f"{key}.taken"
        if self._put(name, {"query": query}):
            return query
        first: int | None = self._get(name)["query"]
        return first

    def answer(self, key: str, answer: Answer) -> None:
        """Answer a request; it is never taken again. A second answer has no effect."""
        self._put(f"{key}.answer", plain(answer))
        self._forget(key)

    # -- inside -------------------------------------------------------------------------------------------------

    def _collect(self, key: str) -> Answer | None:
        try:
            body = self._get(f"{key}.answer")
        except FileNotFoundError:
            return None
        self._forget(key)  # first: a request without an answer would be taken again
        self.store.delete(f"{FOLDER}/{key}.answer")
        return exact(body, Answer)

    def _forget(self, key: str) -> None:
        for kind in ("request", "taken"):
            self.store.delete(f"{FOLDER}/{key}.{kind}")
        self.store.sync([f"{FOLDER}/."])

    def _put(self, name: str, body: dict[str, Any]) -> bool:
        return self.store.put_if_absent(f"{FOLDER}/{name}", seal(body))

    def _get(self, name: str) -> dict[str, Any]:
        return unseal(self.store.read(f"{FOLDER}/{name}"), self.store.label(f"{FOLDER}/{name}"))


def _id(name: str) -> str:
    return name.partition(".")[0]


def _age(name: str) -> float:
    """Seconds since the request; a foreign file has no age."""
    milliseconds = name.partition("-")[0]
    return time.time() - int(milliseconds) / 1000 if milliseconds.isdecimal() else 0.0
