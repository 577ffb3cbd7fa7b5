"""Hashes of keys equal Spark's for every type, so that either may hash a side of a key and runs stay readable."""

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.columns.hash import hash_bigint, hash_columns

VALUES = [0, 1, -1, 42, 2**63 - 1, -(2**63), 123_456_789_012_345]
ROWS = 3000


def whole(bits):
    edges = (0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)))
    return lambda r: r.choice(edges) if r.random() < 0.1 else r.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))


def real(r):
    edges = (0.0, -0.0, math.nan, math.inf, -math.inf, 1e-310, 1.5)
    return r.choice(edges) if r.random() < 0.3 else r.uniform(-1e9, 1e9)


def moment(r):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=r.randrange(-(2**54), 2**54))


def decimal(precision, scale):
    top = 10**precision - 1

    def draw(r):
        unscaled = r.choice((0, 1, -1, 127, 128, -128, -129, 255, 256, top, -top, r.randrange(-top, top + 1)))
        unscaled = max(-top, min(top, unscaled if r.random() < 0.5 else unscaled >> r.randrange(0, 3 * precision)))
        sign, digits = (1 if unscaled < 0 else 0), tuple(int(d) for d in str(abs(unscaled)))
        return Decimal((sign, digits, -scale))

    return draw


def text(r):
    return "".join(
        r.choice("abcdefz09 äß漢🙂\0") for _ in range(r.randrange(0, 80) if r.random() < 0.5 else r.randrange(0, 9))
    )


KINDS = {
    "bigint": (pa.int64(), whole(64)),
    "int": (pa.int32(), whole(32)),
    "smallint": (pa.int16(), whole(16)),
    "tinyint": (pa.int8(), whole(8)),
    "double": (pa.float64(), real),
    "float": (pa.float32(), lambda r: float(np.float32(real(r)))),
    "boolean": (pa.bool_(), lambda r: r.random() < 0.5),
    "date": (pa.date32(), lambda r: date(1, 1, 1) + timedelta(r.randrange(0, 3_000_000))),
    "timestamp": (pa.timestamp("us", "UTC"), moment),
    "timestamp_ntz": (pa.timestamp("us"), lambda r: moment(r).replace(tzinfo=None)),
    "decimal(7,2)": (pa.decimal128(7, 2), decimal(7, 2)),
    "decimal(18,0)": (pa.decimal128(18, 0), decimal(18, 0)),
    "decimal(19,4)": (pa.decimal128(19, 4), decimal(19, 4)),
    "decimal(38,10)": (pa.decimal128(38, 10), decimal(38, 10)),
    "string": (pa.string(), text),
    "binary": (pa.binary(), lambda r: r.randbytes(r.randrange(0, 70))),
}  # fmt: skip


@pytest.mark.spark
def test_the_hash_of_any_value_and_of_rows_of_them_is_that_of_spark(spark):
    r = random.Random(7)
    drawn = {
        kind: pa.array([None if r.random() < 0.1 else draw(r) for _ in range(ROWS)], arrow)
        for kind, (arrow, draw) in KINDS.items()
    }
    table = pa.table({f"c{n}": values for n, values in enumerate(drawn.values())})
    frame = spark.createDataFrame(table, ", ".join(f"c{n} {kind}" for n, kind in enumerate(drawn)))
    groups = [[n] for n in range(len(KINDS))] + [r.sample(range(len(KINDS)), r.randrange(2, 6)) for _ in range(20)]
    texts = [f"xxhash64({', '.join(f'c{n}' for n in group)}) AS h{i}" for i, group in enumerate(groups)]
    expected = frame.selectExpr("monotonically_increasing_id() AS place", *texts).toArrow().sort_by("place")
    for i, group in enumerate(groups):
        columns = [table.column(n).chunk(0) for n in group]
        found = hash_columns(columns, ROWS)
        assert found.tolist() == expected.column(f"h{i}").to_pylist(), [list(KINDS)[n] for n in group]
        part = hash_columns([c.slice(17, 200) for c in columns], 200)
        assert part.tolist() == found[17:217].tolist()


@pytest.mark.spark
def test_the_hash_of_whole_numbers_is_that_of_spark(spark):
    frame = spark.createDataFrame([(v,) for v in VALUES], "k bigint").selectExpr("xxhash64(k) AS h")
    assert hash_bigint(np.array(VALUES)).tolist() == [row.h for row in frame.collect()]


def test_the_hash_is_one_to_one_on_neighbours():
    assert len(np.unique(hash_bigint(np.arange(-100_000, 100_000)))) == 200_000


def test_a_null_leaves_the_hash_of_what_comes_before_it():
    numbers, nothing = pa.array([1, 2], pa.int64()), pa.nulls(2, pa.string())
    assert hash_columns([nothing, numbers, nothing], 2).tolist() == hash_bigint(np.array([1, 2])).tolist()
    assert hash_columns([nothing], 2).tolist() == [42, 42]


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS.values()], ids=str)
def test_no_rows_have_no_hash(kind):
    assert len(hash_columns([pa.array([], kind)], 0)) == 0
    assert hash_columns([pa.nulls(3, kind)], 3).tolist() == [42] * 3
