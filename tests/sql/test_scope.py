import pytest

from penstock.errors import NotSupportedError, SqlError
from penstock.model import Ref
from penstock.sql import parse_query
from tests.sql.streams import STREAMS


def refs(select, tables="a t, b u", where="t.k = u.k"):
    query = parse_query(f"SELECT {select} FROM {tables} WHERE {where}", STREAMS)
    return [r for i in query.items for r in i.expression.refs]


def failure(text):
    with pytest.raises(SqlError) as caught:
        parse_query(text, STREAMS)
    return caught.value


def test_names_are_found_whatever_their_case_and_keep_the_declared_one():
    assert refs("T.N, ONLY_B, `FLAG`") == [Ref(0, "n"), Ref(1, "only_b"), Ref(0, "flag")]


def test_a_stream_is_found_whatever_its_case():
    (role,) = parse_query("SELECT 1 FROM NTZ", STREAMS).roles
    assert (role.alias, role.stream) == ("ntz", "ntz")


def test_result_time_belongs_to_the_result():
    assert refs("result_time") == [Ref(-1, "result_time")]
    assert refs("date_trunc('hour', RESULT_TIME)") == [Ref(-1, "result_time")]


@pytest.mark.parametrize(
    ("text", "column", "fragment", "hint"),
    [
        ("SELECT t.nn FROM a t", 8, "Stream a has no column nn", "did you mean n?"),
        ("SELECT flg FROM a t", 8, "Unknown column flg", "did you mean flag?"),
        ("SELECT x.n FROM a t, b u WHERE t.k = u.k", 8, "ambiguous", "t.x or u.x"),
        ("SELECT z.n FROM a t", 8, "z is no stream", "known: t"),
        ("SELECT a.n FROM a t", 8, "a is no stream", "known: t"),
        ("SELECT n FROM a t, b u WHERE t.k = u.k", 8, "ambiguous", "write t.n or u.n"),
        ("SELECT z.* FROM a t", 8, "z is no stream", "known: t"),
        ("SELECT 1 FROM humidty", 15, "Unknown stream", "known: a"),
        ("SELECT 1 FROM a t WHERE\n  t.flagg", 3, "no column flagg", "did you mean flag?"),
    ],
)
def test_unknown_names_get_a_hint(text, column, fragment, hint):
    error = failure(text)
    assert fragment in error.message
    assert hint in error.hint
    assert error.column == column


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("SELECT 1 FROM a WHERE result_time > ts", 23),
        ("SELECT window_start FROM a", 8),
        ("SELECT window_end FROM a", 8),
    ],
)
def test_pseudo_columns_out_of_place_are_refused(text, column):
    error = failure(text)
    assert isinstance(error, NotSupportedError)
    assert error.column == column
