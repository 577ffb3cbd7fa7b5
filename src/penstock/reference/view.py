"""What a view contains: every combination of one row per node that satisfies all conditions, with its multiplicity.

Contents are bags of rows by source, as counters of value tuples in the order of the source's columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext

from penstock.model import Arithmetic, Literal, Ref, Source, Term, View
from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE
from penstock.reference.evaluate import compare, evaluate, holds, term_of

Values = tuple[object, ...]
Bag = Counter[Values]
Lookup = Callable[[Ref], object]


def joined(view: View, sources: Mapping[str, Source], contents: Mapping[str, Bag]) -> Bag:
    """The bag of the view's outputs: its items or, under aggregates, groups and arguments."""
    result: Bag = Counter()
    for rows, times in _combinations(view, sources, contents, []):
        if all(holds(e, _lookup(view, sources, rows)) for e in view.residuals):
            look = _lookup(view, sources, rows)
            result[tuple(canonical(evaluate(term_of(e), look)) for _, e in view.outputs)] += times
    return result


def answer(view: View, sources: Mapping[str, Source], contents: Mapping[str, Bag]) -> Bag:
    """The bag that a reader of the view sees."""
    rows = joined(view, sources, contents)
    if not view.aggregated:
        return rows
    groups: dict[Values, Bag] = {}
    for row, times in rows.items():
        groups.setdefault(row[: len(view.groups)], Counter())[row] += times
    if not view.groups and not groups:
        groups[()] = Counter()
    names = [name for name, _ in view.outputs]
    result: Bag = Counter()
    for key, members in groups.items():
        values = []
        for k, aggregate in enumerate(view.aggregates):
            at = names.index(f"a{k}") if aggregate.argument is not None else None
            found = [None if at is None else row[at] for row, times in members.items() for _ in range(times)]
            scale = None if aggregate.argument is None else _scale(term_of(aggregate.argument), view, sources)
            values.append(_aggregate(aggregate.function, found, scale, star=at is None, distinct=aggregate.distinct))

        def look(ref: Ref, key: Values = key, values: Sequence[object] = values) -> object:
            part = {GROUP_ROLE: key, AGGREGATE_ROLE: values}[ref.role]
            return part[int(ref.column[1:])]

        result[tuple(canonical(evaluate(term_of(item.expression), look)) for item in view.items)] += 1
    return result


def canonical(value: object) -> object:
    """Equal values as Spark sees them become equal in Python: one NaN (as text), no -0.0."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0  # noqa: PLR0124  (only NaN differs from itself)
    return value


def _combinations(
    view: View, sources: Mapping[str, Source], contents: Mapping[str, Bag], chosen: list[Values]
) -> Iterator[tuple[list[Values], int]]:
    node = len(chosen)
    if node == len(view.nodes):
        yield list(chosen), 1
        return
    for row, times in contents[view.nodes[node].source].items():
        rows = [*chosen, row]
        if times and _possible(view, node, _lookup(view, sources, rows)):
            for found, others in _combinations(view, sources, contents, rows):
                yield found, times * others


def _possible(view: View, node: int, look: Lookup) -> bool:
    if not all(holds(e, look) for e in view.local(node)):
        return False
    for edge in view.edges:
        if max(edge.left, edge.right) == node:
            both = ((look(Ref(edge.left, a)), look(Ref(edge.right, b))) for a, b in edge.equal)
            if not all(x is not None and y is not None and compare(x, y) == 0 for x, y in both):
                return False
            if not all(holds(e, look) for e in edge.others):
                return False
    return True


def _lookup(view: View, sources: Mapping[str, Source], rows: Sequence[Values]) -> Lookup:
    def look(ref: Ref) -> object:
        columns = sources[view.nodes[ref.role].source].columns
        return rows[ref.role][next(k for k, c in enumerate(columns) if c.name.lower() == ref.column.lower())]

    return look


def _scale(term: Term, view: View, sources: Mapping[str, Source]) -> int | None:
    """The scale of a decimal term; None for other types."""
    match term:
        case Ref(role, name):
            columns = sources[view.nodes[role].source].columns
            return _digits(next(c.type for c in columns if c.name.lower() == name.lower()))
        case Literal(_, kind):
            return _digits(kind)
        case Arithmetic(op, left, right) if op != "/":
            found = [_scale(side, view, sources) for side in (left, right)]
            if found == [None, None]:
                return None
            whole = [scale or 0 for scale in found]  # beside a decimal, an integer has scale 0
            return sum(whole) if op == "*" else max(whole)
    return None


def _digits(kind: str) -> int | None:
    return int(kind[8:-1].split(",")[1]) if kind.startswith("decimal(") else None


def _average(values: list[object], scale: int | None) -> object:
    """An average of decimals has four digits more, rounded half up: first to 39 digits, then to its type."""
    whole = _sum(values)
    if whole is None:
        return None
    if scale is None or not isinstance(whole, Decimal):
        return float(whole) / len(values)
    with localcontext() as context:
        context.prec = 100
        quotient = (whole / len(values)).quantize(Decimal(1).scaleb(-39), ROUND_HALF_UP)
        return quotient.quantize(Decimal(1).scaleb(-min(38, scale + 4)), ROUND_HALF_UP)


def _aggregate(function: str, values: list[object], scale: int | None, *, star: bool, distinct: bool) -> object:
    if star:
        return len(values)
    kept = [v for v in values if v is not None]
    if distinct:
        kept = list({canonical(v): v for v in kept}.values())
    match function.lower():
        case "count":
            return len(kept)
        case "sum":
            return _sum(kept)
        case "avg":
            return _average(kept, scale)
        case "min" | "max":
            best: object = None
            for v in kept:
                if best is None or (compare(v, best) < 0) == (function.lower() == "min"):
                    best = v
            return best
    raise ValueError(f"unknown aggregate {function!r}")


def _sum(values: list[object]) -> int | float | Decimal | None:
    if not values:
        return None
    with localcontext() as context:
        context.prec = 100  # sums of decimals are exact
        return sum(v for v in values if isinstance(v, int | float | Decimal))
