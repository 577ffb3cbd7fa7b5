import pytest

from penstock.errors import NotSupportedError, SqlError
from penstock.sql import parse_query
from tests.sql.streams import STREAMS


def failure(text):
    with pytest.raises(SqlError) as caught:
        parse_query(text, STREAMS)
    return caught.value


@pytest.mark.parametrize(
    ("text", "column", "fragment"),
    [
        ("WITH x AS (SELECT 1) SELECT * FROM x", 1, "WITH"),
        ("SELECT n FROM a ORDER BY n", 17, "ORDER BY"),
        ("SELECT n FROM a LIMIT 5", 17, "LIMIT"),
        ("SELECT n FROM a UNION ALL SELECT n FROM b", 17, "UNION"),
        ("SELECT n FROM a EXCEPT SELECT n FROM b", 17, "EXCEPT"),
        ("SELECT n FROM a INTERSECT SELECT n FROM b", 17, "INTERSECT"),
        ("SELECT 1 FROM a LEFT JOIN b ON a.k = b.k", 17, "LEFT JOIN"),
        ("SELECT 1 FROM a FULL OUTER JOIN b ON a.k = b.k", 17, "FULL OUTER JOIN"),
        ("SELECT 1 FROM a LEFT SEMI JOIN b ON a.k = b.k", 17, "LEFT SEMI JOIN"),
        ("SELECT 1 FROM a ANTI JOIN b ON a.k = b.k", 17, "ANTI JOIN"),
        ("SELECT 1 FROM a NATURAL JOIN b", 17, "NATURAL JOIN"),
        ("SELECT 1 FROM a JOIN b USING (k)", 24, "USING"),
        ("SELECT 1 FROM a LATERAL VIEW explode(arr) t AS v", 17, "LATERAL"),
        ("SELECT 1 FROM (SELECT * FROM a) x", 16, "Subqueries"),
        ("SELECT 1 FROM a WHERE n IN (SELECT n FROM b)", 25, "IN (SELECT ..)"),
        ("SELECT (SELECT 1) FROM a", 9, "Subqueries"),
        ("SELECT median(n) FROM a", 8, "aggregate median"),
        ("SELECT 1 + Corr(n, n) FROM a", 12, "aggregate corr"),
        ("SELECT row_number() OVER (ORDER BY n) FROM a", 8, "window function row_number"),
        ("SELECT abs(n) OVER () FROM a", 15, "OVER"),
        ("SELECT explode(arr) FROM a", 8, "generator explode"),
        ("SELECT window(ts, '1 minute') FROM a", 8, "function window"),
        ("SELECT 1 FROM a WINDOW w AS (ORDER BY n)", 17, "Named windows"),
        ("SELECT 1 FROM a TABLESAMPLE (5 ROWS)", 17, "TABLESAMPLE"),
    ],
)
def test_refused_at_the_word_where_it_begins(text, column, fragment):
    error = failure(text)
    assert isinstance(error, NotSupportedError)
    assert fragment in error.message
    assert (error.line, error.column) == (1, column)


FLINK = "SELECT k, count(*) FROM TABLE({}(TABLE a{}, DESCRIPTOR(ts), {})) GROUP BY k, window_start, window_end"
SPARK = "SELECT k, count(*) FROM a GROUP BY k, {}"


@pytest.mark.parametrize(
    ("text", "what", "instead"),
    [
        (FLINK.format("TUMBLE", "", "INTERVAL '10' MINUTES"), "TABLE(TUMBLE(..))",
         "FROM a [TUMBLING INTERVAL '10' MINUTES]"),
        (FLINK.format("TUMBLE", "", "SIZE => INTERVAL '1' HOUR"), "TABLE(TUMBLE(..))",
         "FROM a [TUMBLING INTERVAL '1' HOUR]"),
        (
            FLINK.format("HOP", "", "INTERVAL '5' MINUTES, INTERVAL '1' HOUR"),
            "TABLE(HOP(..))",
            "FROM a [RANGE INTERVAL '1' HOUR SLIDE INTERVAL '5' MINUTES]",
        ),
        (
            FLINK.format("CUMULATE", "", "INTERVAL '5' MINUTES, INTERVAL '1' HOUR"),
            "TABLE(CUMULATE(..))",
            "FROM a [TUMBLING INTERVAL '1' HOUR], with EMIT EARLY EVERY INTERVAL '5' MINUTES",
        ),
        (FLINK.format("SESSION", " PARTITION BY k", "INTERVAL '5' MINUTES"), "TABLE(SESSION(..))",
         "FROM a [SESSION INTERVAL '5' MINUTES]"),
        (SPARK.format("window(ts, '10 minutes')"), "The function window", "FROM a [TUMBLING '10 minutes']"),
        (SPARK.format("window(ts, '1 hour', '5 minutes')"), "The function window",
         "FROM a [RANGE '1 hour' SLIDE '5 minutes']"),
        (SPARK.format("session_window(ts, '5 minutes')"), "The function session_window",
         "FROM a [SESSION '5 minutes']"),
        (SPARK.format("TUMBLE(ts, INTERVAL '1' HOUR)"), "The function TUMBLE", "FROM a [TUMBLING INTERVAL '1' HOUR]"),
        ("SELECT TUMBLE_START(ts, INTERVAL '1' HOUR), count(*) FROM a", "TUMBLE_START", "window_start"),
    ],
)  # fmt: skip
def test_windows_of_other_systems_are_refused_by_name_with_ours_in_their_place(text, what, instead):
    error = failure(text)
    assert error.message == f"{what} is not supported"
    assert instead in error.hint
    assert text[error.column - 1 :].startswith(what.removeprefix("The function ").split("(")[0])


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        ("SELECT 1 FROM a LEFT ANTI JOIN b ON a.k = b.k", 17, "LEFT ANTI JOIN", "INNER"),
        ("SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b)", 23, "EXISTS (SELECT ..)", "join"),
        ("SELECT k, count(*) FILTER (WHERE n > 1) FROM a [TUMBLING 1 HOUR] GROUP BY k", 11, "FILTER", "CASE"),
        ("SELECT count_if(n > 1) FROM a [TUMBLING 1 HOUR]", 8, "The aggregate count_if", "count(CASE WHEN"),
        ("SELECT proctime() FROM a", 8, "Processing time", "event time"),
        ("SELECT * FROM a MATCH_RECOGNIZE (PARTITION BY k)", 17, "MATCH_RECOGNIZE", "join"),
        ("SELECT 1 FROM a, b FOR SYSTEM_TIME AS OF a.ts", 20, "FOR SYSTEM_TIME AS OF", "[ROWS 1 PARTITION BY k]"),
        ("SELECT count(*) FROM b [ROWS 100]", 25, "[ROWS ..] in an aggregate", "[RANGE 100 ROWS SLIDE 1 ROW]"),
        ("SELECT count(*) FROM b [RANGE 1 HOUR]", 25, "RANGE without SLIDE", "b [RANGE 1 HOUR SLIDE 1 MINUTE]"),
        (
            "SELECT count(*) FROM b [HOPPING 1 HOUR]",
            25,
            "This window is not supported in an aggregate",
            "[RANGE <length> SLIDE",
        ),
        (
            "SELECT max(struct(n, k)) FROM a [TUMBLING 1 HOUR]",
            8,
            "max takes values that have an order, not struct<..>",
            "plain",
        ),
        (
            "SELECT 1 AS x FROM a [TUMBLING 1 HOUR] GROUP BY struct(n, k)",
            49,
            "Rows cannot be grouped by a value of type struct",
            "plain",
        ),
    ],
)
def test_a_refusal_names_what_was_written_and_what_to_write(text, column, message, hint):
    error = failure(text)
    assert message in error.message
    assert hint in error.hint
    assert error.column == column


@pytest.mark.parametrize("text", ["SELECT 1 FROM (SELECT * FROM a) x", "WITH x AS (SELECT 1) SELECT * FROM x"])
def test_a_subquery_can_be_a_query_of_its_own(text):
    assert failure(text).hint == "register the inner SELECT as a query of its own, and name that query in FROM"


@pytest.mark.parametrize(
    "call",
    ["rand()", "uuid()", "current_timestamp()", "current_timestamp", "now()", "current_date", "shuffle(arr)",
     "monotonically_increasing_id()", "spark_partition_id()", "input_file_name()"],
)  # fmt: skip
def test_non_deterministic_functions_are_errors(call):
    error = failure(f"SELECT n,\n  {call} FROM a")
    assert not isinstance(error, NotSupportedError)
    assert "not deterministic" in error.message
    assert (error.line, error.column) == (2, 3)


@pytest.mark.parametrize("name", ["count", "first", "limit", "window", "rank", "uuid", "now", "values", "union"])
def test_keywords_and_functions_may_be_names(name):
    query = parse_query(f"SELECT n AS {name}, `k` FROM a", STREAMS)
    assert query.items[0].name == name


def test_left_and_right_are_functions_too():
    assert parse_query("SELECT left(k, 1), right(k, 1) FROM a", STREAMS).items


@pytest.mark.parametrize(
    "condition",
    [
        "ts > TIMESTAMP 'now'",
        "day > 'Today'",
        "ts > CAST('now' AS TIMESTAMP)",
        "n > unix_timestamp()",
        "ts > ('yesterday UTC')",
    ],
)
def test_the_clock_does_not_get_in_by_words_either(condition):
    assert "the time of the clock" in failure(f"SELECT n FROM a WHERE {condition}").message


def test_the_same_words_are_plain_strings_elsewhere():
    assert parse_query("SELECT n FROM a WHERE s IN ('now', 'today') AND s <> 'tomorrow'", STREAMS).predicates
