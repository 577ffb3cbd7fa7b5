"""From pieces to the values of aggregates, in the types that Spark gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate.bags import Bags
from penstock.kernels.aggregate.codes import Flags, approximate, bigint_of, doubles, limbs, whole_numbers
from penstock.kernels.aggregate.columns import Column, Extremes, Floats, Integers, Picks
from penstock.kernels.aggregate.states import Lists, States
from penstock.kernels.aggregate.types import arrow_type
from penstock.model.aggregate import Aggregate, UserAggregate
from penstock.planner.taxonomy import MOMENTS, REPEATS_CHANGE_NOTHING
from penstock.state.run import Ints

_DIGITS = 38
_EXACT = Context(prec=200)


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
        assert isinstance(folded[0], Floats)
        return _spread(function, folded[0])
    assert isinstance(folded[0], Integers)
    counts = folded[0].parts[0]
    if function == "count":
        return pa.array(counts)
    assert kind is not None
    if isinstance(folded[1], Extremes):
        return folded[1].values(counts > 0)
    return _sum_or_mean(function, folded[1], counts, kind)


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
    """Spark's types: ten digits more for a sum, four more (of them behind the point) for a mean."""
    more = 10 if function == "sum" else 4
    scale = kind.scale if function == "sum" else min(_DIGITS, kind.scale + 4)
    target = pa.decimal128(min(_DIGITS, kind.precision + more), scale)
    found: list[Decimal | None] = []
    unit = Decimal(1).scaleb(-scale)
    for whole, count, known in zip(whole_numbers(parts), divisor.tolist(), some.tolist(), strict=True):
        value = _EXACT.scaleb(Decimal(whole), -kind.scale)
        if function == "avg":
            value = _EXACT.divide(value, Decimal(count)).quantize(unit, rounding=ROUND_HALF_UP, context=_EXACT)
        fits = abs(value) < Decimal(10) ** (target.precision - target.scale)
        found.append(value if known and fits else None)
    return pa.array(found, type=target)


def _spread(function: str, moments: Floats) -> pa.Array:
    count, mean, squares = (moments.rows[:, k] for k in range(3))
    degrees = count - 1 if function.endswith("samp") else count
    variance = np.where(np.isfinite(mean), squares, np.nan) / np.where(degrees > 0, degrees, 1)
    return pa.array(np.sqrt(variance) if function.startswith("stddev") else variance, mask=degrees <= 0)


def _listed(lists: Lists, low: Ints, high: Ints, *, distinct: bool) -> pa.Array:
    values = lists.values
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
    folded = bags.fold(low, high)
    if aggregate.function == "heavy_hitters":
        return _heavy_hitters(folded, Fraction(aggregate.parameters[0]))
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
        single = doubles(values)
        column = Floats(1, np.column_stack([np.ones_like(single), single, np.zeros_like(single)]))
        return _spread(aggregate.function, column.fold(starts, ends))
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
    """Values with at least this share of all, with their counts, the most frequent first, equally frequent ones ascending."""
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
            # Merged with itself a sketch loses what it knew of arrival, so that estimates depend on the values alone.
            again = [states.function.merge(s, s) for s in made]
            return pa.array([round(s.get_estimate()) for s in again], type=pa.int64())
        case "approx_percentile":
            return _percentiles(made, aggregate.parameters[1:], kind)
        case "approx_top_k":
            return _frequent(made, int(aggregate.parameters[0]), kind)
    user = own[aggregate.function]
    return pa.array([user.finish(s) for s in made], type=arrow_type(user.type))


def _percentiles(made: Sequence[Any], shares: Sequence[float], kind: pa.DataType) -> pa.Array:
    def quantiles(sketch: Any) -> list[Any] | None:
        return None if sketch.is_empty() else [sketch.get_quantile(share, True) for share in shares]

    rows = [quantiles(sketch) for sketch in made]
    if pa.types.is_integer(kind):
        rows = [None if row is None else [int(v) for v in row] for row in rows]
    if len(shares) == 1:
        return pa.array([None if row is None else row[0] for row in rows], type=kind)
    return pa.array(rows, type=pa.list_(kind))


def _frequent(made: Sequence[Any], most: int, kind: pa.DataType) -> pa.Array:
    from datasketches import frequent_items_error_type  # noqa: PLC0415  (only where a sketch is)

    sizes, items, counts = [], [], []
    for sketch in made:
        found = sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_NEGATIVES, 0)
        best = sorted(((row[0], row[1]) for row in found), key=lambda pair: (-pair[1], pair[0]))[:most]
        sizes.append(len(best))
        items += [item for item, _ in best]
        counts += [count for _, count in best]
    return _structs(sizes, pa.array(items, type=kind), pa.array(counts, type=pa.int64()))
