"""Finds unsupported SQL before parsing, at the word where each part begins.

It sees only tokens, because syntax trees lose the positions of keywords. The parser afterwards accepts the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.sql import functions
from penstock.sql.order import refuse_order
from penstock.sql.position import Text
from penstock.sql.time_windows import time_window
from penstock.sql.top import NO_END

_ANSWERED = f"aggregates that are: {', '.join(sorted(functions.ANSWERED_AGGREGATES))}"

_CLAUSES = {
    TokenType.QUALIFY: ("QUALIFY is not supported", ""),
    TokenType.SORT_BY: ("SORT BY is not supported", "results of a standing query have no end to sort at"),
    TokenType.CLUSTER_BY: ("CLUSTER BY is not supported", ""),
    TokenType.DISTRIBUTE_BY: ("DISTRIBUTE BY is not supported", ""),
    TokenType.LIMIT: ("LIMIT is not supported here", NO_END),
    TokenType.FETCH: ("FETCH is not supported", "results of a standing query have no end"),
    TokenType.OFFSET: ("OFFSET is not supported", "results of a standing query have no end"),
    TokenType.UNION: (
        "UNION is not supported here",
        "register one query for each part, or write FROM (a UNION ALL b) alias",
    ),
    TokenType.EXCEPT: ("EXCEPT is not supported", ""),
    TokenType.INTERSECT: ("INTERSECT is not supported", ""),
    TokenType.TABLE_SAMPLE: ("TABLESAMPLE is not supported", ""),
    TokenType.PIVOT: ("PIVOT is not supported", ""),
    TokenType.UNPIVOT: ("UNPIVOT is not supported", ""),
    TokenType.LATERAL: ("LATERAL is not supported", ""),
    TokenType.HINT: ("Hints are not supported", ""),
}
# TABLESAMPLE, PIVOT and the like are also good column names: they count only in FROM, after a name.
_AFTER_FROM = frozenset({
    TokenType.TABLE_SAMPLE, TokenType.PIVOT, TokenType.UNPIVOT, TokenType.LATERAL, TokenType.LIMIT, TokenType.OFFSET,
    TokenType.FETCH,
})  # fmt: skip
_PARAMETERS = frozenset({TokenType.PLACEHOLDER, TokenType.PARAMETER, TokenType.L_BRACE})
_JOIN_KINDS = frozenset({"LEFT", "RIGHT", "FULL", "NATURAL", "SEMI", "ANTI", "ASOF"})
_JOIN_WORDS = frozenset({"JOIN", "OUTER", "SEMI", "ANTI", "LEFT", "RIGHT", "FULL", "INNER"})
_INNER_ONLY = "write [INNER] JOIN .. ON, CROSS JOIN, or a list of streams with the conditions in WHERE"
_NO_OVER = "put the window on the stream and aggregate over it, as in FROM s [RANGE 5 MINUTES SLIDE 1 ROW]"
_NO_SUBQUERY = "register the inner SELECT as a query of its own, and name that query in FROM"
_OTHERS = {
    "MATCH_RECOGNIZE": "join the stream with itself, one role for each part of the pattern",
    "FOR SYSTEM_TIME AS OF": "a join has windows instead: b [ROWS 1 PARTITION BY k] holds the newest row of each key",
}
_NO_VALUES = "FROM names streams and queries; what has only constants needs no standing query"


def refuse_unsupported(source: Text, tokens: Sequence[Token], answered: str = _ANSWERED) -> None:
    """Raise at the first token that begins something unsupported; `answered` lists the supported aggregates."""
    if tokens[0].token_type == TokenType.WITH:
        raise source.unsupported(tokens[0].start, "WITH (common table expressions) is not supported", _NO_SUBQUERY)
    if tokens[0].token_type != TokenType.SELECT:
        raise source.error(tokens[0].start, "Expected SELECT")
    if tokens[-1].token_type == TokenType.ALIAS:
        raise source.error(tokens[-1].start, "Expected a name after AS")
    seen_from = False
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        if _is_name(token, before):
            continue
        if token.token_type == TokenType.ORDER_BY:
            refuse_order(source, tokens[index:])
        seen_from = seen_from or token.token_type == TokenType.FROM
        _refuse_clause(source, tokens, index, before, after, seen_from=seen_from)
        _refuse_join(source, tokens, index)
        if _is_call(token, after) and (refusal := time_window(source, tokens, index)) is not None:
            raise refusal
        _refuse_function(source, token, before, after, answered)


def _is_name(token: Token, before: Token | None) -> bool:
    """Whether a keyword is only the name of a column, alias or constant."""
    if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER):
        return True
    return before is not None and before.token_type in (TokenType.DOT, TokenType.ALIAS)


def _refuse_clause(
    source: Text, tokens: Sequence[Token], index: int, before: Token | None, after: Token | None, *, seen_from: bool
) -> None:
    token = tokens[index]
    kind = token.token_type
    if kind == TokenType.FROM and before is not None and before.token_type == TokenType.COMMA:
        raise source.error(before.start, "Unexpected comma before FROM")
    if kind in _PARAMETERS or (kind == TokenType.COLON and not _ends_a_name(before)):
        raise source.error(token.start, "Parameters are not supported", "write the value")
    if kind in (TokenType.EXISTS, TokenType.IN) and _is_subquery(tokens, index):
        raise source.unsupported(
            token.start,
            f"{token.text.upper()} (SELECT ..) is not supported",
            "write a join: a row then comes once with each of its matches",
        )
    if kind == TokenType.SELECT and before is not None:
        raise source.unsupported(token.start, "Subqueries are not supported", _NO_SUBQUERY)
    if kind == TokenType.VALUES and after is not None and after.token_type == TokenType.L_PAREN:
        raise source.unsupported(token.start, "VALUES is not supported", _NO_VALUES)
    if kind == TokenType.OVER and before is not None and before.token_type == TokenType.R_PAREN:
        raise source.unsupported(token.start, "Window functions (OVER) are not supported", _NO_OVER)
    if kind == TokenType.USING and after is not None and after.token_type == TokenType.L_PAREN:
        raise source.unsupported(token.start, "JOIN .. USING is not supported", "write JOIN .. ON a.k = b.k")
    words = " ".join(t.text.upper() for t in tokens[index : index + 4])
    for other, hint in _OTHERS.items():
        if seen_from and words.startswith(other):
            raise source.unsupported(token.start, f"{other} is not supported", hint)
    if kind in _CLAUSES and (seen_from or kind not in _AFTER_FROM) and not _is_star_except(token, after):
        message, hint = _CLAUSES[kind]
        raise source.unsupported(token.start, message, hint)


def _refuse_join(source: Text, tokens: Sequence[Token], index: int) -> None:
    if tokens[index].text.upper() not in _JOIN_KINDS:
        return
    words = [tokens[index].text.upper()]
    for token in tokens[index + 1 :]:
        words.append(token.text.upper())
        if words[-1] not in _JOIN_WORDS or words[-1] == "JOIN":
            break
    if words[-1] == "JOIN":
        raise source.unsupported(tokens[index].start, f"{' '.join(words)} is not supported", _INNER_ONLY)


def _refuse_function(source: Text, token: Token, before: Token | None, after: Token | None, answered: str) -> None:
    word = token.text.lower()
    call = _is_call(token, after)
    if word in functions.NON_DETERMINISTIC and (call or word in functions.WITHOUT_PARENTHESES):
        raise source.error(
            token.start, f"{word} is not deterministic", "a standing query may use only what the rows themselves say"
        )
    if not call or (before is not None and before.token_type in (TokenType.LIKE, TokenType.ILIKE)):
        return  # LIKE ANY (..) and LIKE SOME (..) are not aggregates
    if word in functions.AGGREGATES:
        instead = functions.INSTEAD_OF.get(word) if answered == _ANSWERED else None
        hint = answered if instead is None else f"write {instead}; {answered}"
        raise source.unsupported(token.start, f"The aggregate {word} is not supported", hint)
    if word in functions.GENERATORS:
        raise source.unsupported(token.start, f"The generator {word} is not supported", "one row gives one row")
    if word in functions.WINDOW_FUNCTIONS:
        raise source.unsupported(token.start, f"The window function {word} is not supported", _NO_OVER)
    if word == "proctime":
        raise source.unsupported(
            token.start, "Processing time (proctime) is not supported", "windows follow event time"
        )


def _is_subquery(tokens: Sequence[Token], index: int) -> bool:
    return [t.token_type for t in tokens[index + 1 : index + 3]] == [TokenType.L_PAREN, TokenType.SELECT]


def _ends_a_name(token: Token | None) -> bool:
    """A colon after a name belongs to the type of a struct's field."""
    return token is not None and (token.token_type == TokenType.IDENTIFIER or token.text[-1:].isidentifier())


def _is_star_except(token: Token, after: Token | None) -> bool:
    """`* EXCEPT (..)` is refused with the star; a set operation in parentheses as a subquery."""
    return token.token_type == TokenType.EXCEPT and after is not None and after.token_type == TokenType.L_PAREN


def _is_call(token: Token, after: Token | None) -> bool:
    named = token.text[:1].isalpha() or token.text.startswith("_")
    return named and after is not None and after.token_type == TokenType.L_PAREN
