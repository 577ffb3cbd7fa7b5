"""Opaque aggregate states: sketches of Apache DataSketches, and users' own aggregates.

Files hold bytes that are never executed: of sketches, of plain values (`state.values`), or what a user's own `encode`
made. In memory states are Python objects, merged one by one: two stacks save most merges when windows overlap, and a
whole window of raw rows is added at once. Sketch errors are within the bounds that DataSketches states for their size;
quantiles draw random numbers, so that two runs may differ within the bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import datasketches as ds
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StateError
from penstock.kernels.aggregate.codes import doubles, tidy
from penstock.model.aggregate import UserAggregate
from penstock.planner.taxonomy import Piece
from penstock.state import values as plain
from penstock.state.run import Ints

_DOUBLES = frozenset({"double", "float", "int", "smallint", "tinyint"})  # types whose values a double holds exactly
NAN = "NaN"  # replaces NaN in sketches that compare items, since no NaN equals another


class Function(Protocol):
    """How a state is made, merged and stored."""

    def of(self, values: pa.Array) -> Any: ...

    def merge(self, left: Any, right: Any) -> Any:
        """A new state; the arguments do not change."""
        ...

    def dump(self, state: Any) -> bytes: ...

    def load(self, data: bytes) -> Any: ...


@dataclass(frozen=True)
class Distinct:
    """HyperLogLog; `deviation` is the requested relative standard deviation."""

    deviation: float

    @property
    def size(self) -> int:
        return min(21, max(7, math.ceil(2 * math.log2(1.04 / self.deviation))))

    def of(self, values: pa.Array) -> Any:
        sketch = ds.hll_sketch(self.size, ds.tgt_hll_type.HLL_8)
        for value in tidy(values).unique().drop_null().to_pylist():
            # Sketches ignore the empty string.
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
    """A KLL sketch of values and a count of NaN, which is largest and which the sketch ignores."""

    sketch: Any
    nans: int

    @property
    def count(self) -> int:
        return int(self.sketch.n) + self.nans

    def at(self, place: int) -> Any:
        """The value at a rank, counted from 1."""
        held = int(self.sketch.n)
        if place > held:
            return math.nan
        if place in {1, held}:
            return self.sketch.get_min_value() if place == 1 else self.sketch.get_max_value()
        # The sketch takes ranks as shares; halfway between two ranks rounding cannot select another one.
        return self.sketch.get_quantile((place - 0.5) / held, True)


@dataclass(frozen=True)
class Quantiles:
    """KLL with rank error 1 / `accuracy`. `exact` values are stored unchanged, others as doubles, which is faster."""

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
            return Ranked(_read_items(ds.kll_items_sketch, rest), nans)
        return Ranked(ds.kll_doubles_sketch.deserialize(rest), nans)

    def _empty(self) -> Any:
        return ds.kll_items_sketch(self.size) if self.exact else ds.kll_doubles_sketch(self.size)


@dataclass(frozen=True)
class Frequent:
    """Frequent items (Misra-Gries); exact up to `tracked` different values, then within the bound of the sketch."""

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
        return _read_items(ds.frequent_items_sketch, data)


class _Items(ds.PyObjectSerDe):  # type: ignore[misc]
    """How a sketch of items stores its values: a length and the plain value each."""

    refusal: StateError | None = None  # raised while reading an item: DataSketches would replace it by its own error

    def get_size(self, item: Any) -> int:
        return len(self.to_bytes(item))

    def to_bytes(self, item: Any) -> bytes:
        data = plain.encode(item)
        return len(data).to_bytes(4, "little") + data

    def from_bytes(self, data: bytes, offset: int) -> tuple[Any, int]:
        size = int.from_bytes(data[offset : offset + 4], "little")
        try:
            return plain.decode(data[offset + 4 : offset + 4 + size]), size + 4
        except StateError as error:
            self.refusal = error
            raise


def _read_items(sketch: Any, data: bytes) -> Any:
    items = _Items()
    try:
        return sketch.deserialize(data, items)
    except Exception:
        if items.refusal is not None:
            raise items.refusal from None
        raise


_CODEC, _LOST = b"c", b"!"  # marks bytes made by a user's own `encode`, and the reason for a lost state


@dataclass(frozen=True)
class Lost:
    """Replaces a state that could not be stored; everything merged with it is lost too."""

    why: str


@dataclass(frozen=True)
class Own:
    """A user's function."""

    name: str
    function: UserAggregate

    def of(self, values: pa.Array) -> Any:
        return reduce(self.function.add, values.drop_null().to_pylist(), self.function.zero())

    def merge(self, left: Any, right: Any) -> Any:
        lost = next((state for state in (left, right) if isinstance(state, Lost)), None)
        if lost is not None:
            return lost
        # A user's `merge` may change its left argument: start with a fresh state.
        return self.function.merge(self.function.merge(self.function.zero(), left), right)

    def finish(self, state: Any) -> Any:
        return None if isinstance(state, Lost) else self.function.finish(state)

    def dump(self, state: Any) -> bytes:
        """The bytes of a state; if it cannot be stored, the reason."""
        if isinstance(state, Lost):
            return _LOST + state.why.encode()
        codec = codec_of(self.function)
        try:
            if codec is None:
                return plain.encode(state)
            data = codec[0](state)
        except plain.NotPlain as error:
            why = (
                f"has a state of type {error}, which cannot be kept between steps: make it of {plain.PLAIN}, {_REMEDY}"
            )
        except Exception as error:  # noqa: BLE001  (an error in a user's code affects only queries that use it)
            why = f"cannot keep its state: encode() raised {type(error).__name__}: {error}"
        else:
            if isinstance(data, bytes):
                return _CODEC + data
            why = f"cannot keep its state: encode() gave {type(data).__name__} and not bytes"
        return _LOST + f"aggregate {self.name!r} {why}".encode()

    def load(self, data: bytes) -> Any:
        mark, codec = data[:1], codec_of(self.function)
        if mark == _LOST:
            return Lost(data[1:].decode())
        if mark != _CODEC:
            return plain.decode(data)
        if codec is None:
            msg = (
                f"states of aggregate {self.name!r} were written by its encode(); "
                "declare it with encode() and decode() as before"
            )
            raise StateError(msg)
        try:
            return codec[1](data[1:])
        except Exception as error:  # noqa: BLE001  (as above)
            return Lost(
                f"aggregate {self.name!r} cannot read its state: decode() raised {type(error).__name__}: {error}"
            )


_REMEDY = "or give the aggregate encode(state) -> bytes and decode(bytes) -> state"


def codec_of(function: UserAggregate) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]] | None:
    """A user's own `encode` and `decode`, if the function has them."""
    encode, decode = (getattr(function, name, None) for name in ("encode", "decode"))
    return None if encode is None or decode is None else (encode, decode)


def why_lost(states: pa.Array | pa.ChunkedArray) -> str | None:
    """Why some of these stored states are lost; None if all are intact."""
    lost = states.filter(pc.starts_with(states, _LOST))
    return lost[0].as_py()[1:].decode() if len(lost) else None


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
    return Own(piece.function, own[piece.function])


@dataclass(frozen=True)
class States:
    """States of entries, or the raw values of rows for which no state was made yet."""

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

    @property
    def lost(self) -> bool:
        """Whether some of the states are lost."""
        return any(isinstance(state, Lost) for state in self.states or ())

    def made(self) -> tuple[Any, ...]:
        """The states; of raw values, one per row."""
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
    """All values of rows in order: only of raw rows, listed when a window closes."""

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
