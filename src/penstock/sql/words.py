"""Statements normalized for comparison."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"""('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)""", re.DOTALL)


def words(sql: str) -> str:
    """The text with single spaces between words; quoted text is unchanged."""
    parts = _QUOTED.split(sql.strip())
    return "".join(part if n % 2 else re.sub(r"\s+", " ", part) for n, part in enumerate(parts))
