"""The text of one SELECT to a `Query`: its roles and windows, conditions, groups, select list and order.

Whatever the engine does not answer is refused here or in `screen`, at its place in the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.model import (
    AggregateWindow,
    Aggregation,
    Emit,
    Item,
    Query,
    Role,
    Rows,
    Stream,
    UserAggregate,
    Window,
)
from penstock.model.time import format_length
from penstock.sql.aggregate_windows import common_window
from penstock.sql.conditions import classify
from penstock.sql.cursor import Cursor
from penstock.sql.dialect import parse_select, tokenize
from penstock.sql.expressions import expression
from penstock.sql.grouping import Grouped, is_aggregated, read_groups, read_having, read_items, refuse_aggregates
from penstock.sql.items import select_items
from penstock.sql.lengths import positive_length
from penstock.sql.named import Results
from penstock.sql.nesting import enough_stack, refuse_deep, refuse_nested
from penstock.sql.order import is_ordered, split_order
from penstock.sql.position import Position, Text
from penstock.sql.scope import Scope, bind
from penstock.sql.screen import refuse_unsupported
from penstock.sql.tables import (
    Named,
    Table,
    check_connected,
    conditions_of,
    read_scope,
    read_tables,
    refuse_other_args,
    slide_of,
    window_place,
)
from penstock.sql.top import NO_END, TopClause, read_top, split_top
from penstock.sql.unions import split_unions

# What a parsed SELECT may consist of: the safety net below `screen`, which refuses the rest by name.
_SELECT_ARGS = frozenset({
    "expressions", "from_", "joins", "where", "kind", "operation_modifiers", "group", "having", "distinct",
    "order", "limit",
})  # fmt: skip


def parse_query(
    text: str,
    streams: Mapping[str, Stream],
    *,
    script: str | None = None,
    line: int = 1,
    column: int = 1,
    queries: Mapping[str, Query | Results] | None = None,
    own: Mapping[str, UserAggregate] | None = None,
) -> Query:
    """Parse a SELECT over registered streams. Errors point into `script`, where the text begins at `line`, `column`.

    `queries` are those whose results can be read like streams, `own` the users' aggregates by lower-case name.
    """
    source = Text(text, script, Position(line, column))
    with enough_stack(source):
        return _query(source, streams, queries or {}, own or {})


def _query(
    source: Text,
    streams: Mapping[str, Stream],
    queries: Mapping[str, Query | Results],
    own: Mapping[str, UserAggregate],
) -> Query:
    text = source.text
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
    refuse_nested(source, tokens)
    tokens, emit_word, emit = split_emit(source, tokens)
    tokens, top = split_top(source, tokens)
    tokens, order = split_order(tokens)
    tokens, unions = split_unions(source, tokens)
    body, trailing = _split_window(source, tokens)
    refuse_unsupported(source, [*tokens[:1], *top.keys, *tokens[1:]] if top else tokens)
    tree = parse_select(source, [*body, *top.tokens] if top else body)
    if not isinstance(tree, exp.Select):
        raise source.unsupported(tokens[0].start, "Only a plain SELECT is supported")
    refuse_deep(source, tree)
    refuse_other_args(source, tree, _SELECT_ARGS, tokens[0].start)
    tables = read_tables(source, tree, tokens)
    aggregated = is_aggregated(tree, own)
    if emit_word is not None and not aggregated:
        raise source.unsupported(emit_word.start, "EMIT is for aggregates: results of a join are final as they come")
    if top is not None and not aggregated:
        raise source.unsupported(top.limit.start, "LIMIT is not supported here", NO_END)
    named = Named(streams, queries, unions, trailing, own)
    scope = read_scope(source, tables, named, aggregated=aggregated)
    unbound = list(conditions_of(tree, tables))
    refuse_aggregates(unbound, scope, own, "WHERE")
    conditions = classify([bind(c, scope) for c in unbound], scope)
    ties = [*conditions.ties, *({role - 1, role} for role, table in enumerate(tables) if table.cross)]
    check_connected(scope, tables, ties, _connecting)
    aggregation = None
    if aggregated:
        scope, aggregation, items = _aggregated(tree, scope, tables, own, emit, top)
    else:
        selected = [one for node in tree.expressions for one in select_items(node, scope)]
        items = tuple(Item(name, expression(bound)) for name, bound in selected)
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
        aggregation=aggregation,
    )


def _connecting(alias: str, first: str) -> str:
    return f"add a condition, for example {first}.k = {alias}.k, or write CROSS JOIN if that is what you want"


def _aggregated(
    tree: exp.Select,
    scope: Scope,
    tables: Sequence[Table],
    own: Mapping[str, UserAggregate],
    emit: Emit | None,
    top: TopClause | None,
) -> tuple[Scope, Aggregation, tuple[Item, ...]]:
    """The aggregation, the select list over it, and the scope with its windows."""
    grouped = read_groups(tree, scope, own)
    places = [window_place(table) for table in tables]
    window: AggregateWindow | None
    if scope.windowed:
        window = common_window(scope.source, scope.roles, places)
        for role, table in enumerate(tables):
            for column in slide_of(scope.source, table, scope.streams[role]).partition:
                grouped.add_partition(role, column)
    else:
        _check_closed_by_progress(scope, grouped, places)
        window = None
    items = read_items(tree, grouped)
    having = read_having(tree, grouped)
    best = read_top(tree, grouped, top, window, joined=len(scope.roles) > 1)
    return scope, Aggregation(window, grouped.group_items, tuple(grouped.aggregates), having, emit, best), items


def _check_closed_by_progress(scope: Scope, grouped: Grouped, places: Sequence[int]) -> None:
    """Groups of single event times need no window: progress closes them."""
    without = next((i for i in range(len(scope.roles)) if i not in grouped.times()), None)
    alone = len(scope.roles) == 1
    if without is not None or (alone and scope.roles[0].window is not None):
        role = scope.roles[without or 0]
        raise _without_slide(scope, role, places[without or 0])


def _without_slide(scope: Scope, role: Role, place: int) -> Exception:
    """The refusal of an aggregate over a role whose window does not slide or that has none."""
    if isinstance(role.window, Rows):
        count = role.window.count
        by = f" PARTITION BY {', '.join(role.window.partition)}" if role.window.partition else ""
        return scope.source.unsupported(
            place,
            "[ROWS ..] in an aggregate",
            f"say how often there is an answer: [RANGE {count} ROWS SLIDE 1 ROW{by}]",
        )
    window = role.window if isinstance(role.window, Window) else None
    what = (
        "RANGE without SLIDE in an aggregate" if window is not None else f"An aggregate needs a window on {role.alias}"
    )
    reach = "10 MINUTES" if window is None else "ALL"
    if window is not None and window.length is not None:
        reach = format_length(window.length, integer=scope.integer_time).upper()
    return scope.source.unsupported(
        place,
        what,
        f"say how often there is an answer: "
        f"{role.alias} [RANGE {reach} SLIDE {1 if scope.integer_time else '1 MINUTE'}]; or group by the"
        " event time of every stream, each time being final once progress has passed it",
    )


def _split_window(source: Text, tokens: Sequence[Token]) -> tuple[list[Token], list[Token]]:
    """Split `WINDOW <length>` off the end of a query; WINDOW is the first word of the second part."""
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
