"""The text of one SELECT to a `Query`: its roles and windows, its conditions, its groups, its select list, its order.

Everything the engine does not answer is refused here or in `screen`, at its place in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import did_you_mean
from penstock.model import (
    AggregateWindow,
    Aggregation,
    Emit,
    Item,
    Query,
    Ref,
    Role,
    Rows,
    Sliding,
    Stream,
    Tumbling,
    UserAggregate,
    Window,
)
from penstock.sql.conditions import Conditions, classify
from penstock.sql.dialect import WINDOW, WINDOW_START, parse_select, tokenize
from penstock.sql.emit import split_emit
from penstock.sql.expressions import column_expression, expression
from penstock.sql.grouping import Grouped, is_aggregated, read_groups, read_having, read_items, refuse_aggregates
from penstock.sql.named import query_stream
from penstock.sql.order import is_ordered, split_order
from penstock.sql.position import Position, Text, start_of
from penstock.sql.scope import Scope, bind, ref_of
from penstock.sql.screen import refuse_unsupported
from penstock.sql.slides import Slide, aggregate_window, common_window, slides
from penstock.sql.unions import split_unions, united
from penstock.sql.windows import check_alike, range_window, stream_window

MAX_ROLES = 16

# What a parsed SELECT may consist of; `screen` has refused the rest by name, this is the net below it.
_SELECT_ARGS = frozenset({
    "expressions", "from_", "joins", "where", "kind", "operation_modifiers", "group", "having", "distinct",
})  # fmt: skip
_TABLE_ARGS = frozenset({"this", "alias", "joins"})


@dataclass(frozen=True)
class _Table:
    """One item of FROM with its ON condition; `cross` if the words CROSS JOIN stand before it."""

    node: exp.Table
    on: exp.Expr | None
    cross: bool

    @property
    def start(self) -> int:
        return start_of(self.node.this)


def parse_query(
    text: str,
    streams: Mapping[str, Stream],
    *,
    script: str | None = None,
    line: int = 1,
    column: int = 1,
    queries: Mapping[str, Query] | None = None,
    own: Mapping[str, UserAggregate] | None = None,
) -> Query:
    """Parse a SELECT over registered streams. Errors point into `script`, where the text begins at `line`, `column`.

    `queries` are those over whose results an aggregate may be taken, `own` the users' aggregates by name in lower case.
    """
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
    tokens, emit_word, emit = split_emit(source, tokens)
    tokens, order = split_order(tokens)
    tokens, unions = split_unions(source, tokens)
    body, trailing = _split_window(source, tokens)
    refuse_unsupported(source, tokens)
    tree = parse_select(source, body)
    if not isinstance(tree, exp.Select):
        raise source.unsupported(tokens[0].start, "Only a plain SELECT is supported")
    _refuse_other_args(source, tree, _SELECT_ARGS, tokens[0].start)
    tables = _tables(source, tree, tokens)
    aggregated = is_aggregated(tree, own or {})
    if emit_word is not None and not aggregated:
        raise source.unsupported(emit_word.start, "EMIT is for aggregates: results of a join are final as they come")
    named = _Named(streams, queries or {}, unions, trailing)
    scope = _scope(source, tables, named, aggregated=aggregated)
    unbound = list(_conditions(tree, tables))
    refuse_aggregates(unbound, scope, own or {}, "WHERE")
    conditions = classify([bind(c, scope) for c in unbound], scope)
    _check_connected(scope, tables, conditions)
    aggregation = None
    if aggregated:
        scope, aggregation, items = _aggregated(tree, scope, tables, own or {}, emit)
    else:
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
        aggregation=aggregation,
    )


def _aggregated(
    tree: exp.Select, scope: Scope, tables: Sequence[_Table], own: Mapping[str, UserAggregate], emit: Emit | None
) -> tuple[Scope, Aggregation, tuple[Item, ...]]:
    """The aggregation and the select list over it, and the scope with the windows it then has."""
    grouped = read_groups(tree, scope, own)
    places = [_window_start(table) for table in tables]
    window: AggregateWindow | None
    if scope.windowed:
        window = common_window(scope.source, scope.roles, places)
        for role, table in enumerate(tables):
            for column in _slide(scope.source, table, scope.streams[role]).partition:
                grouped.add_column(role, column)
    else:
        scope, window = _closed_by_progress(scope, grouped, places)
    items = read_items(tree, grouped)
    having = read_having(tree, grouped)
    return scope, Aggregation(window, grouped.group_items, tuple(grouped.aggregates), having, emit), items


def _closed_by_progress(scope: Scope, grouped: Grouped, places: Sequence[int]) -> tuple[Scope, AggregateWindow | None]:
    """Groups of single event times need no window: progress closes them. Of one stream they are windows of one unit of time."""
    without = next((i for i in range(len(scope.roles)) if i not in grouped.times()), None)
    alone = len(scope.roles) == 1
    if without is not None or (alone and scope.roles[0].window is not None):
        role = scope.roles[without or 0]
        raise scope.source.unsupported(
            places[without or 0],
            "RANGE without SLIDE in an aggregate"
            if role.window is not None
            else f"An aggregate needs a window on {role.alias}",
            f"say how often there is an answer: {role.alias} [RANGE 10 MINUTES SLIDE 1 MINUTE]; or group by the event time of every"
            " stream, each time being final once progress has passed it",
        )
    if not alone:
        return scope, None
    window = Sliding(1, 1)
    return replace(scope, roles=(replace(scope.roles[0], window=window),)), window


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


def _tables(source: Text, tree: exp.Select, tokens: Sequence[Token]) -> list[_Table]:
    """The tables of FROM, in order."""
    clause = tree.args.get("from_")
    if clause is None:
        raise source.error(tokens[-1].end, "A query needs FROM with at least one stream")
    joins = [join for root in (clause.this, tree) for join in root.args.get("joins") or []]
    found = [(clause.this, None), *(each for join in joins for each in _joined(source, join))]
    tables: list[_Table] = []
    for node, join in found:
        start = start_of(node)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise source.unsupported(
                start or _keyword(tokens, TokenType.FROM), "Only streams are supported in FROM", "name a stream"
            )
        if len(node.parts) > 1:
            raise source.error(start, "Streams have plain names", "write the name without a qualifier")
        if node.args.get("alias") is not None and node.args["alias"].args.get("columns"):
            raise source.unsupported(start_of(node.args["alias"]), "Aliases for columns are not supported in FROM")
        _refuse_other_args(source, node, _TABLE_ARGS, start)
        on = None if join is None else join.args.get("on")
        tables.append(_Table(node, on, join is not None and join.args.get("kind") == "CROSS"))
    return tables


def _joined(source: Text, join: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """The table that a join brings, and those that are joined to it first: `a JOIN b JOIN c ON .. ON ..`."""
    words = {str(join.args.get(k) or "").upper() for k in ("side", "kind", "method", "global_")}
    if words - {"", "INNER", "CROSS"} or join.args.get("using"):
        raise source.unsupported(start_of(join), "Only inner joins are supported")
    yield join.this, join
    for inner in join.this.args.get("joins") or []:
        yield from _joined(source, inner)


@dataclass(frozen=True)
class _Named:
    """What the names in FROM may be, and what was cut from the text around it."""

    streams: Mapping[str, Stream]
    queries: Mapping[str, Query]
    unions: Mapping[int, list[Token]]
    trailing: Sequence[Token]


def _scope(source: Text, tables: Sequence[_Table], named: _Named, *, aggregated: bool) -> Scope:
    known = {s.name.lower(): s for s in named.streams.values()}
    windowed = aggregated and any(slides(table.node.meta.get(WINDOW)) for table in tables)
    roles: list[Role] = []
    used: list[Stream] = []
    for table in tables:
        start, given = table.start, table.node.name
        stream = known.get(given.lower()) or _query_stream(source, table, named, windowed=windowed)
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
        union = united(source, stream, named.unions.get(start, []), known)
        if windowed:
            slide = _slide(source, table, stream)
            on = _other_time(source, table, stream, slide, is_query=given.lower() not in known)
            roles.append(Role(name, stream.name, slide.window, union, on))
        else:
            roles.append(Role(name, stream.name, _window(source, table, stream, named.trailing), union))
        used.append(stream)
    if not windowed:
        check_alike(source, roles, [_window_start(table) for table in tables])
    return Scope(source, tuple(roles), tuple(used), windowed)


def _query_stream(source: Text, table: _Table, named: _Named, *, windowed: bool) -> Stream | None:
    """The results of a registered query as a stream, if that is what a name in FROM means."""
    given = table.node.name
    query = next((q for name, q in named.queries.items() if name.lower() == given.lower()), None)
    if query is None:
        return None
    if not windowed:
        raise source.unsupported(
            table.start,
            f"{given} is a query, and only aggregates read the results of another query",
            f"write an aggregate over {given} [RANGE .. SLIDE ..], or name the streams of {given} themselves",
        )
    return query_stream(source, table.start, given, query, named.streams, _on_column(table))


def _on_column(table: _Table) -> str | None:
    """The column that ON names in the brackets of a table."""
    tokens: list[Token] = table.node.meta.get(WINDOW) or []
    after = next((i + 1 for i, t in enumerate(tokens) if t.text.upper() == "ON"), len(tokens))
    return tokens[after].text if after < len(tokens) else None


def _other_time(source: Text, table: _Table, stream: Stream, slide: Slide, *, is_query: bool) -> str | None:
    """The column of ON, where the window does not follow the event time of a stream."""
    if slide.on is None or (slide.on == stream.event_time and not is_query):
        return None
    if not is_query:
        raise source.unsupported(
            _window_start(table),
            f"The window follows {slide.on}, and progress is known for {stream.event_time} of {stream.name} only",
            f"declare a second stream on the same source, with WATERMARK FOR {slide.on}",
        )
    return slide.on


def _slide(source: Text, table: _Table, stream: Stream) -> Slide:
    tokens = table.node.meta.get(WINDOW)
    if tokens is None:
        raise source.unsupported(
            table.start,
            f"{table.node.name} has no window, and the aggregate one that slides",
            "every stream of an aggregated join has its [RANGE <length> SLIDE <length>], with one SLIDE for all",
        )
    return aggregate_window(source, tokens, table.node.meta[WINDOW_START], stream)


def _window(source: Text, table: _Table, stream: Stream, trailing: Sequence[Token]) -> Window | Rows | Tumbling | None:
    tokens = table.node.meta.get(WINDOW)
    if tokens is not None:
        return stream_window(source, tokens, table.node.meta[WINDOW_START], stream)
    if trailing:
        return range_window(source, trailing[1:], trailing[0].start, stream.integer_time)
    return None


def _window_start(table: _Table) -> int:
    """Where a role's window begins, or its stream where it has none of its own."""
    tokens: list[Token] | None = table.node.meta.get(WINDOW)
    return tokens[0].start if tokens else table.start


def _check_connected(scope: Scope, tables: Sequence[_Table], conditions: Conditions) -> None:
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


def _conditions(tree: exp.Select, tables: Sequence[_Table]) -> Iterator[exp.Expr]:
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


def _refuse_other_args(source: Text, node: exp.Expr, allowed: frozenset[str], start: int) -> None:
    for key, value in node.args.items():
        if value and key not in allowed:
            place = start_of(value) if isinstance(value, exp.Expr) else 0
            raise source.unsupported(place or start, f"{key.strip('_').upper()} is not supported here")


def _keyword(tokens: Sequence[Token], kind: TokenType) -> int:
    return next((t.start for t in tokens if t.token_type == kind), 0)
