"""Random terms of the kernel subset over a few typed columns, and rows to evaluate them on."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

from penstock.model import And, Arithmetic, Compare, In, IsNull, Literal, Not, Or, Ref
from tests.oracle import naive_type
from tests.workloads import COMPARISONS, VALUES

KINDS = {"i": "bigint", "j": "int", "d": "double", "e": "double", "s": "string", "t": "string", "b": "boolean"}
FAMILIES = {"bigint": "ij", "double": "de", "string": "st", "boolean": "b"}

NUMBERS = {
    "bigint": st.one_of(st.sampled_from((0, 1, 2, -1, 2**63 - 1, -(2**63))), st.integers(-5, 5)),
    "double": st.one_of(
        st.sampled_from((0.0, -0.0, 1.5, float("inf"), float("-inf"), 2.0**53)), st.floats(-3, 3, width=16)
    ),
    "string": st.sampled_from(("", "a", "b", "B", "é", "\uffff", "\U0001f600", "aé")),
    "boolean": st.booleans(),
}


def values(kind: str) -> st.SearchStrategy[object]:
    return st.one_of(st.sampled_from(VALUES[kind]), st.none())


def rows(columns: str = "".join(KINDS), **size: int) -> st.SearchStrategy[list[dict[str, object]]]:
    return st.lists(st.fixed_dictionaries({c: values(KINDS[c]) for c in columns}), **size)


def arrays(table: list[dict[str, object]]) -> dict[str, pa.Array]:
    return {c: pa.array([row[c] for row in table], naive_type(KINDS[c])) for c in (table[0] if table else KINDS)}


def literals(family: str, *, null: bool = True) -> st.SearchStrategy[Literal]:
    known = NUMBERS[family].map(lambda v: Literal(v, family))
    return st.one_of(known, known, known, st.just(Literal(None, "void"))) if null else known


@st.composite
def atoms(draw: st.DrawFn, column: str) -> object:
    """A test of one column against literals."""
    family = next(f for f, names in FAMILIES.items() if column in names)
    ref = Ref(0, column)
    match draw(st.integers(0, 4)):
        case 0 | 1:
            return Compare(draw(st.sampled_from(COMPARISONS)), ref, draw(literals(family)))
        case 2:
            return Compare(draw(st.sampled_from(COMPARISONS)), draw(literals(family)), ref)
        case 3:
            return In(ref, tuple(draw(st.lists(literals(family), min_size=1, max_size=3))))
        case _:
            return IsNull(ref)


def logic(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """AND, OR and NOT above other conditions."""
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(inner, inner, several.map(And), several.map(Or), inner.map(Not))


def decided_by(column: str) -> st.SearchStrategy[object]:
    """Conditions that an index on the column can decide."""
    constant = st.sampled_from((Literal(True, "boolean"), Literal(False, "boolean"), Literal(None, "void")))
    return logic(logic(st.one_of(*[atoms(column)] * 6, constant)))


@st.composite
def sums(draw: st.DrawFn, family: str) -> object:
    """Sums and differences of 64-bit columns and literals; integers may overflow."""
    leaf = st.one_of(
        st.sampled_from([Ref(0, c) for c in FAMILIES[family]]), NUMBERS[family].map(lambda v: Literal(v, family))
    )
    term = draw(leaf)
    for _ in range(draw(st.integers(0, 2))):
        term = Arithmetic(draw(st.sampled_from("+-")), *draw(st.permutations((term, draw(leaf)))))
    return term


@st.composite
def comparisons(draw: st.DrawFn) -> object:
    """Two terms of one family compared, or a Boolean column, or a NULL test."""
    family = draw(st.sampled_from(list(FAMILIES)))
    if family in ("bigint", "double"):
        left, right = draw(sums(family)), draw(sums(family))
    else:
        leaf = st.one_of(st.sampled_from([Ref(0, c) for c in FAMILIES[family]]), literals(family))
        left, right = draw(leaf), draw(leaf)
    match draw(st.integers(0, 5)):
        case 0:
            return IsNull(left)
        case 1:
            return In(left, tuple(draw(st.lists(literals(family), min_size=1, max_size=3))))
        case 2 if family == "boolean":
            return left
        case _:
            return Compare(draw(st.sampled_from(COMPARISONS)), left, right)


def conditions() -> st.SearchStrategy[object]:
    return logic(logic(comparisons()))
