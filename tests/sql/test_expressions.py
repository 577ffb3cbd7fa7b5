import pytest
from sqlglot import exp

from penstock.model import And, Arithmetic, Compare, In, IsNull, Literal, Not, Or, Ref, Typed
from penstock.planner.index import indexable
from penstock.planner.meaning import parts_of
from penstock.sql import parse_query
from penstock.sql.dialect import parse_select, tokenize
from penstock.sql.position import Text
from tests.sql.streams import STREAMS


def predicate(text):
    (found,) = parse_query(f"SELECT 1 FROM a WHERE {text}", STREAMS).predicates
    return found


def item(text):
    return parse_query(f"SELECT {text} FROM a", STREAMS).items[0].expression


def col(name):
    return Ref(0, name)


def num(value):
    return Literal(value, "bigint")


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("n > 5", Compare(">", col("n"), num(5))),
        ("n != -5", Compare("<>", col("n"), num(-5))),
        ("5L >= big", Compare(">=", num(5), col("big"))),
        ("x > 30", Compare(">", col("x"), Literal(30.0, "double"))),
        ("x > -1.5", Compare(">", col("x"), Literal(-1.5, "double"))),
        ("f < 1e3", Compare("<", col("f"), Literal(1000.0, "double"))),
        ("s = 'it''s'", Compare("=", col("s"), Literal("it's", "string"))),
        ("flag", col("flag")),
        ("NOT flag", Not(col("flag"))),
        ("flag = TRUE", Compare("=", col("flag"), Literal(True, "boolean"))),
        ("n IS NULL", IsNull(col("n"))),
        ("ts IS NOT NULL", Not(IsNull(col("ts")))),
        ("n = NULL", Compare("=", col("n"), Literal(None, "void"))),
        ("n BETWEEN 1 AND 2", And((Compare(">=", col("n"), num(1)), Compare("<=", col("n"), num(2))))),
        ("n IN (1, NULL)", In(col("n"), (num(1), Literal(None, "void")))),
        ("n NOT IN (1)", Not(In(col("n"), (num(1),)))),
        ("x IN (1, 2.5)", In(col("x"), (Literal(1.0, "double"), Literal(2.5, "double")))),
        ("n = 1 OR n = 2 OR flag", Or((Compare("=", col("n"), num(1)), Compare("=", col("n"), num(2)), col("flag")))),
        ("big + 1 > n", Compare(">", Arithmetic("+", col("big"), num(1)), col("n"))),
        ("big - n > 0", Compare(">", Arithmetic("-", col("big"), col("n")), num(0))),
        ("x + 1 > x", Compare(">", Arithmetic("+", col("x"), Literal(1.0, "double")), col("x"))),
    ],
)
def test_the_kernel_subset(text, term):
    assert predicate(text).term == term


@pytest.mark.parametrize(
    "text",
    [
        "n + 1 > 2",  # Spark adds in 32 bits
        "n > 1.5",  # a decimal comparison
        "n > x",  # a cast of a column
        "f + 1e0 > 2e0",
        "big > 99999999999999999999",
        "big * 2 > 3",
        "d > 5",
        "ts > TIMESTAMP '2020-01-01 00:00:00'",
        "upper(s) = 'A'",
        "s LIKE 'a%'",
        "s NOT LIKE 'a%'",
        "s RLIKE 'a+'",
        "n > 1 AND upper(s) = 'A' OR flag",
        "-n > 1",
    ],
)
def test_outside_the_plain_subset_a_term_is_typed(text):
    term = predicate(text).term
    assert term is not None
    assert any(isinstance(t, Typed) for t in parts_of(term))
    assert indexable(term) is None


@pytest.mark.parametrize(
    "text",
    [
        "n = '5'",
        "n <=> 5",
        "f = 16777217",  # depends on how Spark widens
        "payload.field = 1",
        "flag IS TRUE",
        "s LIKE '\\\\%a'",
        "s LIKE ANY ('a', 'b')",
        "s LIKE 'a/%' ESCAPE '/'",
        "s ILIKE 'a'",
        "f + 1 > 2",  # 32 bits
        "d * d * d * d > 1",  # more digits than a decimal has
        "d / 2 > 1",
        "levenshtein(s, 'a') < 2",
        "s RLIKE 'a$'",
        "split_part(s, 'a', n) = 'b'",
        "substring(s, n) = 'b'",
        "date_format(ts, 'EEE') = 'Mon'",
        "repeat(s, n) = 'a'",  # its size is tested
        "trim(BOTH 'x' FROM s) = 'a'",
        "concat(s, CAST(n + 1 AS STRING)) = 'a'",
        "CAST(s AS INT) > 1",
        "TRY_CAST(n AS TINYINT) > 1",
        "ts > s",
        "result_type(n) = 1",
    ],
)
def test_what_kernels_may_not_say_as_spark_does_has_no_term(text):
    assert predicate(text).term is None


def test_text_is_canonical():
    assert predicate("a.n>5").parts == predicate("( N   > /* five */ 5 )").parts == (col("n"), " > 5")


def test_fields_of_structs_follow_their_column():
    assert item("a.payload.inner.deep").parts == (col("payload"), ".inner.deep")
    assert item("payload.field").parts == (col("payload"), ".field")


TEXTS = [
    "date_format(ts, 'y SSS')", "left(s, 2)", "if(n > 1, 1, 2)", "s LIKE 'b/%' ESCAPE '/'", r"s RLIKE '\\d+'",
    "s || 'b'",
    "transform(arr, v -> v + n)", "datediff(day, ts)", "trim(BOTH 'x' FROM s)", "substring(s FROM 1 FOR 2)",
    "extract(YEAR FROM ts)", "n::bigint", "1L", "1.5BD", "n DIV 2", "n % 2", "arr[0]",
    "CASE n WHEN 1 THEN 2 ELSE 3 END",
    "cast(n AS decimal(10,2))", "try_cast(s AS int)", "s LIKE ANY ('a', 'b')", "n IS DISTINCT FROM 1", "'it''s'",
    r"'a\\b\n'", "interval '1' day", "struct(n AS m, 1)", "array(1, 2)", "map('a', n)", "my_udf(n, s)", "n & 1",
    "NOT (n = 1 OR flag)", "(n + 1) * 2", "coalesce(n, 0)", "exists(arr, v -> v = n)", "payload.inner.deep", "`k`",
    "date '2020-01-01'", "x / 2", "X'1F'", "element_at(arr, 1)",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text_parses_again_to_itself(text):
    found = item(text)
    again = found.shown(lambda ref: f"a.{ref.column}")
    assert item(again).parts == found.parts
    source = Text(f"SELECT {again} FROM a")
    assert isinstance(parse_select(source, tokenize(source)), exp.Select)


def test_variables_of_lambdas_are_no_columns():
    assert item("transform(arr, v -> v + n)").refs == (col("arr"), col("n"))


def test_functions_keep_their_meaning():
    assert item("date_format(ts, 'y SSS')").sql(lambda ref: ref.column) == "DATE_FORMAT(ts, 'y SSS')"
    assert item("datediff(ts, day)").sql(lambda ref: ref.column) == "DATEDIFF(ts, day)"
