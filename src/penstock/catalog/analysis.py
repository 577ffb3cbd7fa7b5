"""Analysis of a query's expressions before it runs: names, types, and what kernels cannot store or compare.

An `Analysis` provides the types, since it knows how expressions are computed; everything that follows from them is
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import RegistrationError
from penstock.kernels.aggregate.stored import stored_type
from penstock.model import Aggregation, Column, Expression, Item, Query, Stream, UserAggregate
from penstock.model.expression import RESULT_TIME, WINDOW_END, WINDOW_START
from penstock.planner.aggregates import is_cut_by_kernels
from penstock.sql.aggregates import PLAIN, is_plain, refused_type, result_type


@dataclass(frozen=True)
class Fields:
    """The columns that expressions refer to: those of each role, and of the result (times, groups, aggregates)."""

    roles: tuple[tuple[Column, ...], ...]
    result: tuple[Column, ...]


@dataclass(frozen=True)
class Resolved:
    """An expression's default name and its type."""

    name: str
    type: str


class Analysis(Protocol):
    """Determines names and types of expressions before a query runs."""

    @property
    def settings(self) -> dict[str, str]:
        """The settings that expressions depend on: the session's time zone, and ANSI mode."""

    def resolve(
        self,
        query: str,
        fields: Fields,
        expressions: Sequence[Expression | None],
        conditions: Sequence[Expression] = (),
    ) -> list[Resolved]:
        """Names and types of the expressions; None has type void.

        Refuses invalid or non-deterministic expressions, and `conditions` that are not Boolean.
        """


@dataclass(frozen=True)
class Facts:
    """Names and types of the select list, and types of the keys (per key and role; `void` for roles without the key).

    For an aggregated query, `aggregated` are the types of groups, of the argument of each aggregate, and of its value.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    key_types: tuple[tuple[str, ...], ...]
    aggregated: tuple[tuple[str, ...], ...] = ()


def analyze(
    analysis: Analysis,
    name: str,
    query: Query,
    streams: Mapping[str, Stream],
    own: Mapping[str, UserAggregate] | None = None,
) -> Facts:
    """Names and types of a query's expressions, resolved together."""
    read = tuple(streams[role.stream] for role in query.roles)
    time = "bigint" if read[0].integer_time else "timestamp"
    fields = Fields(tuple(stream.columns for stream in read), (Column(RESULT_TIME, time),))
    conditions = (*query.predicates, *query.residuals)
    if query.aggregation is not None:
        return _aggregated(analysis, name, query, query.aggregation, fields, conditions, own or {})
    keys = [e for part in query.keys for e in part]
    found = analysis.resolve(name, fields, [*(item.expression for item in query.items), *keys], conditions)
    of_keys = [resolved.type for resolved in found[len(query.items) :]]
    width = len(query.roles)
    parts = tuple(tuple(of_keys[start : start + width]) for start in range(0, len(of_keys), width))
    names = _names(analysis, name, fields, query.items, found)
    return Facts(names, tuple(resolved.type for resolved in found[: len(query.items)]), parts)


def _names(
    analysis: Analysis, name: str, fields: Fields, items: Sequence[Item], found: Sequence[Resolved]
) -> tuple[str, ...]:
    """The names of the select list: those given, or the default name of an item as written."""
    names = []
    for item, resolved in zip(items, found, strict=False):
        called = resolved.name
        if item.name is None and item.expression.written:
            called = analysis.resolve(name, fields, [Expression(item.expression.written, None, total=False)])[0].name
        if not (item.name or called):
            text = item.expression.shown(lambda ref: ref.column)
            raise RegistrationError(f"query {name!r}: only Spark gives {text} a name, and this engine has none; use AS")
        names.append(item.name or called)
    return tuple(names)


def _aggregated(
    analysis: Analysis,
    name: str,
    query: Query,
    aggregation: Aggregation,
    fields: Fields,
    conditions: Sequence[Expression],
    own: Mapping[str, UserAggregate],
) -> Facts:
    """First groups, arguments and conditions over rows of the streams; then select list, HAVING over their values."""
    groups = [item.expression for item in aggregation.groups]
    arguments = [a.argument for a in aggregation.aggregates]
    found = analysis.resolve(name, fields, [*groups, *arguments], conditions) if groups or arguments else []
    group_types = tuple(resolved.type for resolved in found[: len(groups)])
    argument_types = tuple(
        "" if a.argument is None else resolved.type
        for a, resolved in zip(aggregation.aggregates, found[len(groups) :], strict=False)
    )
    _check_stored(name, aggregation, group_types, argument_types)
    values = tuple(
        own[a.function].type if a.function in own else str(result_type(a.function, kind or None, len(a.parameters)))
        for a, kind in zip(aggregation.aggregates, argument_types, strict=True)
    )
    time = fields.result[0].type
    columns = [Column(pseudo, time) for pseudo in (RESULT_TIME, WINDOW_START, WINDOW_END)]
    columns += [Column(f"g{n}", kind) for n, kind in enumerate(group_types)]
    columns += [Column(f"a{n}", kind) for n, kind in enumerate(values)]
    shown = Fields((), tuple(columns))
    keys = [] if aggregation.top is None else [key.expression for key in aggregation.top.keys]
    having = [] if aggregation.having is None else [aggregation.having]
    found = analysis.resolve(name, shown, [*(item.expression for item in query.items), *keys], having)
    if is_cut_by_kernels(aggregation, own):
        for key in found[len(query.items) :]:
            if not is_plain(key.type):
                msg = f"query {name!r}: rows cannot be ordered by {key.name}, which has type {key.type}; {PLAIN}"
                raise RegistrationError(msg)
    names = _names(analysis, name, shown, query.items, found)
    types = tuple(resolved.type for resolved in found[: len(query.items)])
    if aggregation.emit is not None:
        names, types = (*names, "_revision", "_final"), (*types, "bigint", "boolean")
    return Facts(names, types, (), (group_types, argument_types, values))


def _check_stored(
    name: str, aggregation: Aggregation, group_types: tuple[str, ...], argument_types: tuple[str, ...]
) -> None:
    """Refuse what kernels cannot store or compare: the first step with such a row would fail, for all queries."""
    for kind in (*group_types, *argument_types):
        try:
            stored_type(kind or "bigint")
        except ValueError as error:
            raise RegistrationError(f"query {name!r}: {error}") from None
    for item, kind in zip(aggregation.groups, group_types, strict=True):
        if not is_plain(kind):
            text = item.expression.shown(lambda ref: ref.column)
            msg = f"query {name!r}: rows cannot be grouped by {text}, which has type {kind}; {PLAIN}"
            raise RegistrationError(msg)
    for aggregate, kind in zip(aggregation.aggregates, argument_types, strict=True):
        refusal = refused_type(aggregate.function, kind, distinct=aggregate.distinct) if kind else None
        if refusal is not None:
            raise RegistrationError(f"query {name!r}: {aggregate.function} {refusal[0]}; {refusal[1]}")
