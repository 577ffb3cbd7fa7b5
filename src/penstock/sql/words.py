"""A statement without what does not matter in it, for telling whether two are the same."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"""('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)""", re.DOTALL)


def words(sql: str) -> str:
    """The text with single spaces between words; what is in quotes stays as it is."""
    parts = _QUOTED.split(sql.strip())
    return "".join(part if n % 2 else re.sub(r"\s+", " ", part) for n, part in enumerate(parts))
