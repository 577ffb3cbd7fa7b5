"""Every error a user can meet, with the place, the cause and the remedy in its text."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class PenstockError(Exception):
    """Base of all errors that Penstock raises on purpose."""


class SqlError(PenstockError):
    """A statement that cannot be understood or is not supported, with its position.

    `line` and `column` count from 1 and point into `text`.
    """

    def __init__(self, message: str, *, text: str = "", line: int = 1, column: int = 1, hint: str = "") -> None:
        self.message = message
        self.text = text
        self.line = line
        self.column = column
        self.hint = hint
        super().__init__(self._render())

    def _render(self) -> str:
        return "\n".join([f"{self.message} (line {self.line}, column {self.column})", *self.marked])

    @property
    def marked(self) -> list[str]:
        """The source line, a caret under the place, the hint."""
        parts = []
        lines = self.text.split("\n")
        if self.text and 1 <= self.line <= len(lines):
            line = lines[self.line - 1].rstrip("\r")
            parts += [f"  {line}", "  " + re.sub(r"[^\t]", " ", line[: self.column - 1]).ljust(self.column - 1) + "^"]
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return parts


class NotSupportedError(SqlError):
    """Valid SQL that Penstock does not answer (yet); never answered wrongly instead."""


class RegistrationError(PenstockError):
    """A stream or query that contradicts what is registered, or that could never be answered."""


class TimeBoundsError(RegistrationError):
    """Contradictory time conditions of a query, or such that rows of role `alias` match rows of any later time."""

    def __init__(self, message: str, hint: str, alias: str, *, contradictory: bool) -> None:
        self.message, self.hint, self.alias, self.contradictory = message, hint, alias, contradictory
        super().__init__(f"{message}; {hint}")


class PlacedRegistrationError(SqlError, RegistrationError):
    """A planner's refusal of a query, at its place in the text."""


class StateError(PenstockError):
    """The state directory is damaged, owned by another engine, or does not fit Spark's log."""


class SessionError(PenstockError):
    """The Spark session under an engine is gone, or its workers cannot do what a step needs."""


class ChangesLostError(StateError):
    """A source no longer has all changes since a view was refreshed: the view must be recomputed."""


class ResultsError(PenstockError):
    """Too many results for the request; they exist nevertheless."""


class StepError(PenstockError):
    """A step failed; nothing of it was committed."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint naming the closest known names, or all of them if none is close."""
    names = sorted(known)
    close = get_close_matches(name.lower(), [n.lower() for n in names], n=2)
    best = [n for n in names if n.lower() in close]
    if best:
        return "did you mean " + " or ".join(best) + "?"
    return f"known: {', '.join(names)}" if names else ""
