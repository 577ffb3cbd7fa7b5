"""Codes are equal exactly where Spark holds values equal, and all matching pairs are found."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RegistrationError
from penstock.reference.evaluate import compare
from penstock.views.rows.match import Coder, Codes, among, combined, common_type, pairs

FAMILIES = {
    "numbers": (
        [pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(9, 2)],
        [0, 1, -1, 2, 0.0, -0.0, 0.5, float("nan"), Decimal("0.50"), Decimal("1.00")],
    ),
    "text": ([pa.string()], ["", "a", "b", "\u00e9"]),
    "truth": ([pa.bool_()], [True, False]),
    "dates": ([pa.date32()], [date(1969, 12, 31), date(2000, 1, 1)]),
    "times": (
        [pa.timestamp("us", tz="UTC")],
        [datetime(1969, 1, 1, tzinfo=UTC), datetime(2001, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    ),
}


def fits(value, kind):
    if pa.types.is_integer(kind):
        return isinstance(value, int) and not isinstance(value, bool)
    if pa.types.is_floating(kind):
        return isinstance(value, float)
    if pa.types.is_decimal(kind):
        return isinstance(value, Decimal)
    return True


@st.composite
def columns(draw):
    kinds, values = FAMILIES[draw(st.sampled_from(sorted(FAMILIES)))]

    def column():
        kind = draw(st.sampled_from(kinds))
        some = st.sampled_from([v for v in values if fits(v, kind)])
        return pa.array(draw(st.lists(st.one_of(st.none(), some), max_size=8)), kind)

    return column(), column()


@given(columns())
def test_pairs_are_those_that_compare_equal(made):
    left, right = made
    kind = common_type(left.type, right.type)
    coder = Coder()
    mine, theirs = pairs(coder.encode(left, kind), coder.encode(right, kind))
    brute = [
        (i, j)
        for i, x in enumerate(left.to_pylist())
        for j, y in enumerate(right.to_pylist())
        if x is not None and y is not None and compare(x, y) == 0
    ]
    assert list(zip(mine.tolist(), theirs.tolist(), strict=True)) == brute
    found = among(coder.encode(left, kind), coder.encode(right, kind))
    assert found.tolist() == [any(i == k for i, _ in brute) for k in range(len(left))]


@st.composite
def several(draw):
    wide = draw(st.integers(1, 3))
    values = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])

    def side():
        rows = draw(st.integers(0, 8))
        return [
            Codes(
                np.array(draw(st.lists(values, min_size=rows, max_size=rows)), np.int64),
                np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), np.bool_),
            )
            for _ in range(wide)
        ]

    return side(), side()


@given(several())
def test_several_columns_match_where_each_does(made):
    left, right = made
    mine, theirs = pairs(*combined(left, right))
    brute = Counter(
        (i, j)
        for i in range(len(left[0].codes))
        for j in range(len(right[0].codes))
        if all(a.valid[i] and b.valid[j] and a.codes[i] == b.codes[j] for a, b in zip(left, right, strict=True))
    )
    assert Counter(zip(mine.tolist(), theirs.tolist(), strict=True)) == brute


def test_columns_that_do_not_compare_are_refused():
    with pytest.raises(RegistrationError, match="does not join"):
        common_type(pa.string(), pa.int64())
