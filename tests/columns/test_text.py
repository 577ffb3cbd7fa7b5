"""Rows that are written as text are read back by Spark just as they were."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.columns.text import has_text, rows_as_text
from penstock.columns.types import arrow_type
from penstock.spark.ingest import SIDE_FORMATS

COLUMNS = {
    "tinyint": [1, -128, None, 0],
    "int": [None, 2**31 - 1, 0, -1],
    "bigint": [-(2**63), None, 2**63 - 1, 5],
    "double": [0.1, float("nan"), float("-inf"), 1e300],
    "boolean": [True, False, None, True],
    "string": ['a"b\\c', "é\n\t🙂", "", None],
    "date": [date(1, 1, 1), date(9999, 12, 31), None, date(1970, 1, 1)],
    "timestamp": [datetime(2024, 2, 29, 1, 2, 3, 4, UTC), datetime(1, 1, 1, tzinfo=UTC), None,
                  datetime(1582, 10, 15, tzinfo=UTC)],
    "timestamp_ntz": [datetime(2024, 2, 29, 1, 2, 3, 4), datetime(1, 1, 1), None,  # noqa: DTZ001
                      datetime(9999, 12, 31, 23)],  # noqa: DTZ001
    "decimal(10,2)": [Decimal("0.01"), Decimal("-99999999.99"), None, Decimal("1E+3")],
    "binary": [b"", b"\x00\xff", None, b"abc"],
}  # fmt: skip


@pytest.mark.spark
def test_spark_reads_rows_back_as_they_were(spark):
    rows = pa.table({f"c`{n}": pa.array(own, arrow_type(kind)) for n, (kind, own) in enumerate(COLUMNS.items())})
    texts = [(n, text) for n, text in enumerate(rows_as_text(rows).to_pylist())]
    schema = ", ".join(f"`c``{n}` {kind}" for n, kind in enumerate(COLUMNS))
    frame = spark.createDataFrame(texts, "n int, row string")
    options = ", ".join(f"'{key}', \"{value}\"" for key, value in SIDE_FORMATS.items())
    read = frame.selectExpr("n", f"from_json(row, '{schema}', map({options})) AS r").select("n", "r.*").toArrow()
    read = read.sort_by("n").drop_columns("n").cast(rows.schema)
    assert str(read.to_pylist()) == str(rows.to_pylist())  # NaN is not equal to itself


def test_types_of_many_forms_are_left_to_spark():
    assert not any(map(has_text, (pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.duration("us"), pa.null())))


def test_times_that_no_calendar_has_here_are_refused():
    far = pa.array([2**62], pa.int64()).view(pa.timestamp("us", "UTC"))
    with pytest.raises((ValueError, OverflowError)):
        rows_as_text(pa.table({"t": far}))
