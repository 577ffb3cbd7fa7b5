"""EMIT EARLY EVERY .. at the end of an aggregated query."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from penstock.model import Emit
from penstock.sql.cursor import Cursor
from penstock.sql.dialect import tokenize
from penstock.sql.lengths import positive_length
from penstock.sql.position import Text

_HINT = "write EMIT EARLY EVERY 10 SECONDS at the end of the query"


def emit_length(text: str) -> int:
    """The length of time in EMIT EARLY EVERY, as a program gives it in words."""
    source = Text(text)
    tokens = tokenize(source)
    if not tokens:
        raise source.error(0, "EMIT EARLY EVERY needs a length of time", "give emit='10 seconds'")
    return positive_length(source, tokens)


def split_emit(source: Text, tokens: Sequence[Token]) -> tuple[list[Token], Token | None, Emit | None]:
    """Split the clause off the end of a query; its first word is the second result."""
    for index, token in enumerate(tokens):
        cursor = Cursor(source, tokens[index:])
        if index and cursor.accept("EMIT") and cursor.peek() in ("EARLY", "EVERY", "FINAL"):
            if not cursor.accept("EARLY", "EVERY"):
                raise source.unsupported(token.start, "This EMIT is not supported", _HINT)
            rest = cursor.until()
            if not rest:
                raise source.error(token.start, "EMIT EARLY EVERY needs a length of time", _HINT)
            return list(tokens[:index]), token, Emit(positive_length(source, rest))
    return list(tokens), None, None
