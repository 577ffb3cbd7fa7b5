"""Any statement gives a plan or one of our own errors, at a place in the text."""

import pytest

from penstock.errors import PenstockError, SqlError
from penstock.planner.apart import is_joined, take_apart
from penstock.planner.bounds import check_bounded, time_bounds
from penstock.planner.build import build_network
from penstock.planner.network import StandingQuery
from penstock.planner.placed import check_supported
from penstock.planner.unions import distribute
from penstock.sql import (
    AlterQuery,
    CreateQuery,
    CreateView,
    Explain,
    parse_query,
    parse_script,
    parse_view,
    results_of,
)
from tests.sql.grammar import Grammar
from tests.sql.streams import STREAMS

SOURCES = {
    s.source.name: s.source
    for s in parse_script(
        """CREATE SOURCE x (k STRING, n INT, big BIGINT, x DOUBLE, s STRING, d DECIMAL(10,2), day DATE, ts TIMESTAMP,
          payload STRUCT<field: INT>) USING parquet OPTIONS (path 'x');
        CREATE SOURCE y (k STRING, n INT, x DOUBLE, m STRING, ts TIMESTAMP) USING parquet OPTIONS (path 'y');
        CREATE SOURCE z (k STRING, n BIGINT, f FLOAT) USING parquet OPTIONS (path 'z')"""
    )
}
QUERIES = {
    name: results_of(parse_query(text, STREAMS), STREAMS)
    for name, text in {
        "p": "SELECT a.k, b.n + 1 AS n, a.ts, result_time FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k",
        "w": "SELECT k, count(*) AS n, window_end FROM a [TUMBLING 1 HOUR] GROUP BY k",
    }.items()
}


def read(text):
    """Parse, bind and plan all statements of a text."""
    for statement in parse_script(text):
        match statement:
            case CreateQuery(_, select, line, column) | AlterQuery(_, select, line, column):
                plan(parse_query(select, STREAMS, script=text, line=line, column=column, queries=QUERIES))
            case Explain(_, str() as select, line, column):
                plan(parse_query(select, STREAMS, script=text, line=line, column=column, queries=QUERIES))
            case CreateView(name, select, line, column):
                parse_view(select, SOURCES, name=name, script=text, line=line, column=column)
            case _:
                pass


def plan(query):
    check_bounded(query, time_bounds(query))
    results_of(query, STREAMS, QUERIES)
    if any(name not in STREAMS for role in query.roles for name in role.streams):
        return  # over another query, the runtime puts a derived stream into its place first
    if is_joined(query):
        apart = take_apart(query, STREAMS, "below")
        build([apart.aggregate], {apart.stream.name: apart.stream})
        query = apart.join
    build(distribute(query, STREAMS), STREAMS)


def build(queries, streams):
    standing = [StandingQuery(number, "q", query) for number, query in enumerate(queries)]
    for one in standing:
        check_supported(one)
    build_network(standing, streams)


def refusal(text):
    try:
        read(text)
    except PenstockError as error:
        return error
    return None


def check(text):
    """Read a text; a refusal is an error of ours, with a place in the text where it is one of reading."""
    error = refusal(text)
    if isinstance(error, SqlError):
        lines = text.split("\n")
        assert error.message
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1


def test_random_statements_are_read_or_refused():
    for seed in range(500):
        check(Grammar(seed).any())


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_many_random_statements_are_read_or_refused(part):
    for seed in range(1000 * part, 1000 * (part + 1)):
        check(Grammar(f"long {seed}").any())


def test_the_grammar_makes_statements_that_are_right():
    """Else the deeper parts of the front end would never be reached."""
    assert sum(refusal(Grammar(seed).statement()) is None for seed in range(200)) >= 40


NINES = "9" * 5000
FOUND = [
    "CREATE QUERY q AS SELECT k FROM a [RANGE 10 '' MINUTES]",
    f"CREATE QUERY q AS SELECT k FROM a [RANGE {NINES} MINUTES]",
    "CREATE QUERY q AS SELECT k FROM a [RANGE 1e999999 MINUTES]",
    f"CREATE QUERY q AS SELECT k FROM i [RANGE {NINES}]",
    f"CREATE QUERY q AS SELECT k FROM b [ROWS {NINES}]",
    "CREATE QUERY q AS SELECT k FROM b [ROWS ²]",
    f"CREATE QUERY q AS SELECT count(*) FROM i [TUMBLING 5 ORIGIN {NINES}]",
    f"CREATE QUERY q AS SELECT count(*) FROM b [RANGE {NINES} ROWS SLIDE 1 ROW]",
    f"CREATE QUERY q AS SELECT k, count(*) FROM b [TUMBLING 1 HOUR] GROUP BY k ORDER BY k LIMIT {NINES}",
    "CREATE QUERY q AS SELECT k, count(*) FROM b [TUMBLING 1 HOUR] GROUP BY k ORDER BY k LIMIT ²",
    "CREATE QUERY q AS SELECT k FROM a WHERE n = ²",
    "CREATE STREAM s (t BIGINT, WATERMARK FOR t AS t - ²) USING rate",
    f"CREATE STREAM s (t BIGINT, WATERMARK FOR t AS t - {NINES}) USING rate",
    f"CREATE STREAM s (t BIGINT, n INT, WATERMARK FOR t AS t - {NINES} ROWS, SEQUENCE BY n) USING rate",
    f"CREATE STREAM s (d DECIMAL({NINES}), t BIGINT, WATERMARK FOR t AS t) USING rate",
    "CREATE STREAM s (d DECIMAL(²), t BIGINT, WATERMARK FOR t AS t) USING rate",
    f"ALTER STREAM s ADVANCE TO {NINES}",
    "ALTER STREAM s ADVANCE TO ٣",
    f"CREATE MATERIALIZED VIEW v AS SELECT k FROM x WHERE n = '{NINES}'",
    *(
        f"CREATE QUERY q AS SELECT k FROM a WHERE {before * 2000}n > 1{behind * 2000}"
        for before, behind in (("(", ")"), ("NOT ", ""), ("- ", ""), ("abs(", ")"), ("CASE WHEN ", " THEN 1 END"),
         ("n + ", ""), ("n = ", ""))
    ),
    f"CREATE QUERY q AS SELECT arr{'[0]' * 2000} FROM a",
    f"CREATE QUERY q AS SELECT k FROM {'(' * 2000}b UNION ALL b{')' * 2000}",
    f"CREATE MATERIALIZED VIEW v AS SELECT k FROM x WHERE {'(' * 2000}n > 1{')' * 2000}",
    f"CREATE STREAM s (d {'ARRAY<' * 2000}INT{'>' * 2000}, t BIGINT, WATERMARK FOR t AS t) USING rate",
]  # fmt: skip


@pytest.mark.parametrize("text", FOUND, ids=lambda text: text[:60])
def test_what_raised_a_foreign_error_is_refused_at_its_place(text):
    with pytest.raises(SqlError) as caught:
        read(text)
    assert caught.value.line == 1
    assert caught.value.column > 1


@pytest.mark.parametrize("digits", ["5", NINES], ids=["five", "nines"])
def test_what_spark_alone_can_judge_of_a_type_is_left_to_it(digits):
    assert parse_query(f"SELECT CAST(n AS DECIMAL({digits})) = 1 AS x FROM a", STREAMS).items
