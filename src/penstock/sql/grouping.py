"""GROUP BY, HAVING, DISTINCT and the select list of an aggregated query.

In the select list and HAVING every aggregate and every grouping expression is replaced by its number; the rest must not
name columns of streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.model import Aggregate, Expression, Item, Ref
from penstock.model.aggregate import aggregate_ref, group_ref
from penstock.model.expression import WINDOW_END, WINDOW_START
from penstock.sql.aggregates import PLAIN, Own, aggregate_calls, canonical_name, is_plain, read_aggregate, shown_name
from penstock.sql.dialect import generate
from penstock.sql.expressions import column_expression, expression, expression_parts
from penstock.sql.inference import integer_literal, shape_of, type_of
from penstock.sql.position import start_of
from penstock.sql.scope import Scope, bind, bound_column, ref_of, unwrapped

_IMPLIED = (WINDOW_START, WINDOW_END)  # every result is of one window, so grouping by these changes nothing


@dataclass(frozen=True)
class _Group:
    item: Item
    type: str | None


@dataclass
class Grouped:
    """The groups of a query, and the aggregates of its select list and HAVING; filled while these are read."""

    scope: Scope
    own: Own
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)  # of the select list, in lower case
    groups: list[_Group] = field(default_factory=list)
    numbers: dict[tuple[str | Ref, ...], int] = field(default_factory=dict)  # of the groups, by their text
    kinds: set[type[exp.Expr]] = field(default_factory=set)  # of the groups' outermost nodes
    aggregates: dict[Aggregate, int] = field(default_factory=dict)  # with their numbers

    @property
    def group_items(self) -> tuple[Item, ...]:
        return tuple(group.item for group in self.groups)

    def add_group(self, name: str | None, bound: exp.Expr, place: int = 0) -> None:
        """Add a grouping expression, which stands at offset `place`."""
        found, type_name = expression(bound), type_of(bound)
        shape = shape_of(bound)
        if shape is not None and not is_plain(shape):
            raise self.scope.source.unsupported(place, f"Rows cannot be grouped by a value of type {shape}", PLAIN)
        if found.parts not in self.numbers:
            self.numbers[found.parts] = len(self.groups)
            self.kinds.add(type(unwrapped(bound)))
            self.groups.append(_Group(Item(name, found), type_name))

    def add_partition(self, role: int, column: str) -> None:
        """Group by a column of PARTITION BY too; such columns are the last groups, in their order."""
        declared = self.scope.streams[role].column(column)
        assert declared is not None
        bound = bound_column(Ref(role, declared.name), declared.type)
        own = expression(bound).parts
        self.groups = [group for group in self.groups if group.item.expression.parts != own]
        self.numbers = {group.item.expression.parts: number for number, group in enumerate(self.groups)}
        self.add_group(declared.name, bound)

    def times(self) -> set[int]:
        """The roles whose event time is a group."""
        streams = enumerate(self.scope.streams)
        parts = {group.item.expression.parts for group in self.groups}
        return {role for role, s in streams if column_expression(Ref(role, s.event_time)).parts in parts}

    def lifted(self, bound: exp.Expr) -> exp.Expr:
        """A bound tree over columns as a tree over groups and aggregates."""
        tree = exp.Paren(this=bound)
        pending = [bound]
        while pending:  # no recursion: a chain of ANDs is as deep as it is long
            pending += reversed(self._lift(pending.pop()))
        found = tree.this
        found.pop()
        assert isinstance(found, exp.Expr)
        return found

    def _lift(self, node: exp.Expr) -> list[exp.Expr]:
        """Replace a node that is a group or an aggregate; else return its operands, which are still to do."""
        group = self._group(node)
        if group is not None:
            node.replace(bound_column(group_ref(group), self.groups[group].type))
            return []
        call, ignore_nulls = node, False
        if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
            call, ignore_nulls = node.this, isinstance(node, exp.IgnoreNulls)
        if isinstance(node, exp.Filter | exp.WithinGroup):
            raise self.scope.source.unsupported(
                start_of(node),
                f"{'FILTER' if isinstance(node, exp.Filter) else 'WITHIN GROUP'} is not supported",
                "aggregate over a CASE, as in count(CASE WHEN n > 1 THEN 1 END)"
                if isinstance(node, exp.Filter)
                else "approx_percentile(.., 0.5) takes values in order",
            )
        if isinstance(call, exp.Anonymous) and canonical_name(call, self.own) is not None:
            node.replace(self._aggregate(call, ignore_nulls=ignore_nulls))
            return []
        ref = ref_of(node)
        if ref is not None and ref.role >= 0:
            raise self.scope.source.error(
                int(node.meta.get("start", 0)),
                f"{ref.column} is neither grouped by nor inside an aggregate",
                f"add it to GROUP BY, or write for example max({ref.column})",
            )
        return list(node.iter_expressions())

    def _aggregate(self, call: exp.Anonymous, *, ignore_nulls: bool) -> exp.Column:
        aggregate, type_name = read_aggregate(call, self.scope, self.own, ignore_nulls=ignore_nulls)
        return bound_column(aggregate_ref(self.aggregates.setdefault(aggregate, len(self.aggregates))), type_name)

    def _group(self, node: exp.Expr) -> int | None:
        """The number of the group that a bound tree is; constants stay constants.

        A node of another kind than all groups is none of them, so its text is not generated.
        """
        if type(node) not in self.kinds or not any(ref_of(n) is not None for n in node.walk()):
            return None
        return self.numbers.get(expression_parts(node, test=True))


def is_aggregated(tree: exp.Select, own: Own) -> bool:
    """Whether a SELECT has groups, aggregates or DISTINCT."""
    if any(tree.args.get(clause) for clause in ("group", "having", "distinct")):
        return True
    return any(True for node in tree.expressions for _ in aggregate_calls(node, own))


def refuse_aggregates(conditions: Sequence[exp.Expr], scope: Scope, own: Own, where: str) -> None:
    for node in conditions:
        for call in aggregate_calls(node, own):
            raise scope.source.error(
                start_of(call), f"{where} has no aggregates", "a condition on aggregates goes to HAVING"
            )


def read_groups(tree: exp.Select, scope: Scope, own: Own) -> Grouped:
    """The groups of GROUP BY; of DISTINCT, all items of the select list."""
    aliases = {node.alias.lower(): node.this for node in tree.expressions if isinstance(node, exp.Alias)}
    grouped = Grouped(scope, own, aliases)
    distinct, clause = tree.args.get("distinct"), tree.args.get("group")
    start = start_of(tree)
    if distinct is not None:
        calls = [call for node in tree.expressions for call in aggregate_calls(node, own)]
        if distinct.args.get("on") or clause is not None or calls or tree.args.get("having"):
            raise scope.source.unsupported(
                start, "DISTINCT beside GROUP BY or aggregates is not supported", "write GROUP BY alone"
            )
        for node in tree.expressions:
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                raise scope.source.unsupported(start_of(node), "DISTINCT * is not supported", "name the columns")
            inner = node.this if isinstance(node, exp.Alias) else node
            bound = bind(inner, scope, selecting=True)
            if ref_of(bound) is None or _is_of_stream(bound):
                grouped.add_group(_item_name(node, bound), bound, start_of(inner))
    if clause is not None:
        for key, value in clause.args.items():
            if value and key != "expressions":
                raise scope.source.unsupported(
                    start, f"GROUP BY {key.upper().replace('_', ' ')} is not supported", "name the columns"
                )
        for node in clause.expressions:
            _add_group(node, tree, grouped)
    return grouped


def read_items(tree: exp.Select, grouped: Grouped) -> tuple[Item, ...]:
    """The select list over groups and aggregates."""
    return tuple(item for node in tree.expressions for item in _items(node, grouped))


def read_having(tree: exp.Select, grouped: Grouped) -> Expression | None:
    clause = tree.args.get("having")
    if clause is None:
        return None
    return expression(grouped.lifted(bind(named_tree(clause.this, grouped), grouped.scope, selecting=True)))


def named_tree(node: exp.Expr, grouped: Grouped) -> exp.Expr:
    """An expression of HAVING or ORDER BY with aliases of the select list replaced by their expressions."""
    return _without_aliases(node, grouped, aliases_first=True)


def _add_group(node: exp.Expr, tree: exp.Select, grouped: Grouped) -> None:
    scope = grouped.scope
    if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
        raise scope.source.unsupported(
            start_of(node),
            "ROLLUP, CUBE, GROUPING SETS and lists in GROUP BY are not supported",
            "register a query for each",
        )
    ordinal = integer_literal(node)
    if ordinal is not None:
        if not 1 <= ordinal[0] <= len(tree.expressions):
            raise scope.source.error(start_of(node), f"The select list has no item {ordinal[0]}")
        chosen = tree.expressions[ordinal[0] - 1]
        node = chosen.this if isinstance(chosen, exp.Alias) else chosen
    named = _without_aliases(node, grouped)
    if _plain_name(named) in _IMPLIED and not any(s.column(_plain_name(named)) for s in scope.streams):
        return
    refuse_aggregates([named], scope, grouped.own, "GROUP BY")
    bound = bind(named, scope)
    if not any(ref_of(n) is not None for n in bound.walk()):
        raise scope.source.error(start_of(node), "GROUP BY needs a column in each of its expressions")
    grouped.add_group(_item_name(node, bound), bound, start_of(node))


def _items(node: exp.Expr, grouped: Grouped) -> Iterator[Item]:
    scope = grouped.scope
    if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
        raise scope.source.unsupported(start_of(node), "* in an aggregated query is not supported", "name the groups")
    if isinstance(node, exp.Aliases):
        raise scope.source.unsupported(start_of(node), "Several names for one item are not supported")
    inner = node.this if isinstance(node, exp.Alias) else node
    bound = bind(inner, scope, selecting=True)
    name = _item_name(node, bound) or _spark_name(inner, grouped.own)
    yield Item(name, expression(grouped.lifted(bound)))


def _item_name(node: exp.Expr, bound: exp.Expr) -> str | None:
    if isinstance(node, exp.Alias):
        return node.alias
    ref = ref_of(bound)
    return None if ref is None else ref.column


def _spark_name(node: exp.Expr, own: Own) -> str:
    """The name that Spark gives to a call; anything else is named by its own text."""
    called = unwrapped(node)
    if isinstance(called, exp.Anonymous) and canonical_name(called, own) is not None:
        return shown_name(called)
    return generate(called)


def _without_aliases(node: exp.Expr, grouped: Grouped, *, aliases_first: bool = False) -> exp.Expr:
    """The tree with aliases of the select list replaced by their expressions.

    As in Spark, a column of a stream precedes an alias of the same name in GROUP BY, and follows it in HAVING except in
    arguments of aggregates.
    """
    root = exp.Paren(this=node.copy())
    arguments = {id(column) for call in aggregate_calls(root, grouped.own) for column in call.find_all(exp.Column)}
    for column in list(root.find_all(exp.Column)):
        name = _plain_name(column)
        if name not in grouped.aliases:
            continue
        of_stream = any(s.column(name) for s in grouped.scope.streams)
        if not (of_stream and (id(column) in arguments or not aliases_first)):
            column.replace(exp.Paren(this=grouped.aliases[name].copy()))
    found = root.this
    found.pop()
    assert isinstance(found, exp.Expr)
    return unwrapped(found)


def _plain_name(node: exp.Expr) -> str:
    """The name of an unqualified column in lower case; empty for anything else."""
    return node.name.lower() if isinstance(node, exp.Column) and len(node.parts) == 1 else ""


def _is_of_stream(bound: exp.Expr) -> bool:
    ref = ref_of(bound)
    return ref is not None and ref.role >= 0
