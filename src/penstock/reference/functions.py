"""Every aggregate function over the values of one group, computed from all of them at once and exactly.

Sums, means and moments are computed with rational numbers and rounded once, so they do not depend on order. Approximate
functions have their exact value here; an implementation states its own error bound. NULLs are skipped, except by
`count(*)`, `first` and `last`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import cmp_to_key, reduce

from penstock.model import Aggregate, UserAggregate
from penstock.model.aggregate import exact_share
from penstock.reference.evaluate import LARGEST, SMALLEST, Unspecified, compare

_MOST_DIGITS = 38
_EXACT = Context(prec=200)
Values = Sequence[object]


def aggregate_value(
    aggregate: Aggregate, values: Values, own: Mapping[str, UserAggregate], digits: tuple[int, int] | None = None
) -> object:
    """The aggregate over one group; `values` are its argument's, in the order of the rows.

    `digits` are precision and scale of the argument's type if it is a decimal and they are known, else taken from the
    values.
    """
    if aggregate.function in ("first", "last"):
        kept = _present(values) if aggregate.parameters else values
        return None if not kept else kept[0 if aggregate.function == "first" else -1]
    if aggregate.argument is None:
        return len(values)
    present = _present(values)
    if aggregate.distinct:
        seen: dict[Hashable, object] = {}
        for value in present:
            seen.setdefault(identity(value), _one_zero(value))
        present = list(seen.values())
    user = own.get(aggregate.function)
    if user is not None:
        return user.finish(reduce(user.add, present, user.zero()))
    match aggregate.function:
        case "count":
            return len(present)
        case "approx_count_distinct":
            return len({identity(value) for value in present})
        case "collect_list":
            return present
        case "approx_top_k":
            return _counted(present)[: int(aggregate.parameters[0])]
        case "heavy_hitters":
            share = exact_share(aggregate.parameters[0])
            return [(value, count) for value, count in _counted(present) if count >= share * len(present)]
    if not present:
        return None
    match aggregate.function:
        case "sum":
            return _sum(present, digits)
        case "avg":
            return _mean(present, digits)
        case "min" | "any_value":
            return in_value_order(present)[0]
        case "max":
            return in_value_order(present)[-1]
        case "approx_percentile":
            found = [_percentile(present, share) for share in aggregate.parameters[1:]]
            return found[0] if len(found) == 1 else found
        case "var_pop" | "var_samp" | "stddev_pop" | "stddev_samp":
            return _spread(present, aggregate.function)
    msg = f"the reference does not know the aggregate {aggregate.function!r}"
    raise Unspecified(msg)


def identity(value: object) -> Hashable:
    """A key that is equal for values of the same group: one NaN, one zero, one NULL."""
    if isinstance(value, float):
        return "double", "NaN" if math.isnan(value) else value + 0.0
    if value is None or isinstance(value, bool | int | str | Decimal | bytes):
        return type(value).__name__, value
    msg = f"the reference does not group by {value!r}"
    raise Unspecified(msg)


def in_value_order(values: Values) -> list[object]:
    return sorted(values, key=cmp_to_key(compare))


def _present(values: Values) -> list[object]:
    return [value for value in values if value is not None]


def _one_zero(value: object) -> object:
    """Values compared by equality are shown with one zero."""
    return value + 0.0 if isinstance(value, float) else value


def _counted(values: Values) -> list[tuple[object, int]]:
    """Each value with its number of occurrences, the most frequent first, ties ascending."""
    counts: dict[Hashable, list[object]] = {}
    for value in map(_one_zero, in_value_order(values)):
        counts.setdefault(identity(value), []).append(value)
    return sorted(((same[0], len(same)) for same in counts.values()), key=lambda pair: -pair[1])


def _sum(values: Values, digits: tuple[int, int] | None) -> object:
    """Spark's sum: 64-bit integers, decimals with ten more digits, or doubles; NULL where Spark raises on overflow."""
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        total = sum(v for v in values if isinstance(v, int))
        return total if SMALLEST <= total <= LARGEST else None
    decimals = [v for v in values if isinstance(v, Decimal)]
    if len(decimals) == len(values):
        precision, scale = digits or _digits_of(decimals)
        return _fitting(reduce(_EXACT.add, decimals), precision + 10, scale)
    return _rounded(values, divisor=1)


def _mean(values: Values, digits: tuple[int, int] | None) -> object:
    decimals = [v for v in values if isinstance(v, Decimal)]
    if len(decimals) == len(values):
        # Spark gives the mean four digits more than the column has.
        precision, scale = digits or _digits_of(decimals)
        unit = Decimal(1).scaleb(-min(scale + 4, _MOST_DIGITS))
        mean = _EXACT.divide(reduce(_EXACT.add, decimals), Decimal(len(decimals)))
        return _fitting(mean.quantize(unit, rounding=ROUND_HALF_UP, context=_EXACT), precision + 4, scale + 4)
    return _rounded(values, divisor=len(values))


def _digits_of(values: Sequence[Decimal]) -> tuple[int, int]:
    return _MOST_DIGITS, max(0, *(-int(v.as_tuple().exponent) for v in values))


def _fitting(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """The value, if a decimal of these digits holds it; no type has more than 38 digits in all."""
    whole = min(precision, _MOST_DIGITS) - min(scale, _MOST_DIGITS)
    return value if value.copy_abs() < Decimal(1).scaleb(whole) else None


def _rounded(values: Values, *, divisor: int) -> float:
    """The sum of numbers divided by an integer, as the nearest double; infinities and NaN as in IEEE 754."""
    numbers = _numbers(values)
    special = {v for v in numbers if isinstance(v, float) and not math.isfinite(v)}
    if special:
        return special.pop() if len(special) == 1 else math.nan
    total = sum(map(Fraction, numbers), Fraction(0))
    try:
        return float(total / divisor)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _spread(values: Values, function: str) -> float | None:
    """Variance or standard deviation; None for a sample of one."""
    numbers = _numbers(values)
    degrees = len(numbers) - function.endswith("samp")
    if degrees == 0:
        return None
    if not all(math.isfinite(v) for v in numbers):
        return math.nan
    exact = [Fraction(v) for v in numbers]
    mean = sum(exact) / len(exact)
    try:
        variance = float(sum((v - mean) ** 2 for v in exact) / degrees)
    except OverflowError:
        variance = math.inf
    return math.sqrt(variance) if function.startswith("stddev") else variance


def _percentile(values: Values, share: float) -> object:
    """The smallest value that at least this share of the values does not exceed."""
    rank = math.ceil(exact_share(share) * len(values))
    return in_value_order(values)[max(rank, 1) - 1]


def _numbers(values: Values) -> list[int | float | Decimal]:
    numbers = [v for v in values if isinstance(v, int | float | Decimal) and not isinstance(v, bool)]
    if len(numbers) < len(values):
        msg = "the reference adds numbers only"
        raise Unspecified(msg)
    return numbers
