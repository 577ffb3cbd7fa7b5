import pytest

from penstock.errors import NotSupportedError
from penstock.sql import parse_query
from tests.sql.dump import dump
from tests.sql.streams import STREAMS


def parts(where, tables="a, b, c"):
    """The lines of the dump that come from the conditions."""
    lines = dump(parse_query(f"SELECT 1 FROM {tables} WHERE {where}", STREAMS)).splitlines()
    return [line for line in lines if line.split()[0] in ("key", "predicate", "residual")]


def test_a_key_is_the_closure_of_equalities():
    assert parts("a.k = b.k AND c.k = b.k") == ["key a.k = b.k = c.k"]
    assert parts("a.k = b.k AND b.k = c.k AND a.k = c.k") == ["key a.k = b.k = c.k"]


def test_the_first_column_of_a_role_is_the_key_and_the_others_remain_conditions():
    assert parts("a.k = b.k AND a.k = b.s", tables="a, b") == [
        "key a.k = b.k",
        "residual a.k = b.s  [kernel, total]",
    ]


def test_an_equality_of_some_roles_is_a_condition():
    assert parts("a.k = b.k AND b.k = c.k AND a.n = b.n") == [
        "key a.k = b.k = c.k",
        "residual a.n = b.n  [kernel, total]",
    ]


def test_a_key_may_have_several_parts():
    assert parts("a.k = b.k AND a.n = b.big", tables="a, b") == ["key a.k = b.k", "key a.n = b.big"]


def test_a_key_may_be_an_expression_of_one_role():
    assert parts("upper(a.k) = b.k", tables="a, b") == ["key UPPER(a.k) = b.k"]
    assert parts("CAST(a.s AS BIGINT) = b.big", tables="a, b") == ["key CAST(a.s AS BIGINT) = b.big"]


def test_keys_of_columns_come_first():
    assert parts("upper(a.k) = b.s AND a.n = b.n", tables="a, b") == ["key a.n = b.n", "key UPPER(a.k) = b.s"]


def test_conditions_of_on_and_where_are_one_conjunction():
    tables = "a JOIN b ON a.k = b.k AND a.n > 1 INNER JOIN c ON (b.k = c.k)"
    assert parts("(a.x < b.x AND (c.n = 2))", tables=tables) == [
        "key a.k = b.k = c.k",
        "predicate a.n > 1  [kernel, total]",
        "predicate c.n = 2  [kernel, total]",
        "residual a.x < b.x  [kernel, total]",
    ]


def test_constants_are_predicates():
    assert parts("TRUE", tables="a") == ["predicate TRUE  [kernel, total]"]


def test_a_self_join_has_two_roles():
    assert parts("x.k = y.k AND x.n < y.n", tables="a x, a y") == [
        "key x.k = y.k",
        "residual x.n < y.n  [kernel, total]",
    ]


@pytest.mark.parametrize(
    "where",
    [
        "a.k = b.big",  # a cast, so equality is not that of the values
        "a.x = b.big",  # not transitive: several integers equal one double
        "unknown(a.k) = b.k",
        "a.n < b.n",
        "a.k <=> b.k",
        "a.k = b.k OR a.n = b.n",
        "a.k = a.s",
    ],
)
def test_without_a_key_a_join_is_refused_at_where(where):
    with pytest.raises(NotSupportedError) as caught:
        parse_query(f"SELECT 1 FROM a, b\nWHERE {where}", STREAMS)
    assert (caught.value.line, caught.value.column) == (2, 1)


def test_without_where_the_place_is_from():
    with pytest.raises(NotSupportedError) as caught:
        parse_query("SELECT 1 FROM a, b", STREAMS)
    assert caught.value.column == 10
