from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import NotSupportedError, SqlError
from penstock.model import Column, Rows, Stream, Tumbling, Window
from penstock.model.time import UNITS
from penstock.sql import parse_query
from tests.sql.streams import STREAMS


def windows(text):
    return [r.window for r in parse_query(text, STREAMS).roles]


def window(brackets, stream="a"):
    return windows(f"SELECT * FROM {stream} [{brackets}]")[0]


def failure(text):
    with pytest.raises(SqlError) as caught:
        parse_query(text, STREAMS)
    return caught.value


@pytest.mark.parametrize(
    "brackets",
    [
        "RANGE 90 SECONDS", "range 1 minute 30 seconds", "RANGE INTERVAL '90' SECOND", "RANGE INTERVAL 90 SECONDS",
        "RANGE INTERVAL '1 minute 30 seconds'", "RANGE 1.5 MINUTES", "RANGE 90000 MILLISECONDS", "RANGE 1.5 min",
    ],
)  # fmt: skip
def test_one_length_in_many_forms(brackets):
    assert window(brackets) == Window(90_000_000)


@given(
    st.lists(st.tuples(st.integers(1, 10_000), st.sampled_from(sorted(UNITS)), st.booleans()), min_size=1, max_size=4)
)
def test_a_length_is_the_sum_of_its_parts(parts):
    text = " ".join(f"{n} {unit.upper()}{'S' if plural else ''}" for n, unit, plural in parts)
    assert window(f"RANGE {text}") == Window(sum(n * UNITS[unit] for n, unit, _ in parts))


@given(st.integers(1, 10**12))
def test_fractions_of_seconds_are_exact(microseconds):
    assert window(f"RANGE {Decimal(microseconds) / 1_000_000:f} SECONDS") == Window(microseconds)


def test_the_window_stands_before_or_after_the_alias():
    assert windows("SELECT 1 FROM a [RANGE 1 MINUTE] AS t, b u [RANGE 2 MINUTES] WHERE t.k = u.k") == [
        Window(60_000_000),
        Window(120_000_000),
    ]


def test_range_all_has_no_length():
    assert window("RANGE ALL") == Window(None)


def test_integer_event_time_has_no_unit():
    assert window("RANGE 500", stream="i") == Window(500)


def test_the_trailing_window_is_for_every_stream_without_one():
    text = "SELECT 1 FROM a, b [RANGE 1 SECOND], c WHERE a.k = b.k AND b.k = c.k WINDOW 1 min"
    assert windows(text) == [Window(60_000_000), Window(1_000_000), Window(60_000_000)]
    assert windows("SELECT 1 FROM i WINDOW 7") == [Window(7)]
    assert windows("SELECT 1 FROM a WINDOW ALL") == [Window(None)]


def test_a_window_of_rows():
    assert window("ROWS 5", stream="b") == Rows(5)
    assert window("rows 1", stream="i") == Rows(1)


def test_a_window_of_rows_by_partition():
    assert window("ROWS 5 PARTITION BY k", stream="b") == Rows(5, ("k",))
    assert window("ROWS 5 partition  by N, `k`", stream="b") == Rows(5, ("n", "k"))


def test_columns_may_be_named_like_words_of_windows():
    stream = Stream("w", (Column("ts", "timestamp"), Column("session", "int"), Column("origin", "int")), "ts", 0)
    query = parse_query("SELECT 1 FROM w [ROWS 5 PARTITION BY session, origin]", {"w": stream})
    assert query.roles[0].window == Rows(5, ("session", "origin"))


def test_a_sequence_orders_what_columns_cannot():
    assert window("ROWS 5", stream="seq") == Rows(5)
    streams = {"seq": replace(STREAMS["seq"], sequence=STREAMS["seq"].event_time)}
    with pytest.raises(
        NotSupportedError, match="need a total order of rows"
    ):  # rows of one time have none by their time
        parse_query("SELECT 1 FROM seq [ROWS 5]", streams)


def test_a_tumbling_window():
    assert window("TUMBLING 5 MINUTES") == Tumbling(300_000_000)
    assert window("tumbling INTERVAL '90' SECONDS") == Tumbling(90_000_000)
    assert window("TUMBLING 10", stream="i") == Tumbling(10)


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("TIMESTAMP '1970-01-01 00:00:07'", 7_000_000), ("TIMESTAMP '1970-01-01T00:00:00.000001'", 1),
        ("TIMESTAMP '1970-01-01 02:00:00+02:00'", 0), ("timestamp_ntz '1969-12-31 23:59:59'", -1_000_000),
        ("DATE '1970-01-02'", 86_400_000_000), ("TIMESTAMP '1970-01-01 00:00:00Z'", 0),
    ],
)  # fmt: skip
def test_the_origin_of_a_tumbling_window_is_in_utc_unless_it_says_otherwise(origin, expected):
    assert window(f"TUMBLING 5 MINUTES ORIGIN {origin}") == Tumbling(300_000_000, expected)


def test_the_origin_of_integer_time_is_a_number():
    assert window("TUMBLING 10 ORIGIN 3", stream="i") == Tumbling(10, 3)
    assert window("TUMBLING 10 ORIGIN -3", stream="i") == Tumbling(10, -3)


def test_each_role_may_have_its_own_kind_of_window_unless_it_tumbles():
    text = "SELECT 1 FROM b [ROWS 3], c [RANGE 1 SECOND], b z [ROWS 2 PARTITION BY k] WHERE b.k = c.k AND c.k = z.k"
    assert windows(text) == [Rows(3), Window(1_000_000), Rows(2, ("k",))]
    text = "SELECT 1 FROM b [ROWS 3], c WHERE b.k = c.k WINDOW 1 SECOND"
    assert windows(text) == [Rows(3), Window(1_000_000)]


def test_a_tumbling_join_has_one_window():
    window = Tumbling(300_000_000)
    text = "SELECT 1 FROM b [TUMBLING 5 MINUTES], c [TUMBLING 300 SECONDS ORIGIN DATE '1970-01-01'] WHERE b.k = c.k"
    assert windows(text) == [window, window]


@pytest.mark.parametrize(
    ("tables", "column"),
    [
        ("b [TUMBLING 5 MINUTES], c [TUMBLING 6 MINUTES]", 42),
        ("b [TUMBLING 5 MINUTES], c x [TUMBLING 5 MINUTES ORIGIN DATE '2020-01-01']", 44),
        ("b [TUMBLING 5 MINUTES], c [RANGE 5 MINUTES]", 42),
        ("b [TUMBLING 5 MINUTES], c [RANGE ALL]", 42),
        ("b [TUMBLING 5 MINUTES], c [ROWS 5]", 42),
        ("b [ROWS 5], c [TUMBLING 5 MINUTES]", 30),
        ("b [RANGE 5 MINUTES], c [TUMBLING 5 MINUTES]", 39),
        ("b [TUMBLING 5 MINUTES], c", 39),
        ("b, c [TUMBLING 5 MINUTES]", 21),
        ("b [TUMBLING 5 MINUTES], b y [TUMBLING 5 MINUTES], c", 65),
    ],
)
def test_tumbling_windows_that_differ_are_refused_at_the_one_that_differs(tables, column):
    error = failure(f"SELECT 1 FROM {tables}")
    assert isinstance(error, NotSupportedError)
    assert (error.line, error.column) == (1, column)
    assert "one for all streams" in error.message
    assert "[TUMBLING <length>]" in error.hint


def test_the_trailing_window_does_not_tumble():
    error = failure("SELECT 1 FROM b [TUMBLING 5 MINUTES], c WHERE b.k = c.k WINDOW 5 MINUTES")
    assert "one for all streams" in error.message
    assert error.column == 39


@pytest.mark.parametrize(
    ("stream", "loose"), [("a", r"payload of a has none \(struct<"), ("odd", r"l of odd has none \(array<int>\)")]
)
def test_rows_without_a_total_order_are_not_counted(stream, loose):
    columns = (Column("ts", "timestamp"), Column("l", "array<int>"), Column("k", "string"))
    streams = {**STREAMS, "odd": Stream("odd", columns, "ts", 0, sequence="l")}
    with pytest.raises(NotSupportedError, match=loose) as caught:
        parse_query(f"SELECT 1 FROM {stream} [ROWS 5]", streams)
    assert (caught.value.line, caught.value.column) == (1, 17 + len(stream))
    assert "SEQUENCE BY" in caught.value.hint


@pytest.mark.parametrize("kind", ["string collate UTF8_LCASE", "array<int>", "map<string,int>", "variant"])
def test_types_without_an_order(kind):
    assert not Column("c", kind).orderable


@pytest.mark.parametrize(
    "kind", ["string", "varchar(5)", "char(2)", "decimal(10,2)", "double", "boolean", "binary", "date", "smallint"]
)
def test_types_with_an_order(kind):
    assert Column("c", kind).orderable


@pytest.mark.parametrize(
    ("brackets", "column"),
    [
        ("ROW 5", 18), ("RANGE 10 MINUTES SLIDE 1 MINUTE", 35), ("TUMBLING 5 ROWS", 29), ("SESSION 5 MINUTES", 18),
        ("ROWS 5 SLIDE 1", 25), ("ROWS 5 ORIGIN 0", 25), ("TUMBLING 5 MINUTES PARTITION BY k", 37),
        ("TUMBLING 5 MINUTES SLIDE 1 MINUTE", 37), ("ROWS 5 ROWS", 25), ("ROWS 5 ON ts", 25), ("TUMBLING 1 MONTH", 29),
        ("RANGE 5 MINUTES PARTITION BY k", 34), ("RANGE 5 MINUTES ORIGIN 0", 34), ("RANGE 5 MINUTES ON ts", 34),
        ("WA ts, RANGE 3 min", 18), ("RANGE 1000 ROWS", 29), ("RANGE 1 MONTH", 26), ("RANGE 2 YEARS", 26),
        ("RANGE INTERVAL '1' YEAR", 37), ("5 MINUTES", 18),
    ],
)  # fmt: skip
def test_other_windows_are_refused_at_their_word(brackets, column):
    error = failure(f"SELECT * FROM a [{brackets}]")
    assert isinstance(error, NotSupportedError)
    assert (error.line, error.column) == (1, column)
    assert error.hint


@pytest.mark.parametrize(
    ("text", "column", "fragment"),
    [
        ("SELECT * FROM a [RANGE 0 SECONDS]", 24, "greater than zero"),
        ("SELECT * FROM a [RANGE -5 SECONDS]", 24, "greater than zero"),
        ("SELECT * FROM i [RANGE 0]", 24, "greater than zero"),
        ("SELECT * FROM i [RANGE -1]", 24, "greater than zero"),
        ("SELECT * FROM i [RANGE 5 SECONDS]", 26, "no unit"),
        ("SELECT * FROM a [RANGE 5]", 24, "needs a unit"),
        ("SELECT * FROM a [RANGE 5 PARSECS]", 26, "Unknown unit"),
        ("SELECT * FROM a [RANGE]", 18, "needs a length"),
        ("SELECT * FROM a [RANGE 0.5 MICROSECONDS]", 24, "whole microseconds"),
        ("SELECT * FROM a [RANGE 1 SECOND] x [RANGE 1 SECOND]", 36, "second window"),
        ("SELECT * FROM a [RANGE 99999999999 WEEKS]", 24, "too long"),
        ("SELECT * FROM a [RANGE 5 SECONDS", 17, "window is not closed"),
        ("SELECT * FROM b [ROWS]", 18, "whole number of rows"),
        ("SELECT * FROM b [ROWS 0]", 23, "at least one row"),
        ("SELECT * FROM b [ROWS -1]", 23, "whole number of rows"),
        ("SELECT * FROM b [ROWS 1.5]", 23, "whole number of rows"),
        ("SELECT * FROM b [ROWS '5']", 23, "whole number of rows"),
        ("SELECT * FROM b [ROWS ALL]", 23, "whole number of rows"),
        ("SELECT * FROM b [ROWS 5 MINUTES]", 23, "whole number of rows"),
        ("SELECT * FROM b [ROWS 99999999999999999999]", 23, "too many"),
        ("SELECT * FROM b [ROWS 5 PARTITION BY]", 37, "name of a column"),
        ("SELECT * FROM b [ROWS 5 PARTITION BY zz]", 38, "has no column zz"),
        ("SELECT * FROM b [ROWS 5 PARTITION BY k, K]", 41, "given twice"),
        ("SELECT * FROM b [ROWS 5 PARTITION BY k n]", 40, "Unexpected"),
        ("SELECT * FROM b [ROWS 5 PARTITION BY b.k]", 38, "has no column b"),
        ("SELECT * FROM a [TUMBLING]", 18, "needs a length"),
        ("SELECT * FROM a [TUMBLING 0 SECONDS]", 27, "greater than zero"),
        ("SELECT * FROM a [TUMBLING ALL]", 27, "Expected a length"),
        ("SELECT * FROM i [TUMBLING 5 SECONDS]", 29, "no unit"),
        ("SELECT * FROM a [TUMBLING 5]", 27, "needs a unit"),
        ("SELECT * FROM a [TUMBLING 5 MINUTES ORIGIN]", 43, "point in time"),
        ("SELECT * FROM a [TUMBLING 5 MINUTES ORIGIN 5]", 44, "point in time"),
        ("SELECT * FROM a [TUMBLING 5 MINUTES ORIGIN '2020-01-01']", 44, "point in time"),
        ("SELECT * FROM a [TUMBLING 5 MINUTES ORIGIN TIMESTAMP 'soon']", 44, "point in time"),
        ("SELECT * FROM a [TUMBLING 5 MINUTES ORIGIN TIMESTAMP 5]", 44, "point in time"),
        ("SELECT * FROM a [TUMBLING 5 MINUTES ORIGIN DATE '2020-01-01' 5]", 62, "Unexpected"),
        ("SELECT * FROM i [TUMBLING 5 ORIGIN DATE '2020-01-01']", 36, "whole number"),
        ("SELECT * FROM i [TUMBLING 5 ORIGIN 99999999999999999999]", 36, "too far"),
    ],
)
def test_lengths_that_are_wrong(text, column, fragment):
    error = failure(text)
    assert not isinstance(error, NotSupportedError)
    assert fragment in error.message
    assert (error.line, error.column) == (1, column)


def test_rows_are_not_partitioned_by_a_nested_column():
    error = failure("SELECT * FROM seq [ROWS 5 PARTITION BY arr]")
    assert isinstance(error, NotSupportedError)
    assert error.column == 40
