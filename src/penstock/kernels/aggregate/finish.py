"""From pieces to the values of aggregates, in Spark's result types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.columns.types import arrow_type
from penstock.kernels.aggregate.bags import Bags
from penstock.kernels.aggregate.codes import (
    Flags,
    approximate,
    bigint_of,
    doubles,
    limbs,
    tidy,
    whole_numbers,
    wrapped,
)
from penstock.kernels.aggregate.columns import Column, Extremes, Floats, Integers, Picks, moments_of
from penstock.kernels.aggregate.results import check_built, total_of
from penstock.kernels.aggregate.states import NAN, Lists, Lost, Own, Ranked, States
from penstock.model.aggregate import Aggregate, UserAggregate, exact_share
from penstock.planner.taxonomy import MOMENTS, REPEATS_CHANGE_NOTHING
from penstock.state.run import Ints

_DIGITS = 38
_EXACT = Context(prec=200)
_FITS = 2.0**62


def finished(
    aggregate: Aggregate,
    columns: Sequence[Column],
    low: Ints,
    high: Ints,
    kind: pa.DataType | None,
    own: Mapping[str, UserAggregate],
) -> pa.Array:
    """The value of the aggregate over each frame [low, high); `kind` is the type of its argument."""
    function = aggregate.function
    first = columns[0]
    if isinstance(first, Lists):
        return _listed(first, low, high, distinct=aggregate.distinct)
    if isinstance(first, Bags):
        return _of_bags(aggregate, first, low, high, own)
    folded = [column.fold(low, high) for column in columns]
    if isinstance(folded[0], Picks):
        return folded[0].values
    if isinstance(folded[0], States):
        assert kind is not None
        return _of_states(aggregate, folded[0], kind, own)
    if function in MOMENTS:
        return _spread(function, folded[0], kind)
    assert isinstance(folded[0], Integers)
    counts = folded[0].parts[0]
    if function == "count":
        return pa.array(counts)
    assert kind is not None
    if isinstance(folded[1], Extremes):
        return folded[1].values(counts > 0)
    return _sum_or_mean(function, folded[1], counts, kind)


def overflows(aggregate: Aggregate, columns: Sequence[Column], low: Ints, high: Ints, found: pa.Array) -> Flags | None:
    """Where a sum or mean overflows its type, or a state is lost; None if nowhere."""
    if found.null_count and isinstance(columns[0], States) and columns[0].lost:
        folded = columns[0].fold(low, high)
        return np.array([isinstance(state, Lost) for state in folded.made()], dtype=np.bool_)
    if aggregate.function not in {"sum", "avg"} or not found.null_count:
        return None
    first = columns[0]
    if isinstance(first, Bags):
        counts = first.distinct(low, high)
    else:
        whole = first.fold(low, high)
        assert isinstance(whole, Integers)
        counts = whole.parts[0]
    return np.asarray((counts > 0) & found.is_null().to_numpy(zero_copy_only=False))


def _sum_or_mean(function: str, total: Column, counts: Ints, kind: pa.DataType) -> pa.Array:
    some = counts > 0
    divisor = np.where(some, counts, 1)
    if isinstance(total, Floats):
        whole = total.rows[:, 0] + total.rows[:, 1]
        return pa.array(whole if function == "sum" else whole / divisor, mask=~some)
    assert isinstance(total, Integers)
    if pa.types.is_decimal(kind):
        return _decimals(function, total.parts, divisor, some, kind)
    if function == "avg":
        return pa.array(approximate(total.parts) / divisor, mask=~some)
    exact, fits = bigint_of(total.parts)
    return pa.array(exact, mask=~(some & fits))


def _decimals(function: str, parts: Sequence[Ints], divisor: Ints, some: Flags, kind: pa.DataType) -> pa.Array:
    """Spark's types: ten more digits for a sum; four more, all in the scale, for a mean."""
    more = 10 if function == "sum" else 4
    scale = kind.scale if function == "sum" else min(_DIGITS, kind.scale + 4)
    target = pa.decimal128(min(_DIGITS, kind.precision + more), scale)
    found: list[Decimal | None] = []
    unit, limit = Decimal(1).scaleb(-scale), Decimal(1).scaleb(target.precision - scale)
    for whole, count, known in zip(whole_numbers(parts), divisor.tolist(), some.tolist(), strict=True):
        value = _EXACT.scaleb(Decimal(whole), -kind.scale)
        if function == "avg":
            value = _EXACT.divide(value, Decimal(count)).quantize(unit, rounding=ROUND_HALF_UP, context=_EXACT)
        # Decimal's own operations, `abs` too, round to 28 digits.
        fits = value.copy_abs() < limit
        found.append(value if known and fits else None)
    return pa.array(found, type=target)


def _spread(function: str, moments: Column, kind: pa.DataType | None) -> pa.Array:
    assert isinstance(moments, Integers | Floats)
    count = moments.parts[0] if isinstance(moments, Integers) else moments.rows[:, 0].astype(np.int64)
    degrees = count - 1 if function.endswith("samp") else count
    divisor = np.where(degrees > 0, degrees, 1)
    if isinstance(moments, Integers):
        variance = _exact_variance(moments.parts, divisor, 0 if kind is None else getattr(kind, "scale", 0))
    else:
        mean, squares = moments.rows[:, 1], moments.rows[:, 2]
        variance = np.where(np.isfinite(mean), squares, np.nan) / divisor
    return pa.array(np.sqrt(variance) if function.startswith("stddev") else variance, mask=degrees <= 0)


def _exact_variance(parts: Sequence[Ints], divisor: Ints, scale: int) -> npt.NDArray[np.float64]:
    """From exact counts, sums and sums of squares: in 64 bits where they are small, else in Python integers."""
    width = (len(parts) - 1) // 3
    count, sums, squares = parts[0], parts[1 : 1 + width], parts[1 + width :]
    total = wrapped(sums)
    unit = 100**scale  # values are integers in units of their last digit
    found = np.asarray(
        (count * wrapped(squares) - total * total) / (count.clip(1) * divisor.astype(np.float64)) / float(unit)
    )
    large = np.flatnonzero(approximate(squares) * count >= _FITS)
    added, squared = (whole_numbers([part[large] for part in own]) for own in (sums, squares))
    for n, one, square in zip(large.tolist(), added, squared, strict=True):
        rows = int(count[n])
        found[n] = (rows * square - one * one) / (rows * int(divisor[n]) * unit)
    return found


def _listed(lists: Lists, low: Ints, high: Ints, *, distinct: bool) -> pa.Array:
    values = tidy(lists.values) if distinct else lists.values
    items = total_of(high - low)
    check_built(max(items, items * values.nbytes // max(1, 64 * len(values))), "items of lists")
    kept = []
    for a, b in zip(low.tolist(), high.tolist(), strict=True):
        inside = values[a:b].drop_null()
        kept.append(inside.unique() if distinct else inside)
    offsets = np.concatenate([[0], np.cumsum([len(k) for k in kept])]).astype(np.int32)
    flat = pa.concat_arrays(kept) if kept else values[:0]
    return pa.ListArray.from_arrays(pa.array(offsets), flat)


def _of_bags(aggregate: Aggregate, bags: Bags, low: Ints, high: Ints, own: Mapping[str, UserAggregate]) -> pa.Array:
    assert aggregate.distinct or aggregate.function == "heavy_hitters"
    if aggregate.function == "count":
        return pa.array(bags.distinct(low, high))
    check_built(total_of(bags.distinct(low, high)), "distinct values in windows")
    folded = bags.fold(low, high)
    if aggregate.function == "heavy_hitters":
        return _heavy_hitters(folded, exact_share(aggregate.parameters[0]))
    values = bags.values.take(pa.array(folded.codes))
    kind = bags.values.type
    user = own.get(aggregate.function)
    spans = zip(folded.offsets[:-1].tolist(), folded.offsets[1:].tolist(), strict=True)
    if user is not None:
        states = [reduce(user.add, values[a:b].to_pylist(), user.zero()) for a, b in spans]
        return pa.array([user.finish(s) for s in states], type=arrow_type(user.type))
    assert aggregate.function not in REPEATS_CHANGE_NOTHING
    starts, ends = folded.offsets[:-1], folded.offsets[1:]
    if aggregate.function in MOMENTS:
        return _spread(aggregate.function, moments_of(values).fold(starts, ends), kind)
    if aggregate.function in {"sum", "avg"}:
        return _sum_or_mean(aggregate.function, _summed(values, starts, ends), ends - starts, kind)
    msg = f"DISTINCT is not known for {aggregate.function!r}; leave it out"
    raise AssertionError(msg)


def _summed(values: pa.Array, starts: Ints, ends: Ints) -> Column:
    if pa.types.is_floating(values.type):
        single = doubles(values)
        return Floats(0, np.column_stack([single, np.zeros_like(single)])).fold(starts, ends)
    return Integers(limbs(values)).fold(starts, ends)


def _heavy_hitters(bags: Bags, share: Fraction) -> pa.Array:
    """Values with at least this share of all, with counts: most frequent first, ties ascending by value."""
    sizes, codes, counts = [], [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for a, b in zip(bags.offsets[:-1].tolist(), bags.offsets[1:].tolist(), strict=True):
        own = bags.counts[a:b]
        order = np.argsort(-own, kind="stable")
        order = order[own[order] >= math.ceil(share * int(own.sum()))]
        sizes.append(len(order))
        codes.append(bags.codes[a:b][order])
        counts.append(own[order])
    return _structs(sizes, bags.values.take(pa.array(np.concatenate(codes))), pa.array(np.concatenate(counts)))


def _structs(sizes: Sequence[int], items: pa.Array, counts: pa.Array) -> pa.Array:
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([items, counts], ["item", "count"]))


def _of_states(aggregate: Aggregate, states: States, kind: pa.DataType, own: Mapping[str, UserAggregate]) -> pa.Array:
    made = states.made()
    match aggregate.function:
        case "approx_count_distinct":
            # Merging with itself removes a sketch's arrival order: estimates then depend on the values alone.
            again = [states.function.merge(s, s) for s in made]
            return pa.array([round(s.get_estimate()) for s in again], type=pa.int64())
        case "approx_percentile":
            return _percentiles(made, aggregate.parameters[1:], kind)
        case "approx_top_k":
            return _frequent(made, int(aggregate.parameters[0]), kind)
    assert isinstance(states.function, Own)
    kind = arrow_type(own[aggregate.function].type)
    return pa.array([states.function.finish(s) for s in made], type=kind)


def _percentiles(made: Sequence[Ranked], shares: Sequence[float], kind: pa.DataType) -> pa.Array:
    exact = [exact_share(share) for share in shares]

    def quantiles(ranked: Ranked) -> list[Any] | None:
        return [ranked.at(max(1, math.ceil(share * ranked.count))) for share in exact] if ranked.count else None

    rows = [quantiles(ranked) for ranked in made]
    if pa.types.is_integer(kind):
        rows = [None if row is None else [int(v) for v in row] for row in rows]
    if len(shares) == 1:
        return pa.array([None if row is None else row[0] for row in rows], type=kind)
    return pa.array(rows, type=pa.list_(kind))


def _frequent(made: Sequence[Any], most: int, kind: pa.DataType) -> pa.Array:
    from datasketches import frequent_items_error_type  # noqa: PLC0415  (only where a sketch is)

    floating = pa.types.is_floating(kind)
    sizes, items, counts = [], [], []
    for sketch in made:
        found = sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_NEGATIVES, 0)
        pairs = [(math.nan if floating and row[0] == NAN else row[0], row[1]) for row in found]
        best = sorted(pairs, key=lambda pair: (-pair[1], pair[0] != pair[0], pair[0]))[:most]  # NaN is largest
        sizes.append(len(best))
        items += [item for item, _ in best]
        counts += [count for _, count in best]
    return _structs(sizes, pa.array(items, type=kind), pa.array(counts, type=pa.int64()))
