"""Aggregates by group, maintained from signed rows.

A group's state is one row: its number of joined rows (at zero the group is gone), and a few numbers per aggregate.
Counts and exact sums are additive. Minimum and maximum under deletes, distinct values and floating sums need all rows
of the affected groups, so a view with one of these stores its joined rows too. Floating sums are taken over sorted
values: the same rows give the same sum, in whatever order they came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import RegistrationError, StepError
from penstock.model.view import View, ViewAggregate
from penstock.views.rows.bag import COUNT, counts, negated, normalized, total

ROWS = "_rows"
FUNCTIONS = ("count", "sum", "avg", "min", "max")
_WIDE, _WIDER = 38, 76  # digits of an exact sum as stored, and during addition, where it then cannot overflow

Held = Callable[[pa.Table], pa.Table]  # all joined rows, the change included, of at least these groups


@dataclass(frozen=True)
class Grouping:
    """The aggregates of one view, with the Arrow types of its joined rows (`g0`.., and arguments `a0`..)."""

    groups: tuple[str, ...]
    aggregates: tuple[ViewAggregate, ...]
    schema: pa.Schema

    @property
    def needs_rows(self) -> bool:
        """Whether joined rows must be stored."""
        return any(self._from_rows(k) for k in range(len(self.aggregates)))

    @property
    def state(self) -> pa.Schema:
        """The columns of a group's state."""
        fields = [self.schema.field(g) for g in self.groups] + [pa.field(ROWS, pa.int64())]
        for k in range(len(self.aggregates)):
            fields += self._fields(k)
        return pa.schema([*fields, pa.field(COUNT, pa.int64())])

    def change(self, delta: pa.Table, old: pa.Table, held: Held) -> pa.Table:
        """The signed changes of the groups' states; `old` are the states of at least the groups in `delta`."""
        touched = distinct(delta, self.groups)
        old = only(old, touched, self.groups)
        fresh = self._added(
            pa.concat_tables([_widened(old.drop_columns(COUNT)), self._contributions(delta)], promote_options="default")
        )
        self._check(fresh)
        fresh = fresh.filter(pc.greater(fresh.column(ROWS), 0))
        derived = [k for k in range(len(self.aggregates)) if self._from_rows(k)]
        if derived:
            rows = only(held(touched), touched, self.groups)
            fresh = self._derived(fresh, rows.filter(pc.greater(rows.column(COUNT), 0)), derived)
        fresh = fresh.append_column(pa.field(COUNT, pa.int64()), pa.repeat(pa.scalar(1, pa.int64()), len(fresh)))
        return total([negated(old.select(self.state.names)), fresh.select(self.state.names).cast(self.state)])

    def answer(self, states: pa.Table) -> pa.Table:
        """Groups `g0`.. and values `a0`.. as a reader sees them. Without GROUP BY there is always one row."""
        if not self.groups and not len(states):
            none: dict[str, Any] = {
                f.name: pa.array([0 if f.name == ROWS or f.name.startswith("n") else None], f.type) for f in self.state
            }
            states = pa.table(none)
        columns = {g: states.column(g) for g in self.groups}
        for k in range(len(self.aggregates)):
            columns[f"a{k}"] = self._value(k, states)
        return pa.table(columns)

    # -- one aggregate ----------------------------------------------------------------------------------------------

    def _type(self, k: int) -> pa.DataType:
        return self.schema.field(f"a{k}").type

    def _from_rows(self, k: int) -> bool:
        aggregate = self.aggregates[k]
        if aggregate.function in ("min", "max") or aggregate.distinct:
            return True
        return aggregate.function in ("sum", "avg") and pa.types.is_floating(self._type(k))

    def _fields(self, k: int) -> list[pa.Field]:
        """`n`: values that are not NULL; `s`: their exact sum; `v`: what needs all rows."""
        aggregate = self.aggregates[k]
        if aggregate.argument is None:
            return []
        number = pa.field(f"n{k}", pa.int64())
        if aggregate.function == "count":
            return [number]
        if aggregate.function in ("min", "max"):
            return [pa.field(f"v{k}", self._type(k))]
        kind = self._type(k)
        if pa.types.is_floating(kind):
            return [number, pa.field(f"v{k}", pa.float64())]
        return [number, pa.field(f"s{k}", pa.decimal128(_WIDE, kind.scale if pa.types.is_decimal(kind) else 0))]

    def _contributions(self, delta: pa.Table) -> pa.Table:
        """What each signed row adds to the state of its group."""
        times = delta.column(COUNT)
        columns = {**{g: _plain(delta.column(g)) for g in self.groups}, ROWS: times}
        for k, aggregate in enumerate(self.aggregates):
            for field in self._fields(k):
                if field.name[0] == "v" or aggregate.distinct:
                    columns[field.name] = pa.nulls(len(delta))
                    continue
                values = delta.column(f"a{k}")
                if field.name[0] == "n":
                    columns[field.name] = pc.if_else(pc.is_valid(values), times, 0)
                else:
                    columns[field.name] = _times(values, times)
        return pa.table(columns)

    def _added(self, states: pa.Table) -> pa.Table:
        names = [n for n in states.column_names if n not in self.groups]
        summed = states.group_by(list(self.groups), use_threads=False).aggregate(
            [(n, "sum") for n in names if n[0] != "v"]
        )
        columns = {g: summed.column(g) for g in self.groups}
        for name in names:
            kind = self.state.field(name).type
            columns[name] = (
                pa.nulls(len(summed), kind) if name[0] == "v" else _fit(summed.column(f"{name}_sum"), kind, name[1:])
            )
        return pa.table(columns)

    def _derived(self, fresh: pa.Table, rows: pa.Table, wanted: Sequence[int]) -> pa.Table:
        """Compute what needs all rows of a group."""
        number, places = _places(fresh, rows, self.groups)
        for k in wanted:
            aggregate, kind = self.aggregates[k], self._type(k)
            values, times = rows.column(f"a{k}").combine_chunks(), counts(rows)
            valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
            at, values, times = places[valid], normalized(pc.drop_null(values)), times[valid]
            if aggregate.distinct:
                seen = pa.table({"at": at, "x": values}).group_by(["at", "x"], use_threads=False).aggregate([])
                at, values, times = (
                    seen.column("at").to_numpy(),
                    seen.column("x").combine_chunks(),
                    np.ones(len(seen), np.int64),
                )
            found = {f"n{k}": np.bincount(at, times, number).astype(np.int64)}
            if aggregate.function in ("min", "max"):
                found = {f"v{k}": _extreme(aggregate.function, at, values, number)}
            elif aggregate.function in ("sum", "avg") and pa.types.is_floating(kind):
                found[f"v{k}"] = _floating_sums(at, values, times, number)
            elif aggregate.function in ("sum", "avg"):
                products = _times(pa.chunked_array([values]), pa.chunked_array([pa.array(times)]))
                sums = pa.table({"at": at, "s": products}).group_by("at", use_threads=False).aggregate([("s", "sum")])
                whole = [None] * number
                for place, value in zip(sums.column("at").to_pylist(), sums.column("s_sum").to_pylist(), strict=True):
                    whole[place] = value
                found[f"s{k}"] = pa.array(whole, products.type)
            for name, column in found.items():
                array = column if isinstance(column, pa.Array) else pa.array(column)
                fitted = _fit(array, self.state.field(name).type, k)
                fresh = fresh.set_column(fresh.schema.get_field_index(name), name, fitted)
        return fresh

    def _check(self, states: pa.Table) -> None:
        """A negative number of rows: a deletion of a row that was not there."""
        for name in states.column_names:
            if name == ROWS or name[0] == "n":
                wrong = states.filter(pc.less(states.column(name), 0))
                if len(wrong):
                    group = {g: wrong.column(g)[0].as_py() for g in self.groups}
                    msg = (
                        f"group {group} would have {wrong.column(name)[0].as_py()} rows: a row was deleted that is "
                        "not there; find out which source reports it, and recompute the view"
                    )
                    raise StepError(msg)

    def _value(self, k: int, states: pa.Table) -> Any:
        aggregate = self.aggregates[k]
        if aggregate.argument is None:
            return states.column(ROWS)
        if aggregate.function == "count":
            return states.column(f"n{k}")
        if aggregate.function in ("min", "max"):
            return states.column(f"v{k}")
        number, kind = states.column(f"n{k}"), self._type(k)
        some = pc.greater(number, 0)
        if pa.types.is_floating(kind):
            sums = pc.if_else(some, states.column(f"v{k}"), None)
            return sums if aggregate.function == "sum" else pc.divide(sums, pc.cast(number, pa.float64()))
        sums = pc.if_else(some, states.column(f"s{k}"), None)
        if aggregate.function == "sum":
            return _fit(sums, result_type("sum", kind), k)
        if pa.types.is_integer(kind):
            return pc.divide(pc.cast(sums, pa.float64()), pc.cast(pc.if_else(some, number, None), pa.float64()))
        return _decimal_average(sums, number, result_type("avg", kind))


def grouping_of(view: View, schema: pa.Schema) -> Grouping:
    """The aggregates of a view over joined rows of this schema; refuses what cannot be aggregated."""
    for k, aggregate in enumerate(view.aggregates):
        if aggregate.function not in FUNCTIONS:
            raise RegistrationError(
                f"view {view.name!r}: {aggregate.function} is not maintained; known: {', '.join(FUNCTIONS)}"
            )
        if aggregate.function in ("sum", "avg") and aggregate.argument is not None:
            kind = schema.field(f"a{k}").type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
                raise RegistrationError(f"view {view.name!r}: {aggregate.function} needs numbers, not {kind}")
    return Grouping(tuple(f"g{k}" for k in range(len(view.groups))), view.aggregates, schema)


def result_type(function: str, kind: pa.DataType) -> pa.DataType:
    """Spark's type for an aggregate of values of type `kind`."""
    if function == "count":
        return pa.int64()
    if function in ("min", "max"):
        return kind
    if pa.types.is_decimal(kind):
        if function == "sum":
            return pa.decimal128(min(_WIDE, kind.precision + 10), kind.scale)
        return pa.decimal128(min(_WIDE, kind.precision + 4), min(_WIDE, kind.scale + 4))
    return pa.float64() if function == "avg" or pa.types.is_floating(kind) else pa.int64()


def distinct(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The distinct values of some columns; one row without columns if there are none."""
    if not columns:
        return pa.table({COUNT: [1]})
    plain = pa.table({c: _plain(rows.column(c)) for c in columns})
    return plain.group_by(list(columns), use_threads=False).aggregate([])


def only(rows: pa.Table, wanted: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows whose columns are among the distinct `wanted`; here NULL is an ordinary value."""
    if not columns:
        return rows
    _, places = _places(wanted, rows, columns)
    return rows.filter(pa.array(places >= 0))


def _places(wanted: pa.Table, rows: pa.Table, columns: Sequence[str]) -> tuple[int, Any]:
    """(rows in `wanted`, for each of `rows` the number of the row of `wanted` it equals in `columns`, or -1)."""
    if not columns:
        return len(wanted), np.zeros(len(rows), np.int64)
    if not len(rows) or not len(wanted):
        return len(wanted), np.full(len(rows), -1, np.int64)
    mixed = np.zeros(len(wanted) + len(rows), np.int64)
    for name in columns:
        both = pa.concat_arrays([
            piece for column in (wanted.column(name), rows.column(name)) for piece in _plain(column).chunks
        ])  # fmt: skip
        code = pc.dictionary_encode(both, null_encoding="encode").indices.to_numpy()
        # Numbers of combinations of the columns so far and the next one, made dense before they can overflow.
        mixed = np.unique(mixed * (int(code.max()) + 1) + code, return_inverse=True)[1]
    place = np.full(int(mixed.max()) + 1, -1, np.int64)
    place[mixed[: len(wanted)]] = np.arange(len(wanted))
    return len(wanted), place[mixed[len(wanted) :]]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    found = normalized(column)
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def _times(values: pa.ChunkedArray, times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Exact products, as the widest decimals."""
    if pa.types.is_integer(values.type):
        if _small(values, times):
            return pc.cast(pc.multiply_checked(pc.cast(values, pa.int64()), times), pa.decimal256(_WIDER, 0))
        values = pc.cast(values, pa.decimal128(19, 0))
    precision, scale = values.type.precision, values.type.scale
    decimal = pa.decimal128 if precision <= 18 else pa.decimal256
    products = pc.multiply_checked(pc.cast(values, decimal(precision, scale)), pc.cast(times, decimal(19, 0)))
    return pc.cast(products, pa.decimal256(_WIDER, scale))


def _widened(states: pa.Table) -> pa.Table:
    """The same states, with exact sums in a type with room for additions."""
    for k, field in enumerate(states.schema):
        if field.name[0] == "s":
            wide = pc.cast(states.column(k), pa.decimal256(_WIDER, field.type.scale))
            states = states.set_column(k, field.name, wide)
    return states


def _small(values: pa.ChunkedArray, times: pa.ChunkedArray) -> bool:
    low, high = pc.min_max(values).as_py().values()
    most = pc.max(pc.abs(times)).as_py() or 0
    return low is None or max(abs(low), abs(high)) * most < 2**63


def _extreme(function: str, at: Any, values: pa.Array, number: int) -> pa.Array:
    """The least or greatest value of each place; NaN is greater than all others, as in Spark."""
    order = pc.sort_indices(
        pa.table({"at": at, "x": values}), sort_keys=[("at", "ascending"), ("x", "ascending")]
    ).to_numpy()
    sorted_at = at[order]
    side = np.searchsorted(sorted_at, np.arange(number), "left" if function == "min" else "right")
    there = np.searchsorted(sorted_at, np.arange(number), "right") > np.searchsorted(
        sorted_at, np.arange(number), "left"
    )
    chosen = side if function == "min" else side - 1
    rows = order[np.where(there, chosen, 0)] if len(order) else np.zeros(number, np.int64)
    return values.take(pa.array(rows, mask=~there))


def _floating_sums(at: Any, values: pa.Array, times: Any, number: int) -> Any:
    """Sums of doubles, each value with its multiplicity, added in ascending order."""
    numbers = pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False)
    order = np.lexsort((times, numbers, at))
    sums = np.zeros(number)
    if len(order):
        products, places = (numbers * times)[order], at[order]
        starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
        sums[places[starts]] = np.add.reduceat(products, starts)
    return sums


def _fit(sums: Any, kind: pa.DataType, k: int | str) -> Any:
    try:
        return pc.cast(sums, kind)
    except pa.ArrowInvalid:
        msg = (
            f"the sum a{k} of a group does not fit {kind}; use a decimal with more digits before the point as "
            "its argument"
        )
        raise StepError(msg) from None


def _decimal_average(sums: Any, number: Any, kind: pa.DataType) -> pa.Array:
    """As Spark divides: rounded half up to 39 decimals, and then to those of the type."""
    first, unit = Decimal(1).scaleb(-_WIDE - 1), Decimal(1).scaleb(-kind.scale)
    with localcontext() as context:
        context.prec = 3 * _WIDE
        found = [
            None if s is None else (s / n).quantize(first, ROUND_HALF_UP).quantize(unit, ROUND_HALF_UP)
            for s, n in zip(sums.to_pylist(), number.to_pylist(), strict=True)
        ]
    try:
        return pa.array(found, kind)
    except pa.ArrowInvalid:
        raise StepError(f"the average of a group does not fit {kind}; use a narrower decimal as its argument") from None
