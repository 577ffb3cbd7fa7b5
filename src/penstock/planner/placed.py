"""The place of a query in the network, if it joins or reads single rows: its key classes, tables and positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from penstock.errors import RegistrationError
from penstock.model import Expression, Query, Ref, Rows, Stream, Tumbling
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregate_tables import check_aggregated
from penstock.planner.bounds import Bounds, check_bounded, time_bounds
from penstock.planner.keys import common_type
from penstock.planner.listed import is_mapped
from penstock.planner.network import StandingQuery
from penstock.planner.reached import Clock, Closing
from penstock.planner.table_keys import KeyPart, TableKey, equation, table_key, tumble, within_another


@dataclass(frozen=True)
class Placed:
    """A compiled query: join position p has role `roles[p]` and tables `tables[p]`; `classes` as (position, table)."""

    standing: StandingQuery
    query: Query
    bounds: Bounds
    roles: tuple[int, ...]
    tables: tuple[tuple[TableKey, ...], ...]
    classes: tuple[tuple[tuple[int, str], ...], ...]

    @property
    def mapped(self) -> bool:
        """Whether mappers answer it."""
        return any(key.mapped for own in self.tables for key in own)

    @property
    def counted(self) -> tuple[int, ...]:
        """The positions whose windows count rows."""
        return tuple(p for p, role in enumerate(self.roles) if isinstance(self.query.roles[role].window, Rows))

    @property
    def closes(self) -> tuple[str, ...]:
        return tuple(sorted({self.query.roles[self.roles[p]].stream for p in self.counted}))

    @property
    def name(self) -> str:
        """The name of the join: the same for all queries over the same tables and keys."""
        text = " x ".join(" + ".join(t.name for t in own) for own in self.tables)
        if self.closes:  # evaluated later than joins that do not wait for progress
            text += f" closed by {', '.join(self.closes)}"
        if len(self.classes) == 1 and len(self.classes[0]) == len(self.tables):
            return text
        keys = ", ".join("=".join(str(p) for p, _ in c) for c in self.classes)
        return f"{text} on {keys or 'no key'}" if len(self.tables) > 1 else text

    def lives(self, position: int) -> tuple[tuple[Clock, int], ...]:
        """For each stream that another role reads: how long after its own time a row here can still join it."""
        role = self.roles[position]
        lives: dict[Clock, int] = {}
        longest = 1
        for other, used in enumerate(self.standing.query.roles):
            if other != role:
                bound = self.bounds[role][other]
                life = FOREVER if bound >= FOREVER else bound + 1
                lives[used.stream] = max(lives.get(used.stream, NEVER), life)
                longest = max(longest, life)
        # Where windows count rows, a row is needed until its results are delivered, not until its partners have come.
        return (*lives.items(), *((Closing(stream), longest) for stream in self.closes))


def place(standing: StandingQuery, streams: Mapping[str, Stream], strategy: str) -> Placed:
    """Choose the key classes, the state tables of each role, and the order of positions (by table names)."""
    check_supported(standing)
    classes, implied = _key_classes(standing, streams)
    query = replace(standing.query, residuals=(*standing.query.residuals, *implied))
    if strategy == "pull_up":
        query = pulled_up(query)
    bounds = time_bounds(query)
    check_bounded(query, bounds)
    own = f" of query {standing.bits_of}" if strategy == "isolated" else ""
    tables: list[list[TableKey]] = [[] for _ in query.roles]
    for key_class in classes:
        for i, key in key_class.items():
            tables[i].append(replace(key, name=key.name + own))
    for i, role in enumerate(query.roles):
        if not tables[i]:
            timed = len(query.roles) > 1 or isinstance(role.window, Rows)
            mapped = is_mapped(standing)
            called = role.stream + ("()" if timed else " for folders" if mapped else "") + own
            tables[i].append(TableKey(called, role.stream, timed=timed, mapped=mapped))
            standing = replace(standing, share=None) if mapped else standing
    roles = tuple(sorted(range(len(tables)), key=lambda i: ([t.name for t in tables[i]], i)))
    place = {role: p for p, role in enumerate(roles)}
    named = [tuple(sorted((place[i], key.name + own) for i, key in c.items())) for c in classes]
    return Placed(standing, query, bounds, roles, tuple(tuple(tables[i]) for i in roles), tuple(sorted(named)))


def _key_classes(
    standing: StandingQuery, streams: Mapping[str, Stream]
) -> tuple[list[dict[int, TableKey]], list[Expression]]:
    """The key classes as role -> key, and equalities that are conditions: another class has their roles too."""
    query = standing.query
    groups: dict[tuple[int, ...], list[KeyPart]] = {}
    for number, part in enumerate(query.keys):
        declared = standing.key_types[number] if standing.key_types else _declared(query, part, streams)
        ends = {i: (e, declared[i]) for i, e in enumerate(part) if e is not None}
        common = common_type([kind for _, kind in ends.values()])
        if common is None:
            sides = ", ".join(f"{query.roles[i].alias}: {kind}" for i, (_, kind) in ends.items())
            msg = f"the join key of query {standing.name!r} has types that do not compare ({sides}); CAST one side"
            raise RegistrationError(msg)
        groups.setdefault(tuple(ends), []).append(KeyPart(ends, common))
    if isinstance(query.roles[0].window, Tumbling) and len(query.roles) > 1:
        tumble(groups, range(len(query.roles)), query.roles[0].window)
    classes, implied = [], []
    for roles, parts in groups.items():
        if within_another(roles, groups):
            implied += [equation(part, one, other) for part in parts for one, other in pairwise(roles)]
            continue
        # The order of conditions in WHERE does not matter: queries with the same key must get the same tables.
        parts.sort(key=lambda part: part.text(query))
        classes.append({i: table_key(query.roles[i].stream, i, parts) for i in roles})
    return classes, implied


def check_supported(standing: StandingQuery) -> None:
    """Refuse what SQL can express and no plan supports yet."""
    query = standing.query
    if query.aggregation is not None:
        check_aggregated(standing)
        return
    if any(role.union or role.branches for role in query.roles):
        msg = f"query {standing.name!r} has a union in a join, which is answered as several queries (`distribute`)"
        raise RegistrationError(msg)


def pulled_up(query: Query) -> Query:
    """The query with its selections above the join, where the router evaluates them on joined rows."""
    if len(query.roles) == 1:
        return query
    above = sorted((*query.predicates, *query.residuals), key=lambda p: not p.total)
    return replace(query, predicates=(), residuals=tuple(above))


def _declared(query: Query, part: Sequence[Expression | None], streams: Mapping[str, Stream]) -> tuple[str, ...]:
    types = []
    for role, expression in zip(query.roles, part, strict=True):
        ref = expression.parts[0] if expression is not None and len(expression.parts) == 1 else None
        column = streams[role.stream].column(ref.column) if isinstance(ref, Ref) else None
        types.append(column.type if column else "unknown")
    return tuple(types)
