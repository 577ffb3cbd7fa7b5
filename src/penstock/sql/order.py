"""ORDER BY result_time: the only possible order of results, because progress releases them in it.

Any other ORDER BY is refused at the word where it differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from penstock.model import Item, Ref
from penstock.model.expression import PSEUDO_ROLE, RESULT_TIME
from penstock.sql.position import Text
from penstock.sql.scope import Scope

_CLAUSE = f"ORDER BY {RESULT_TIME}"
_AFTER_KEY = {
    "DESC": (f"{_CLAUSE} DESC is not supported", f"{RESULT_TIME} only grows as results come: write {_CLAUSE}"),
    "NULLS": ("NULLS FIRST and NULLS LAST are not supported", f"{RESULT_TIME} is never null: write {_CLAUSE}"),
    ",": ("ORDER BY takes one key only", f"write {_CLAUSE}; results of one time come in any order"),
}
# What may follow the clause: the window of the query, and words that `screen` refuses by name.
_FOLLOWERS = frozenset({TokenType.WINDOW, TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH})
_DEPTH = {TokenType.L_PAREN: 1, TokenType.L_BRACKET: 1, TokenType.R_PAREN: -1, TokenType.R_BRACKET: -1}


def split_order(tokens: Sequence[Token]) -> tuple[list[Token], Token | None]:
    """Split `ORDER BY result_time [ASC]` off the end of a query; its first word is the second result.

    It may stand before or after `WINDOW <length>`. Any other ORDER BY stays, for `screen` to refuse.
    """
    depth = 0
    for index, token in enumerate(tokens):
        depth += _DEPTH.get(token.token_type, 0)
        if token.token_type != TokenType.ORDER_BY or depth or not _ends_a_clause(tokens[:index]):
            continue
        after = _after_key(tokens[index:])
        if after is not None and (not after or after[0].token_type in _FOLLOWERS):
            return [*tokens[:index], *after], token
    return list(tokens), None


def refuse_order(source: Text, tokens: Sequence[Token]) -> NoReturn:
    """Refuse the ORDER BY that these tokens begin with, and say why."""
    after = _after_key(tokens)
    word = after[0].text.upper() if after else ""
    if after and word in _AFTER_KEY:
        raise source.unsupported(after[0].start, *_AFTER_KEY[word])
    raise source.unsupported(
        tokens[0].start,
        f"ORDER BY is supported for {RESULT_TIME} only, once, at the end of a query",
        f"write {_CLAUSE}; with LIMIT behind it, any order gives the first rows of each window of an aggregate",
    )


def is_ordered(order: Token | None, scope: Scope, items: Sequence[Item]) -> bool:
    """Whether ORDER BY was given; no stream and no item may redefine its key."""
    if order is None:
        return False
    own = (Ref(PSEUDO_ROLE, RESULT_TIME),)
    same_name = (i for i in items if i.name is not None and i.name.lower() == RESULT_TIME)
    if any(s.column(RESULT_TIME) for s in scope.streams) or any(i.expression.parts != own for i in same_name):
        raise scope.source.unsupported(
            order.start,
            f"ORDER BY is supported for the time of the result only, and {RESULT_TIME} names another column here",
            "give that column another name",
        )
    return True


def _ends_a_clause(tokens: Sequence[Token]) -> bool:
    """At the very beginning there is nothing to order; after a dot or AS a name must follow."""
    return bool(tokens) and tokens[-1].token_type not in (TokenType.DOT, TokenType.ALIAS)


def _after_key(tokens: Sequence[Token]) -> Sequence[Token] | None:
    """The tokens after `ORDER BY result_time [ASC]`; None for another key."""
    key = tokens[1] if len(tokens) > 1 else None
    if key is None or key.token_type == TokenType.STRING or key.text.lower() != RESULT_TIME:
        return None
    ascending = len(tokens) > 2 and tokens[2].token_type == TokenType.ASC
    return tokens[3:] if ascending else tokens[2:]
