import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.aggregate import sweep

WHOLE = st.integers(-(2**63), 2**63 - 1)


@st.composite
def frames(draw, values):
    """Values, and frames over them that ascend at both ends and may leave entries out."""
    drawn = draw(st.lists(values, min_size=1, max_size=20))
    edges = draw(st.lists(st.tuples(st.integers(0, len(drawn) - 1), st.integers(1, len(drawn))), max_size=12))
    lows, highs = sorted(e[0] for e in edges), sorted(e[1] for e in edges)
    pairs = [(low, high) for low, high in zip(lows, highs, strict=True) if low < high]
    return drawn, pairs


def arrays(pairs):
    return tuple(np.array([p[k] for p in pairs], dtype=np.int64) for k in range(2))


@given(frames(WHOLE))
def test_sums_are_exact_modulo_the_word(case):
    values, pairs = case
    found = sweep.sums(np.array(values, dtype=np.int64), *arrays(pairs))
    assert [n % 2**64 for n in found.tolist()] == [sum(values[a:b]) % 2**64 for a, b in pairs]


@given(frames(WHOLE), st.sampled_from([(sweep.LEAST, min), (sweep.GREATEST, max)]))
def test_extremes_of_overlapping_frames(case, kind):
    values, pairs = case
    found = sweep.extremes(kind[0], np.array(values, dtype=np.int64), *arrays(pairs))
    assert found.tolist() == [kind[1](values[a:b]) for a, b in pairs]


@given(frames(st.floats(-1e12, 1e12)))
def test_sums_of_doubles_do_not_drift(case):
    values, pairs = case
    single = np.array(values)
    found = sweep.merged(sweep.SUM, np.column_stack([single, np.zeros_like(single)]), *arrays(pairs))
    for (a, b), (total, error) in zip(pairs, found.tolist(), strict=True):
        exact = sum(map(Fraction, values[a:b]))
        # Twice the digits of a double, of the largest value that was added.
        assert abs(Fraction(total) + Fraction(error) - exact) <= Fraction(2) ** -90 * Fraction(1e12)


def test_a_huge_value_leaves_no_trace_when_its_window_is_over():
    values = np.array([1e300, 0.1, 0.2, 0.3])
    low, high = np.array([0, 1]), np.array([3, 4])
    found = sweep.merged(sweep.SUM, np.column_stack([values, np.zeros(4)]), low, high)
    assert found[1].sum() == math.fsum([0.1, 0.2, 0.3])


@pytest.mark.parametrize(("values", "expected"), [([math.inf, 1.0], math.inf), ([math.inf, -math.inf], math.nan)])
def test_infinities_are_summed_as_numbers_are(values, expected):
    found = sweep.merged(sweep.SUM, np.column_stack([values, np.zeros(2)]), np.array([0]), np.array([2]))
    assert np.array_equal(found[0].sum(), expected, equal_nan=True)


@given(frames(st.integers(-1000, 1000)))
def test_moments_of_overlapping_frames(case):
    values, pairs = case
    single = np.array(values, dtype=np.float64)
    rows = np.column_stack([np.ones_like(single), single, np.zeros_like(single)])
    found = sweep.merged(sweep.MOMENTS, rows, *arrays(pairs))
    for (a, b), (count, mean, squares) in zip(pairs, found.tolist(), strict=True):
        exact = [Fraction(v) for v in values[a:b]]
        middle = sum(exact) / len(exact)
        assert count == len(exact)
        assert mean == pytest.approx(float(middle), rel=1e-9, abs=1e-9)
        assert squares == pytest.approx(float(sum((v - middle) ** 2 for v in exact)), rel=1e-9, abs=1e-6)
