import pytest

from penstock.errors import NotSupportedError, SqlError
from penstock.sql import parse_query
from tests.sql.streams import STREAMS


def names(text):
    return [i.name for i in parse_query(text, STREAMS).items]


def failure(text):
    with pytest.raises(SqlError) as caught:
        parse_query(text, STREAMS)
    return caught.value


def test_a_star_is_all_declared_columns_in_order_of_from():
    assert names("SELECT * FROM c, i AS x WHERE FALSE AND c.k = 1".replace(", i AS x", "")) == ["k", "n", "big", "ts"]
    assert names("SELECT * FROM c JOIN d1 ON c.k = d1.k") == ["k", "n", "big", "ts", "k", "day"]
    assert names("SELECT y.*, x.n FROM c x JOIN d1 y ON x.k = y.k") == ["k", "day", "n"]


def test_items_are_named_as_spark_would():
    text = "SELECT A.N, n AS m, payload.inner.deep, n + 1, upper(k) u, 1, `payload`.`field` FROM a"
    assert names(text) == ["n", "m", "deep", None, "u", None, "field"]


def test_a_query_keeps_its_text():
    assert parse_query("  SELECT 1 FROM a;\n", STREAMS).sql == "SELECT 1 FROM a;"


def test_one_stream_needs_no_window_and_no_key():
    query = parse_query("SELECT n FROM a [RANGE 1 HOUR] WHERE n > 1", STREAMS)
    assert query.keys == ()
    assert len(query.predicates) == 1


def test_comma_and_join_mix():
    query = parse_query("SELECT 1 FROM a, b JOIN c ON b.k = c.k WHERE a.k = b.k", STREAMS)
    assert [r.alias for r in query.roles] == ["a", "b", "c"]


def test_joins_may_be_nested():
    query = parse_query("SELECT 1 FROM a JOIN b JOIN c ON b.k = c.k ON a.k = b.k", STREAMS)
    assert [r.alias for r in query.roles] == ["a", "b", "c"]
    assert len(query.keys) == 1


@pytest.mark.parametrize(
    ("text", "column", "fragment"),
    [
        ("SELECT 1 FROM a, a", 18, "used twice"),
        ("SELECT 1 FROM a x, b X", 22, "used twice"),
        ("SELECT 1 FROM a, i WHERE a.k = i.k", 18, "integer event time"),
        ("SELECT 1", 8, "needs FROM"),
        ("SELECT 1 FROM db.a", 15, "plain names"),
        ("SELECT 1 FROM a WHERE n = 3 4", 29, "Unexpected"),
        ("SELECT 1 FROM a WHERE n = (", 28 - 1, "missing"),
        ("SELECT 1 FROM a WHERE k = 'x", 27, "not closed"),
        ("SELECT 1 FROM a; SELECT 2 FROM a", 16, "one SELECT only"),
        ("INSERT INTO a SELECT 1", 1, "Expected SELECT"),
        ("", 1, "Expected a SELECT"),
        ("SELECT 1 FROM a AS", 17, "name after AS"),
        ("SELECT 1 FROM a WHERE n IN ()", 23, "at least one value"),
        ("SELECT n, FROM a", 9, "Unexpected comma"),
        ("SELECT n FROM a WHERE n = :x", 27, "Parameters"),
    ],
)
def test_queries_that_are_wrong(text, column, fragment):
    error = failure(text)
    assert not isinstance(error, NotSupportedError)
    assert fragment in error.message
    assert (error.line, error.column) == (1, column)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("SELECT * EXCEPT (n) FROM a", 8),
        ("SELECT payload.* FROM a JOIN b ON a.k = b.k", 8),
        ("SELECT 1 FROM range(5)", 15),
        ("SELECT 1 FROM a AS x (p, q)", 20),
        ("SELECT 1 FROM a CROSS APPLY b WHERE a.k = b.k", 29),
    ],
)
def test_what_only_the_tree_shows_is_refused(text, column):
    assert failure(text).column == column


def test_long_conditions_do_not_exhaust_the_stack():
    query = parse_query("SELECT 1 FROM a WHERE " + " AND ".join(f"n <> {i}" for i in range(2000)), STREAMS)
    assert len(query.predicates) == 2000
    (found,) = parse_query("SELECT 1 FROM a WHERE " + " OR ".join(f"n = {i}" for i in range(2000)), STREAMS).predicates
    assert found.total
    assert found.term is not None


def test_at_most_sixteen_roles():
    tables = ", ".join(f"a r{n}" for n in range(17))
    keys = " AND ".join(f"r0.k = r{n}.k" for n in range(1, 17))
    error = failure(f"SELECT 1 FROM {tables} WHERE {keys}")
    assert isinstance(error, NotSupportedError)
    assert "16" in error.message
