import pytest

from penstock.errors import RegistrationError, SqlError
from penstock.planner.bounds import check_bounded, time_bounds
from penstock.sql import named_in_from, parse_query, placed_bounds
from penstock.sql.position import Text
from tests.sql.streams import STREAMS


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        ("SELECT x.k FROM a x, b y WHERE x.k = y.k", 19, "rows of 'x'", "x [RANGE 1 MINUTE]"),
        ("SELECT a.k FROM b, a WHERE a.k = b.k AND a.ts < b.ts", 20, "rows of 'a'", "a [RANGE 1 MINUTE]"),
        (
            "SELECT a.k FROM a, b WHERE a.k = b.k AND a.ts < b.ts - INTERVAL 1 DAY AND a.ts > b.ts",
            42,
            "contradict",
            "widen",
        ),
        (
            "SELECT a.k FROM a, b WHERE a.k = b.k AND b.ts < a.ts AND b.ts > a.ts - INTERVAL '1' MONTH",
            85,
            "rows of 'b'",
            "MONTH has no fixed",
        ),
    ],
)
def test_time_conditions_are_refused_at_their_place(text, column, message, hint):
    query = parse_query(text, STREAMS)
    with pytest.raises(SqlError) as caught, placed_bounds(Text(text), query, STREAMS):
        check_bounded(query, time_bounds(query))
    error = caught.value
    assert isinstance(error, RegistrationError)  # as what the planner refuses is
    assert message in error.message
    assert hint in error.hint
    assert (error.line, error.column) == (1, column)


def test_names_in_from():
    assert {"a", "b", "c"} <= set(named_in_from("SELECT x.k FROM a x JOIN b ON x.k = b.k, (c UNION ALL d) y"))
