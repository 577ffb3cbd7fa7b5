import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Band
from penstock.sql import parse_query
from tests.sql.streams import STREAMS

SECOND = 1_000_000


def query(condition, streams=("a", "b")):
    tables = f"{streams[0]} x, {streams[1]} y"
    return parse_query(f"SELECT 1 FROM {tables} WHERE x.k = y.k AND {condition}", STREAMS)


def bands(condition, streams=("a", "b")):
    found = query(condition, streams)
    assert not found.residuals
    return list(found.bands)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("x.ts >= y.ts - INTERVAL 5 SECONDS", [Band(0, 1, 5 * SECOND)]),
        ("x.ts > y.ts - INTERVAL 5 SECONDS", [Band(0, 1, 5 * SECOND - 1)]),
        ("x.ts BETWEEN y.ts AND y.ts + INTERVAL '1' MINUTE", [Band(0, 1, 0), Band(1, 0, 60 * SECOND)]),
        ("x.ts - y.ts < INTERVAL 5 SECONDS", [Band(1, 0, 5 * SECOND - 1)]),
        ("x.ts < y.ts", [Band(1, 0, -1)]),
        ("y.ts > x.ts", [Band(1, 0, -1)]),
        ("x.ts = y.ts + INTERVAL 1 SECOND", [Band(1, 0, SECOND), Band(0, 1, -SECOND)]),
        ("x.ts + INTERVAL 1 MINUTE 30 SECONDS >= (y.ts)", [Band(0, 1, 90 * SECOND)]),
        ("x.ts + INTERVAL '1 minute 30 seconds' >= y.ts", [Band(0, 1, 90 * SECOND)]),
        ("INTERVAL 5 SECONDS > x.ts - y.ts", [Band(1, 0, 5 * SECOND - 1)]),
    ],
)
def test_forms_of_time_conditions(condition, expected):
    assert bands(condition) == expected


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("'3:30' MINUTE TO SECOND", 210 * SECOND),
        ("'100:05.25' MINUTE TO SECOND", 6005 * SECOND + 250_000),
        ("'-3:30' MINUTE TO SECOND", -210 * SECOND),
        ("-'3:30' MINUTE TO SECOND", -210 * SECOND),
        ("'25:30' HOUR TO MINUTE", 91_800 * SECOND),
        ("'1:02:03.1234567' HOUR TO SECOND", 3723 * SECOND + 123_456),
        ("'1 2' DAY TO HOUR", 26 * 3600 * SECOND),
        ("'+1 02:03' DAY TO MINUTE", 93_780 * SECOND),
        (" '1 02:03:04' DAY TO SECOND", 93_784 * SECOND),
    ],
)
def test_intervals_of_several_fields_are_bands(text, microseconds):
    assert bands(f"x.ts <= y.ts + INTERVAL {text}") == [Band(1, 0, microseconds)]


@pytest.mark.parametrize(
    "text",
    ["'3:60' MINUTE TO SECOND", "'3' MINUTE TO SECOND", "'1 24:00' DAY TO MINUTE", "'1:2:3' MINUTE TO SECOND",
     "'3:100' HOUR TO MINUTE",
     "'1  2' DAY TO HOUR", "'1-2' YEAR TO MONTH"],
)  # fmt: skip
def test_what_spark_refuses_or_counts_by_the_calendar_is_no_band(text):
    assert not query(f"x.ts <= y.ts + INTERVAL {text}").bands


def interval(microseconds):
    return f"INTERVAL '{microseconds}' MICROSECONDS"


FORMS = [
    "x.ts - y.ts <= {c}",
    "x.ts <= y.ts + {c}",
    "x.ts <= {c} + y.ts",
    "y.ts + {c} >= x.ts",
    "y.ts >= x.ts - {c}",
    "x.ts - {c} <= y.ts",
    "{c} >= x.ts - y.ts",
    "x.ts < y.ts + {next}",
    "x.ts - y.ts < {next}",
    "y.ts > x.ts - {next}",
    "(x.ts) - ({c}) <= (y.ts)",
    "x.ts + {other} <= y.ts + {c} + {other}",
    "x.ts <= y.ts + {c} + {other} - {other}",
]


@given(st.sampled_from(FORMS), st.integers(-(10**15), 10**15), st.integers(-(10**15), 10**15))
def test_every_form_of_an_inequality_is_the_same_band(form, bound, other):
    condition = form.format(c=interval(bound), next=interval(bound + 1), other=interval(other))
    assert bands(condition) == [Band(1, 0, bound)]


@given(st.sampled_from(FORMS), st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_integer_times_have_plain_numbers(form, bound, other):
    condition = form.replace(".ts", ".t").format(c=f"({bound})", next=f"({bound + 1})", other=f"({other})")
    assert bands(condition, streams=("i", "j")) == [Band(1, 0, bound)]


def test_equal_event_times_are_bands_and_may_be_the_key():
    found = parse_query("SELECT 1 FROM a x, b y WHERE x.ts = y.ts", STREAMS)
    assert set(found.bands) == {Band(0, 1, 0), Band(1, 0, 0)}
    assert len(found.keys) == 1
    assert not found.residuals


def test_dates_move_by_whole_days():
    day = 86_400 * SECOND
    assert bands("x.day <= y.day + INTERVAL 2 DAYS", streams=("d1", "d2")) == [Band(1, 0, 2 * day)]


@pytest.mark.parametrize(
    ("condition", "streams"),
    [
        ("x.day <= y.day + INTERVAL 2 HOURS", ("d1", "d2")),
        ("x.ts <= y.ts", ("a", "ntz")),
        ("x.ts <= y.ts + INTERVAL 1 MONTH", ("a", "b")),
        ("x.ts <> y.ts", ("a", "b")),
        ("(x.ts <= y.ts OR x.n = 1)", ("a", "b")),
        ("NOT x.ts <= y.ts", ("a", "b")),
        ("x.t + y.t <= 5", ("i", "j")),
        ("x.t * 2 <= y.t", ("i", "j")),
        ("x.t - 9223372036854775807 <= y.t", ("i", "j")),
    ],
)
def test_what_is_doubtful_stays_a_condition(condition, streams):
    found = query(condition, streams)
    assert not found.bands
    assert len(found.residuals) == 1


def test_half_a_between_may_be_a_band():
    found = query("x.ts BETWEEN y.ts AND y.ts + INTERVAL 1 MONTH")
    assert found.bands == (Band(0, 1, 0),)
    assert len(found.residuals) == 1
