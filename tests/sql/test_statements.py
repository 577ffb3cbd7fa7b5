from dataclasses import fields

import pytest

from penstock.errors import NotSupportedError, SqlError
from penstock.model import Sink
from penstock.sql import (
    AdvanceStream,
    AlterQuery,
    CreateQuery,
    CreateStream,
    DropQuery,
    Explain,
    Position,
    ResumeQuery,
    ShowQueries,
    ShowStreams,
    parse_query,
    parse_script,
)
from tests.sql.streams import STREAMS


def one(text):
    (statement,) = parse_script(text)
    return statement


def failure(text):
    with pytest.raises(SqlError) as caught:
        parse_script(text)
    return caught.value


def test_statements_are_split_outside_strings_and_comments():
    script = "-- a; comment\nSHOW QUERIES; /* ; */ ;;\n  CREATE QUERY q AS SELECT ';' FROM a;\nSHOW STREAMS"
    first, second, third = parse_script(script)
    assert (first, third) == (ShowQueries(), ShowStreams())
    assert [s.at for s in (first, second, third)] == [Position(2, 1), Position(3, 3), Position(4, 1)]
    assert second.select == "SELECT ';' FROM a"
    assert (second.line, second.column) == (3, 21)


def test_an_empty_script_has_no_statements():
    assert parse_script("-- nothing\n;") == []


def test_create_query_with_every_clause():
    text = (
        "CREATE OR REPLACE QUERY q RETAIN 7 DAYS ON ERROR STOP AS SELECT * FROM a WHERE n > 3 INTO jdbc "
        "OPTIONS (url 'u', a.b = 'c', n 5, t TRUE)"
    )
    query = one(text)
    assert query.name == "q"
    assert query.select == "SELECT * FROM a WHERE n > 3"
    assert query.into == Sink("jdbc", **{"url": "u", "a.b": "c", "n": "5", "t": "true"})
    assert (query.on_error, query.retain, query.replace) == ("stop", 7 * 86_400_000_000, True)


def test_create_query_defaults():
    assert one("CREATE QUERY q AS SELECT * FROM a") == CreateQuery("q", "SELECT * FROM a", 1, 19)


@pytest.mark.parametrize("words", ["CREATE QUERY", "CREATE OR REPLACE QUERY", "ALTER QUERY"])
@pytest.mark.parametrize(
    ("clauses", "start"),
    [
        ("", "now"),
        ("FROM NOW", "now"),
        ("from state", "state"),
        ("ON ERROR STOP RETAIN 7 DAYS FROM STATE", "state"),
        ("FROM STATE RETAIN 7 DAYS", "state"),
    ],
)
def test_a_query_starts_from_now_or_from_state(words, clauses, start):
    assert one(f"{words} q {clauses} AS SELECT * FROM a").start == start


def test_alter_query_with_every_clause():
    text = "SHOW QUERIES;\nALTER QUERY q RETAIN 7 DAYS FROM STATE ON ERROR STOP AS\n  SELECT * FROM a INTO '/tmp/x'"
    altered = parse_script(text)[1]
    assert altered == AlterQuery("q", "SELECT * FROM a", 3, 3, "/tmp/x", "stop", 7 * 86_400_000_000, "state")
    assert altered.at == Position(2, 1)


def test_alter_query_keeps_what_it_does_not_name():
    altered = one("ALTER QUERY q AS SELECT * FROM a")
    assert altered == AlterQuery("q", "SELECT * FROM a", 1, 18)
    assert (altered.into, altered.on_error, altered.retain) == (None, None, None)


def test_a_query_is_resumed():
    assert one("alter query q resume") == ResumeQuery("q")
    assert one("ALTER QUERY resume RESUME") == ResumeQuery("resume")


def test_alter_query_has_the_fields_of_create_query_but_for_replace():
    created = [f.name for f in fields(CreateQuery) if f.name != "replace"]
    assert [f.name for f in fields(AlterQuery)] == created


def test_a_path_is_a_sink():
    assert one("CREATE QUERY q AS SELECT * FROM a INTO '/tmp/x'").into == "/tmp/x"


def test_drop_show_and_explain():
    assert parse_script("DROP QUERY q; DROP QUERY q PURGE; EXPLAIN; EXPLAIN q; EXPLAIN SELECT 1 FROM a") == [
        DropQuery("q"),
        DropQuery("q", purge=True),
        Explain(),
        Explain("q"),
        Explain(None, "SELECT 1 FROM a", 1, 67 - 4),
    ]


def test_an_error_in_a_select_points_into_the_script():
    script = "SHOW QUERIES;\nCREATE QUERY q AS\n  SELECT k\n  FROM a WHERE nn > 1;"
    query = parse_script(script)[1]
    with pytest.raises(SqlError) as caught:
        parse_query(query.select, STREAMS, script=script, line=query.line, column=query.column)
    assert (caught.value.line, caught.value.column) == (4, 16)
    assert "  FROM a WHERE nn > 1;\n" + " " * 17 + "^" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "to"),
    [("TIMESTAMP '2024-05-01 12:30:00'", "2024-05-01 12:30:00"), ("'2024-05-01'", "2024-05-01"), ("7", 7), ("-7", -7)],
)
def test_a_stream_is_advanced_to_a_time(words, to):
    assert one(f"ALTER STREAM s ADVANCE TO {words}") == AdvanceStream("s", to)


@pytest.mark.parametrize(
    ("text", "column", "fragment"),
    [
        ("ALTER STREAM s", 15, "Expected ADVANCE TO"),
        ("ALTER STREAM s ADVANCE TO TIMESTAMP 7", 37, "Expected a time"),
        ("ALTER STREAM s ADVANCE TO 1.5", 27, "Expected a time"),
        ("ALTER STREAM s ADVANCE TO -'2024-05-01'", 28, "Expected a time"),
        ("ALTER STREAM s ADVANCE TO 'soon'", 27, "cannot read 'soon'"),
        ("ALTER STREAM s ADVANCE TO 7 8", 29, "Unexpected"),
    ],
)
def test_what_a_stream_cannot_be_advanced_to(text, column, fragment):
    error = failure(text)
    assert fragment in error.message
    assert error.column == column


def test_an_error_on_the_first_line_of_a_select_is_shifted():
    script = "CREATE QUERY q AS SELECT kk FROM a"
    query = parse_script(script)[0]
    with pytest.raises(SqlError) as caught:
        parse_query(query.select, STREAMS, script=script, line=query.line, column=query.column)
    assert (caught.value.line, caught.value.column) == (1, 26)


@pytest.mark.parametrize(
    ("text", "column", "fragment"),
    [
        ("ALTER TABLE s", 1, "ALTER TABLE"),
        ("CREATE VIEW v AS SELECT 1", 1, "CREATE VIEW"),
        ("REFRESH v", 1, "REFRESH V"),
        ("DROP TABLE s", 1, "DROP TABLE"),
    ],
)
def test_statements_not_supported(text, column, fragment):
    error = failure(text)
    assert isinstance(error, NotSupportedError)
    assert error.column == column
    assert fragment in error.message


@pytest.mark.parametrize(
    ("text", "column", "fragment"),
    [
        ("SELECT * FROM a", 1, "needs a name"),
        ("FROBNICATE", 1, "Unknown statement"),
        ("CREATE QUERY q", 15, "Expected ON ERROR"),
        ("CREATE QUERY _q AS SELECT 1", 14, "reserved"),
        ("CREATE QUERY q ON ERROR IGNORE AS SELECT 1", 25, "SKIP or STOP"),
        ("CREATE QUERY q RETAIN 7 AS SELECT 1", 23, "unit"),
        ("CREATE QUERY q FROM START AS SELECT 1", 21, "NOW or STATE"),
        ("CREATE OR REPLACE QUERY q FROM AS SELECT 1", 32, "NOW or STATE"),
        ("ALTER QUERY q FROM", 19, "NOW or STATE"),
        ("ALTER QUERY q FROM 'state' AS SELECT 1", 20, "NOW or STATE"),
        ("CREATE QUERY q FROM NOW FROM STATE AS SELECT 1", 25, "FROM is given twice"),
        ("CREATE QUERY q FROM NOW", 24, "Expected ON ERROR, RETAIN, FROM or AS"),
        ("ALTER QUERY q", 14, "Expected ON ERROR"),
        ("ALTER QUERY q RESUME AS SELECT 1", 22, "Unexpected"),
        ("ALTER QUERY", 12, "name of a query"),
        ("ALTER QUERY _q AS SELECT 1", 13, "reserved"),
        ("ALTER QUERY q ON ERROR IGNORE AS SELECT 1", 24, "SKIP or STOP"),
        ("ALTER QUERY q RETAIN FROM STATE AS SELECT 1", 22, "length of time"),
        ("ALTER QUERY q INTO 'x' AS SELECT 1", 15, "after the SELECT"),
        ("ALTER QUERY q AS SELECT 1 INTO 'x' y", 36, "Unexpected"),
        ("CREATE QUERY q INTO 'x' AS SELECT 1", 16, "after the SELECT"),
        ("CREATE QUERY q AS SELECT 1 INTO 'x' y", 37, "Unexpected"),
        ("CREATE QUERY q AS SELECT 'x", 26, "not closed"),
        ("DROP QUERY", 11, "name of a query"),
        ("SHOW QUERIES now", 14, "Unexpected"),
    ],
)
def test_statements_that_are_wrong(text, column, fragment):
    error = failure(text)
    assert not isinstance(error, NotSupportedError)
    assert (error.line, error.column) == (1, column)
    assert fragment in error.message


def test_create_stream_is_a_statement():
    assert isinstance(one("CREATE STREAM s (t INT, WATERMARK FOR t AS t) USING rate"), CreateStream)


def test_drop_of_a_query_that_need_not_exist():
    assert parse_script("DROP QUERY IF EXISTS q PURGE") == [DropQuery("q", purge=True, if_exists=True)]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("CREATE QUERY", "query"),
        ("CREATE OR REPLACE QUERY", "query"),
        ("ALTER QUERY", "query"),
        ("CREATE MATERIALIZED VIEW", "view"),
    ],
)
def test_a_name_that_is_missing(words, what):
    error = failure(f"{words} AS SELECT k FROM a")
    assert (error.message, error.column) == (f"The name of the {what} is missing", len(words) + 2)
    assert "name AS SELECT" in error.hint
    assert one(f"{words} as AS SELECT k FROM a").name == "as"
