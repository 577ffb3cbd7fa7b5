"""Rejected rows keep the reason, the step, and the progress by which they were judged."""

import pyarrow as pa
import pytest

from penstock.model.time import NEVER
from penstock.step.sides import write_side
from penstock.storage.memory import MemoryStore
from penstock.storage.parquet import read


@pytest.mark.parametrize(("progress", "shown"), [(NEVER, None), (NEVER + 1, NEVER + 1), (7, 7)])
def test_a_file_has_a_line_for_each_row(progress, shown):
    store = MemoryStore()
    file = write_side(store, 3, progress, "a", "late", pa.array(["x", "y"]), pa.array(["behind", "far behind"]))
    assert (file.stream, file.reason, file.step, file.rows, file.bytes) == ("a", "late", 3, 2, store.size(file.name))
    assert read(store, file.name).to_pylist() == [
        {"_row": "x", "_step": 3, "_reason": "behind", "_progress": shown},
        {"_row": "y", "_step": 3, "_reason": "far behind", "_progress": shown},
    ]
