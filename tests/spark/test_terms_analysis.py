"""An analysis by our own terms says what Spark says, wherever it says anything."""

from pathlib import Path

import pytest

from penstock.catalog.analysis import Fields, analyze
from penstock.catalog.terms_analysis import TermsAnalysis
from penstock.errors import PenstockError, RegistrationError
from penstock.model import Column
from penstock.planner.apart import is_joined, take_apart
from penstock.planner.unions import distribute
from penstock.spark.analysis import SparkAnalysis
from penstock.sql import CreateStream, parse_query, parse_script
from tests.aggregates import CALLS, GROUPS, STREAMS
from tests.spark.test_terms import EXPRESSIONS, STREAM
from tests.sql import streams as sql_streams
from tests.sql.test_totality import NEVER_RAISE

pytestmark = pytest.mark.spark


def types(analysis, stream, expressions):
    return [
        r.type
        for r in analysis.resolve("q", Fields((stream.columns,), (Column("result_time", "timestamp"),)), expressions)
    ]


@pytest.mark.parametrize(
    ("stream", "texts", "least"),
    [(STREAM, EXPRESSIONS, 1.0), (sql_streams.STREAMS["a"], NEVER_RAISE, 0.8)],
    ids=["that terms compute", "that never raise"],
)
def test_the_types_of_expressions_are_sparks(spark, stream, texts, least):
    parsed = [
        parse_query(f"SELECT {t} AS v FROM {stream.name}", {stream.name: stream}).items[0].expression for t in texts
    ]
    asked, found = [], []
    for text, expression in zip(texts, parsed, strict=True):
        try:
            found.append((text, *types(TermsAnalysis(), stream, [expression])))
            asked.append(expression)
        except RegistrationError as error:
            assert "known to Spark alone" in str(error), text  # noqa: PT017
    assert len(found) >= least * len(texts)
    expected = types(SparkAnalysis(spark), stream, asked)
    assert found == [(text, kind) for (text, _), kind in zip(found, expected, strict=True)]


def fixtures():
    for path in sorted((Path(sql_streams.__file__).parent / "fixtures").glob("*/*.sql")):
        if path.name != "streams.sql":
            script = parse_script((path.parent / "streams.sql").read_text())
            yield path.read_text(), {s.stream.name: s.stream for s in script if isinstance(s, CreateStream)}


JOINED = (
    "SELECT {} FROM a [RANGE 9 SECONDS SLIDE 3 SECONDS], b [RANGE 6 SECONDS SLIDE 3 SECONDS] WHERE a.k = b.k "
    "GROUP BY a.k"
)
AGGREGATES = [
    *((f"SELECT {call} AS v, window_end FROM s [RANGE 4 SLIDE 2]" + (f" GROUP BY {', '.join(group)}" if group else ""),
      STREAMS)
      for call in CALLS for group in GROUPS),
    (JOINED.format("a.k, window_start, window_end, sum(a.n) + max(b.big) AS v"), sql_streams.STREAMS),
    (("SELECT window_start, count(*) AS c FROM i [RANGE 9 SLIDE 3 FROM 6] AS i, j [RANGE 6 SLIDE 3 FROM 6] AS j "
     "WHERE i.k = j.k"), sql_streams.STREAMS),
]  # fmt: skip


def of_one(analysis, query, streams):
    """Facts of all queries that a query is answered by."""
    if not is_joined(query):
        return [analyze(analysis, "q", one, streams) for one in distribute(query, streams)]
    apart = take_apart(query, streams, "join")
    below = [analyze(analysis, "q", one, streams) for one in distribute(apart.join, streams)]
    return [*below, analyze(analysis, "q", apart.aggregate, {"join": apart.stream})]


def test_what_is_known_of_whole_queries_is_what_spark_says(spark):
    asked = known = 0
    for text, streams in [*fixtures(), *AGGREGATES]:
        try:
            query = parse_query(text, streams)
        except PenstockError:
            continue
        asked += 1
        try:
            found = of_one(TermsAnalysis(), query, streams)
        except RegistrationError as error:
            assert "Spark" in str(error), text  # noqa: PT017
            continue
        known += 1
        assert found == of_one(SparkAnalysis(spark), query, streams), text
    assert known > 0.9 * asked > 80
