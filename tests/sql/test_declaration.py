import pytest

from penstock.errors import NotSupportedError, SqlError
from penstock.model import Column, Reader
from penstock.sql import parse_script


def declared(text):
    return parse_script(text)[0].stream


def failure(text):
    with pytest.raises(SqlError) as caught:
        parse_script(text)
    return caught.value


def test_a_stream_with_every_clause():
    stream = declared("""CREATE STREAM Temperature (
        Location STRING, `value` DOUBLE, at TIMESTAMP, seq BIGINT,
        WATERMARK FOR AT AS at - INTERVAL 1 MINUTE 30 SECONDS, SEQUENCE BY SEQ)
        OPTIONS (kafka.bootstrap.servers 'h:1', subscribe = 'x') USING kafka IDLE '30 seconds' BAD error LATE drop""")
    assert stream.name == "Temperature"
    assert stream.columns[1] == Column("value", "double")
    assert (stream.event_time, stream.delay, stream.sequence) == ("at", 90_000_000, "seq")
    assert (stream.late, stream.bad, stream.idle) == ("drop", "error", 30_000_000)
    assert stream.source == Reader("kafka", (("kafka.bootstrap.servers", "h:1"), ("subscribe", "x")))


def test_defaults():
    stream = declared("CREATE STREAM s (t INT, WATERMARK FOR t AS t - 5) USING rate")
    assert (stream.delay, stream.late, stream.bad, stream.idle, stream.sequence) == (5, "side", "side", None, None)
    assert stream.integer_time


def test_a_stream_may_promise_a_heartbeat_and_nothing_else():
    stream = declared("CREATE STREAM s (t TIMESTAMP, WATERMARK FOR t) HEARTBEAT 5 SECONDS USING rate")
    assert (stream.delay, stream.idle, stream.heartbeat) == (None, None, 5_000_000)


def test_an_ordered_stream_is_one_without_delay():
    stream = declared("CREATE STREAM s (t INT, WATERMARK FOR t) ORDERED USING rate")
    assert (stream.event_time, stream.delay, stream.delay_rows) == ("t", 0, None)


def test_a_delay_in_rows():
    stream = declared("CREATE STREAM s (t INT, n INT, WATERMARK FOR t AS t - 100 ROWS, SEQUENCE BY n) USING rate")
    assert (stream.delay, stream.delay_rows, stream.sequence) == (None, 100, "n")


def test_punctuation_in_a_column_or_from_a_stream():
    stream = declared("CREATE STREAM s (t INT, p INT, WATERMARK FOR t) PUNCTUATION P LATE drop USING rate")
    assert (stream.delay, stream.punctuation, stream.punctuated_by) == (None, "p", None)
    stream = declared("CREATE STREAM s (t INT, WATERMARK FOR t AS t - 5) PUNCTUATION FROM marks USING rate")
    assert (stream.delay, stream.punctuation, stream.punctuated_by) == (5, None, "marks")


@pytest.mark.parametrize(
    ("text", "column", "fragment"),
    [
        ("CREATE STREAM s (t INT, WATERMARK FOR t) USING rate", 17, "progress is unknown"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t - 5) ORDERED USING rate", 39, "no delay"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t - 9 ROWS) USING rate", 48, "needs an order"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t - 0 ROWS, SEQUENCE BY t) USING rate", 48, "above zero"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t) PUNCTUATION q USING rate", 54, "Unknown column q"),
        ("CREATE STREAM s (t INT) USING rate", 17, "no WATERMARK"),
        ("CREATE STREAM s (t STRING, WATERMARK FOR t AS t) USING rate", 42, "type string"),
        ("CREATE STREAM s (t INT, WATERMARK FOR u AS u) USING rate", 39, "Unknown column u"),
        ("CREATE STREAM s (t INT, T INT, WATERMARK FOR t AS t) USING rate", 25, "twice"),
        ("CREATE STREAM s (t INT, _x INT, WATERMARK FOR t AS t) USING rate", 25, "reserved"),
        ("CREATE STREAM _s (t INT, WATERMARK FOR t AS t) USING rate", 15, "reserved"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t) IDLE '1 minute' USING rate", 47, "follows the clock"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t) HEARTBEAT '1 minute' USING rate", 47, "follows the clock"),
        ("CREATE STREAM s (t DATE, WATERMARK FOR t) IDLE 5 HOURS HEARTBEAT 1 DAY USING rate", 56, "when it is silent"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t - INTERVAL 5 SECONDS) USING rate", 48, "whole number"),
        ("CREATE STREAM s (t DATE, WATERMARK FOR t AS t - 5) USING rate", 49, "unit"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t) LATE maybe USING rate", 52, "SIDE or DROP or ERROR"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t)", 46, "Expected USING"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t) USING rate USING rate", 58, "twice"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t, SEQUENCE BY x) USING rate", 59, "Unknown column x"),
        ("CREATE STREAM s (t FOO, WATERMARK FOR t AS t) USING rate", 20, "Unknown type"),
        ("CREATE STREAM s (t, WATERMARK FOR t AS t) USING rate", 19, "needs a type"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t) USING rate OPTIONS (a 'b', A 'c')", 74, "twice"),
        ("CREATE STREAM s (t INT, WATERMARK FOR t AS t) USING rate OPTIONS (a b)", 69, "in quotes"),
    ],
)
def test_declarations_that_are_wrong(text, column, fragment):
    error = failure(text)
    assert fragment in error.message
    assert (error.line, error.column) == (1, column)


def test_constraints_of_columns_are_not_supported():
    error = failure("CREATE STREAM s (t INT NOT NULL, WATERMARK FOR t AS t) USING rate")
    assert isinstance(error, NotSupportedError)
    assert error.column == 24


def test_the_watermark_is_the_column_itself():
    assert isinstance(failure("CREATE STREAM s (t INT, u INT, WATERMARK FOR t AS u - 5) USING rate"), NotSupportedError)


def test_a_punctuation_may_be_narrowed_by_columns():
    text = "CREATE STREAM s (t INT, p INT, k STRING, n INT, WATERMARK FOR t) PUNCTUATION p{} USING rate"
    assert declared(text.format("")).patterns == ()
    stream = declared(text.format(" BY (K, n)"))
    assert (stream.punctuation, stream.patterns) == ("p", (Column("k", "string"), Column("n", "int")))
    for clause, fragment in ((" BY (q)", "Unknown column q"), (" BY k", "Expected ("), (" BY (k", "Expected )")):
        with pytest.raises(SqlError) as caught:
            declared(text.format(clause))
        assert fragment in caught.value.message


@pytest.mark.parametrize(
    ("clause", "kept"),
    [
        ("", 7 * 86_400_000_000),
        ("SIDE RETAIN 3 DAYS", 3 * 86_400_000_000),
        ("LATE side SIDE RETAIN '90 seconds' BAD drop", 90_000_000),
        ("SIDE RETAIN ALL", None),
    ],
)
def test_a_stream_says_how_long_late_and_bad_rows_are_kept(clause, kept):
    assert declared(f"CREATE STREAM s (t INT, WATERMARK FOR t AS t) {clause} USING rate").side_retain == kept


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("SIDE 3 DAYS", "Expected RETAIN"),
        ("SIDE RETAIN", "Expected a length of time"),
        ("SIDE RETAIN 1 MONTH", "MONTH"),
        ("SIDE RETAIN ALL SIDE RETAIN ALL", "SIDE is given twice"),
    ],
)
def test_what_else_may_not_stand_behind_side(clause, message):
    with pytest.raises(SqlError, match=message):
        declared(f"CREATE STREAM s (t INT, WATERMARK FOR t AS t) {clause} USING rate")
