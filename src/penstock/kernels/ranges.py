"""Inequality joins: the rows that an inequality leaves to each composite, as ranges of rows sorted by one value.

In `p.v + 1 >= q.v` the row looked up decides one value, `p.v`. All else moves to the composite's side, so that all
conditions on `p.v` restrict the same sorted rows. A range may hold too much, never too little: the condition itself is
evaluated on every pair afterwards. Overflow is an error that is counted, so whatever might overflow is in range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.terms.evaluation import Lookup, values
from penstock.columns.terms.values import Flags
from penstock.model import And, Arithmetic, Compare, Expression, Literal, Ref, Term
from penstock.model.expression import FLIPPED
from penstock.planner.join import Join
from penstock.state.run import Ints

Floats = npt.NDArray[np.float64]
Signed = tuple[int, Term]

_OVERFLOW = 2.0**61  # while a row's value and everything added to it stay below this, no sum leaves 64 bits
_INFINITE = 2.0**1000  # while they stay below this, no sum of doubles becomes infinite
# A sum of doubles is wrong by less than this for each of its terms, relative to their magnitudes.
_ROUNDING = 2.0**-50


@dataclass(frozen=True)
class Bound:
    """A row's `own` must be at most (`<`), at least (`>`) or equal to (`=`) a sum of `others`, of the composite.

    If a term was `moved` from the row's side, this holds up to rounding, and only while all values are below `limit`.
    """

    own: Term
    op: str
    others: tuple[Signed, ...]
    moved: bool
    limit: float


@dataclass(frozen=True)
class Search:
    """Rows are sorted by `own`; a composite needs those within all bounds of one of `choices`, each of other queries.

    Where a `watched` term, of a bound or one that only the composite decides (`known`), might raise, all pairs count.
    """

    own: Term
    choices: tuple[tuple[Bound, ...], ...]
    watched: tuple[Bound, ...]
    known: tuple[Term, ...]


@dataclass(frozen=True)
class Ranges:
    """(rows in an order, per composite the start of its range in it and its end), once or twice."""

    parts: tuple[tuple[Ints, Ints, Ints], ...]

    @property
    def pairs(self) -> int:
        return sum(int((high - low).sum()) for _, low, high in self.parts)


@dataclass(frozen=True)
class _Demand:
    """What one condition requires of a row: bounds that all hold, and the terms that might raise."""

    bounds: tuple[Bound, ...]
    known: tuple[Term, ...]
    total: bool


def build_search(join: Join, position: int, known: Sequence[int]) -> Search | None:
    """How to find rows of a position by inequalities with known ones; None unless all queries have one on one value."""
    demands = [
        [d for r in member.residuals if (d := _demand(r, position, frozenset(known))) is not None]
        for member in join.leads
    ]
    by_own: list[dict[Term, set[Bound]]] = []
    for of_query in demands:
        found: dict[Term, set[Bound]] = {}
        for bound in (b for demand in of_query for b in demand.bounds):
            found.setdefault(bound.own, set()).add(bound)
        by_own.append(found)
    common = [own for own in by_own[0] if all(own in found for found in by_own)] if by_own else []
    if not common:
        return None
    own = max(common, key=lambda own: (min(_strength(found[own]) for found in by_own), repr(own)))
    used = [d for of_query in demands for d in of_query if any(b.own == own for b in d.bounds)]
    choices = dict.fromkeys(tuple(sorted(found[own], key=repr)) for found in by_own)
    watched = dict.fromkeys(b for demand in used for b in demand.bounds if b.own == own or not demand.total)
    return Search(own, tuple(choices), tuple(watched), tuple(dict.fromkeys(t for d in used for t in d.known)))


def _strength(bounds: set[Bound]) -> int:
    """Selectivity: an equality leaves fewer rows than two bounds, two bounds fewer than one."""
    ops = {bound.op for bound in bounds}
    return 3 if "=" in ops else len(ops)


def _demand(residual: Expression, position: int, known: frozenset[int]) -> _Demand | None:
    if residual.term is None or position not in residual.roles:
        return None
    parts = residual.term.terms if isinstance(residual.term, And) else (residual.term,)
    bounds: list[Bound] = []
    beside: list[Term] = []
    for part in parts:
        found = _bound(part, position, known, residual.total)
        if found is not None:
            bounds.append(found)
        elif residual.total:
            continue  # among parts that cannot raise, any one may restrict the rows
        elif isinstance(part, Compare) and _roles(part.left) | _roles(part.right) <= known:
            beside += [part.left, part.right]
        else:
            return None  # it might raise on pairs that another part excludes
    return _Demand(tuple(bounds), tuple(beside), residual.total) if bounds else None


def _bound(part: Term, position: int, known: frozenset[int], total: bool) -> Bound | None:
    """What a comparison requires of its only term that the row decides."""
    if not isinstance(part, Compare) or part.op == "<>":
        return None
    if not (_roles(part.left) | _roles(part.right)) <= known | {position}:
        return None
    terms = [*_sum(part.left, 1, position), *((-sign, term) for sign, term in _sum(part.right, 1, position))]
    rows = [(sign, term) for sign, term in terms if position in _roles(term)]
    if len(rows) != 1:
        return None
    ((sign, own),) = rows
    others = tuple((-sign * s, term) for s, term in terms if term is not own)
    if not any(_roles(term) for _, term in others):
        return None
    op = part.op if sign > 0 else FLIPPED[part.op]
    # The other side of a comparison changes its sign in `terms` and again in `others`: no term was moved.
    moved = own not in (part.left, part.right)
    return Bound(own, op[0], others, moved, _INFINITE if total else _OVERFLOW)


def _sum(term: Term, sign: int, position: int) -> Iterator[Signed]:
    """The terms of a sum, split only as far as the row's own value must be isolated."""
    roles = _roles(term)
    if isinstance(term, Arithmetic) and position in roles:
        parts = (_roles(term.left), _roles(term.right))
        if parts != ({position}, {position}):
            yield from _sum(term.left, sign, position)
            yield from _sum(term.right, sign if term.op == "+" else -sign, position)
            return
    yield sign, term


def _roles(term: Term) -> set[int]:
    match term:
        case Ref(role, _):
            return {role}
        case Arithmetic(_, left, right):
            return _roles(left) | _roles(right)
        case Literal():
            return set()
        case _:
            return {-2}  # not a plain value


def _comparable(columns: Mapping[Term, pa.Array]) -> dict[Term, Floats] | None:
    """Values as numbers in the same order, NULL as NaN; None for types without such numbers."""
    if all(pa.types.is_integer(c.type) or pa.types.is_floating(c.type) for c in columns.values()):
        return {term: _numbers(column) for term, column in columns.items()}
    strings = {term: c for term, c in columns.items() if c.null_count < len(c)}
    if not all(pa.types.is_string(c.type) or pa.types.is_large_string(c.type) for c in strings.values()):
        return None
    return {term: np.full(len(c), np.nan) for term, c in columns.items()} | _ranks(strings)


def _numbers(column: pa.Array) -> Floats:
    """Numbers as doubles: NaN, which is largest, as infinity; large integers are rounded, which keeps their order."""
    plain = pc.cast(column, pa.float64(), safe=False)
    plain = pc.if_else(pc.is_nan(plain), np.inf, plain)
    return np.asarray(pc.fill_null(plain, np.nan).to_numpy(zero_copy_only=False))


def _ranks(columns: Mapping[Term, pa.Array]) -> dict[Term, Floats]:
    """The rank of each string among all; Arrow orders strings by bytes, as Spark does."""
    if not columns:
        return {}
    joined = pa.concat_arrays([column.cast(pa.large_string()) for column in columns.values()])
    ranks = pc.rank(joined, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.float64)
    ranks[joined.is_null().to_numpy(zero_copy_only=False)] = np.nan
    ends = np.cumsum([len(column) for column in columns.values()])[:-1]
    return dict(zip(columns, np.split(ranks, ends), strict=True))


def find_ranges(search: Search, rows: Lookup, row_count: int, composites: Lookup, count: int) -> Ranges | None:
    """The ranges of a search; None if it compares neither numbers nor strings."""
    columns, errors = {}, {}
    terms = {t for b in search.watched for _, t in b.others} | set(search.known)
    for lookup, wanted, size in ((rows, {b.own for b in search.watched}, row_count), (composites, terms, count)):
        for term in wanted:
            columns[term], errors[term] = values(term, lookup, size)
    found = _comparable(columns)
    if found is None:
        return None
    known = {term: (found[term], errors[term]) for term in columns}
    always, every = np.zeros(row_count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    for term in search.known:
        every |= known[term][1]
    sums: dict[Bound, tuple[Floats, Floats]] = {}
    for bound in search.watched:
        own, raised = known[bound.own]
        always |= raised
        if bound.moved:
            always |= ~(np.abs(own) < bound.limit) & ~np.isnan(own)
        sums[bound], open_ended = _ends(bound, known, count)
        every |= open_ended
    order, held = _sorted(known[search.own][0], always)
    ordered = known[search.own][0][order[:held]]
    low, high = np.full(count, held, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for bounds in search.choices:
        first, last = np.zeros(count, dtype=np.int64), np.full(count, held, dtype=np.int64)
        for bound in bounds:
            least, most = sums[bound]
            if bound.op in "<=":
                last = np.minimum(last, np.searchsorted(ordered, most, side="right"))
            if bound.op in ">=":
                first = np.maximum(first, np.searchsorted(ordered, least, side="left"))
            last[np.isnan(most)] = 0  # NULL is within no bounds
        some = first < last
        low, high = np.where(some, np.minimum(low, first), low), np.where(some, np.maximum(high, last), high)
    low[every], high[every] = 0, row_count
    parts = [(order, np.minimum(low, high), high)]
    if always.any():
        rest = np.flatnonzero(always)
        parts.append((rest, np.zeros(count, dtype=np.int64), np.where(every, 0, len(rest))))
    return Ranges(tuple(parts))


def _sorted(own: Floats, always: Flags) -> tuple[Ints, int]:
    """Rows by value, then those without a value, then those that every composite needs; and how many have a value."""
    kind = np.where(always, 2, np.isnan(own).astype(np.int8))
    order = np.lexsort((own, kind))
    return order, int((kind == 0).sum())


def _ends(bound: Bound, known: dict[Term, tuple[Floats, Flags]], count: int) -> tuple[tuple[Floats, Floats], Flags]:
    """((least and greatest possible sum of the others, NaN for NULL), composites for which no bound is known)."""
    total, size = np.zeros(count), np.zeros(count)
    unknown = np.zeros(count, dtype=np.bool_)
    with np.errstate(invalid="ignore", over="ignore"):
        for sign, term in bound.others:
            found, raised = known[term]
            total = total + sign * found
            size += np.where(np.isnan(found), 0.0, np.abs(found))
            unknown |= raised
        if not bound.moved:
            return (total, total), unknown
        unknown |= ~(size < bound.limit)
        margin = size * (_ROUNDING * (len(bound.others) + 2))
        return (total - margin, total + margin), unknown
