"""Rows that are equal in Spark have equal codes, in whatever array they stand; NULL is a value of its own."""

from decimal import Decimal
from math import isnan

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.columns.codes import codes_of

COLUMNS = {
    "i": (pa.int32(), [0, 1, -1, None]),
    "d": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), -float("nan"), None]),
    "f": (pa.float32(), [0.0, -0.0, 1.5, float("nan"), None]),
    "s": (pa.string(), ["", "a", "b", "a longer text, of more than thirty-two bytes", None]),
    "n": (pa.decimal128(38, 2), [Decimal("0.00"), Decimal("-0.01"), Decimal(10) ** 35, None]),
    "b": (pa.bool_(), [True, False, None]),
}


def seen(value):
    """The value as Spark compares it."""
    return "NaN" if isinstance(value, float) and isnan(value) else 0.0 if value == 0 else value


@st.composite
def tables(draw):
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3, unique=True))
    rows = draw(st.lists(st.tuples(*(st.sampled_from(COLUMNS[n][1]) for n in names)), max_size=8))
    arrays = [pa.array([row[i] for row in rows], COLUMNS[name][0]) for i, name in enumerate(names)]
    return pa.table(dict(zip(names, arrays, strict=True))), [tuple(map(seen, row)) for row in rows]


@given(tables(), st.integers(0, 8))
def test_codes_are_equal_exactly_where_rows_are(made, cut):
    table, rows = made
    codes = codes_of(table, table.column_names)
    known = {}
    assert all(known.setdefault(row, code) == code for row, code in zip(rows, codes.tolist(), strict=True))
    assert len(set(known.values())) == len(known)  # of so few values none share a code by chance
    parts = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert np.array_equal(codes_of(parts, table.column_names), codes)


@pytest.mark.parametrize("kind", [pa.int64(), pa.int8(), pa.date32(), pa.timestamp("us", tz="UTC")])
def test_whole_numbers_and_times_keep_their_order(kind):
    values = [-5, -1, 0, 3, 100]
    assert codes_of(pa.table({"x": pa.array(values, kind)}), ["x"]).tolist() == values


def test_null_is_another_value_at_another_place():
    table = pa.table({"a": pa.array([None, 1, None]), "b": pa.array([1, None, None])})
    assert len(set(codes_of(table, ["a", "b"]).tolist())) == 3
