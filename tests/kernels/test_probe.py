from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.kernels.probe import Counts, build_reach, probe, to_words, word_count
from penstock.model.time import EARLIEST, FOREVER, LATEST
from penstock.state.run import Rows
from tests.effort import examples

EXTREMES = (-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1)


def join_of(bounds):
    """A join of queries with these time bounds, each a matrix over the positions."""
    return SimpleNamespace(leads=[SimpleNamespace(bit=n, bounds=b) for n, b in enumerate(bounds)])


def run_of(pairs, bits):
    key, time = (np.array([p[n] for p in pairs], dtype=np.int64) for n in range(2))
    return Rows(key, time, np.array(bits, dtype=np.int32), (), {})


def words_of(masks, count):
    return np.array([to_words(m, count) for m in masks], dtype=np.uint64).reshape(len(masks), count)


def brute_force(composites, masks, run, served, bounds, known, target):
    """Every pair in order of composites, with its mask; and how many pairs lie inside the longest window."""
    found, candidates = [], 0
    start = known[0]
    for left, ((key, times), mask) in enumerate(zip(composites, masks, strict=True)):
        for right, (other, time, pattern) in enumerate(run):
            if other != key:
                continue
            ahead, behind = max(b[start][target] for b in bounds), max(b[target][start] for b in bounds)
            candidates += -behind <= time - times[0] <= ahead
            both = mask & served[pattern]
            for bit, bound in enumerate(bounds):
                fits = all(
                    time - t <= bound[p][target] and t - time <= bound[target][p]
                    for p, t in zip(known, times, strict=True)
                )
                both &= ~(0 if fits else 1 << bit)
            if both:
                found.append((left, right, both))
    return found, candidates


def probed(composites, masks, run, served, bounds, known, target, chunk):
    count = word_count(len(bounds))
    counts = Counts()
    pieces = probe(
        np.array([key for key, _ in composites], dtype=np.int64),
        np.array([times for _, times in composites], dtype=np.int64).reshape(len(composites), len(known)),
        words_of(masks, count),
        run_of([r[:2] for r in run], [r[2] for r in run]),
        words_of(served, count),
        build_reach(join_of(bounds), known, target),
        counts,
        chunk,
    )
    found = []
    for left, right, bits in pieces:
        assert 0 < len(left) <= chunk
        masks_found = [sum(int(w) << (64 * n) for n, w in enumerate(row)) for row in bits]
        found += zip(left.tolist(), right.tolist(), masks_found, strict=True)
    return found, counts


@st.composite
def cases(draw):
    keys = st.one_of(st.sampled_from((1, 2, 3)), st.sampled_from(EXTREMES))
    near = st.integers(0, 12)
    times = draw(st.sampled_from((near, near, near, st.one_of(near, st.sampled_from((EARLIEST, LATEST))))))
    width = draw(st.sampled_from((1, 2, 5, 64, 65, 130)))
    length = st.one_of(st.integers(-3, 8), st.sampled_from((0, 3, FOREVER)))
    positions = draw(st.integers(2, 3))
    shapes = draw(
        st.lists(st.lists(length, min_size=positions**2, max_size=positions**2), min_size=1, max_size=min(width, 4))
    )
    matrices = [tuple(tuple(s[positions * r : positions * (r + 1)]) for r in range(positions)) for s in shapes]
    bounds = [matrices[n % len(matrices)] for n in range(width)]
    order = draw(st.permutations(range(positions)))
    known, target = tuple(order[:-1]), order[-1]
    composites = draw(st.lists(st.tuples(keys, st.tuples(*[times] * len(known))), max_size=10))
    composites.sort(key=lambda c: (c[0], c[1][0]))
    some = st.one_of(
        st.just((1 << width) - 1), st.integers(0, (1 << width) - 1), st.sampled_from((1, 1 << (width - 1)))
    )
    masks = [draw(some) for _ in composites]
    served = draw(st.lists(some, min_size=1, max_size=3))
    run = draw(st.lists(st.tuples(keys, times, st.integers(0, len(served) - 1)), max_size=12))
    return composites, masks, sorted(run), served, bounds, known, target


OPEN = [((0, FOREVER), (FOREVER, 0))]


@settings(max_examples=examples(300))
@given(cases(), st.sampled_from((1, 2, 3, 7, 1 << 19)))
@example(([(2, (0,)), (3, (0,))], [1, 1], [(1, 0, 0), (3, 0, 0)], [1], OPEN, (0,), 1), 7)
@example(([(2, (0,)), (3, (5,)), (3, (6,))], [1, 1, 1], [(3, 0, 0), (3, 9, 0)], [1], OPEN, (0,), 1), 1)
def test_the_probe_finds_the_pairs_of_nested_loops(case, chunk):
    expected, candidates = brute_force(*case)
    found, counts = probed(*case, chunk)
    assert sorted(found) == sorted(expected)
    assert [left for left, _, _ in found] == sorted(left for left, _, _ in found)
    assert (counts.candidates, counts.compared) == (candidates, len(expected))


@pytest.mark.parametrize("chunk", [1, 100, 1 << 19])
def test_many_pairs_of_one_key_come_in_bounded_pieces(chunk):
    case = ([(7, (t,)) for t in range(60)], [1] * 60, [(7, t, 0) for t in range(60)], [1], OPEN, (0,), 1)
    found, counts = probed(*case, chunk)
    assert sorted((left, right) for left, right, _ in found) == [(i, j) for i in range(60) for j in range(60)]
    assert counts.compared == counts.candidates == 3600


def test_a_lagged_band_reaches_only_rows_that_are_older_by_its_lag():
    # The probed row lies 3 to 5 units before the start row.
    lagged = [((0, -3), (5, 0))]
    case = ([(1, (10,))], [1], [(1, t, 0) for t in range(12)], [1], lagged, (0,), 1)
    found, counts = probed(*case, 2)
    assert [right for _, right, _ in found] == [5, 6, 7]
    assert counts.candidates == 3
