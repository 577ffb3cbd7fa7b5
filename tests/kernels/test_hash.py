import numpy as np
import pytest

from penstock.kernels.hash import hash_bigint

VALUES = [0, 1, -1, 42, 2**63 - 1, -(2**63), 123_456_789_012_345]


@pytest.mark.spark
def test_the_hash_is_that_of_spark(spark):
    frame = spark.createDataFrame([(v,) for v in VALUES], "k bigint").selectExpr("xxhash64(k) AS h")
    assert hash_bigint(np.array(VALUES)).tolist() == [row.h for row in frame.collect()]


def test_the_hash_is_one_to_one_on_neighbours():
    assert len(np.unique(hash_bigint(np.arange(-100_000, 100_000)))) == 200_000
