import pytest

from penstock.errors import NotSupportedError, SqlError
from penstock.model import Window
from penstock.sql import CreateStream, parse_query, parse_script
from tests.sql.dump import dump
from tests.sql.streams import STREAMS

TIMED = "CREATE STREAM timed (k STRING, Result_Time TIMESTAMP, WATERMARK FOR result_time AS result_time) USING rate"


def failure(text, streams=STREAMS):
    with pytest.raises(SqlError) as caught:
        parse_query(text, streams)
    return caught.value


@pytest.mark.parametrize(
    "clause", ["ORDER BY result_time", "order  by Result_Time asc", "ORDER\nBY `result_time` ASC;"]
)
@pytest.mark.parametrize("select", ["n", "result_time", "result_time AS t", "(result_time) AS RESULT_TIME", "*"])
def test_results_can_come_in_order_of_result_time(select, clause):
    plain, ordered = (
        parse_query(f"SELECT {select} FROM a", STREAMS),
        parse_query(f"SELECT {select} FROM a {clause}", STREAMS),
    )
    assert (plain.ordered, ordered.ordered) == (False, True)
    assert dump(ordered) == dump(plain) + "\norder result_time"


def test_the_order_stands_before_or_after_the_window():
    for end in ("WINDOW 5 MINUTES ORDER BY result_time", "ORDER BY result_time WINDOW 5 MINUTES"):
        query = parse_query(f"SELECT 1 FROM a, b WHERE a.k = b.k {end}", STREAMS)
        assert query.ordered
        assert [r.window for r in query.roles] == [Window(300_000_000)] * 2


@pytest.mark.parametrize(
    ("text", "place", "fragment", "hint"),
    [
        ("SELECT n FROM a ORDER BY n", (1, 17), "for result_time only", "write ORDER BY result_time"),
        ("SELECT n FROM a\nORDER BY", (2, 1), "for result_time only", "write ORDER BY result_time"),
        ("SELECT result_time AS t FROM a ORDER BY t", (1, 32), "for result_time only", "write ORDER BY result_time"),
        ("SELECT n FROM a ORDER BY a.result_time", (1, 17), "for result_time only", "write ORDER BY result_time"),
        ("SELECT n FROM a ORDER BY result_time.f", (1, 17), "for result_time only", "write ORDER BY result_time"),
        ("SELECT n FROM a ORDER BY result_time + n", (1, 17), "for result_time only", "write ORDER BY result_time"),
        ("SELECT n FROM a ORDER BY 'result_time'", (1, 17), "for result_time only", "write ORDER BY result_time"),
        ("SELECT n FROM a ORDER BY 1", (1, 17), "for result_time only", "write ORDER BY result_time"),
        ("SELECT n FROM a ORDER BY ALL", (1, 17), "for result_time only", "write ORDER BY result_time"),
        ("SELECT n FROM a ORDER BY n, result_time", (1, 17), "for result_time only", "write ORDER BY result_time"),
        ("SELECT n FROM a ORDER BY result_time, n", (1, 37), "one key", "write ORDER BY result_time"),
        ("SELECT n FROM a ORDER BY result_time ASC, n", (1, 41), "one key", "any order"),
        ("SELECT n FROM a ORDER BY result_time DESC", (1, 38), "DESC", "write ORDER BY result_time"),
        ("SELECT n FROM a ORDER BY result_time\n  NULLS FIRST", (2, 3), "NULLS FIRST", "never null"),
        ("SELECT n FROM a ORDER BY result_time ASC NULLS LAST", (1, 42), "NULLS LAST", "never null"),
        ("SELECT n FROM a ORDER BY result_time LIMIT 5", (1, 38), "LIMIT", "no end"),
        ("SELECT n FROM a ORDER BY result_time ASC OFFSET 5", (1, 42), "OFFSET", "no end"),
        ("SELECT n FROM a WINDOW 5 MINUTES ORDER BY result_time LIMIT 5", (1, 55), "LIMIT", "no end"),
        ("SELECT n FROM a WINDOW 5 MINUTES ORDER BY n", (1, 34), "for result_time only", "write ORDER BY result_time"),
        ("SELECT n FROM a SORT BY result_time", (1, 17), "SORT BY", "no end"),
    ],
)
def test_every_other_order_is_refused(text, place, fragment, hint):
    error = failure(text)
    assert isinstance(error, NotSupportedError)
    assert fragment in error.message
    assert hint in error.hint
    assert (error.line, error.column) == place


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("SELECT n FROM a ORDER BY result_time WHERE n > 1", 17),
        ("SELECT n FROM a ORDER BY result_time ORDER BY result_time", 17),
        ("SELECT n FROM a ORDER BY result_time WINDOW 5 MINUTES ORDER BY result_time", 55),
        ("SELECT n ORDER BY result_time FROM a", 10),
        ("SELECT f(n ORDER BY result_time) FROM a", 12),
        ("SELECT n FROM a WHERE f(n ORDER BY result_time WINDOW 5 MINUTES)", 27),
        ("SELECT n FROM a [RANGE 5 MINUTES ORDER BY result_time]", 34),
    ],
)
def test_the_order_stands_once_at_the_end(text, column):
    error = failure(text)
    assert isinstance(error, NotSupportedError)
    assert "once, at the end" in error.message
    assert (error.line, error.column) == (1, column)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("SELECT n AS result_time FROM a ORDER BY result_time", 32),
        ("SELECT result_time, n AS Result_Time FROM a ORDER BY result_time", 45),
        ("SELECT k FROM timed ORDER BY result_time", 21),
        ("SELECT 1 FROM a, timed WHERE a.k = timed.k ORDER BY result_time", 44),
    ],
)
def test_the_key_may_not_name_another_column(text, column):
    (timed,) = (s.stream for s in parse_script(TIMED) if isinstance(s, CreateStream))
    error = failure(text, {**STREAMS, "timed": timed})
    assert isinstance(error, NotSupportedError)
    assert "names another column" in error.message
    assert "another name" in error.hint
    assert (error.line, error.column) == (1, column)


@pytest.mark.parametrize(
    ("text", "column", "fragment"),
    [
        ("ORDER BY result_time", 1, "Expected SELECT"),
        ("SELECT 1 ORDER BY result_time", 8, "needs FROM"),
        ("SELECT 1 FROM a AS ORDER BY result_time", 29, "Unexpected"),
        ("SELECT 1 FROM a WHERE n = ORDER BY result_time", 25, "missing"),
    ],
)
def test_an_order_does_not_complete_a_query(text, column, fragment):
    error = failure(text)
    assert not isinstance(error, NotSupportedError)
    assert fragment in error.message
    assert (error.line, error.column) == (1, column)


def test_an_error_points_into_the_script():
    script = "CREATE QUERY q AS SELECT n\n  FROM a ORDER BY result_time DESC INTO '/tmp/x'"
    (query,) = parse_script(script)
    with pytest.raises(NotSupportedError) as caught:
        parse_query(query.select, STREAMS, script=script, line=query.line, column=query.column)
    assert (caught.value.line, caught.value.column) == (2, 31)
