from dataclasses import replace

import pyarrow as pa

from penstock.kernels.adopt import adopt
from penstock.kernels.merge import merge_runs
from penstock.model import Compare, Literal, Ref
from tests.kernels.tables import entry, state_table
from tests.state.runs import rows_of

OLD, NEW = entry(1), entry(2)
ABOVE = ("v", Compare(">", Ref(0, "v"), Literal(1, "bigint")))


def run_of(keys, **columns):
    return replace(rows_of(keys, **columns), patterns=((OLD.id,),))


def adopted(table, rows):
    found = adopt(table, rows, {2})
    return [
        key for key, bits in zip(found.key.tolist(), found.bits.tolist(), strict=True) if NEW.id in found.patterns[bits]
    ]


def test_a_row_is_adopted_if_the_predicate_holds_on_its_stored_column():
    table = state_table([OLD, replace(NEW, terms=(ABOVE,))], ("v",))
    assert adopted(table, run_of([1, 2, 3], v=pa.array([1, 2, None]))) == [2]


def test_without_the_column_only_a_query_with_the_same_predicate_tells():
    plain, same = (
        state_table([OLD, replace(NEW, terms=(ABOVE,))]),
        state_table([replace(OLD, terms=(ABOVE,)), replace(NEW, terms=(ABOVE,))]),
    )
    assert adopted(plain, run_of([1, 2])) == []
    assert adopted(same, run_of([1, 2])) == [1, 2]
    assert adopted(state_table([OLD, replace(NEW, truths=("_d1",))]), run_of([1])) == []


def test_a_row_that_was_stored_without_a_column_is_not_adopted_by_a_query_that_needs_it_also_after_merges():
    table = state_table([OLD, replace(NEW, needs=frozenset({"v"}))], ("v",))
    before, since = run_of([1]), run_of([2], v=pa.array([7]))
    assert adopted(table, before) == []
    merged = merge_runs(table, [before, since], {})
    assert merged.columns["v"].to_pylist() == [None, 7]
    assert adopted(table, merged) == [2]
    assert adopted(table, merge_runs(table, [merged], {})) == [2]
