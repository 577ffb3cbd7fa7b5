"""The text of one SELECT to a `Query`: its roles and windows, its conditions, its select list, its order.

Everything the engine does not answer is refused here or in `screen`, at its place in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import did_you_mean
from penstock.model import Item, Query, Ref, Role, Rows, Stream, Tumbling, Window
from penstock.sql.conditions import Conditions, classify
from penstock.sql.dialect import WINDOW, WINDOW_START, parse_select, tokenize
from penstock.sql.expressions import column_expression, expression
from penstock.sql.order import is_ordered, split_order
from penstock.sql.position import Position, Text, start_of
from penstock.sql.scope import Scope, bind, ref_of
from penstock.sql.screen import refuse_unsupported
from penstock.sql.windows import check_alike, range_window, stream_window

MAX_ROLES = 16

# What a parsed SELECT may consist of; `screen` has refused the rest by name, this is the net below it.
SELECT_ARGS = frozenset({"expressions", "from_", "joins", "where", "kind", "operation_modifiers"})
_TABLE_ARGS = frozenset({"this", "alias", "joins"})


@dataclass(frozen=True)
class Table:
    """One item of FROM with its ON condition; `cross` if the words CROSS JOIN stand before it."""

    node: exp.Table
    on: exp.Expr | None
    cross: bool

    @property
    def start(self) -> int:
        return start_of(self.node.this)


def parse_query(
    text: str, streams: Mapping[str, Stream], *, script: str | None = None, line: int = 1, column: int = 1
) -> Query:
    """Parse a SELECT over registered streams. Errors point into `script`, where the text begins at `line`, `column`."""
    source = Text(text, script, Position(line, column))
    if "\ue000" in text:
        raise source.error(text.index("\ue000"), "The character U+E000 is reserved")
    tokens = tokenize(source)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise source.error(0, "Expected a SELECT")
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise source.error(token.start, "Expected one SELECT only")
    tokens, order = split_order(tokens)
    body, trailing = _split_window(source, tokens)
    refuse_unsupported(source, tokens)
    tree = parse_select(source, body)
    if not isinstance(tree, exp.Select):
        raise source.unsupported(tokens[0].start, "Only a plain SELECT is supported")
    refuse_other_args(source, tree, SELECT_ARGS, tokens[0].start)
    tables = tables_of(source, tree, tokens)
    scope = _scope(source, tables, streams, trailing)
    bound = [bind(c, scope) for c in conditions_of(tree, tables)]
    conditions = classify(bound, scope)
    _check_connected(scope, tables, conditions)
    items = tuple(item for node in tree.expressions for item in _items(node, scope))
    if not items:
        raise source.error(tokens[0].start, "The select list is empty")
    return Query(
        sql=text.strip(),
        roles=scope.roles,
        keys=conditions.keys,
        bands=conditions.bands,
        predicates=conditions.predicates,
        residuals=conditions.residuals,
        items=items,
        ordered=is_ordered(order, scope, items),
    )


def _split_window(source: Text, tokens: Sequence[Token]) -> tuple[list[Token], list[Token]]:
    """Cut `WINDOW <length>` from the end of a query; the word WINDOW stays first in the second part."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        named = index and tokens[index - 1].token_type in (TokenType.DOT, TokenType.ALIAS)
        if token.token_type != TokenType.WINDOW or depth or named:
            continue
        after = tokens[index + 1 : index + 3]
        if len(after) == 2 and after[1].token_type == TokenType.ALIAS:
            raise source.unsupported(token.start, "Named windows are not supported")
        if after and (after[0].text.upper() in ("ALL", "INTERVAL", "-") or after[0].token_type == TokenType.NUMBER):
            return list(tokens[:index]), list(tokens[index:])
    return list(tokens), []


def tables_of(source: Text, tree: exp.Select, tokens: Sequence[Token], noun: str = "stream") -> list[Table]:
    """The tables of FROM, in order; `noun` is what they are called in messages."""
    clause = tree.args.get("from_")
    if clause is None:
        raise source.error(tokens[-1].end, f"A query needs FROM with at least one {noun}")
    joins = [join for root in (clause.this, tree) for join in root.args.get("joins") or []]
    found = [(clause.this, None), *(each for join in joins for each in _joined(source, join))]
    tables: list[Table] = []
    for node, join in found:
        start = start_of(node)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise source.unsupported(
                start or _keyword(tokens, TokenType.FROM), f"Only {noun}s are supported in FROM", f"name a {noun}"
            )
        if len(node.parts) > 1:
            raise source.error(start, f"{noun.capitalize()}s have plain names", "write the name without a qualifier")
        if node.args.get("alias") is not None and node.args["alias"].args.get("columns"):
            raise source.unsupported(start_of(node.args["alias"]), "Aliases for columns are not supported in FROM")
        refuse_other_args(source, node, _TABLE_ARGS, start)
        on = None if join is None else join.args.get("on")
        tables.append(Table(node, on, join is not None and join.args.get("kind") == "CROSS"))
    return tables


def _joined(source: Text, join: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """The table that a join brings, and those that are joined to it first: `a JOIN b JOIN c ON .. ON ..`."""
    words = {str(join.args.get(k) or "").upper() for k in ("side", "kind", "method", "global_")}
    if words - {"", "INNER", "CROSS"} or join.args.get("using"):
        raise source.unsupported(start_of(join), "Only inner joins are supported")
    yield join.this, join
    for inner in join.this.args.get("joins") or []:
        yield from _joined(source, inner)


def _scope(source: Text, tables: Sequence[Table], streams: Mapping[str, Stream], trailing: Sequence[Token]) -> Scope:
    known = {s.name.lower(): s for s in streams.values()}
    roles: list[Role] = []
    used: list[Stream] = []
    for table in tables:
        start, given = table.start, table.node.name
        stream = known.get(given.lower())
        if stream is None:
            hint = did_you_mean(given, (s.name for s in known.values())) or "declare it with CREATE STREAM"
            raise source.error(start, f"Unknown stream {given}", hint)
        if used and stream.integer_time != used[0].integer_time:
            raise source.error(
                start, f"Streams {used[0].name} and {stream.name} cannot be joined: one has integer event time"
            )
        alias = table.node.args.get("alias")
        name = alias.name if alias is not None else stream.name
        if any(r.alias.lower() == name.lower() for r in roles):
            place = start_of(alias) if alias is not None else start
            raise source.error(place, f"The name {name} is used twice in FROM", "give each its own alias")
        if len(roles) == MAX_ROLES:
            raise source.unsupported(start, f"A query may join at most {MAX_ROLES} streams")
        roles.append(Role(name, stream.name, _window(source, table, stream, trailing)))
        used.append(stream)
    check_alike(source, roles, [_window_start(table) for table in tables])
    return Scope(source, tuple(roles), tuple(used))


def _window(source: Text, table: Table, stream: Stream, trailing: Sequence[Token]) -> Window | Rows | Tumbling | None:
    tokens = table.node.meta.get(WINDOW)
    if tokens is not None:
        return stream_window(source, tokens, table.node.meta[WINDOW_START], stream)
    if trailing:
        return range_window(source, trailing[1:], trailing[0].start, stream.integer_time)
    return None


def _window_start(table: Table) -> int:
    """Where a role's window begins, or its stream where it has none of its own."""
    tokens: list[Token] | None = table.node.meta.get(WINDOW)
    return tokens[0].start if tokens else table.start


def _check_connected(scope: Scope, tables: Sequence[Table], conditions: Conditions) -> None:
    """Refuse a role that no condition ties to the others, unless CROSS JOIN asks for every combination."""
    ties = [*conditions.ties, *({role - 1, role} for role, table in enumerate(tables) if table.cross)]
    reached = {0}
    while growing := [tie for tie in ties if tie & reached and not tie <= reached]:
        reached.update(*growing)
    for role, table in enumerate(tables):
        if role not in reached:
            alias, first = scope.roles[role].alias, scope.roles[0].alias
            raise scope.source.unsupported(
                table.start,
                f"No condition connects {alias} with {first}, so that every row of one would meet every row of the other",
                f"add a condition, for example {first}.k = {alias}.k, or write CROSS JOIN if that is what you want",
            )


def conditions_of(tree: exp.Select, tables: Sequence[Table]) -> Iterator[exp.Expr]:
    yield from (table.on for table in tables if table.on is not None)
    where = tree.args.get("where")
    if where is not None:
        yield where.this


def _items(node: exp.Expr, scope: Scope) -> Iterator[Item]:
    """The columns that one entry of the select list stands for."""
    if isinstance(node, exp.Star):
        _refuse_star_options(scope.source, node, node)
        for role in range(len(scope.roles)):
            yield from _all_columns(role, scope)
        return
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        _refuse_star_options(scope.source, node, node.this)
        qualifier = node.table
        found = scope.role(qualifier) if len(node.parts) == 2 else None
        if found is None:
            known = (r.alias for r in scope.roles)
            raise scope.source.error(
                start_of(node), f"{qualifier} is no stream or alias of this query", did_you_mean(qualifier, known)
            )
        yield from _all_columns(found, scope)
        return
    if isinstance(node, exp.Aliases):
        raise scope.source.unsupported(start_of(node), "Several names for one item are not supported")
    name: str | None = None
    inner = node
    if isinstance(node, exp.Alias):
        name, inner = node.alias, node.this
    bound = bind(inner, scope, selecting=True)
    if name is None:
        name = _natural_name(bound)
    yield Item(name, expression(bound))


def _natural_name(bound: exp.Expr) -> str | None:
    """The name of a bare column, or of the field taken from one."""
    ref = ref_of(bound)
    if ref is not None:
        return ref.column
    if isinstance(bound, exp.Dot) and isinstance(bound.expression, exp.Identifier):
        return bound.expression.name
    return None


def _all_columns(role: int, scope: Scope) -> Iterator[Item]:
    for column in scope.streams[role].columns:
        yield Item(column.name, column_expression(Ref(role, column.name)))


def _refuse_star_options(source: Text, node: exp.Expr, star: exp.Expr) -> None:
    if any(value for key, value in star.args.items() if key != "this"):
        raise source.unsupported(start_of(node), "* with EXCEPT or other options is not supported", "name the columns")


def refuse_other_args(source: Text, node: exp.Expr, allowed: frozenset[str], start: int) -> None:
    for key, value in node.args.items():
        if value and key not in allowed:
            place = start_of(value) if isinstance(value, exp.Expr) else 0
            raise source.unsupported(place or start, f"{key.strip('_').upper()} is not supported here")


def _keyword(tokens: Sequence[Token], kind: TokenType) -> int:
    return next((t.start for t in tokens if t.token_type == kind), 0)
