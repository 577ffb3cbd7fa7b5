"""What Spark says of a query before it runs, and what is refused for it."""

import pytest

from penstock.catalog.analysis import analyze
from penstock.errors import RegistrationError
from penstock.spark.analysis import SparkAnalysis
from penstock.sql import parse_query
from tests.spark.replay import stream

pytestmark = pytest.mark.spark

A = stream("a", "ts timestamp, k bigint, s string")
TEXT = "SELECT {} FROM a [TUMBLING 2 SECONDS] {}"


@pytest.mark.parametrize(
    ("items", "rest", "cause"),
    [
        (
            "count(DISTINCT sentences(s))",
            "",
            "count with DISTINCT takes values that can be compared, not array<array<string>>",
        ),
        ("approx_top_k(sentences(s), 2)", "", "approx_top_k takes values that can be compared"),
        ("sum(sentences(s))", "", "sum takes numbers, not array<array<string>>"),
        ("count(*)", "GROUP BY sentences(s)", "cannot be grouped by SENTENCES.s., which has type array<array<string>>"),
        ("k, first(sentences(s)) AS f", "GROUP BY k ORDER BY f LIMIT 1", "cannot be ordered by .*array<array<string>>"),
    ],
)
def test_a_type_that_only_spark_knows_is_refused_where_values_are_compared(spark, items, rest, cause):
    with pytest.raises(RegistrationError, match=cause) as caught:
        analyze(SparkAnalysis(spark), "q", parse_query(TEXT.format(items, rest), {"a": A}), {"a": A})
    assert str(caught.value).startswith("query 'q': ")


def test_such_a_value_may_be_kept(spark):
    query = parse_query(TEXT.format("first(split(s, ',')) AS f", ""), {"a": A})
    assert analyze(SparkAnalysis(spark), "q", query, {"a": A}).types == ("array<string>",)
