"""The conditions of WHERE and ON, classified as join keys, bands, conditions on one role, and the rest.

Whether bands and windows bound every stream is left to the planner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.columns.types import exact_digits
from penstock.model import Band, Expression, Ref
from penstock.sql.bands import bands_of
from penstock.sql.expressions import expression, roles_of
from penstock.sql.inference import type_of
from penstock.sql.scope import Scope, ref_of, unwrapped
from penstock.sql.types import KEY_FAMILIES, family


@dataclass(frozen=True)
class Conditions:
    """The conjuncts by the way the engine treats them."""

    keys: tuple[tuple[Expression | None, ...], ...]
    bands: tuple[Band, ...]
    predicates: tuple[Expression, ...]
    residuals: tuple[Expression, ...]

    @property
    def ties(self) -> list[set[int]]:
        """The sets of roles that some condition connects."""
        keys = [{role for role, end in enumerate(key) if end is not None} for key in self.keys]
        return [*keys, *({b.earlier, b.later} for b in self.bands), *(set(r.roles) for r in self.residuals)]


_Parts = tuple[str | Ref, ...]


@dataclass(frozen=True)
class _End:
    """One side of a key equality: an expression over one role, identified by its canonical text."""

    role: int
    parts: _Parts
    bare: bool


@dataclass(frozen=True)
class _Equality:
    left: _End
    right: _End


def classify(bound: Iterable[exp.Expr], scope: Scope) -> Conditions:
    """Classify the conjuncts of bound conditions; several conditions count as joined by AND."""
    conjuncts = [c for condition in bound for c in _conjuncts(condition, scope)]
    equalities = [_equality(c) for c in conjuncts]
    ends: dict[_End, exp.Expr] = {}
    for conjunct, equality in zip(conjuncts, equalities, strict=True):
        if equality is not None:
            node = unwrapped(conjunct)
            ends.setdefault(equality.left, node.this)
            ends.setdefault(equality.right, node.expression)
    parts = _key_parts([e for e in equalities if e is not None], list(ends), len(scope.roles))
    said = {end: number for number, part in enumerate(parts) for end in part if end is not None}
    bands: list[Band] = []
    predicates: list[Expression] = []
    residuals: list[Expression] = []
    for conjunct, equality in zip(conjuncts, equalities, strict=True):
        found = bands_of(conjunct, scope)
        if found is not None:
            bands.extend(found)
            continue
        if equality is not None and said.get(equality.left, -1) == said.get(equality.right, -2):
            continue  # implied by the key
        (predicates if len(roles_of(conjunct)) <= 1 else residuals).append(expression(conjunct))
    keys = tuple(tuple(None if end is None else expression(ends[end]) for end in part) for part in parts)
    return Conditions(keys, tuple(dict.fromkeys(bands)), tuple(predicates), tuple(residuals))


def _conjuncts(node: exp.Expr, scope: Scope) -> Iterator[exp.Expr]:
    """The operands of the top-level ANDs. A BETWEEN is split in two if one half is a band."""
    node = unwrapped(node)
    if isinstance(node, exp.And):
        for operand in node.flatten():
            yield from _conjuncts(operand, scope)
        return
    if isinstance(node, exp.Between):
        halves = (
            exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()),
            exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()),
        )
        if any(bands_of(half, scope) is not None for half in halves):
            yield from halves
            return
    yield node


def _equality(node: exp.Expr) -> _Equality | None:
    """A conjunct that can be an edge of a join key.

    Both sides must be known to be of one family of types: only then is equality transitive and the same as equality of
    hashed values. Other equalities are ordinary conditions.
    """
    node = unwrapped(node)
    if not isinstance(node, exp.EQ):
        return None
    left, right = _end(node.this), _end(node.expression)
    if left is None or right is None or left.role == right.role:
        return None
    one, other = family(type_of(node.this)), family(type_of(node.expression))
    if one is None or one != other or not (one in KEY_FAMILIES or exact_digits(one) is not None):
        return None
    return _Equality(left, right)


def _end(node: exp.Expr) -> _End | None:
    node = unwrapped(node)
    roles = roles_of(node)
    if len(roles) != 1:
        return None
    return _End(roles[0], expression(node).parts, ref_of(node) is not None)


def _key_parts(equalities: Sequence[_Equality], ends: Sequence[_End], roles: int) -> list[tuple[_End | None, ...]]:
    """The classes of equal ends, with one end per role: its first column, else its first expression."""
    parent = {end: end for end in ends}

    def root(end: _End) -> _End:
        while parent[end] != end:
            parent[end] = end = parent[parent[end]]  # path halving
        return end

    for equality in equalities:
        parent[root(equality.right)] = root(equality.left)
    classes: dict[_End, list[_End]] = {}
    for end in ends:
        classes.setdefault(root(end), []).append(end)
    parts = [
        tuple(
            min((m for m in members if m.role == role), key=lambda m: not m.bare, default=None) for role in range(roles)
        )
        for members in classes.values()
    ]
    # Keys of plain columns are cheaper than those with expressions, so they come first.
    return sorted(parts, key=lambda part: not all(end is None or end.bare for end in part))
