import pytest

from penstock.sql import parse_query
from tests.sql.streams import STREAMS

NEVER_RAISE = [
    "n", "payload.field", "n > 5", "n > x", "x > 1.5", "d > 5", "s = 'a' OR flag", "n IN (1, 2)", "n = NULL",
    "NOT flag",
    "n BETWEEN 1 AND big", "ts > TIMESTAMP '2020-01-01 00:00:00'", "day = DATE '2020-01-01'", "s IS NULL",
    "CASE WHEN n > 1 THEN 'a' ELSE s END", "CASE n WHEN 1 THEN x END", "if(flag, n, 0)", "coalesce(n, 0)",
    "nvl(s, 'a')", "nullif(s, '')", "x + 1", "x * f - n", "-x", "abs(x)", "upper(s)", "length(trim(s))",
    "concat(s, k)", "s || 'x'", "substring(s, 1, 2)", "left(s, 2)", "s LIKE 'a%'", "startswith(s, 'a')",
    "year(ts)", "hour(ts)", "extract(YEAR FROM day)", "date_trunc('hour', ts)", "cast(n AS string)",
    "cast(n AS bigint)", "cast(ts AS string)", "try_cast(s AS int)", "try_add(n, 1)", "5L", "1.5D",
    "isnull(s)"]  # fmt: skip


def total(text):
    return parse_query(f"SELECT {text} FROM a", STREAMS).items[0].expression.total


@pytest.mark.parametrize("text", NEVER_RAISE)
def test_never_raises(text):
    assert total(text)


@pytest.mark.parametrize(
    "text",
    [
        "n + 1", "big * 2", "x / 2", "n % 2", "n DIV 2", "cast(s AS int)", "cast(big AS int)", "cast(x AS bigint)",
        "n = '5'", "ts > '2020-01-01'", "ts > TIMESTAMP 'nonsense'", "day = DATE '20240101'",
        "ts > TIMESTAMP '2024-W01-1'", "arr[0]", "element_at(arr, 1)", "to_date(s)",
        "from_json(s, 'a INT')", "unknown(n)", "abs(n)", "-n", "CASE WHEN n > 1 THEN 'a' ELSE 1 END", "coalesce(n, s)",
        "if(n > 1, 1 / n, 0)", "upper(n)", "hour(day)", "s LIKE 'a/%' ESCAPE '/'", "s RLIKE '('", "s LIKE k",
        "ts + INTERVAL 1 DAY",
        "payload.field > 1", "upper(cast(n + 1 AS string))", "n IN (1, 'a')", "flag AND n", "day > ts",
    ],
)  # fmt: skip
def test_may_raise(text):
    assert not total(text)
