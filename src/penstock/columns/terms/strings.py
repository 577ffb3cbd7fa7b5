"""String functions; Spark and Arrow both count code points. All arguments but the string itself are constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.terms.values import Flags, Values
from penstock.model import Call

Outcome = tuple[Any, Flags | None]


# Capitals of Unicode 15 to 17, which Spark knows, but not every Python version.
_CAPITALS = {
    0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3, 0xA7D4: 0xA7D5, 0xA7DA: 0xA7DB,
    0xA7DC: 0x19B, **{n: n + 0x20 for n in range(0x10D50, 0x10D66)}, **{n: n + 0x1B for n in range(0x16EA0, 0x16EB9)},
}  # fmt: skip
_SMALL = {small: capital for capital, small in _CAPITALS.items()}


def _lower(text: str) -> str:
    return text.translate(_CAPITALS).lower()


def _upper(text: str) -> str:
    return text.translate(_SMALL).upper()


def _whole(values: Values) -> pa.Array:
    """The strings of all rows, as one column."""
    return pa.repeat(values.data, len(values.valid)) if isinstance(values.data, pa.Scalar) else values.data


def _numbers(array: pa.Array) -> Any:
    return pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype(np.int64)


def _truths(array: pa.Array) -> Any:
    return pc.fill_null(array, False).to_numpy(zero_copy_only=False)


def _cased(ascii_only: Callable[[pa.Array], pa.Array], any_other: Callable[[str], str]) -> Any:
    """Upper or lower case: beyond ASCII a letter may become several, which Python supports and Arrow does not."""

    def function(_call: Call, arguments: Sequence[Values]) -> Outcome:
        texts = _whole(arguments[0])
        found = ascii_only(texts)
        others = pc.invert(pc.fill_null(pc.string_is_ascii(texts), True))
        if not pc.any(others).as_py():
            return found, None
        rows = np.flatnonzero(others.to_numpy(zero_copy_only=False))
        written = [any_other(text) for text in texts.take(pa.array(rows)).to_pylist()]
        return pc.replace_with_mask(found, others, pa.array(written, found.type)), None

    return function


def length(_call: Call, arguments: Sequence[Values]) -> Outcome:
    return _numbers(pc.utf8_length(_whole(arguments[0]))), None


def octets(call: Call, arguments: Sequence[Values]) -> Outcome:
    return _numbers(pc.binary_length(_whole(arguments[0]))) * (8 if call.function == "bit_length" else 1), None


def joined(_call: Call, arguments: Sequence[Values]) -> Outcome:
    return pc.binary_join_element_wise(*map(_whole, arguments), ""), None


def part(call: Call, arguments: Sequence[Values]) -> Outcome:
    """`substring` from a place counted from 1, or from the end; `options` = (place,) or (place, length)."""
    place, *rest = map(int, call.options)
    start = place - 1 if place > 0 else place
    stop = None
    if rest:
        stop = start + rest[0]
        if stop <= start:
            return pc.utf8_slice_codeunits(_whole(arguments[0]), 0, 0), None
        stop = None if start < 0 <= stop else stop
    return pc.utf8_slice_codeunits(_whole(arguments[0]), start, stop), None


def trimmed(call: Call, arguments: Sequence[Values]) -> Outcome:
    functions = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}
    return functions[call.function](_whole(arguments[0]), " "), None


def replaced(call: Call, arguments: Sequence[Values]) -> Outcome:
    old, new = map(str, call.options)
    return pc.replace_substring(_whole(arguments[0]), old, new), None


def found_in(call: Call, arguments: Sequence[Values]) -> Outcome:
    functions = {"contains": pc.match_substring, "startswith": pc.starts_with, "endswith": pc.ends_with}
    return _truths(functions[call.function](_whole(arguments[0]), str(call.options[0]))), None


def split(call: Call, arguments: Sequence[Values]) -> Outcome:
    return pc.split_pattern(_whole(arguments[0]), str(call.options[0])), None


def piece(call: Call, arguments: Sequence[Values]) -> Outcome:
    """The part of that number, counted from 1 or from the end; '' if there are fewer."""
    lists, number = arguments[0].data, int(call.options[0])
    ends = lists.offsets.to_numpy().astype(np.int64)
    place = ends[:-1] + number - 1 if number > 0 else ends[1:] + number
    inside = (place >= ends[:-1]) & (place < ends[1:]) & arguments[0].valid
    texts = lists.values.take(pa.array(np.where(inside, place, 0), mask=~inside))
    return pc.fill_null(texts, ""), None


FUNCTIONS = {
    "lower": _cased(pc.ascii_lower, _lower), "upper": _cased(pc.ascii_upper, _upper), "length": length,
    "octet_length": octets, "bit_length": octets, "concat": joined, "substring": part, "trim": trimmed,
    "ltrim": trimmed, "rtrim": trimmed, "replace": replaced, "contains": found_in, "startswith": found_in,
    "endswith": found_in, "split": split, "piece_of": piece,
}  # fmt: skip
