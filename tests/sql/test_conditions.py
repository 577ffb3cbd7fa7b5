import pytest

from penstock.errors import NotSupportedError
from penstock.model import Band, Ref
from penstock.sql import parse_query
from tests.sql.dump import dump
from tests.sql.streams import STREAMS


def parts(where, tables="a, b, c"):
    """The lines of the dump that come from the conditions."""
    lines = dump(parse_query(f"SELECT 1 FROM {tables} WHERE {where}", STREAMS)).splitlines()
    return [line for line in lines if line.split()[0] in ("key", "predicate", "residual")]


def keys(where, tables="a, b, c"):
    return parse_query(f"SELECT 1 FROM {tables} WHERE {where}", STREAMS).keys


def test_a_key_is_the_closure_of_equalities():
    assert parts("a.k = b.k AND c.k = b.k") == ["key a.k = b.k = c.k"]
    assert parts("a.k = b.k AND b.k = c.k AND a.k = c.k") == ["key a.k = b.k = c.k"]


def test_the_first_column_of_a_role_is_the_key_and_the_others_remain_conditions():
    assert parts("a.k = b.k AND a.k = b.s", tables="a, b") == [
        "key a.k = b.k",
        "residual a.k = b.s  [kernel, total]",
    ]


def test_an_equality_of_some_roles_is_a_key_that_does_not_reach_the_others():
    assert parts("a.k = b.k AND b.k = c.k AND a.n = b.n") == ["key a.k = b.k = c.k", "key a.n = b.n"]
    found = keys("a.k = b.k AND b.n = c.n")
    assert [[end and end.refs[0] for end in key] for key in found] == [
        [Ref(0, "k"), Ref(1, "k"), None],
        [None, Ref(1, "n"), Ref(2, "n")],
    ]


def test_chains_stars_and_cycles_have_a_key_for_each_class():
    assert parts("a.k = b.s AND b.n = c.n") == ["key a.k = b.s", "key b.n = c.n"]
    assert parts("a.n = b.n AND a.big = c.big") == ["key a.n = b.n", "key a.big = c.big"]
    assert parts("a.k = b.k AND b.n = c.n AND c.big = a.big") == ["key a.k = b.k", "key b.n = c.n", "key a.big = c.big"]


def test_the_closure_of_a_class_reaches_what_its_equalities_reach_together():
    four = "a, b, c, a z"
    assert parts("a.n = b.n AND c.n = z.n AND b.n = c.n", tables=four) == ["key a.n = b.n = c.n = z.n"]
    assert parts("a.n = b.n AND c.n = z.n AND b.n = c.big", tables=four) == ["key a.n = b.n = c.big", "key c.n = z.n"]
    assert parts("a.n = b.n AND c.n = z.n AND a.k < c.k", tables=four) == [
        "key a.n = b.n",
        "key c.n = z.n",
        "residual a.k < c.k  [kernel, total]",
    ]


def test_in_a_class_of_some_roles_the_second_column_of_a_role_remains_a_condition():
    assert parts("a.k = b.k AND a.k = b.s AND b.n = c.n") == [
        "key a.k = b.k",
        "key b.n = c.n",
        "residual a.k = b.s  [kernel, total]",
    ]


def test_equal_event_times_of_some_roles_are_bands_and_a_key():
    found = parse_query("SELECT 1 FROM a, b, c WHERE a.ts = b.ts AND b.k = c.k", STREAMS)
    assert set(found.bands) == {Band(0, 1, 0), Band(1, 0, 0)}
    assert [[end is not None for end in key] for key in found.keys] == [[True, True, False], [False, True, True]]
    assert not found.residuals


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
        "a.n BETWEEN b.n - 1 AND b.n + 1",
        "a.k <=> b.k",
        "a.k = b.k OR a.n = b.n",
    ],
)
def test_a_join_needs_no_equality(where):
    found = parse_query(f"SELECT 1 FROM a, b WHERE {where}", STREAMS)
    assert not found.keys
    assert len(found.residuals) == 1


def test_a_band_on_time_connects_too():
    found = parse_query("SELECT 1 FROM a, b WHERE a.ts < b.ts", STREAMS)
    assert (found.keys, found.residuals) == ((), ())
    assert found.bands == (Band(1, 0, -1),)


def test_cross_join_asks_for_every_combination():
    found = parse_query("SELECT 1 FROM a CROSS JOIN b", STREAMS)
    assert (found.keys, found.bands, found.residuals) == ((), (), ())
    assert parts("a.k = c.k", tables="a CROSS JOIN b, c") == ["key a.k = c.k"]
    assert parts("a.n < b.n", tables="a, b CROSS JOIN c") == ["residual a.n < b.n  [kernel, total]"]
    assert parts("a.n = 1", tables="a CROSS JOIN b ON a.k = b.k CROSS JOIN c") == [
        "key a.k = b.k",
        "predicate a.n = 1  [kernel, total]",
    ]


@pytest.mark.parametrize(
    ("text", "column", "alias"),
    [
        ("SELECT 1 FROM a, b", 18, "b"),
        ("SELECT 1 FROM a JOIN b", 22, "b"),
        ("SELECT 1 FROM a JOIN b ON TRUE", 22, "b"),
        ("SELECT 1 FROM a [RANGE 1 DAY] x, b [RANGE 1 DAY] y WHERE x.k = x.s AND y.n = 1", 34, "y"),
        ("SELECT 1 FROM a, b, c WHERE a.k = c.k", 18, "b"),
        ("SELECT 1 FROM a, b, c WHERE b.k = c.k", 18, "b"),
        ("SELECT 1 FROM a, b CROSS JOIN c", 18, "b"),
        ("SELECT 1 FROM a CROSS JOIN b, c", 31, "c"),
        ("SELECT 1 FROM a x, a y", 20, "y"),
        ("SELECT 1 FROM a, b, c, a d WHERE a.k = b.k AND c.n < d.n", 21, "c"),
    ],
)
def test_a_stream_that_no_condition_connects_is_refused_where_it_stands(text, column, alias):
    with pytest.raises(NotSupportedError) as caught:
        parse_query(text, STREAMS)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert f"connects {alias} with" in caught.value.message
    assert "CROSS JOIN" in caught.value.hint
