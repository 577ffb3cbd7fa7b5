"""Plain values come back from their bytes exactly; nothing else is written, and nothing is ever run that is read."""

import math
import pickle
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.state.values import NotPlain, decode, encode

ZONES = st.sampled_from(
    [None, UTC, timezone(timedelta(hours=-3, microseconds=1)), ZoneInfo("UTC"), ZoneInfo("Europe/Vienna")]
)
HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.timedeltas()
    | st.datetimes(timezones=ZONES),
    lambda inner: st.tuples(inner, inner) | st.lists(inner).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(HASHABLE, inner) | st.sets(HASHABLE, max_size=3)
    ),
    max_leaves=10,
)


def told(value):
    """A value with its types, and each NaN as something that equals itself."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float():
            return (float, value, math.copysign(1, value))
        case list() | tuple():
            return (type(value), [told(v) for v in value])
        case set() | frozenset():
            return (type(value), sorted(map(repr, map(told, value))))
        case dict():
            return (dict, [(told(k), told(v)) for k, v in value.items()])
        case datetime():
            return (value.replace(tzinfo=None), value.fold, repr(value.tzinfo))
        case Decimal():
            return (Decimal, str(value))
    return (type(value), value)


@given(VALUES)
def test_plain_values_come_back_as_they_were(value):
    assert told(decode(encode(value))) == told(value)


@pytest.mark.parametrize(
    "value",
    [10**5000, -(2**63), 2**63, "\ud800\udc00", "\ud800", Decimal("sNaN"), Decimal("-0E+7"),
     {1: "a", "1": "b", None: []}, b"\x80\x05", {}, (), [()]],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_at_the_edge_of_json_come_back_as_they_were(value):
    assert told(decode(encode(value))) == told(value)


class Named(tuple):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "object"),
        ([1, {"a": np.float64(1)}], r"numpy\.float64"),
        (Counter("aab"), r"collections\.Counter"),
        (Named((1,)), r".*Named"),
        (Path("x"), r"pathlib.*Path"),
        (bytearray(b"x"), "bytearray"),
        ({1: lambda: 0}, "function"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_what_would_not_come_back_as_it_was_is_refused_by_its_type(value, kind):
    with pytest.raises(NotPlain, match=f"^{kind}$"):
        encode(value)


def test_a_list_that_contains_itself_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(NotPlain, match="contains itself"):
        encode(endless)


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_is_refused_without_being_read(tmp_path):
    with pytest.raises(StateError, match=r"pickled by an older version .* use another state directory and replay"):
        decode(pickle.dumps(Bomb(tmp_path / "made"), protocol=5))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"x1", b"j", b"j{}", b'j{"?":1}', b'j{"i":"x"}', b'j{"t":[1]}', b'j{"f":"00"}'])
def test_damaged_values_are_refused(data):
    with pytest.raises(StateError, match="restore the state directory"):
        decode(data)
