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
        ("SELECT 1 FROM a FULL OUTER JOIN b ON a.k = b.k", 17, "FULL JOIN"),
        ("SELECT 1 FROM a LEFT SEMI JOIN b ON a.k = b.k", 17, "LEFT JOIN"),
        ("SELECT 1 FROM a ANTI JOIN b ON a.k = b.k", 17, "ANTI JOIN"),
        ("SELECT 1 FROM a NATURAL JOIN b", 17, "NATURAL JOIN"),
        ("SELECT 1 FROM a JOIN b USING (k)", 24, "USING"),
        ("SELECT 1 FROM a LATERAL VIEW explode(arr) t AS v", 17, "LATERAL"),
        ("SELECT 1 FROM (SELECT * FROM a) x", 16, "Subqueries"),
        ("SELECT 1 FROM a WHERE n IN (SELECT n FROM b)", 29, "Subqueries"),
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
