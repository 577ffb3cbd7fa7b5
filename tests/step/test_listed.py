"""Results of aggregates as a select list says, one row per window."""

from types import SimpleNamespace

import pyarrow as pa

from penstock.kernels.aggregate.repeats import RUN
from penstock.model import Expression, Ref
from penstock.model.expression import PSEUDO_ROLE, RESULT_TIME, WINDOW_END, WINDOW_START
from penstock.model.windows import Sliding
from penstock.step.listed import count_results, write_listed
from penstock.storage.memory import MemoryStore
from penstock.storage.parquet import read

ITEMS = [Ref(PSEUDO_ROLE, name) for name in (WINDOW_START, WINDOW_END, RESULT_TIME)] + [Ref(0, "k")]
SCHEMA = pa.schema([("start", pa.int64()), ("end", pa.int64()), ("time", pa.int64()), ("k", pa.int32())])
ROWS = {WINDOW_START: [0, 5], WINDOW_END: [10, 15], "k": [7, 8]}


def written(rows, window=None):
    store = MemoryStore()
    member = SimpleNamespace(listed=tuple(Expression((item,), item, total=True) for item in ITEMS))
    file = write_listed(pa.table(rows), window, member, SimpleNamespace(store=store, step=3), SCHEMA)
    found = read(store, file.name)
    assert (file.rows, found.schema.field("k").type) == (len(found), pa.int32())
    return [tuple(row.values()) for row in found.to_pylist()], (file.min_time, file.max_time)


def test_times_and_columns_are_those_of_the_select_list():
    assert written(ROWS) == ([(0, 10, 10, 7), (5, 15, 15, 8)], (10, 15))
    assert count_results(pa.table(ROWS), None) == 2


def test_a_row_that_stands_for_several_windows_is_one_row_for_each():
    rows, window = {**ROWS, RUN: [3, 1]}, Sliding(10, 5)
    assert count_results(pa.table(rows), window) == 4
    assert count_results(pa.table(rows), None) == 2
    assert written(rows, window)[0] == [(0, 10, 10, 7), (5, 15, 15, 7), (10, 20, 20, 7), (5, 15, 15, 8)]
