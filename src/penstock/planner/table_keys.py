"""The keys of state tables: which expressions of a query's roles are equal, and what a role's table is sorted by."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.model import Call, Compare, Expression, Literal, Query, Ref, Term, Tumbling, Typed
from penstock.model.stream import INTEGER_TYPES
from penstock.planner.index import INDEXED_TYPES
from penstock.planner.keys import normalized, normalized_term
from penstock.planner.remap import remap_expression


@dataclass(frozen=True)
class TableKey:
    name: str
    stream: str
    key: tuple[tuple[str | Ref, ...], ...] = ()
    types: tuple[str, ...] = ()
    total: tuple[bool, ...] = ()
    timed: bool = False
    terms: tuple[Term | None, ...] = ()
    mapped: bool = False


@dataclass(frozen=True)
class KeyPart:
    """One equality of a key: by role the expression and its type, and the type of the comparison."""

    ends: Mapping[int, tuple[Expression, str]]
    common: str

    def text(self, query: Query) -> list[tuple[str, str]]:
        """As text, independent of the order of FROM."""
        return sorted((query.roles[i].stream, e.sql(lambda ref: ref.column)) for i, (e, _) in self.ends.items())


def table_key(stream: str, role: int, parts: Sequence[KeyPart]) -> TableKey:
    """The key of a role's state table: its side of every part, in the common type."""
    ends = [(*part.ends[role], part.common) for part in parts]
    key = tuple(normalized(remap_expression(e, {role: 0}), declared, common) for e, declared, common in ends)
    text = ", ".join("".join(p if isinstance(p, str) else p.column for p in part) for part in key)
    types = tuple(part.common for part in parts)
    terms = tuple(normalized_term(e, declared, common) for e, declared, common in ends)
    return TableKey(f"{stream}({text})", stream, key, types, tuple(e.total for e, _, _ in ends), terms=terms)


def within_another(roles: Sequence[int], groups: Collection[Sequence[int]]) -> bool:
    return any(set(roles) < set(other) for other in groups)


def tumble(groups: dict[tuple[int, ...], list[KeyPart]], roles: Sequence[int], window: Tumbling) -> None:
    """Add the number of the piece of time to every key, or as the key where no key connects all roles."""
    start, length = window.origin, window.length

    def number(role: int) -> tuple[Expression, str]:
        time = Ref(role, "_ts")
        parts = ("((", time, f" - {start}L) - pmod(", time, f" - {start}L, {length}L)) DIV {length}L")
        bounds = (Literal(start, "bigint"), Literal(length, "bigint"))
        return Expression(parts, Call("piece", (Typed(time, "bigint"), *bounds), "bigint"), total=True), "bigint"

    tied = {roles[0]}
    while len(grown := tied.union(*(own for own in groups if tied & set(own)))) > len(tied):
        tied = grown
    if len(tied) < len(roles):
        groups.setdefault(tuple(roles), [])
    for own, parts in groups.items():
        if not within_another(own, groups):
            parts.append(KeyPart({i: number(i) for i in own}, "bigint"))


def equation(part: KeyPart, one: int, other: int) -> Expression:
    """The equality of two roles as a condition."""
    (left, left_type), (right, right_type) = part.ends[one], part.ends[other]
    term = None
    alike = left_type == right_type or {left_type, right_type} <= INTEGER_TYPES
    if left.term is not None and right.term is not None and alike and left_type in INDEXED_TYPES:
        term = Compare("=", left.term, right.term)
    return Expression(("(", *left.parts, ") = (", *right.parts, ")"), term, left.total and right.total)
