"""The text of a view's SELECT to a `View`: nodes, edges, filters, select list, groups and aggregates.

A view is a join of sources in any connected graph, with aggregates by group on top. What cannot be maintained is
refused at its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.columns.types import exact_digits
from penstock.errors import did_you_mean
from penstock.model import Expression, Item, Ref, Role, Stream
from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE
from penstock.model.view import Edge, Node, Source, View, ViewAggregate
from penstock.sql import functions
from penstock.sql.dialect import WINDOW, WINDOW_START, generate, parse_select, tokenize
from penstock.sql.expressions import roles_of
from penstock.sql.inference import function_call, type_of
from penstock.sql.nesting import enough_stack, refuse_deep, refuse_nested
from penstock.sql.position import Position, Text, start_of
from penstock.sql.scope import Scope, bind, bound_column, ref_of, unwrapped
from penstock.sql.screen import refuse_unsupported
from penstock.sql.tables import Table, check_connected, conditions_of, read_tables, refuse_other_args
from penstock.sql.types import family
from penstock.sql.view_terms import joins_equal, view_condition, view_expression

MOST_NODES = 32
_AGGREGATES = functions.AGGREGATES | functions.ANSWERED_AGGREGATES.keys()
_SELECT_ARGS = frozenset({"expressions", "from_", "joins", "where", "kind", "operation_modifiers", "group"})
MAINTAINED = ("count", "sum", "avg", "min", "max")


def parse_view(
    text: str, sources: Mapping[str, Source], *, name: str, script: str | None = None, line: int = 1, column: int = 1
) -> View:
    """Parse the SELECT of a view. Errors point into `script`, where the text begins at `line`, `column`."""
    source = Text(text, script, Position(line, column))
    with enough_stack(source):
        return _view(source, sources, name)


def _view(source: Text, sources: Mapping[str, Source], name: str) -> View:
    tokens, tree, tables, scope = _read(source, sources)
    filters, edges, residuals = _sorted(conditions_of(tree, tables), scope)
    more = "; a condition over three sources or more does not" if residuals else ""
    check_connected(
        scope, tables, [{e.left, e.right} for e in edges],
        lambda alias, first: f"add a condition between two sources, for example {first}.k = {alias}.k{more}",
    )  # fmt: skip
    groups = _groups(tree, scope)
    select = _Select(scope, groups)
    items = tuple(item for node in tree.expressions for item in select.items(node, star=not groups))
    if not items:
        raise source.error(tokens[0].start, "The select list is empty")
    _check_names(source, tokens, items)
    if select.aggregates or groups:
        items = tuple(item for node in tree.expressions for item in select.items(node, star=False, above=True))
    nodes = tuple(Node(role.alias, role.stream) for role in scope.roles)
    return View(
        name, source.text.strip(), nodes, edges, filters, items,
        tuple(view_expression(g, source)[0] for g in groups), tuple(select.aggregates), residuals,
    )  # fmt: skip


def check_sources(
    text: str, sources: Mapping[str, Source], *, script: str | None = None, line: int = 1, column: int = 1
) -> None:
    """All checks of a view's SELECT that do not need the columns of its sources."""
    source = Text(text, script, Position(line, column))
    with enough_stack(source):
        _read(source, sources)


def _read(source: Text, sources: Mapping[str, Source]) -> tuple[list[Token], exp.Select, Sequence[Table], Scope]:
    """The tokens and the tree of a SELECT, and the tables and scope of its FROM."""
    tokens = [t for t in tokenize(source) if t.token_type != TokenType.SEMICOLON]
    if not tokens:
        raise source.error(0, "Expected a SELECT")
    refuse_nested(source, tokens)
    for token in tokens:
        if token.token_type == TokenType.ORDER_BY:
            raise source.unsupported(token.start, "A view has no order", "order what you read from it")
    for before, token in pairwise(tokens):
        if token.token_type == TokenType.HAVING:
            raise source.unsupported(token.start, "HAVING is not supported in a view", "filter what you read from it")
        if token.token_type == TokenType.DISTINCT and before.token_type == TokenType.SELECT:
            raise source.unsupported(
                token.start, "SELECT DISTINCT is not supported in a view", "write GROUP BY the columns"
            )
    refuse_unsupported(source, tokens, f"aggregates that a view keeps: {', '.join(MAINTAINED)}")
    tree = parse_select(source, tokens)
    if not isinstance(tree, exp.Select):
        raise source.unsupported(tokens[0].start, "Only a plain SELECT is supported")
    refuse_deep(source, tree)
    refuse_other_args(source, tree, _SELECT_ARGS, tokens[0].start)
    tables = read_tables(source, tree, tokens, "source")
    return tokens, tree, tables, _scope(source, tables, sources)


def _scope(source: Text, tables: Sequence[Table], sources: Mapping[str, Source]) -> Scope:
    known = {s.name.lower(): s for s in sources.values()}
    roles: list[Role] = []
    streams: list[Stream] = []
    for table in tables:
        if WINDOW in table.node.meta:
            raise source.error(table.node.meta[WINDOW_START], "A source has no window", "leave the brackets out")
        found = known.get(table.node.name.lower())
        if found is None:
            hint = did_you_mean(table.node.name, (s.name for s in known.values())) or "declare it with CREATE SOURCE"
            raise source.error(table.start, f"Unknown source {table.node.name}", hint)
        alias = table.node.args.get("alias")
        name = alias.name if alias is not None else found.name
        if any(r.alias.lower() == name.lower() for r in roles):
            place = start_of(alias) if alias is not None else table.start
            raise source.error(place, f"The name {name} is used twice in FROM", "give each its own alias")
        if len(roles) == MOST_NODES:
            raise source.unsupported(table.start, f"A view may join at most {MOST_NODES} sources")
        roles.append(Role(name, found.name, None))
        # Names are resolved as in a query over streams; a source has no event time.
        streams.append(Stream(found.name, found.columns, "", 0))
    return Scope(source, tuple(roles), tuple(streams), noun="source")


# -- conditions -----------------------------------------------------------------------------------------------------


def _sorted(
    conditions: Iterator[exp.Expr], scope: Scope
) -> tuple[tuple[Expression, ...], tuple[Edge, ...], tuple[Expression, ...]]:
    """The conjuncts over one node, the edges between two, and conditions over more."""
    filters: list[Expression] = []
    residuals: list[Expression] = []
    equal: dict[tuple[int, int], list[tuple[str, str]]] = {}
    others: dict[tuple[int, int], list[Expression]] = {}
    for conjunct in (c for node in conditions for c in _conjuncts(bind(node, scope))):
        roles = roles_of(conjunct)
        pair = _equal_columns(conjunct, scope)
        if not roles:
            raise scope.source.unsupported(start_of(conjunct), "This condition names no column", "leave it out")
        if pair is not None:
            equal.setdefault((roles[0], roles[1]), []).append(pair)
            others.setdefault((roles[0], roles[1]), [])
        elif len(roles) == 1:
            filters.append(view_condition(conjunct, scope.source))
        elif len(roles) == 2:
            others.setdefault((roles[0], roles[1]), []).append(view_condition(conjunct, scope.source))
        else:
            residuals.append(view_condition(conjunct, scope.source))
    edges = tuple(
        Edge(a, b, tuple(dict.fromkeys(equal.get((a, b), ()))), tuple(found))
        for (a, b), found in sorted(others.items())
    )
    return tuple(filters), edges, tuple(residuals)


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    node = unwrapped(node)
    if isinstance(node, exp.And):
        for operand in node.flatten():
            yield from _conjuncts(operand)
    else:
        yield node


def _equal_columns(node: exp.Expr, scope: Scope) -> tuple[str, str] | None:
    """`a.x = b.y` as (column of the earlier node, column of the later one)."""
    if not isinstance(node, exp.EQ):
        return None
    left, right = ref_of(unwrapped(node.this)), ref_of(unwrapped(node.expression))
    if left is None or right is None or left.role == right.role:
        return None
    one, other = type_of(node.this) or "", type_of(node.expression) or ""
    why = joins_equal(one, other)
    if why is not None:
        raise scope.source.unsupported(
            start_of(node),
            f"A {one} column is not joined with a {other} column: {why}",
            "declare one of them with the other's type, or cast it in its source",
        )
    return (left.column, right.column) if left.role < right.role else (right.column, left.column)


# -- select list ----------------------------------------------------------------------------------------------------


def _groups(tree: exp.Select, scope: Scope) -> list[exp.Expr]:
    clause = tree.args.get("group")
    if clause is None:
        return []
    for key, value in clause.args.items():
        if value and key != "expressions":
            raise scope.source.unsupported(
                start_of(clause), f"GROUP BY {key.upper()} is not supported", "name the columns"
            )
    found = []
    for node in clause.expressions:
        if isinstance(unwrapped(node), exp.Literal):
            raise scope.source.unsupported(start_of(node), "GROUP BY a position is not supported", "name the column")
        found.append(unwrapped(bind(node, scope)))
    return found


@dataclass
class _Select:
    """Reads the items of a select list, and collects their aggregates."""

    scope: Scope
    groups: list[exp.Expr]
    aggregates: list[ViewAggregate] = field(default_factory=list)

    def items(self, node: exp.Expr, *, star: bool, above: bool = False) -> Iterator[Item]:
        """The columns of one entry; `above` aggregates they are expressions over groups and aggregates."""
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            yield from self._all(node, star=star)
            return
        inner = node.this if isinstance(node, exp.Alias) else node
        bound = bind(inner, self.scope)
        name = node.alias if isinstance(node, exp.Alias) else _natural_name(inner)
        replaced = self._replaced(bound, start_of(inner))
        if above:
            for left in replaced.find_all(exp.Column):
                ref = ref_of(left)
                if ref is not None and ref.role >= 0:
                    raise self.scope.source.error(
                        start_of(left), f"{ref.column} must be in GROUP BY, or inside an aggregate"
                    )
            yield Item(name, view_expression(replaced, self.scope.source)[0])
        elif self.aggregates or self.groups:
            yield Item(name, Expression((), None, total=True))
        else:
            yield Item(name, view_expression(bound, self.scope.source)[0])

    def _all(self, node: exp.Expr, *, star: bool) -> Iterator[Item]:
        if not star:
            raise self.scope.source.error(
                start_of(node), "* cannot stand beside GROUP BY or aggregates", "name the columns"
            )
        wanted: Sequence[int] = range(len(self.scope.roles))
        if isinstance(node, exp.Column):
            role = self.scope.role(node.table)
            if role is None:
                known = (r.alias for r in self.scope.roles)
                raise self.scope.source.error(
                    start_of(node), f"{node.table} is no source or alias of this query", did_you_mean(node.table, known)
                )
            wanted = [role]
        for role in wanted:
            for column in self.scope.streams[role].columns:
                bound = bound_column(Ref(role, column.name), column.type)
                yield Item(column.name, view_expression(bound, self.scope.source)[0])

    def _replaced(self, bound: exp.Expr, start: int) -> exp.Expr:
        """The tree with its groups and aggregates replaced by references."""
        tree = exp.Paren(this=bound.copy())
        pending = [tree.this]
        while pending:
            node = pending.pop()
            group = next((k for k, g in enumerate(self.groups) if _same(g, node)), None)
            call = function_call(node)
            if group is not None:
                node.replace(
                    bound_column(
                        Ref(GROUP_ROLE, f"g{group}"),
                        type_of(self.groups[group]) or _type(self.groups[group], self.scope),
                    )
                )
            elif call is not None and call[0] in _AGGREGATES:
                number, kind = self._aggregate(*call, start_of(node) or start)
                node.replace(bound_column(Ref(AGGREGATE_ROLE, f"a{number}"), kind))
            else:
                pending += list(node.iter_expressions())
        replaced: exp.Expr = tree.this
        return replaced

    def _aggregate(self, name: str, arguments: list[exp.Expr], start: int) -> tuple[int, str]:
        source = self.scope.source
        function = {"mean": "avg"}.get(name, name)
        if function not in MAINTAINED:
            raise source.unsupported(
                start, f"The aggregate {name} is not maintained", f"known: {', '.join(MAINTAINED)}"
            )
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions)
        if len(arguments) != 1:
            raise source.unsupported(start, f"{name} takes one argument in a view")
        argument = arguments[0]
        if isinstance(argument, exp.Star):
            if function != "count" or distinct:
                raise source.error(start, f"{name}(*) has no meaning")
            return self._add(ViewAggregate("count", None)), "bigint"
        if any((call := function_call(n)) is not None and call[0] in _AGGREGATES for n in argument.walk()):
            raise source.error(start, "An aggregate cannot stand inside another")
        expression, kind = view_expression(argument, source)
        if not expression.refs:
            raise source.unsupported(start, f"{name} of a constant is not supported", "write count(*) to count rows")
        if function in ("sum", "avg") and not (family(kind) in ("integer", "floating") or exact_digits(kind)):
            raise source.error(start, f"{name} takes numbers, not {kind}")
        if function in ("min", "max"):
            distinct = False  # duplicates do not change the least value
        return self._add(ViewAggregate(function, expression, distinct)), _result(function, kind)

    def _add(self, aggregate: ViewAggregate) -> int:
        if aggregate not in self.aggregates:
            self.aggregates.append(aggregate)
        return self.aggregates.index(aggregate)


def _type(node: exp.Expr, scope: Scope) -> str:
    return view_expression(node, scope.source)[1]


def _result(function: str, kind: str) -> str:
    """The type of an aggregate, as in Spark."""
    if function == "count":
        return "bigint"
    if function in ("min", "max"):
        return kind
    digits = exact_digits(kind) if kind.startswith("decimal") else None
    if digits is not None:
        more = (10, 0) if function == "sum" else (4, 4)
        return f"decimal({min(38, digits[0] + more[0])},{min(38, digits[1] + more[1])})"
    return "double" if function == "avg" or family(kind) == "floating" else "bigint"


def _same(one: exp.Expr, other: exp.Expr) -> bool:
    """Whether two bound trees are equal, over the same columns."""
    if type(one) is not type(other):
        return False
    left, right = ref_of(one), ref_of(other)
    if left is not None or right is not None:
        return left == right
    mine, theirs = list(one.iter_expressions()), list(other.iter_expressions())
    if len(mine) != len(theirs):
        return False
    if not mine:
        return bool(one == other)
    return all(_same(a, b) for a, b in zip(mine, theirs, strict=True))


def _natural_name(node: exp.Expr) -> str:
    inner = unwrapped(node)
    return inner.name if isinstance(inner, exp.Column) else generate(inner)


def _check_names(source: Text, tokens: Sequence[Token], items: Sequence[Item]) -> None:
    seen: set[str] = set()
    for item in items:
        assert item.name is not None
        if item.name.lower() in seen:
            raise source.error(
                tokens[0].start, f"Two columns of the view are named {item.name}", "give one another name: AS"
            )
        seen.add(item.name.lower())
