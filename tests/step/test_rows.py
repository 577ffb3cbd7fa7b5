"""Files of results: which columns are compressed, and that they are read back as they were."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.step.rows import ROW_GROUP, compression_of


def many(rows):
    draw = np.random.default_rng(1)
    return pa.table({
        "same": np.ones(rows, np.int64), "ids": draw.integers(0, 600_000, rows), "text": pa.array(["x"] * rows),
        "flag": pa.array([True] * rows), "price": pa.array([Decimal("1.5")] * rows),
        "none": pa.nulls(rows, pa.float64()),
        "day": pa.array([1] * rows, pa.date32()), "list": pa.array([[1, 2]] * rows),
    })  # fmt: skip


def test_only_columns_that_shrink_by_half_are_compressed():
    table = pa.concat_tables([many(ROW_GROUP).slice(5), many(10)])
    found = compression_of(table)
    assert found.pop("ids") == "none"
    assert set(found.values()) == {"snappy"}


def test_small_files_go_without():
    assert set(compression_of(many(10)).values()) == {"none"}


def test_what_was_written_is_read_back(tmp_path):
    table = many(ROW_GROUP)
    pq.write_table(table, tmp_path / "f.parquet", compression=compression_of(table))
    assert pq.read_table(tmp_path / "f.parquet") == table
