"""Limits of nesting in a SELECT: the parser and all tree walks recurse once per level.

A statement that one thread can read must be readable in any other, whatever is on its stack: so the limits are far
below the stack's size. Conditions chained by AND or by OR are one level, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError
from penstock.sql.position import Text, start_of

MOST_NESTED = 32  # nested parentheses, brackets, CASE and NOT
MOST_DEEP = 150  # nested operators

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END})
_ENDS_NOT = frozenset({TokenType.AND, TokenType.OR, TokenType.COMMA, TokenType.THEN, TokenType.WHEN, TokenType.ELSE})


def refuse_nested(source: Text, tokens: Sequence[Token]) -> None:
    """Refuse parentheses, CASE and NOT nested deeper than any SELECT needs, at the first one too many."""
    nots, depth = [0], 0  # how many NOT are open, per open level
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            nots.append(0)
            depth += 1
        elif kind in _CLOSING and len(nots) > 1:
            depth -= 1 + nots.pop()
        elif kind == TokenType.NOT:
            nots[-1] += 1
            depth += 1
        elif kind in _ENDS_NOT:
            depth -= nots[-1]
            nots[-1] = 0
        if depth > MOST_NESTED:
            raise _too_deep(source, token.start, f"more than {MOST_NESTED} levels")


def refuse_deep(source: Text, tree: exp.Expr) -> None:
    """Refuse chains of operators that make a tree too deep to walk."""
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MOST_DEEP:
            raise _too_deep(source, start_of(node), f"more than {MOST_DEEP} operators, each in an operand of the next")
        chained = isinstance(node, exp.And | exp.Or)
        pending += [
            (child, depth if chained and type(child) is type(node) else depth + 1) for child in node.iter_expressions()
        ]


@contextmanager
def enough_stack(source: Text) -> Iterator[None]:
    """Turn a stack overflow, when the caller's stack is nearly full, into an error of the statement."""
    try:
        yield
    except RecursionError:
        raise _too_deep(source, 0, "the stack does not hold it") from None


def _too_deep(source: Text, place: int, why: str) -> SqlError:
    return source.unsupported(
        place,
        f"This is nested too deeply: {why}",
        "compute a part of it in a query of its own, and read that by its name",
    )
