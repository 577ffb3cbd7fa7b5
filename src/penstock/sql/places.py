"""The places in a SELECT that errors refer to after its syntax tree is gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import PlacedRegistrationError, TimeBoundsError
from penstock.model import Query, Stream
from penstock.model.time import CALENDAR_UNITS
from penstock.sql.dialect import tokenize
from penstock.sql.position import Text

_BEFORE_TABLE = frozenset({TokenType.FROM, TokenType.COMMA, TokenType.JOIN, TokenType.L_PAREN, TokenType.ALL})
_CONDITIONS = frozenset({TokenType.WHERE, TokenType.ON})


def named_in_from(select: str) -> tuple[str, ...]:
    """The names in a SELECT that may be streams, queries or sources, as written; some may be columns."""
    tokens = tokenize(Text(select))
    return tuple(token.text for before, token in pairwise(tokens) if before.token_type in _BEFORE_TABLE)


@contextmanager
def placed_bounds(source: Text, query: Query, streams: Mapping[str, Stream]) -> Iterator[None]:
    """Add the place in the text to the planner's errors about a query's time conditions."""
    try:
        yield
    except TimeBoundsError as error:
        tokens = tokenize(source)
        month = None if error.contradictory else _calendar(tokens)
        at = source.position(_place(tokens, error, query, streams) if month is None else month.start)
        hint = error.hint if month is None else f"{month.text.upper()} has no fixed length: write the band in days"
        raise PlacedRegistrationError(
            error.message, text=source.shown(), line=at.line, column=at.column, hint=hint
        ) from None


def _calendar(tokens: list[Token]) -> Token | None:
    """The unit of an INTERVAL that may have been meant as a band but has no fixed length."""
    for number, token in enumerate(tokens):
        for unit in tokens[number + 2 : number + 6] if token.token_type == TokenType.INTERVAL else ():
            if unit.text.lower().removesuffix("s") in CALENDAR_UNITS:
                return unit
    return None


def _place(tokens: list[Token], error: TimeBoundsError, query: Query, streams: Mapping[str, Stream]) -> int:
    """The first condition on an event time if they contradict each other, else the role in FROM."""
    kinds = [token.token_type for token in tokens]
    if error.contradictory:
        times = {s.event_time.lower() for role in query.roles if (s := streams.get(role.stream)) is not None}
        first = next((n for n, kind in enumerate(kinds) if kind in _CONDITIONS), len(tokens))
        for before, token in pairwise(tokens[first:]):
            if token.text.lower() in times:
                qualified = before.token_type == TokenType.DOT
                return tokens[tokens.index(before) - 1].start if qualified else token.start
    since = kinds.index(TokenType.FROM) if TokenType.FROM in kinds else 0
    for number in range(since + 1, len(tokens)):
        after = kinds[number + 1] if number + 1 < len(tokens) else None
        named = tokens[number].text.lower() == error.alias.lower()
        if named and TokenType.DOT not in (kinds[number - 1], after):
            return tokens[number].start
    return tokens[0].start
