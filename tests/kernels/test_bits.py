import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.bits import bits_ids, cells_of, row_bits
from penstock.model import Compare, Literal, Ref
from penstock.planner.index import build_index
from penstock.reference import evaluate
from tests.effort import examples
from tests.kernels import terms
from tests.kernels.tables import entry, state_table


def table_of(predicates, truths=()):
    """A state table whose entry n demands `predicates[n]`, pairs of (column, term), and the truths `truths[n]`."""
    width = len(predicates)
    by_column = {}
    for n, pair in enumerate(predicates):
        if pair is not None:
            by_column.setdefault(pair[0], []).append((n, pair[1]))
    demands = [*truths, *[()] * (width - len(truths))]
    return state_table(
        entries=[entry(n + 1, truths=t) for n, t in enumerate(demands)],
        indexes=[build_index(c, pairs, width) for c, pairs in by_column.items()],
    )


def as_integers(bits):
    return [sum(int(word) << (64 * n) for n, word in enumerate(row)) for row in bits]


@settings(max_examples=examples(100))
@given(st.data())
def test_a_row_has_the_bits_of_the_predicates_that_are_true(data):
    one = st.sampled_from("ijdstb").flatmap(lambda c: st.tuples(st.just(c), terms.decided_by(c)))
    predicates = data.draw(st.lists(st.one_of(one, one, one, st.none()), min_size=1, max_size=8))
    copies = data.draw(st.sampled_from((1, 1, 10, 20)))
    predicates = predicates * copies
    table = data.draw(terms.rows(min_size=1, max_size=8))
    bits = row_bits(table_of(predicates), terms.arrays(table), {}, len(table))
    assert bits.shape[1] == max(1, (len(predicates) + 63) // 64)
    for row, ours in zip(table, as_integers(bits), strict=True):
        true = [p is None or evaluate(p[1], lambda ref, row=row: row[ref.column]) is True for p in predicates]
        assert ours == sum(1 << n for n, t in enumerate(true) if t)


@given(st.lists(st.lists(st.sampled_from("pqr"), unique=True), min_size=1, max_size=70), st.data())
def test_a_computed_predicate_clears_the_bits_of_all_that_demand_it(demands, data):
    rows = data.draw(st.integers(0, 4))
    truths = {name: np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), bool) for name in "pqr"}
    bits = row_bits(table_of([None] * len(demands), demands), {}, truths, rows)
    expected = [sum(1 << n for n, d in enumerate(demands) if all(truths[t][row] for t in d)) for row in range(rows)]
    assert as_integers(bits) == expected


def test_a_table_that_nobody_uses_gives_no_bits():
    assert as_integers(row_bits(table_of([]), {}, {}, 2)) == [0, 0]


@pytest.mark.parametrize("words", [1, 3])
@pytest.mark.parametrize(("rows", "distinct"), [(0, 1), (1, 1), (50, 5), (3000, 1024), (3000, 1025), (20000, 12000)])
def test_ids_number_the_distinct_patterns_one_to_one(rows, distinct, words):
    random = np.random.default_rng(rows + distinct)
    known = random.integers(0, 2**63, (distinct, words)).astype(np.uint64)
    known[:, 0] = np.arange(distinct)  # distinct also where only one word differs
    bits = known[random.permutation(np.resize(np.arange(distinct), rows))]
    ids, patterns = bits_ids(bits)
    assert (patterns[ids] == bits).all()
    assert len({tuple(p) for p in patterns.tolist()}) == len(patterns) == min(rows, distinct)


def test_a_string_that_is_not_utf8_has_its_place_too():
    index = build_index("s", [(0, Compare("=", Ref(0, "s"), Literal("b", "string")))], 1)
    column = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.array([0, 1, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"a\xffb")]
    )
    below, above, equal = cells_of(index, column)
    assert len({below, above, equal}) == 3
    assert below < equal < above
