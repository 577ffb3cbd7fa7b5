"""Positions in the user's text, and errors that point at them.

A `Text` is a piece of SQL with the script that it was cut from, so that an error inside a SELECT of a long script shows
the script's own line. It is independent of SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from penstock.errors import NotSupportedError, SqlError


@dataclass(frozen=True)
class Position:
    """A place in a script; lines and columns count from 1."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True)
class AtPlace:
    """A statement at its place in a script; equal ones may stand anywhere."""

    at: Position = field(default=Position(), compare=False, kw_only=True)


@dataclass(frozen=True)
class Text:
    """SQL text that begins at `at` in `script` (its own text if there is no script)."""

    text: str
    script: str | None = None
    at: Position = Position()

    def position(self, offset: int) -> Position:
        """The place of a character of this text, counted in the script."""
        before = self.text[:offset]
        line = before.count("\n")
        column = offset - (before.rfind("\n") + 1)
        return Position(self.at.line + line, column + (self.at.column if line == 0 else 1))

    def error(self, offset: int, message: str, hint: str = "") -> SqlError:
        at = self.position(offset)
        return SqlError(message, text=self.shown(), line=at.line, column=at.column, hint=hint)

    def unsupported(self, offset: int, message: str, hint: str = "") -> NotSupportedError:
        at = self.position(offset)
        return NotSupportedError(message, text=self.shown(), line=at.line, column=at.column, hint=hint)

    def shown(self) -> str:
        if self.script is not None:
            return self.script
        # Without the script, a position in it would point at the wrong line of this text.
        return self.text if self.at == Position() else ""


def start_of(node: exp.Expr) -> int:
    """The offset of the first character of an expression, as far as its names and constants show."""
    starts = [n.meta["start"] for n in node.walk() if "start" in n.meta]
    return min(starts, default=0)
