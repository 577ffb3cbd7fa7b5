"""Unchanged rows are recognized, whatever they are: the difference is the sum of one bag and the negated other."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.views.rows import difference as module
from penstock.views.rows.bag import COUNT, negated, total
from penstock.views.rows.difference import difference, remaining
from tests.effort import examples

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string()), (COUNT, pa.int64())])
ROW = st.tuples(
    st.sampled_from([None, 0, 1, -(2**63)]),
    st.sampled_from([None, 0.0, -0.0, 1.5, math.nan]),
    st.sampled_from([None, "", "a", "ä"]),
    st.sampled_from([1, 2, -1]),
)
BAG = st.lists(ROW, max_size=12)


def table(rows):
    return pa.table(list(zip(*rows, strict=True)) if rows else [[], [], [], []], schema=SCHEMA)


def as_text(rows):
    return sorted(map(repr, rows.to_pylist()))


@given(stayed=BAG, gone=BAG, come=BAG, draw=st.randoms(use_true_random=False))
@settings(max_examples=examples(150))
def test_it_is_what_adding_everything_up_gives(stayed, gone, come, draw):
    before, after = [*stayed, *gone], [*stayed, *come]
    draw.shuffle(before)
    draw.shuffle(after)
    wanted = total([table(after), negated(table(before))])
    found = difference(table(before).select([COUNT, "s", "x", "k"]), table(after))
    assert as_text(found) == as_text(wanted)
    assert as_text(total([remaining(table(after), table(before))])) == as_text(wanted)


def test_different_rows_that_share_a_code_are_told_apart(monkeypatch):
    monkeypatch.setattr(module, "codes_of", lambda rows, _: np.zeros(len(rows), np.int64))
    found = difference(table([(1, 0.5, "a", 1), (2, 0.5, "a", 1)]), table([(2, 0.5, "a", 1), (3, 0.5, "a", 1)]))
    assert as_text(found) == as_text(table([(1, 0.5, "a", -1), (3, 0.5, "a", 1)]))


def test_rows_that_stayed_are_not_added_up(monkeypatch):
    added = []
    monkeypatch.setattr(module, "total", lambda tables: added.extend(map(len, tables)) or total(tables))
    many = [(k, math.nan, "a", 1) for k in range(50)]
    found = difference(table([*many, (99, None, None, 1)]), table(list(reversed(many))))
    assert as_text(found) == as_text(table([(99, None, None, -1)]))
    assert added == [0, 1]
