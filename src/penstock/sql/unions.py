"""`(a UNION ALL b)` in FROM: several streams, or results of queries, in one role.

It is removed before parsing, so that the parser sees only the first stream. `branches` reads the SELECTs of a union.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, did_you_mean
from penstock.model import Stream
from penstock.sql.dialect import tokenize
from penstock.sql.position import Text

_BEFORE = frozenset({TokenType.FROM, TokenType.COMMA, TokenType.JOIN})
_DEPTH = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


@dataclass(frozen=True)
class Part:
    """One part of a union: the token that names its stream, and its SELECT unless it is the whole stream."""

    name: Token
    select: tuple[Token, ...] = ()

    @property
    def start(self) -> int:
        return self.select[0].start if self.select else self.name.start


def split_unions(source: Text, tokens: Sequence[Token]) -> tuple[list[Token], dict[int, list[Part]]]:
    """The tokens with only the first stream of each union, and by that stream's offset all parts of the union."""
    kept: list[Token] = []
    unions: dict[int, list[Part]] = {}
    index = 0
    while index < len(tokens):
        token = tokens[index]
        opens = token.token_type == TokenType.L_PAREN and index > 0 and tokens[index - 1].token_type in _BEFORE
        end = _closing(tokens, index) if opens else None
        parts = [] if end is None else _parts(source, tokens[index + 1 : end])
        if end is None or len(parts) < 2:
            kept.append(token)
            index += 1
            continue
        kept.append(parts[0].name)
        unions[parts[0].name.start] = parts
        index = end + 1
    return kept, unions


def united(
    source: Text, first: Stream, others: Sequence[Part], found: Sequence[Stream], *, aggregated: bool
) -> tuple[str, ...]:
    """The names of the whole streams `found` beside `first`; all must have its columns and its event time.

    The type of a computed column of a query may be unknown here.
    """
    names: list[str] = []
    for part, other in zip(others, found, strict=True):
        for column in first.columns:
            same = other.column(column.name)
            if same is None or (same.type and column.type and same.type != column.type):
                has = "has no such column" if same is None else f"has it as {same.type}"
                raise source.error(
                    part.start,
                    f"{first.name} has a column {column.name} of type {column.type}, and {other.name} {has}",
                    "the streams of a union have the same columns; declare one of them with the columns of the other",
                )
        if (other.event_time.lower(), other.sequence) != (first.event_time.lower(), first.sequence):
            raise source.error(part.start, f"{first.name} and {other.name} differ in event time or sequence")
        if aggregated and other.name in (first.name, *names):
            raise source.error(
                part.start,
                f"Stream {other.name} is given twice in this union, and an aggregate takes in each row once",
                "register a query SELECT * over it, and put its name in place of one of them",
            )
        names.append(other.name)
    return tuple(names)


def check_known(source: Text, parts: Sequence[Part], found: Sequence[Stream | None], known: Iterable[str]) -> None:
    """Refuse an unknown name in a union."""
    for part, stream in zip(parts, found, strict=True):
        if stream is None:
            raise source.error(part.name.start, f"Unknown stream {part.name.text}", did_you_mean(part.name.text, known))


def differing(source: Text, what: str, kind: str, other: str, streams: Sequence[str]) -> SqlError:
    """The error, at the first union of a text, that something has different types in the streams of one role."""
    place = next((t.start for t in tokenize(source) if t.token_type == TokenType.UNION), 0)
    return source.error(
        place, f"The type of {what} is {kind}, and {other} with rows of {', '.join(streams)}", "CAST it in the union"
    )


def _closing(tokens: Sequence[Token], index: int) -> int | None:
    """Where the parenthesis that opens here is closed."""
    depth = 0
    for at in range(index, len(tokens)):
        depth += _DEPTH.get(tokens[at].token_type, 0)
        if depth == 0:
            return at
    return None


def _parts(source: Text, tokens: Sequence[Token]) -> list[Part]:
    """The parts of the union that these tokens form, including nested unions; none if they form no union."""
    words = [i for i, token in _outside(tokens) if token.token_type == TokenType.UNION]
    if not words:
        inner = _inside(tokens)
        return [] if inner is None else _parts(source, inner)
    found: list[Part] = []
    for start, end in pairwise([-1, *words, len(tokens)]):
        if start >= 0 and start + 1 < len(tokens) and tokens[start + 1].token_type != TokenType.ALL:
            raise source.unsupported(
                tokens[start].start, "UNION removes duplicates, which a stream cannot", "write UNION ALL"
            )
        piece = tokens[start + 1 if start < 0 else start + 2 : end]
        found += _part(source, piece, tokens[max(start, 0)])
    return found


def _part(source: Text, piece: Sequence[Token], before: Token) -> list[Part]:
    """The part between two words UNION ALL; `before` is the place of an error if it is empty."""
    inner = _inside(piece)
    if inner is not None:
        return _parts(source, inner) or _part(source, inner, before)
    kinds = [token.token_type for token in piece]
    if len(kinds) == 1 and kinds[0] in _NAMES:
        return [Part(piece[0])]
    if kinds[:1] == [TokenType.SELECT]:
        at = next((i for i, token in _outside(piece) if token.token_type == TokenType.FROM), len(piece))
        if at + 1 < len(piece) and kinds[at + 1] in _NAMES:
            whole = kinds[:2] == [TokenType.SELECT, TokenType.STAR] and at == 2 and len(piece) == 4
            return [Part(piece[at + 1], () if whole else tuple(piece))]
    raise source.unsupported(
        (piece[0] if piece else before).start,
        "A union is made of streams, and of SELECTs over one stream each",
        "write (a UNION ALL b), or (SELECT .. FROM a WHERE .. UNION ALL SELECT .. FROM b)",
    )


def _inside(tokens: Sequence[Token]) -> Sequence[Token] | None:
    """The content of parentheses around all of these tokens, if there are any."""
    opens = len(tokens) > 2 and tokens[0].token_type == TokenType.L_PAREN
    return tokens[1:-1] if opens and _closing(tokens, 0) == len(tokens) - 1 else None


def _outside(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """The tokens outside all parentheses, with their places."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += _DEPTH.get(token.token_type, 0)
        if not depth:
            yield index, token
