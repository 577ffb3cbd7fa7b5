"""`(a UNION ALL b)` in FROM: several streams, or results of queries, in one role.

It is cut out before parsing, so that the parser sees the first stream alone. `SELECT * FROM a` may stand for `a`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import did_you_mean
from penstock.model import Stream
from penstock.sql.position import Text

_BEFORE = frozenset({TokenType.FROM, TokenType.COMMA, TokenType.JOIN})
_Part = tuple[list[Token], int]


def split_unions(source: Text, tokens: Sequence[Token]) -> tuple[list[Token], dict[int, list[Token]]]:
    """The tokens with only the first stream of each union left, and for the offset of that one the streams behind it."""
    kept: list[Token] = []
    unions: dict[int, list[Token]] = {}
    index = 0
    while index < len(tokens):
        token = tokens[index]
        opens = token.token_type == TokenType.L_PAREN and index > 0 and tokens[index - 1].token_type in _BEFORE
        found = _union(source, tokens, index) if opens else None
        if found is None or len(found[0]) < 2:
            kept.append(token)
            index += 1
            continue
        names, index = found
        kept.append(names[0])
        unions[names[0].start] = names[1:]
    return kept, unions


def united(
    source: Text, first: Stream, others: Sequence[Token], found: Sequence[Stream | None], known: Iterable[str]
) -> tuple[str, ...]:
    """The names of the streams `found` beside `first`, as the others are called; all must have its columns and its event time.

    The type of a computed column of a query may not be known here.
    """
    names: list[str] = []
    for token, other in zip(others, found, strict=True):
        if other is None:
            raise source.error(token.start, f"Unknown stream {token.text}", did_you_mean(token.text, known))
        for column in first.columns:
            same = other.column(column.name)
            if same is None or (same.type and column.type and same.type != column.type):
                has = "has no such column" if same is None else f"has it as {same.type}"
                raise source.error(
                    token.start,
                    f"{first.name} has a column {column.name} of type {column.type}, and {other.name} {has}",
                    "the streams of a union have the same columns; declare one of them with the columns of the other",
                )
        if (other.event_time.lower(), other.sequence) != (first.event_time.lower(), first.sequence):
            raise source.error(token.start, f"{first.name} and {other.name} differ in event time or sequence")
        if other.name in (first.name, *names):
            raise source.error(token.start, f"Stream {other.name} is given twice in this union")
        names.append(other.name)
    return tuple(names)


def _union(source: Text, tokens: Sequence[Token], index: int) -> _Part | None:
    """The streams between the parentheses that open here, and the place behind them; None if they hold anything else."""
    names: list[Token] = []
    at = index + 1
    while True:
        part = _part(source, tokens, at)
        if part is None or part[1] >= len(tokens):
            return None
        names, at = [*names, *part[0]], part[1]
        if tokens[at].token_type == TokenType.R_PAREN:
            return names, at + 1
        if tokens[at].token_type != TokenType.UNION:
            return None
        if at + 1 < len(tokens) and tokens[at + 1].token_type != TokenType.ALL:
            raise source.unsupported(
                tokens[at].start, "UNION removes duplicates, which a stream cannot", "write UNION ALL"
            )
        at += 2


def _part(source: Text, tokens: Sequence[Token], at: int) -> _Part | None:
    kinds = [t.token_type for t in tokens[at : at + 4]]
    if kinds[:1] == [TokenType.L_PAREN]:
        return _union(source, tokens, at)
    if kinds[:3] == [TokenType.SELECT, TokenType.STAR, TokenType.FROM]:
        at += 3
    if at < len(tokens) and tokens[at].token_type in (TokenType.VAR, TokenType.IDENTIFIER):
        return [tokens[at]], at + 1
    return None
