from dataclasses import replace

import pytest

from penstock.errors import NotSupportedError, SqlError
from penstock.model import Landmark, PerRow, Session, Sliding, SlidingRows, Window
from penstock.model.time import MINUTE, SECOND
from penstock.sql import parse_query
from tests.sql.streams import STREAMS


def aggregated(brackets, stream="b"):
    return parse_query(f"SELECT count(*) FROM {stream} [{brackets}]", STREAMS)


def failure(text):
    with pytest.raises(SqlError) as caught:
        parse_query(text, STREAMS)
    return caught.value


@pytest.mark.parametrize(
    ("brackets", "window"),
    [
        ("RANGE 10 MINUTES SLIDE 1 MINUTE", Sliding(10 * MINUTE, MINUTE)),
        ("range 90 seconds slide interval '1' minute", Sliding(90 * SECOND, MINUTE)),
        ("RANGE 1 MINUTE SLIDE 5 MINUTES", Sliding(MINUTE, 5 * MINUTE)),
        ("RANGE 10 MINUTES SLIDE 1 MINUTE ORIGIN TIMESTAMP '1970-01-01 00:00:07'",
         Sliding(10 * MINUTE, MINUTE, 7 * SECOND)),
        ("RANGE 10 MINUTES ORIGIN DATE '1970-01-01' SLIDE 1 MINUTE", Sliding(10 * MINUTE, MINUTE, 0)),
        ("RANGE 10 MINUTES SLIDE 1 MINUTE ON ts", Sliding(10 * MINUTE, MINUTE)),
        ("TUMBLING 5 MINUTES", Sliding(5 * MINUTE, 5 * MINUTE)),
        ("TUMBLING 5 MINUTES ORIGIN TIMESTAMP '1970-01-01 00:01:00'", Sliding(5 * MINUTE, 5 * MINUTE, MINUTE)),
        ("RANGE ALL SLIDE 1 MINUTE", Landmark(MINUTE)),
        ("RANGE ALL SLIDE 1 MINUTE ORIGIN DATE '1970-01-01'", Landmark(MINUTE, 0)),
        ("RANGE 1000 ROWS SLIDE 10 ROWS", SlidingRows(1000, 10)),
        ("RANGE 1000 ROWS SLIDE 1 ROW PARTITION BY k, N", SlidingRows(1000, 1, ("k", "n"))),
        ("RANGE 5 MINUTES SLIDE 1 ROW", PerRow(5 * MINUTE)),
        ("RANGE 5 MINUTES SLIDE 7 ROWS PARTITION BY k", PerRow(5 * MINUTE, 7, ("k",))),
        ("SESSION 5 MINUTES", Session(5 * MINUTE)),
    ],
)  # fmt: skip
def test_the_windows_of_aggregates(brackets, window):
    query = aggregated(brackets)
    assert query.roles[0].window == window
    assert query.aggregation.window == window


def test_integer_time_has_no_unit():
    assert aggregated("RANGE 10 SLIDE 3 ORIGIN -2", "i").aggregation.window == Sliding(10, 3, -2)
    assert aggregated("SESSION 5", "i").aggregation.window == Session(5)


def test_columns_of_a_partition_are_groups_and_can_be_selected():
    query = parse_query("SELECT k, max(n) FROM b [RANGE 9 ROWS SLIDE 3 ROWS PARTITION BY k]", STREAMS)
    assert [g.name for g in query.aggregation.groups] == ["k"]
    one = parse_query("SELECT k, max(n) FROM b [RANGE 9 SECONDS SLIDE 3 SECONDS PARTITION BY k]", STREAMS)
    other = parse_query("SELECT k, max(n) FROM b [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k", STREAMS)
    assert one.aggregation == other.aggregation


@pytest.mark.parametrize(
    ("text", "column", "fragment", "fix"),
    [
        ("SELECT count(*) FROM a", 22, "needs a window on a", "[RANGE 10 MINUTES SLIDE 1 MINUTE]"),
        ("SELECT count(*) FROM a [RANGE 5 MINUTES]", 25, "RANGE without SLIDE", "SLIDE 1 MINUTE"),
        ("SELECT count(*) FROM a WINDOW 5 MINUTES", 22, "RANGE without SLIDE", "SLIDE 1 MINUTE"),
        ("SELECT count(*) FROM a [RANGE 1 MINUTE], b [RANGE 5 MINUTES SLIDE 1 SECOND] WHERE a.k = b.k", 25,
         "RANGE without SLIDE", "[RANGE 1 MINUTE SLIDE <length>]"),
        ("SELECT count(*) FROM a, b [RANGE 5 MINUTES SLIDE 1 SECOND] WHERE a.k = b.k", 22, "a has no window",
         "one SLIDE"),
        ("SELECT n FROM a [RANGE 5 MINUTES SLIDE 1 MINUTE]", 34, "SLIDE", "[RANGE <length>] alone"),
        ("SELECT 1 FROM a [RANGE 5 MINUTES SLIDE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k", 34, "SLIDE", "alone"),
        ("SELECT n FROM a [SESSION 5 MINUTES]", 18, "Session", "aggregate"),
        ("SELECT count(*) FROM b [ROWS 5], c [SESSION 5 SECONDS] WHERE b.k = c.k", 25, "not supported", "ROWS SLIDE"),
        ("SELECT count(*) FROM b [RANGE 5 ROWS SLIDE 1 SECOND]", 44, "slides by rows", "10 ROWS"),
        ("SELECT count(*) FROM b [RANGE ALL SLIDE 5 ROWS]", 41, "by time only", "RANGE ALL SLIDE 1 MINUTE"),
        ("SELECT count(*) FROM b [SESSION 5 SECONDS ORIGIN DATE '1970-01-01']", 25, "ORIGIN", "RANGE"),
        ("SELECT count(*) FROM b [RANGE 1 SECOND SLIDE 1 SECOND], c [RANGE 1 SECOND SLIDE 2 SECONDS] WHERE b.k = c.k",
         60,
         "slides otherwise", "one SLIDE"),
        ("SELECT count(*) FROM b [RANGE 1 SECOND SLIDE 1 SECOND], c [SESSION 2 SECONDS] WHERE b.k = c.k", 60,
         "windows of time", "register the join"),
        ("SELECT count(*) FROM a [RANGE 5 ROWS SLIDE 1 ROW]", 25, "total order", "SEQUENCE BY"),
        ("SELECT count(*) FROM b [RANGE 5 SECONDS SLIDE 1 SECOND ON n]", 25, "progress is known for ts",
         "WATERMARK FOR n"),
        ("SELECT count(*) FROM b [RANGE 5 MONTHS SLIDE 1 MONTH]", 48, "no fixed length", "DAYS"),
    ],
)  # fmt: skip
def test_refused_with_the_place_and_the_fix(text, column, fragment, fix):
    error = failure(text)
    assert isinstance(error, NotSupportedError)
    assert fragment in error.message
    assert fix in error.hint
    assert error.column == column


@pytest.mark.parametrize(
    "brackets",
    ["RANGE 5 SECONDS SLIDE", "RANGE SLIDE 5 SECONDS", "RANGE 5 SECONDS SLIDE 0 SECONDS", "RANGE 0 ROWS SLIDE 1 ROW",
     "RANGE 5 ROWS SLIDE 1.5 ROWS", "RANGE 5 SECONDS SLIDE 1 SECOND SLIDE 1 SECOND",
     "TUMBLING 5 SECONDS SLIDE 1 SECOND",
     "RANGE 5 SECONDS SLIDE 1 SECOND PARTITION BY nope", "RANGE 5 SECONDS SLIDE 1 SECOND PARTITION BY k, k",
     "RANGE 5 SECONDS SLIDE 1 SECOND ORIGIN", "RANGE 5 SECONDS SLIDE 1 SECOND ON", "SESSION",
     "RANGE -5 SECONDS SLIDE 1 SECOND"],
)  # fmt: skip
def test_wrong_windows_are_errors(brackets):
    failure(f"SELECT count(*) FROM b [{brackets}]")


def test_a_join_under_an_aggregate_has_windows_with_common_ends():
    text = (
        "SELECT count(*) FROM b [RANGE 1 MINUTE SLIDE 10 SECONDS], c [RANGE 2 MINUTES SLIDE 10 SECONDS] WHERE b.k = c.k"
    )
    query = parse_query(text, STREAMS)
    assert [r.window for r in query.roles] == [Sliding(MINUTE, 10 * SECOND), Sliding(2 * MINUTE, 10 * SECOND)]
    assert query.aggregation.window == Sliding(2 * MINUTE, 10 * SECOND)


def test_groups_of_event_times_need_no_window():
    query = parse_query("SELECT k, ts, count(*) FROM b GROUP BY k, ts", STREAMS)
    assert query.roles[0].window is query.aggregation.window is None
    query = parse_query(
        "SELECT count(*) FROM b [RANGE 5 SECONDS], c [RANGE 1 SECOND] WHERE b.k = c.k GROUP BY b.ts, c.ts", STREAMS
    )
    assert query.aggregation.window is None
    assert [r.window for r in query.roles] == [Window(5 * SECOND), Window(SECOND)]
    error = failure("SELECT count(*) FROM b [RANGE 5 SECONDS], c [RANGE 1 SECOND] WHERE b.k = c.k GROUP BY b.ts")
    assert (error.message, error.column) == ("RANGE without SLIDE in an aggregate", 46)


NUMBERED = {"b": replace(STREAMS["b"], sequence="n")}


def test_rows_are_counted_by_arrival_if_a_sequence_says_how_they_have_arrived():
    def window(slide):
        return parse_query(f"SELECT count(*) FROM b [RANGE 5 MINUTES SLIDE {slide}]", NUMBERED).aggregation.window

    assert window("7 ROWS BY ARRIVAL PARTITION BY k") == PerRow(5 * MINUTE, 7, ("k",), arrival=True)
    assert window("1 row by arrival") == PerRow(5 * MINUTE)  # every row has its window
    by_time = {"b": replace(STREAMS["b"], sequence="ts")}
    query = parse_query("SELECT count(*) FROM b [RANGE 5 MINUTES SLIDE 7 ROWS BY ARRIVAL]", by_time)
    assert query.aggregation.window == PerRow(5 * MINUTE, 7)  # the event time numbers them


@pytest.mark.parametrize(
    ("brackets", "streams", "column", "fragment", "fix"),
    [
        ("RANGE 5 MINUTES SLIDE 7 ROWS BY ARRIVAL", STREAMS, 54, "have arrived is not known", "SEQUENCE BY col"),
        ("RANGE 9 ROWS SLIDE 7 ROWS BY ARRIVAL", NUMBERED, 51, "Only a range of time", "SLIDE 10 ROWS BY ARRIVAL"),
        ("RANGE 9 MINUTES SLIDE 7 MINUTES BY ARRIVAL", NUMBERED, 57, "Only a range of time",
         "SLIDE 10 ROWS BY ARRIVAL"),
    ],
)  # fmt: skip
def test_other_counts_by_arrival_are_refused(brackets, streams, column, fragment, fix):
    with pytest.raises(NotSupportedError) as caught:
        parse_query(f"SELECT count(*) FROM b [{brackets}]", streams)
    assert caught.value.column == column
    assert fragment in caught.value.message
    assert fix in str(caught.value)
