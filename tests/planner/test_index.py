import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import And, Arithmetic, Compare, In, IsNull, Literal, Not, Or, Ref
from penstock.planner.index import build_index, indexable
from penstock.reference import compare, evaluate
from tests.effort import examples
from tests.kernels import terms

V, W = Ref(0, "v"), Ref(0, "w")
ONE, TWO, NULL = Literal(1, "bigint"), Literal(2, "bigint"), Literal(None, "void")


@pytest.mark.parametrize(
    "term",
    [
        Compare("<", V, ONE),
        Compare("<", ONE, V),
        Compare("=", V, NULL),
        In(V, (ONE, TWO, NULL)),
        IsNull(V),
        Not(IsNull(V)),
        And((Compare(">", V, ONE), Compare("<", V, TWO))),
        Or((IsNull(V), Not(Compare("=", V, ONE)), Literal(False, "boolean"))),
    ],
)
def test_tests_of_one_column_against_literals_can_be_indexed(term):
    assert indexable(term) == "v"


@pytest.mark.parametrize(
    "term",
    [
        None,
        V,
        Literal(True, "boolean"),
        Compare("<", V, W),
        Compare("<", ONE, TWO),
        Compare("<", Arithmetic("+", V, ONE), TWO),
        And((Compare("<", V, ONE), Compare("<", W, ONE))),
        Or((Compare("<", V, ONE), W)),
        IsNull(Compare("<", V, ONE)),
        In(Arithmetic("+", V, ONE), (ONE,)),
    ],
)
def test_anything_else_cannot(term):
    assert indexable(term) is None


def test_each_literal_each_gap_and_null_is_a_cell():
    index = build_index(
        "v", [(0, Compare("<", V, ONE)), (1, Compare("<=", ONE, V)), (2, In(V, (TWO, NULL))), (4, IsNull(V))], width=5
    )
    assert index.literals == (1, 2)
    assert index.null_cell == 5
    #                              v < 1   v = 1   1..2    v = 2   v > 2   NULL
    assert list(index.masks) == [0b01001, 0b01010, 0b01010, 0b01110, 0b01010, 0b11000]


def test_entries_without_a_predicate_keep_their_bit_in_every_cell():
    index = build_index("v", [(70, Compare("=", V, ONE))], width=72)
    assert [mask | 1 << 70 for mask in index.masks] == [(1 << 72) - 1] * 4
    assert [mask >> 70 & 1 for mask in index.masks] == [0, 1, 0, 0]


@pytest.mark.parametrize("kind", [Or, And])
def test_the_memory_of_an_index_grows_with_its_literals(kind):
    """Not with their square: a table of all terms by all cells would."""

    def peak(number):
        bounds = [(Literal(2 * n, "bigint"), Literal(2 * n + 1, "bigint")) for n in range(number)]
        term = kind(tuple(Not(And((Compare(">", V, low), Compare("<", V, high)))) for low, high in bounds))
        tracemalloc.start()
        tracemalloc.reset_peak()
        build_index("v", [(0, term)], 1)
        return tracemalloc.get_traced_memory()[1]

    try:
        assert peak(1000) <= 2.5 * peak(500)
    finally:
        tracemalloc.stop()


def test_strings_are_ordered_by_their_bytes():
    literals = [Literal(s, "string") for s in ("\U0001f600", "\uffff", "a", "B", "")]
    assert build_index("v", [(0, In(V, tuple(literals)))], 1).literals == ("", "B", "a", "\uffff", "\U0001f600")


def cell_of(value, literals):
    """The cell of a value, by comparing it with one literal after the other."""
    if value is None:
        return 2 * len(literals) + 1
    below = sum(compare(value, literal) > 0 for literal in literals)
    return 2 * below + any(compare(value, literal) == 0 for literal in literals)


@settings(max_examples=examples(150))
@given(st.data())
def test_a_cell_holds_exactly_the_predicates_that_are_true_for_its_values(data):
    column = data.draw(st.sampled_from("ijdstb"))
    pairs = list(enumerate(data.draw(st.lists(terms.decided_by(column), min_size=1, max_size=5))))
    index = build_index(column, pairs, len(pairs))
    assert all(compare(x, y) < 0 for x, y in zip(index.literals, index.literals[1:], strict=False))
    assert len(index.masks) == 2 * len(index.literals) + 2
    for row in data.draw(terms.rows(column, min_size=1, max_size=8)):
        mask = index.masks[cell_of(row[column], index.literals)]
        true = [evaluate(term, lambda ref, row=row: row[ref.column]) is True for _, term in pairs]
        assert mask == sum(1 << n for n, t in enumerate(true) if t)
