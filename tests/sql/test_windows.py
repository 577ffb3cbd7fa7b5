from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import NotSupportedError, SqlError
from penstock.model import Window
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


@pytest.mark.parametrize(
    ("brackets", "column"),
    [
        ("ROWS 5", 18), ("RANGE 10 MINUTES SLIDE 1 MINUTE", 35), ("TUMBLING 5 MINUTES", 18), ("SESSION 5 MINUTES", 18),
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
        ("SELECT * FROM a [RANGE 5 SECONDS", 26, "Expecting ]"),
    ],
)
def test_lengths_that_are_wrong(text, column, fragment):
    error = failure(text)
    assert not isinstance(error, NotSupportedError)
    assert fragment in error.message
    assert (error.line, error.column) == (1, column)
