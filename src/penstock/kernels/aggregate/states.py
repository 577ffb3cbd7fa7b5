"""States that only their own functions understand: sketches of Apache DataSketches, and users' own aggregates.

They are Python objects, merged one by one: two stacks spare most merges when windows overlap, and a whole window of raw rows is
taken in at once. Sketches are within the bounds that DataSketches states for their size; quantiles draw random numbers, so that
two runs may differ within the bound.
"""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import datasketches as ds
import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate.codes import doubles, tidy
from penstock.model.aggregate import UserAggregate
from penstock.planner.taxonomy import Piece
from penstock.state.run import Ints

_DOUBLES = frozenset({"double", "float", "int", "smallint", "tinyint"})  # whose values a double holds
NAN = "NaN"  # stands for it in sketches that compare items: no NaN equals another


class Function(Protocol):
    """What a state needs to be made, merged and kept in a file."""

    def of(self, values: pa.Array) -> Any: ...

    def merge(self, left: Any, right: Any) -> Any:
        """A new state; both others stay as they are."""
        ...

    def dump(self, state: Any) -> bytes: ...

    def load(self, data: bytes) -> Any: ...


@dataclass(frozen=True)
class Distinct:
    """HyperLogLog; `deviation` is the relative standard deviation asked for."""

    deviation: float

    @property
    def size(self) -> int:
        return min(21, max(7, math.ceil(2 * math.log2(1.04 / self.deviation))))

    def of(self, values: pa.Array) -> Any:
        sketch = ds.hll_sketch(self.size, ds.tgt_hll_type.HLL_8)
        for value in tidy(values).unique().drop_null().to_pylist():
            # Sketches pass over the empty string.
            sketch.update(value if isinstance(value, int | float) else f"={value}")
        return sketch

    def merge(self, left: Any, right: Any) -> Any:
        union = ds.hll_union(self.size)
        union.update(left)
        union.update(right)
        return union.get_result(ds.tgt_hll_type.HLL_8)

    def dump(self, state: Any) -> bytes:
        return bytes(state.serialize_compact())

    def load(self, data: bytes) -> Any:
        return ds.hll_sketch.deserialize(data)


@dataclass(frozen=True)
class Ranked:
    """A KLL sketch of values, and how many NaN there were beside them: the sketch passes over NaN, which is largest."""

    sketch: Any
    nans: int

    @property
    def count(self) -> int:
        return int(self.sketch.n) + self.nans

    def at(self, place: int) -> Any:
        """The value at a place, counted from 1."""
        held = int(self.sketch.n)
        if place > held:
            return math.nan
        if place in {1, held}:
            return self.sketch.get_min_value() if place == 1 else self.sketch.get_max_value()
        # Ranks are given as shares; in the middle between two places rounding cannot change which one is meant.
        return self.sketch.get_quantile((place - 0.5) / held, True)


@dataclass(frozen=True)
class Quantiles:
    """KLL; 1 / `accuracy` is the error of ranks asked for. `exact` values are kept as they are, others as doubles, which is faster."""

    accuracy: float
    exact: bool

    @property
    def size(self) -> int:
        return min(65535, max(8, math.ceil(math.pow(2.296 * self.accuracy, 1 / 0.9021))))

    def of(self, values: pa.Array) -> Ranked:
        sketch = self._empty()
        if self.exact:
            for value in values.drop_null().to_pylist():
                sketch.update(value)
            return Ranked(sketch, 0)
        numbers = doubles(values.drop_null()) + 0.0
        sketch.update(numbers)
        return Ranked(sketch, int(np.isnan(numbers).sum()))

    def merge(self, left: Ranked, right: Ranked) -> Ranked:
        merged = self._empty()
        merged.merge(left.sketch)
        merged.merge(right.sketch)
        return Ranked(merged, left.nans + right.nans)

    def dump(self, state: Ranked) -> bytes:
        data = state.sketch.serialize(_Items()) if self.exact else state.sketch.serialize()
        return state.nans.to_bytes(8, "little") + bytes(data)

    def load(self, data: bytes) -> Ranked:
        nans, rest = int.from_bytes(data[:8], "little"), data[8:]
        if self.exact:
            return Ranked(ds.kll_items_sketch.deserialize(rest, _Items()), nans)
        return Ranked(ds.kll_doubles_sketch.deserialize(rest), nans)

    def _empty(self) -> Any:
        return ds.kll_items_sketch(self.size) if self.exact else ds.kll_doubles_sketch(self.size)


@dataclass(frozen=True)
class Frequent:
    """Frequent items (Misra-Gries); exact up to `tracked` different values, then with the bound the sketch states."""

    tracked: int

    @property
    def size(self) -> int:
        return min(26, max(3, math.ceil(math.log2(self.tracked / 0.75))))

    def of(self, values: pa.Array) -> Any:
        sketch = ds.frequent_items_sketch(self.size)
        for value, count in Counter(tidy(values).drop_null().to_pylist()).items():
            sketch.update(NAN if value != value else value, count)  # noqa: PLR0124  (true of NaN alone)
        return sketch

    def merge(self, left: Any, right: Any) -> Any:
        merged = ds.frequent_items_sketch(self.size)
        merged.merge(left)
        merged.merge(right)
        return merged

    def dump(self, state: Any) -> bytes:
        return bytes(state.serialize(_Items()))

    def load(self, data: bytes) -> Any:
        return ds.frequent_items_sketch.deserialize(data, _Items())


class _Items(ds.PyObjectSerDe):  # type: ignore[misc]
    """How the values in a sketch of frequent items lie in its bytes: a length and a pickle each."""

    def get_size(self, item: Any) -> int:
        return len(self.to_bytes(item))

    def to_bytes(self, item: Any) -> bytes:
        data = pickle.dumps(item, protocol=5)
        return len(data).to_bytes(4, "little") + data

    def from_bytes(self, data: bytes, offset: int) -> tuple[Any, int]:
        size = int.from_bytes(data[offset : offset + 4], "little")
        return pickle.loads(data[offset + 4 : offset + 4 + size]), size + 4  # noqa: S301  (the engine's own checked files)


@dataclass(frozen=True)
class Own:
    """A user's function."""

    function: UserAggregate

    def of(self, values: pa.Array) -> Any:
        return reduce(self.function.add, values.drop_null().to_pylist(), self.function.zero())

    def merge(self, left: Any, right: Any) -> Any:
        # `merge` of a user may change its left side: begin with a fresh one.
        return self.function.merge(self.function.merge(self.function.zero(), left), right)

    def dump(self, state: Any) -> bytes:
        return pickle.dumps(state, protocol=5)

    def load(self, data: bytes) -> Any:
        return pickle.loads(data)  # noqa: S301  (the engine's own checked files)


def function_of(piece: Piece, kind: str, own: Mapping[str, UserAggregate]) -> Function:
    """How to make and merge the states of a piece over an argument of this type."""
    given = piece.parameters
    match piece.function:
        case "approx_count_distinct":
            return Distinct(given[0] if given else 0.05)
        case "approx_percentile":
            return Quantiles(given[0], exact=kind not in _DOUBLES)
        case "approx_top_k":
            return Frequent(int(given[1]) if len(given) > 1 else 10_000)
    return Own(own[piece.function])


@dataclass(frozen=True)
class States:
    """States of entries, or the raw values of rows that no state has been made of yet."""

    function: Function
    states: tuple[Any, ...] | None
    values: pa.Array | None

    def take(self, index: Ints) -> States:
        if self.values is not None:
            return States(self.function, None, self.values.take(pa.array(index)))
        assert self.states is not None
        return States(self.function, tuple(self.states[i] for i in index.tolist()), None)

    def fold(self, low: Ints, high: Ints) -> States:
        if self.values is not None:
            spans = zip(low.tolist(), high.tolist(), strict=True)
            return States(self.function, tuple(self.function.of(self.values[a:b]) for a, b in spans), None)
        return States(self.function, self._swept(low.tolist(), high.tolist()), None)

    def _swept(self, low: list[int], high: list[int]) -> tuple[Any, ...]:
        """Two stacks, as for numbers: `older[i]` is the merge of entries i to `split`."""
        assert self.states is not None
        merge, states = self.function.merge, self.states
        older: dict[int, Any] = {}
        found = []
        split = done = last = 0
        newer: Any = None
        for begin, end in zip(low, high, strict=True):
            if begin >= split or begin < last:
                older, split, done, newer = {end - 1: states[end - 1]}, end, end, None
                for i in range(end - 2, begin - 1, -1):
                    older[i] = merge(states[i], older[i + 1])
            for i in range(done, end):
                newer = states[i] if newer is None else merge(newer, states[i])
            done, last = max(done, end), begin
            found.append(older[begin] if newer is None else merge(older[begin], newer))
        return tuple(found)

    def made(self) -> tuple[Any, ...]:
        """The states; of raw values, one for each row."""
        if self.states is not None:
            return self.states
        assert self.values is not None
        rows = np.arange(len(self.values))
        return self.fold(rows, rows + 1).made()

    def store(self) -> tuple[pa.Array, ...]:
        return (pa.array([self.function.dump(s) for s in self.made()], type=pa.binary()),)


def load_states(data: pa.Array, function: Function) -> States:
    return States(function, tuple(function.load(d) for d in data.to_pylist()), None)


@dataclass(frozen=True)
class Lists:
    """All values of rows in order: only of raw rows, and listed when a window closes."""

    values: pa.Array
    bounds: tuple[Ints, Ints] | None = None

    def take(self, index: Ints) -> Lists:
        if self.bounds is None:
            return Lists(self.values.take(pa.array(index)))
        return Lists(self.values, (self.bounds[0][index], self.bounds[1][index]))

    def fold(self, low: Ints, high: Ints) -> Lists:
        return Lists(self.values, (low, high))

    def store(self) -> tuple[pa.Array, ...]:
        msg = "values in order are kept as rows, never as partials"
        raise AssertionError(msg)
