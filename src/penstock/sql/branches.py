"""The SELECTs of a union: each has a select list and a condition over one stream, and all have the same columns.

Columns correspond by position, as in SQL, and take the names of the first SELECT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.model import Branch, Column, Item, Ref, Role, Stream
from penstock.model.expression import PSEUDO_ROLE
from penstock.sql.aggregates import Own, aggregate_calls
from penstock.sql.conditions import classify
from penstock.sql.dialect import WINDOW, WINDOW_START, parse_select
from penstock.sql.expressions import expression
from penstock.sql.inference import VOID, type_of
from penstock.sql.items import is_star, select_items
from penstock.sql.nesting import refuse_deep
from penstock.sql.position import Text, start_of
from penstock.sql.scope import Scope, bind, ref_of
from penstock.sql.screen import refuse_unsupported
from penstock.sql.unions import Part

_SELECT_ARGS = frozenset({"expressions", "from_", "where", "kind", "operation_modifiers"})
_TABLE_ARGS = frozenset({"this", "alias"})
_ONE_STREAM = "write SELECT .. FROM stream [WHERE ..]; the window stands behind the union"


@dataclass(frozen=True)
class _Read:
    """A branch with its known column types and the position of its event time; `star` if its list has a star."""

    branch: Branch
    types: tuple[str, ...]
    time: int
    star: bool


def read_branches(
    source: Text, parts: Sequence[Part], streams: Sequence[Stream], own: Own
) -> tuple[Stream, tuple[Branch, ...]]:
    """The branches of a union, and the united stream: the columns of the first branch, with its event time."""
    found = [_read(source, part, stream, own) for part, stream in zip(parts, streams, strict=True)]
    first = found[0]
    names = _names(source, parts[0], first)
    for part, stream, read in zip(parts[1:], streams[1:], found[1:], strict=True):
        _check_alike(source, part, stream, read, names, first)
    kinds = list(first.types)
    for part, read in zip(parts[1:], found[1:], strict=True):
        _check_types(source, part, read.types, kinds, names)
        kinds = [mine if kind == VOID else kind for kind, mine in zip(kinds, read.types, strict=True)]
    columns = tuple(Column(n, "" if kind == VOID else kind) for n, kind in zip(names, kinds, strict=True))
    shown = Stream(streams[0].name, columns, names[first.time], streams[0].delay)
    renamed = [
        Branch(r.branch.predicates, tuple(Item(n, i.expression) for n, i in zip(names, r.branch.columns, strict=True)))
        for r in found
    ]
    return shown, tuple(renamed)


def _read(source: Text, part: Part, stream: Stream, own: Own) -> _Read:
    role = Role(stream.name, stream.name, None)
    if not part.select:
        scope = Scope(source, (role,), (stream,))
        return _branch(source, part, stream, list(select_items(exp.Star(), scope)), None, scope, star=True)
    refuse_unsupported(source, part.select)
    tree = parse_select(source, part.select)
    refuse_deep(source, tree)
    table = tree.args["from_"].this if isinstance(tree, exp.Select) else None
    extra = [key for key, value in tree.args.items() if value and key not in _SELECT_ARGS]
    plain = isinstance(table, exp.Table) and not any(v for k, v in table.args.items() if k not in _TABLE_ARGS)
    if not isinstance(tree, exp.Select) or not isinstance(table, exp.Table) or extra or not plain:
        raise source.unsupported(part.start, "A SELECT of a union has a list, one stream and WHERE only", _ONE_STREAM)
    if WINDOW in table.meta:
        raise source.unsupported(table.meta[WINDOW_START], "A window inside a union is not supported", _ONE_STREAM)
    alias = table.args.get("alias")
    scope = Scope(source, (role if alias is None else Role(alias.name, stream.name, None),), (stream,))
    where = tree.args.get("where")
    for node in (*tree.expressions, *(() if where is None else (where.this,))):
        for call in aggregate_calls(node, own):
            raise source.unsupported(
                start_of(call),
                "A SELECT of a union has no aggregates",
                "register the aggregate as a query, and put the query's name into the union",
            )
    items = [one for node in tree.expressions for one in select_items(node, scope)]
    condition = None if where is None else bind(where.this, scope)
    return _branch(source, part, stream, items, condition, scope, star=any(map(is_star, tree.expressions)))


def _branch(
    source: Text,
    part: Part,
    stream: Stream,
    items: Sequence[tuple[str | None, exp.Expr]],
    condition: exp.Expr | None,
    scope: Scope,
    *,
    star: bool,
) -> _Read:
    refs = [ref_of(bound) for _, bound in items]
    if Ref(0, stream.event_time) not in refs:
        raise source.error(
            part.start,
            f"This SELECT leaves out {stream.event_time}, the event time of {stream.name}, which windows go by",
            f"add {stream.event_time} to its list",
        )
    columns = tuple(Item(name, expression(bound)) for name, bound in items)
    if any(ref.role == PSEUDO_ROLE for column in columns for ref in column.expression.refs):
        raise source.error(
            part.start,
            "result_time is known only of whole results",
            f"write {stream.event_time} in a SELECT of a union",
        )
    predicates = () if condition is None else classify([condition], scope).predicates
    types = tuple(type_of(bound) or "" for _, bound in items)
    return _Read(Branch(predicates, columns), types, refs.index(Ref(0, stream.event_time)), star)


def _names(source: Text, part: Part, first: _Read) -> list[str]:
    """The names of the union's columns."""
    names: list[str] = []
    for number, column in enumerate(first.branch.columns):
        if column.name is None:
            raise source.error(part.start, f"Column {number + 1} of this SELECT has no name", "give it one with AS")
        if column.name.lower() in (name.lower() for name in names):
            raise source.error(part.start, f"This SELECT has two columns named {column.name}", "use AS")
        names.append(column.name)
    return names


def _check_alike(source: Text, part: Part, stream: Stream, read: _Read, names: Sequence[str], first: _Read) -> None:
    """Refuse a SELECT whose columns do not match those of the first, by position."""
    own = read.branch.columns
    if len(own) != len(names):
        raise source.error(
            part.start,
            f"The first SELECT of this union has {len(names)} columns, and this one {len(own)}",
            f"it needs: {', '.join(names)}",
        )
    for number, (column, name) in enumerate(zip(own, names, strict=True)):
        if read.star and str(column.name).lower() != name.lower():
            raise source.error(
                part.start,
                f"Column {number + 1} of this union is {name}, and * gives {column.name} of {stream.name} there",
                "columns go together by their place: write them out instead of *",
            )
    if first.time != read.time:
        raise source.error(
            part.start,
            f"The event time of this union is {names[first.time]}, its column {first.time + 1}, and "
            f"{stream.event_time}, "
            f"that of {stream.name}, is column {read.time + 1} here",
            "event times stand at the same place in each SELECT",
        )


def _check_types(source: Text, part: Part, types: Sequence[str], others: Sequence[str], names: Sequence[str]) -> None:
    """Refuse columns of other types than in earlier SELECTs. NULL matches any type; unknown types are left to Spark."""
    for name, mine, kind in zip(names, types, others, strict=True):
        if mine and kind and mine != kind and VOID not in (mine, kind):
            raise source.error(
                part.start, f"Column {name} is {kind} in the SELECTs before, and {mine} here", f"CAST it to {kind}"
            )
