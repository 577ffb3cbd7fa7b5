"""Whatever a statement says, what comes out of reading and planning it is a plan or one of our own errors, at a place in the text."""

from penstock.planner.bounds import check_bounded, time_bounds
from penstock.planner.build import build_network, check_supported
from penstock.planner.derived import is_joined, take_apart
from penstock.planner.network import StandingQuery
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
from tests.sql.streams import STREAMS

SOURCES = {
    s.source.name: s.source
    for s in parse_script(
        """CREATE SOURCE x (k STRING, n INT, big BIGINT, x DOUBLE, s STRING, d DECIMAL(10,2), day DATE, ts TIMESTAMP, payload STRUCT<field: INT>) USING parquet OPTIONS (path 'x');
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
