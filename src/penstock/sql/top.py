"""`ORDER BY .. LIMIT n` of an aggregated query: the first n rows of each window.

It is split off the tokens, since `screen` refuses both words elsewhere, and read from the syntax tree like HAVING.
`order` reads an ORDER BY without LIMIT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.model import AggregateWindow, Session, SortKey, Top
from penstock.model.expression import PSEUDO_ROLE
from penstock.model.time import LATEST
from penstock.sql.aggregates import is_plain
from penstock.sql.expressions import expression
from penstock.sql.grouping import Grouped, named_tree
from penstock.sql.inference import integer_literal, type_of
from penstock.sql.lengths import whole_number
from penstock.sql.position import Text, start_of
from penstock.sql.scope import bind

NO_END = (
    "results of a standing query have no end; of an aggregate, ORDER BY .. LIMIT n gives the first rows of each window"
)
_DEPTH = {TokenType.L_PAREN: 1, TokenType.L_BRACKET: 1, TokenType.R_PAREN: -1, TokenType.R_BRACKET: -1}


@dataclass(frozen=True)
class TopClause:
    """The tokens of the clause, ORDER BY, keys, LIMIT and its number, and that number."""

    order: Token
    keys: list[Token]
    limit: Token
    count: list[Token]
    number: int

    @property
    def tokens(self) -> list[Token]:
        return [self.order, *self.keys, self.limit, *self.count]


def split_top(source: Text, tokens: Sequence[Token]) -> tuple[list[Token], TopClause | None]:
    """Split `ORDER BY <keys> LIMIT <number>` off the end of a query; what follows it stays."""
    order = _outside(tokens, TokenType.ORDER_BY, 1)
    limit = None if order is None else _outside(tokens, TokenType.LIMIT, order + 1)
    if order is None or limit is None:
        return list(tokens), None
    count = tokens[limit + 1 : limit + 2]
    number = whole_number(count[0].text) if count else None
    if number is None or not 1 <= number <= LATEST:
        place = count[0] if count else tokens[limit]
        raise source.error(place.start, "LIMIT needs a whole number of rows, at least one", "as in LIMIT 10")
    clause = TopClause(tokens[order], list(tokens[order + 1 : limit]), tokens[limit], list(count), number)
    return [*tokens[:order], *tokens[limit + 2 :]], clause


def read_top(
    tree: exp.Select, grouped: Grouped, clause: TopClause | None, window: AggregateWindow | None, *, joined: bool
) -> Top | None:
    """The clause over groups and aggregates; a join without a window has nothing to rank."""
    if clause is None:
        return None
    source = grouped.scope.source
    if (window is None and joined) or isinstance(window, Session):
        what = (
            "every session is of one group" if window is not None else "without a window, every answer is of one group"
        )
        raise source.unsupported(
            clause.order.start,
            f"ORDER BY .. LIMIT compares the rows of one window, and {what}",
            "take a window of time",
        )
    keys = tuple(_key(node, tree, grouped) for node in tree.args["order"].expressions)
    return Top(keys, clause.number)


def _key(node: exp.Expr, tree: exp.Select, grouped: Grouped) -> SortKey:
    inner = node.this
    source, start = grouped.scope.source, start_of(inner)
    ordinal = integer_literal(inner)
    if ordinal is not None:
        if not 1 <= ordinal[0] <= len(tree.expressions):
            raise source.error(start, f"The select list has no item {ordinal[0]}")
        chosen = tree.expressions[ordinal[0] - 1]
        inner = chosen.this if isinstance(chosen, exp.Alias) else chosen
    lifted = grouped.lifted(bind(named_tree(inner, grouped), grouped.scope, selecting=True))
    found, type_name = expression(lifted), type_of(lifted)
    if type_name is not None and not is_plain(type_name):
        found = replace(found, term=None)  # only Spark compares such values
    if all(ref.role == PSEUDO_ROLE for ref in found.refs):
        raise source.error(
            start,
            "This is the same for all rows of a window",
            "LIMIT takes the first rows of each window: order by an aggregate, as in ORDER BY count(*) DESC LIMIT 10",
        )
    return SortKey(found, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))


def _outside(tokens: Sequence[Token], kind: TokenType, start: int) -> int | None:
    """The place of a keyword outside all parentheses, from `start` on; not where it is a name."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += _DEPTH.get(token.token_type, 0)
        named = index and tokens[index - 1].token_type in (TokenType.DOT, TokenType.ALIAS)
        if index >= start and token.token_type == kind and not depth and not named:
            return index
    return None
