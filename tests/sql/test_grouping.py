import pytest

from penstock.errors import SqlError
from penstock.model import Aggregate, Column, Compare, Emit, Expression, In, Literal, Ref, Stream, Typed, Window
from penstock.model.time import SECOND
from penstock.sql import Results, parse_query, results_of
from penstock.sql.aggregates import read_aggregate
from penstock.sql.dialect import parse_select, tokenize
from penstock.sql.position import Text
from penstock.sql.scope import Scope, bind
from tests.sql.dump import dump
from tests.sql.streams import STREAMS

FROM = "FROM a [RANGE 10 SECONDS SLIDE 1 SECOND]"


def parsed(select, rest="", **named):
    return parse_query(f"SELECT {select} {FROM} {rest}", STREAMS, **named)


def lines(select, rest=""):
    """What the groups, the aggregates, HAVING and the select list are."""
    return [line for line in dump(parsed(select, rest)).splitlines() if not line.startswith("role")]


def failure(select, rest=""):
    with pytest.raises(SqlError) as caught:
        parsed(select, rest)
    return caught.value


def test_items_speak_of_groups_and_aggregates():
    query = parsed("k, count(*) AS c, sum(n) + 1 AS s", "GROUP BY k HAVING count(*) > 3")
    column = Expression((Ref(0, "k"),), Ref(0, "k"), total=True)
    assert [g.expression for g in query.aggregation.groups] == [column]
    assert query.aggregation.aggregates[0] == Aggregate("count", None)
    assert query.items[0].expression.term == Ref(-2, "g0")
    assert query.items[1].expression.term == Ref(-3, "a0")
    assert query.aggregation.having.term == Compare(">", Ref(-3, "a0"), Literal(3, "bigint"))
    assert [i.name for i in query.items] == ["k", "c", "s"]
    assert all(item.expression.roles == () for item in query.items)


def test_columns_of_partition_by_are_the_last_groups_in_their_order():
    stream = Stream("s", tuple(Column(name, "bigint") for name in ("t", "k", "n")), "t", 0)
    text = "SELECT k, n, count(*) FROM s [RANGE 4 ROWS SLIDE 2 ROWS PARTITION BY k] GROUP BY k, n"
    query = parse_query(text, {"s": stream})
    assert [g.expression.term.column for g in query.aggregation.groups] == ["n", "k"]
    assert [item.expression.term for item in query.items[:2]] == [Ref(-2, "g1"), Ref(-2, "g0")]


def test_equal_aggregates_are_one():
    assert lines("max(n), max(n) - min(n) AS d, MAX(a.n) AS again") == [
        "aggregate a0 = max(a.n)",
        "aggregate a1 = min(a.n)",
        "select a0 AS max(n), a0 - a1 AS d, a0 AS again",
    ]


def test_groups_may_be_expressions_ordinals_and_aliases():
    wanted = ["group g0 = a.n + 1", "aggregate a0 = count(*)", "select g0 AS m, (g0) * 2 AS twice, a0 AS count(1)"]
    for groups in ("n + 1", "m", "1", "(a.n + 1)"):
        assert lines("n + 1 AS m, (n + 1) * 2 AS twice, count(*)", f"GROUP BY {groups}") == wanted


def test_a_column_of_a_stream_comes_before_an_alias_of_its_name():
    assert lines("x AS n, count(*) AS c", "GROUP BY x, n")[:2] == ["group g0 = a.x", "group g1 = a.n"]


def test_having_may_use_aliases_and_aggregates_that_are_not_selected():
    assert lines("k, count(*) AS c", "GROUP BY k HAVING c > 3 AND max(n) < 5")[1:] == [
        "aggregate a0 = count(*)",
        "aggregate a1 = max(a.n)",
        "having (a0) > 3 AND a1 < 5  [kernel, total]",
        "select g0 AS k, a0 AS c",
    ]


def test_an_alias_comes_before_a_column_in_having_but_not_inside_an_aggregate():
    found = lines("k, count(*) AS n", "GROUP BY k HAVING n > 3 AND max(n) < 5")
    assert found[1:4] == [
        "aggregate a0 = count(*)",
        "aggregate a1 = max(a.n)",
        "having (a0) > 3 AND a1 < 5  [kernel, total]",
    ]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("sum(d) > 100", Compare(">", Ref(-3, "a1"), Literal(100, "bigint"))),
        ("-1.50 <= avg(d)", Compare("<=", Literal("-1.50", "decimal(3,2)"), Ref(-3, "a1"))),
        ("count(*) > 1.5", Compare(">", Ref(-3, "a0"), Literal("1.5", "decimal(2,1)"))),
        ("sum(d) = avg(d)", Compare("=", Ref(-3, "a1"), Ref(-3, "a2"))),
        ("d < 0.1234567890123456789", Compare("<", Ref(-2, "g0"), Literal("0.1234567890123456789", "decimal(19,19)"))),
        ("sum(d) IN (1, 2.5)", In(Ref(-3, "a1"), (Literal(1, "bigint"), Literal("2.5", "decimal(2,1)")))),
        ("sum(d) > 1e3", None),  # Spark compares doubles
        ("sum(d) > avg(x)", None),
        ("sum(d) + 1 > 100", None),
    ],
)
def test_having_compares_decimals_exactly(condition, wanted):
    query = parsed("count(*) AS c", f"GROUP BY d HAVING {condition}")
    assert query.aggregation.having.term == wanted


def test_decimals_of_rows_have_typed_terms():
    query = parse_query("SELECT n FROM a WHERE d > 1.5", STREAMS)
    assert isinstance(query.predicates[0].term.left, Typed)


def test_windows_have_times():
    text = dump(
        parsed(
            "window_start, window_end, result_time, count(*)", "GROUP BY window_end HAVING window_end > window_start"
        )
    )
    assert "group" not in text
    assert "having window_end > window_start" in text


@pytest.mark.parametrize("group", ["w", "1", "window_start", "w, e"])
def test_a_time_of_the_window_may_be_grouped_by_under_its_own_name(group):
    assert lines("window_start AS w, window_end AS e, count(*) AS c", f"GROUP BY {group}") == [
        "aggregate a0 = count(*)",
        "select window_start AS w, window_end AS e, a0 AS c",
    ]


def test_lists_that_only_keep_values_take_any_type():
    text = "SELECT {} FROM seq [TUMBLING 5 SECONDS]{}"
    for call in ("first(arr)", "collect_list(arr)", "count(arr)"):
        parse_query(text.format(call, ""), STREAMS)
    with pytest.raises(SqlError, match="collect_list with DISTINCT takes values that can be compared"):
        parse_query(text.format("collect_list(DISTINCT arr)", ""), STREAMS)
    ordered = parse_query(text.format("k, first(arr) AS f", " GROUP BY k ORDER BY f, k LIMIT 2"), STREAMS)
    assert [key.expression.term for key in ordered.aggregation.top.keys] == [None, Ref(-2, "g0")]


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("count(*)", "count(*)"), ("count(1)", "count(*)"), ("count(n)", "count(a.n)"),
        ("count(DISTINCT n)", "count(DISTINCT a.n)"),
        ("sum(DISTINCT n)", "sum(DISTINCT a.n)"), ("max(DISTINCT n)", "max(a.n)"), ("mean(n)", "avg(a.n)"),
        ("std(n)", "stddev_samp(a.n)"),
        ("stddev(n)", "stddev_samp(a.n)"), ("stddev_pop(n)", "stddev_pop(a.n)"), ("variance(n)", "var_samp(a.n)"),
        ("var_pop(x)", "var_pop(a.x)"), ("approx_count_distinct(n)", "approx_count_distinct(a.n)"),
        ("approx_count_distinct(n, 0.01)", "approx_count_distinct(a.n, 0.01)"),
        ("approx_percentile(x, 0.5)", "approx_percentile(a.x, 10000, 0.5)"),
        ("percentile_approx(x, array(0.5, 0.9), 100)", "approx_percentile(a.x, 100, 0.5, 0.9)"),
        ("approx_top_k(k)", "approx_top_k(a.k, 5, 10000)"), ("approx_top_k(k, 3)", "approx_top_k(a.k, 3, 10000)"),
        ("heavy_hitters(k, 0.05)", "heavy_hitters(a.k, 0.05)"), ("any_value(s)", "any_value(a.s)"),
        ("sum(n + big)", "sum(a.n + a.big)"), ("min(abs(n))", "min(ABS(a.n))"),
    ],
)  # fmt: skip
def test_functions_by_the_name_of_the_model(call, wanted):
    assert lines(f"{call} AS v")[0].lower() == f"aggregate a0 = {wanted}".lower()


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("first(n)", "first(b.n)"), ("last_value(n)", "last(b.n)"), ("first(n, true)", "first(b.n, 1)"),
        ("last(n) IGNORE NULLS", "last(b.n, 1)"), ("first_value(n IGNORE NULLS)", "first(b.n, 1)"),
        ("collect_list(n)", "collect_list(b.n)"), ("array_agg(DISTINCT n)", "collect_list(DISTINCT b.n)"),
    ],
)  # fmt: skip
def test_functions_that_depend_on_the_order_of_rows(call, wanted):
    query = parse_query(f"SELECT {call} FROM b [TUMBLING 5 SECONDS]", STREAMS)
    assert f"aggregate a0 = {wanted}" in dump(query)


@pytest.mark.parametrize(
    ("call", "type_name"),
    [
        ("count(*)", "bigint"), ("sum(n)", "bigint"), ("sum(x)", "double"), ("sum(f)", "double"),
        ("sum(d)", "decimal(20,2)"),
        ("avg(n)", "double"), ("avg(d)", "decimal(14,6)"), ("max(k)", "string"), ("min(day)", "date"),
        ("stddev(n)", "double"),
        ("approx_count_distinct(k)", "bigint"), ("approx_percentile(n, 0.5)", "int"), ("any_value(flag)", "boolean"),
    ],
)  # fmt: skip
def test_values_have_the_types_of_spark(call, type_name):
    roles = parsed("count(*)").roles
    source = Text(f"SELECT {call} FROM a")
    scope = Scope(source, roles, (STREAMS["a"],), windowed=True)
    node = parse_select(source, tokenize(source)).expressions[0]
    assert read_aggregate(bind(node, scope), scope, {})[1] == type_name


@pytest.mark.parametrize(
    ("select", "rest", "column", "fragment"),
    [
        ("k, count(*)", "", 8, "k is neither grouped by nor inside an aggregate"),
        ("n + 1, count(*)", "GROUP BY k", 8, "n is neither"),
        ("count(*)", "GROUP BY k HAVING n > 1", 76, "n is neither"),
        ("count(*)", "WHERE count(*) > 1", 64, "WHERE has no aggregates"),
        ("count(*)", "GROUP BY max(n)", 67, "GROUP BY has no aggregates"),
        ("max(sum(n))", "", 12, "aggregate of an aggregate"),
        ("count(DISTINCT n, k)", "", 8, "DISTINCT over several"),
        ("count(n, k)", "", 17, "does not take these"),
        ("sum(k)", "", 8, "takes numbers, not string"),
        ("max(arr)", "", 8, "an order, not array<int>"),
        ("k, count(DISTINCT arr)", "GROUP BY k", 11,
         "count with DISTINCT takes values that can be compared, not array<int>"),
        ("heavy_hitters(arr, 0.5)", "", 8, "heavy_hitters takes values that can be compared"),
        ("approx_top_k(payload)", "", 8, "approx_top_k takes values that can be compared"),
        ("approx_count_distinct(payload)", "", 8, "approx_count_distinct takes values that can be compared"),
        ("count(*)", "GROUP BY k, arr", 70, "cannot be grouped by a value of type array<int>"),
        ("arr AS l, count(*)", "GROUP BY l", 77, "cannot be grouped by a value of type array<int>"),
        ("count(*)", "GROUP BY payload", 67, "cannot be grouped by a value of type struct"),
        ("DISTINCT arr, ts", "", 17, "cannot be grouped by a value of type array<int>"),
        ("sum(*)", "", 8, "needs an argument"),
        ("first(n)", "", 8, "total order"),
        ("approx_percentile(x, 1.5)", "", 29, "from 0 to 1"),
        ("approx_percentile(x)", "", 8, "needs a share"),
        ("approx_percentile(x, array(0.5))", "", 29, "write the share alone"),
        ("heavy_hitters(k, 0)", "", 25, "above 0"),
        ("approx_top_k(k, 0)", "", 24, "at least 1"),
        ("approx_top_k(DISTINCT k)", "", 8, "does not take DISTINCT"),
        ("count(*) FILTER (WHERE n > 1)", "", 8, "FILTER"),
        ("*", "GROUP BY k", 8, "*"),
        ("count(*)", "GROUP BY ROLLUP (k)", 75, "ROLLUP"),
        ("count(*)", "GROUP BY 3", 67, "no item 3"),
        ("count(*)", "GROUP BY nope", 67, "Unknown column nope"),
        ("count(*)", "GROUP BY TRUE", 1, "needs a column"),
        ("count(*)", "GROUP BY k, window_end + 1", 70, "only after grouping"),
    ],
)  # fmt: skip
def test_refused_at_its_place(select, rest, column, fragment):
    error = failure(select, rest)
    assert fragment in error.message
    assert error.column == column


def test_distinct_is_grouping_by_all_items():
    assert lines("DISTINCT k, n + 1 AS m") == ["group g0 = a.k", "group g1 = a.n + 1", "select g0 AS k, g1 AS m"]
    query = parse_query("SELECT DISTINCT k, ts FROM a", STREAMS)
    assert query.aggregation.window is None
    with pytest.raises(SqlError, match="needs a window"):
        parse_query("SELECT DISTINCT k FROM a", STREAMS)
    assert "DISTINCT beside" in failure("DISTINCT count(*)").message


def test_early_results_are_asked_for_at_the_end():
    assert parsed("count(*)", "EMIT EARLY EVERY 10 SECONDS").aggregation.emit == Emit(10_000_000)
    assert "not supported" in failure("count(*)", "EMIT FINAL").message
    assert "length" in failure("count(*)", "EMIT EARLY EVERY").message
    with pytest.raises(SqlError, match="EMIT is for aggregates"):
        parse_query("SELECT n FROM a EMIT EARLY EVERY 1 SECOND", STREAMS)


def test_aggregates_of_the_users_own():
    class Product:
        type = "double"

        def zero(self):
            return 1.0

        def add(self, state, value):
            return state * value

        def merge(self, left, right):
            return left * right

        def finish(self, state):
            return state

    query = parsed("Product(x) > 2 AS big", own={"product": Product()})
    assert query.aggregation.aggregates == (Aggregate("product", Expression((Ref(0, "x"),), Ref(0, "x"), total=True)),)
    assert query.items[0].expression.term == Compare(">", Ref(-3, "a0"), Literal(2.0, "double"))


def test_a_union_is_one_role():
    for union in ("b UNION ALL z", "SELECT * FROM b UNION ALL SELECT * FROM z", "b UNION ALL (z)"):
        streams = {**STREAMS, "z": type(STREAMS["b"])("z", STREAMS["b"].columns, "ts", 5)}
        query = parse_query(f"SELECT u.k, count(*) FROM ({union}) [TUMBLING 5 SECONDS] u GROUP BY u.k", streams)
        assert (query.roles[0].stream, query.roles[0].union, query.roles[0].alias) == ("b", ("z",), "u")


@pytest.mark.parametrize(
    ("union", "column", "fragment"),
    [
        ("b UNION ALL c", 35, "has no such column"), ("b UNION c", 25, "removes duplicates"),
        ("b UNION ALL b", 35, "twice"),
        ("b UNION ALL nope", 35, "Unknown stream"), ("SELECT k FROM b UNION ALL SELECT k FROM c", 23, "whole streams"),
    ],
)  # fmt: skip
def test_unions_that_are_refused(union, column, fragment):
    with pytest.raises(SqlError) as caught:
        parse_query(f"SELECT count(*) FROM ({union}) [TUMBLING 5 SECONDS]", STREAMS)
    assert fragment in caught.value.message
    assert caught.value.column == column


def test_an_aggregate_over_the_results_of_a_query():
    join = parse_query(
        "SELECT b.ts AS b_ts, c.k, b.n, result_time FROM b [RANGE 5 SECONDS], c [RANGE 5 SECONDS] WHERE b.k = c.k",
        STREAMS,
    )
    text = "SELECT k, sum(n) FROM pairs [RANGE 1 MINUTE SLIDE 1 MINUTE ON b_ts] GROUP BY k"
    query = parse_query(text, STREAMS, queries={"pairs": join})
    assert (query.roles[0].stream, query.roles[0].on) == ("pairs", "b_ts")
    assert query.aggregation.aggregates[0].function == "sum"
    query = parse_query(text.replace(" ON b_ts", ""), STREAMS, queries={"pairs": join})
    assert query.roles[0].on is None
    with pytest.raises(SqlError, match="gives no time n"):
        parse_query(text.replace("b_ts", "n"), STREAMS, queries={"pairs": join})
    rows = parse_query("SELECT window_end, count(*) AS n FROM b [RANGE 5 ROWS SLIDE 2 ROWS]", STREAMS)
    with pytest.raises(SqlError, match="selects no result_time"):
        parse_query("SELECT sum(n) FROM pairs [TUMBLING 5 SECONDS]", STREAMS, queries={"pairs": rows})


def test_a_join_or_a_filter_over_the_results_of_a_query():
    join = parse_query(
        "SELECT b.ts AS b_ts, c.k, b.n, result_time FROM b [RANGE 5 SECONDS], c [RANGE 5 SECONDS] WHERE b.k = c.k",
        STREAMS,
    )
    queries = {"pairs": join}
    assert parse_query("SELECT k FROM Pairs WHERE n > 1", STREAMS, queries=queries).roles[0].stream == "pairs"
    query = parse_query(
        "SELECT p.n FROM pairs [RANGE 5 SECONDS ON b_ts] p, b [RANGE 3 SECONDS] WHERE p.k = b.k",
        STREAMS,
        queries=queries,
    )
    assert [(r.stream, r.window, r.on) for r in query.roles] == [
        ("pairs", Window(5 * SECOND), "b_ts"),
        ("b", Window(3 * SECOND), None),
    ]
    with pytest.raises(SqlError, match="gives no time n"):
        parse_query("SELECT k FROM pairs [RANGE 5 SECONDS ON n]", STREAMS, queries=queries)
    with pytest.raises(SqlError, match="pairs has a column b_ts of type timestamp, and b has no such column"):
        parse_query("SELECT count(*) FROM (pairs UNION ALL b) [TUMBLING 5 SECONDS]", STREAMS, queries=queries)


def test_a_union_may_be_of_queries_so_that_filters_are_put_together_again():
    low, high = (parse_query(f"SELECT k, n, ts FROM b WHERE n {test}", STREAMS) for test in ("< 3", "> 7"))
    short = {"s": Stream("s", tuple(STREAMS["b"].column(c) for c in ("k", "n", "ts")), "ts", 0)}
    queries = {"low": low, "high": high}
    text = "SELECT k, sum(n) FROM ({}) [TUMBLING 5 SECONDS{}] u GROUP BY k"
    query = parse_query(text.format("low UNION ALL High", ""), STREAMS, queries=queries)
    assert (query.roles[0].stream, query.roles[0].union, query.roles[0].on) == ("low", ("high",), None)
    mixed = parse_query(text.format("s UNION ALL low", " ON ts"), short, queries=queries_of(queries))
    assert (mixed.roles[0].stream, mixed.roles[0].union, mixed.roles[0].on) == ("s", ("low",), "ts")
    late = parse_query("SELECT k, n, ts AS late FROM b WHERE n > 7", STREAMS)
    with pytest.raises(SqlError, match="low has a column ts of type timestamp, and late has no such column"):
        parse_query(text.format("low UNION ALL late", ""), STREAMS, queries={**queries, "late": late})


def queries_of(queries):
    return {name: results_of(query, STREAMS) for name, query in queries.items()}


def test_what_reads_a_query_can_be_read_too():
    below = results_of(
        parse_query(
            "SELECT b.ts AS b_ts, b.n, b.k, result_time FROM b [RANGE 5 SECONDS], c [RANGE 5 SECONDS] WHERE b.k = c.k",
            STREAMS,
        ),
        STREAMS,
    )
    assert (below.times, below.usual) == (("b_ts", "result_time"), "result_time")

    def read(sql):
        query = parse_query(sql, STREAMS, queries={"pairs": below})
        return results_of(query, STREAMS, {"pairs": below})

    # Its times are those that its own windows followed.
    assert read("SELECT b_ts, n, result_time FROM pairs WHERE n > 1").times == ("result_time",)
    assert read("SELECT b_ts, n, result_time FROM pairs WHERE n > 1").usual == "result_time"
    joined = "SELECT {} FROM pairs [RANGE 5 SECONDS ON b_ts] p, b [RANGE 3 SECONDS] WHERE p.k = b.k"
    assert read(joined.format("b_ts, b.ts, p.result_time AS old")).times == ("b_ts", "ts")
    counted = "SELECT window_end, count(*) AS n FROM pairs [TUMBLING 5 SECONDS] GROUP BY k"
    assert read(counted) == Results((Column("window_end", "timestamp"), Column("n", "")), ("window_end",), "window_end")
    twice = read(joined.format("p.n, b.n, b.ts"))
    with pytest.raises(SqlError, match="two columns named n"):
        parse_query("SELECT ts FROM twice [RANGE 1 SECOND ON ts]", STREAMS, queries={"twice": twice})
