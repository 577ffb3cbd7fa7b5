"""Name resolution in a query: the roles of FROM, their columns, and the pseudo-columns of the result.

Binding replaces every column in a syntax tree by a marker with its `Ref` and type. It does not check the expressions
around the columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from penstock.errors import did_you_mean
from penstock.model import Ref, Role, Stream
from penstock.model.expression import PSEUDO_ROLE, RESULT_TIME, WINDOW_END, WINDOW_START
from penstock.model.stream import TIME_TYPES
from penstock.sql.position import Text, start_of

REF = "penstock_ref"
TYPE = "penstock_type"
_WINDOW_COLUMNS = (WINDOW_START, WINDOW_END)
_CLOCK = frozenset({"now", "today", "tomorrow", "yesterday"})


@dataclass(frozen=True)
class Scope:
    """The roles of a query, each with its stream, and the text that names them; `windowed`: results are of windows."""

    source: Text
    roles: tuple[Role, ...]
    streams: tuple[Stream, ...]
    windowed: bool = False
    noun: str = "stream"  # the word for them in messages

    def role(self, alias: str) -> int | None:
        return next((i for i, r in enumerate(self.roles) if r.alias.lower() == alias.lower()), None)

    @property
    def integer_time(self) -> bool:
        return self.streams[0].integer_time


def marker(number: int) -> str:
    """The name of a column inside a bound tree: characters that no unquoted SQL name contains."""
    return f"\ue000{number}\ue001"


def bind(node: exp.Expr, scope: Scope, *, selecting: bool = False) -> exp.Expr:
    """A copy of the tree with resolved columns. Pseudo-columns are for the select list only."""
    tree = exp.Paren(this=node.copy())  # a parent, so that a tree that is a single column can be replaced too
    for other in tree.find_all(exp.Placeholder, exp.Parameter, exp.SessionParameter):
        raise scope.source.error(start_of(other) or start_of(node), "Parameters are not supported", "write the value")
    for membership in tree.find_all(exp.In):
        if not any(membership.args.get(key) for key in ("expressions", "field", "unnest")):
            raise scope.source.error(start_of(membership), "IN needs at least one value")
    for column in list(tree.find_all(exp.Column)):
        found = _bound(column, scope, selecting=selecting)
        if isinstance(found, exp.Column):
            _become(column, found)
        else:
            column.replace(found)
    _refuse_clock(tree, scope, start_of(node))
    bound = tree.this
    bound.pop()
    assert isinstance(bound, exp.Expr)
    return bound


def _become(column: exp.Column, bound: exp.Column) -> None:
    """As `replace`, but without searching the column's siblings."""
    for part in ("table", "db", "catalog"):
        column.set(part, None)
    column.set("this", bound.this)
    column.meta.update(bound.meta)


def _refuse_clock(tree: exp.Expr, scope: Scope, start: int) -> None:
    """Words that Spark reads as the current time where a time is expected, and calls that imply it."""
    hint = "a standing query may use only what the rows themselves say"
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower() in {"unix_timestamp", "to_unix_timestamp"} and not call.expressions:
            raise scope.source.error(start_of(call) or start, f"{call.name}() is the time of the clock", hint)
    for word in tree.find_all(exp.Literal):
        if not word.is_string or (word.name.split() or [""])[0].lower() not in _CLOCK:
            continue
        parent = word.parent
        while isinstance(parent, exp.Paren):
            parent = parent.parent
        if isinstance(parent, exp.Cast):
            timely = parent.to.is_type(*exp.DataType.TEMPORAL_TYPES)
        else:
            others = parent.find_all(exp.Column) if isinstance(parent, exp.Predicate) else ()
            timely = any(other.meta.get(TYPE) in TIME_TYPES for other in others)
        if timely:
            raise scope.source.error(start_of(word) or start, f"'{word.name}' is the time of the clock", hint)


def bound_column(ref: Ref, type_name: str | None) -> exp.Column:
    """The marker of a resolved column."""
    column = exp.Column(this=exp.Identifier(this=marker(0), quoted=False))
    column.meta[REF] = ref
    column.meta[TYPE] = type_name
    return column


def ref_of(node: exp.Expr) -> Ref | None:
    """The column of a bound node; None for other nodes."""
    ref = node.meta.get(REF) if isinstance(node, exp.Column) else None
    return ref if isinstance(ref, Ref) else None


def unwrapped(node: exp.Expr) -> exp.Expr:
    """The expression inside its outer parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _bound(column: exp.Column, scope: Scope, *, selecting: bool) -> exp.Expr:
    start = start_of(column)
    parts = column.parts
    if not all(isinstance(p, exp.Identifier) for p in parts):
        raise scope.source.unsupported(start, "A star is supported only as an item of its own: *, or alias.*")
    names = [p.name for p in parts]
    ref, used = _resolve(names, scope, start, selecting=selecting)
    pseudo = ref.role == PSEUDO_ROLE
    type_name: str | None
    if pseudo:
        # Result time is the latest event time of the rows, and has its type if all have the same.
        types = {_event_type(s) for s in scope.streams}
        type_name = types.pop() if len(types) == 1 else "timestamp"
    else:
        declared = scope.streams[ref.role].column(ref.column)
        type_name = (declared.type or None) if declared else None  # unknown for some columns of other queries
    node: exp.Expr = bound_column(ref, type_name)
    node.meta["start"] = start
    for part in parts[used:]:
        field = part.copy()
        node = exp.Dot(this=node, expression=field)
    return node


def _event_type(stream: Stream) -> str | None:
    column = stream.column(stream.event_time)
    return column.type if column else None


def _resolve(names: list[str], scope: Scope, start: int, *, selecting: bool) -> tuple[Ref, int]:
    """The column that the first names denote, and how many names it took; the rest are fields of a struct."""
    role = scope.role(names[0])
    if role is not None and len(names) > 1:
        declared = scope.streams[role].column(names[1])
        if declared is not None:
            return Ref(role, declared.name), 2
    owners = [(i, c) for i, s in enumerate(scope.streams) if (c := s.column(names[0])) is not None]
    if len(owners) == 1:
        return Ref(owners[0][0], owners[0][1].name), 1
    if len(owners) > 1:
        choices = " or ".join(f"{scope.roles[i].alias}.{c.name}" for i, c in owners)
        raise scope.source.error(start, f"Column {names[0]} is ambiguous", f"write {choices}")
    if role is not None and len(names) > 1:
        stream = scope.streams[role]
        known = (c.name for c in stream.columns)
        raise scope.source.error(
            start, f"{scope.noun.capitalize()} {stream.name} has no column {names[1]}", did_you_mean(names[1], known)
        )
    if len(names) == 1:
        return _pseudo_column(names[0], scope, start, selecting=selecting), 1
    known = (r.alias for r in scope.roles)
    raise scope.source.error(
        start, f"{names[0]} is no {scope.noun} or alias of this query", did_you_mean(names[0], known)
    )


def _pseudo_column(name: str, scope: Scope, start: int, *, selecting: bool) -> Ref:
    if name.lower() == RESULT_TIME and scope.noun == "stream":
        if selecting:
            return Ref(PSEUDO_ROLE, RESULT_TIME)
        raise scope.source.unsupported(
            start,
            f"{RESULT_TIME} is supported in the select list only",
            "compare the event times of the streams instead",
        )
    if name.lower() in _WINDOW_COLUMNS and scope.noun == "stream":
        if selecting and scope.windowed:
            return Ref(PSEUDO_ROLE, name.lower())
        if scope.windowed:
            raise scope.source.error(
                start, f"{name.lower()} is known only after grouping", "use it in the select list or HAVING"
            )
        raise scope.source.unsupported(
            start, f"{name.lower()} is not supported", "only window aggregates have it; a join has result_time"
        )
    known = {c.name for s in scope.streams for c in s.columns}
    raise scope.source.error(start, f"Unknown column {name}", did_you_mean(name, known))
