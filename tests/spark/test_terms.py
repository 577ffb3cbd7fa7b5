"""Terms have Spark's values, and raise where Spark does: over the limits of each type and random rows, in ANSI mode and
not, in UTC and other zones.

Spark computes all expressions at once, each under TryEval, as it would for the engine.
"""

# ruff: noqa: DTZ001, RUF001  (times without a zone, and letters that look alike, are meant)

import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

from penstock.columns.terms.evaluation import Evaluation
from penstock.model import Arithmetic, Call, Literal, Ref
from penstock.planner.meaning import ANSI, ZONE, parts_of, settled
from penstock.spark.ingest import try_eval
from penstock.spark.sources import with_settings
from penstock.sql import parse_query
from tests.effort import examples
from tests.spark.replay import generated_code, stream

pytestmark = pytest.mark.spark

COLUMNS = {
    "ts": "timestamp", "ts2": "timestamp", "w": "tinyint", "h": "smallint", "i": "int", "j": "int", "b": "bigint",
    "c": "bigint",
    "f": "float", "d": "double", "e": "double", "m": "decimal(7,2)", "n": "decimal(18,6)", "p": "decimal(20,0)",
    "s": "string",
    "u": "string", "url": "string", "o": "boolean", "q": "boolean", "da": "date", "db": "date", "nz": "timestamp_ntz",
}  # fmt: skip
ARROW = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(),
    "decimal(7,2)": pa.decimal128(7, 2), "decimal(18,6)": pa.decimal128(18, 6), "decimal(20,0)": pa.decimal128(20, 0),
    "string": pa.string(), "boolean": pa.bool_(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
STREAM = stream("t", ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()))
ROWS = 3000

NUMBERS = [
    *(f"{x} {op} {y}" for op in "+-*" for x,
     y in (("w", "h"), ("i", "j"), ("b", "c"), ("i", "b"), ("d", "e"), ("d", "i"), ("b", "d"), ("f", "d"))),
    *(f"{x} {op} {y}" for op in ("/", "%") for x,
     y in (("w", "h"), ("i", "j"), ("b", "c"), ("i", "b"), ("d", "e"), ("d", "i"), ("b", "d"), ("f", "d"))),
    *(f"{x} div {y}" for x, y in (("w", "h"), ("i", "j"), ("b", "c"), ("h", "b"))),
    "i + 1", "1 - i", "i * 3", "b * -1", "i % 7", "b % 123 = 0", "b % -1", "b div -1", "i / 0", "d / 0", "b % 0",
    "w + 1", "w + w", "h * h",
    "-i", "-b", "-w", "-d", "-m", "abs(i)", "abs(b)", "abs(d)", "abs(m)", "abs(h)", "b + 9223372036854775807",
    "d * 1e300", "d + 0.1", "d * 0.908",
    "0.908 * b", "0.908 * i", "0.908 * b > 1000000 AND 0.908 * b < 50000000", "m + n", "m - n", "m * n", "m + 1",
    "m * i", "n - b", "m * -5", "m + 0.05",
    "n * 1.0", "p + 1", "m + h", "p - m", "m / d", "n + d", "m * d", "d - n", "b / c > i / j", "i * j + b",
    "(i + j) * 2",
    "(i + j) div 2 > b",
]  # fmt: skip
COMPARISONS = [
    *(f"{x} {op} {y}" for op in ("=", "<>", "<", ">=") for x,
     y in (("i", "b"), ("w", "j"), ("m", "n"), ("m", "i"), ("n", "b"), ("p", "m"), ("d", "i"), ("b", "d"), ("f", "d"),
     ("m", "d"), ("s", "u"), ("da", "db"), ("ts", "ts2"), ("o", "q"))),
    "m > 1.5", "n <= 100", "m = 0", "d > 0.1", "d = 2", "m BETWEEN -1 AND 2.5", "ts BETWEEN ts2 AND ts",
    "da > DATE '2020-02-29'", "nz >= TIMESTAMP_NTZ '1970-01-01 00:00:00'",
    "ts < TIMESTAMP '2021-03-28 01:30:00.5'", "NOT (m > n)", "m > n OR i / j > 1", "i / j > 1 OR m > n",
    "o AND i / j > 1", "i / j > 1 AND o",
    "o OR b + c > 0", "b + c > 0 OR o", "d = e AND NOT q", "m <> n AND (o OR q)", "i % j = 0 OR i div j > 3",
    "s = 'ab'", "s < upper(u)",
]  # fmt: skip
CHOICES = [
    "CASE WHEN b < 10000 THEN 1 END", "CASE WHEN b >= 10 AND b < 1000000 THEN i END",
    "CASE WHEN i > 0 THEN 'x' WHEN i < 0 THEN s ELSE u END",
    "CASE i WHEN 1 THEN 'a' WHEN j THEN 'b' END", "CASE WHEN j <> 0 THEN i / j END", "if(j = 0, NULL, i % j)",
    "if(o, m, NULL)", "CASE WHEN o THEN i ELSE b END", "CASE WHEN o THEN w WHEN q THEN i ELSE h END",
    "CASE WHEN o THEN ts ELSE ts2 END", "CASE WHEN q THEN da END",
    "coalesce(i, j)", "coalesce(s, u, 'none')", "coalesce(i, b)", "coalesce(i / j, d)", "coalesce(d, i / j)",
    "nvl(m, m)", "ifnull(b, b + c)", "nullif(i, j)", "nullif(s, 'ab')",
    "nullif(b, i)", "isnull(s)", "if(i IS NULL, 0, i) + 1", "CASE WHEN d = e THEN d ELSE -d END",
    ("CASE WHEN hour(ts) >= 8 AND hour(ts) <= 18 THEN 'dayTime' "
     "WHEN hour(ts) <= 6 OR hour(ts) >= 20 THEN 'nightTime' ELSE 'otherTime' END"),
    ("CASE WHEN lower(s) = 'apple' THEN '0' WHEN lower(s) = 'ab' THEN '1' "
     "ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END"),
    "CASE WHEN o THEN 1 / 0 ELSE 2.0D END", "CASE WHEN CASE WHEN o THEN q END THEN 'y' ELSE 'n' END",
]  # fmt: skip
CASTS = [
    *(f"CAST({x} AS {t})" for x in ("w", "h", "i", "b") for t in ("TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE",
      "STRING", "BOOLEAN")),
    *(f"CAST(d AS {t})" for t in ("TINYINT", "SMALLINT", "INT", "BIGINT", "BOOLEAN")), "CAST(f AS DOUBLE)",
    "CAST(i AS DECIMAL(12,2))", "CAST(b AS DECIMAL(20,0))", "CAST(b AS DECIMAL(38,18))", "CAST(h AS DECIMAL(10,5))",
    "CAST(m AS DECIMAL(12,4))", "CAST(m AS DOUBLE)",
    "CAST(n AS DOUBLE)", "CAST(p AS DOUBLE)", "CAST(o AS INT)", "CAST(o AS STRING)", "CAST(o AS BIGINT)",
    "CAST(o AS DOUBLE)", "CAST(i + j AS DECIMAL(10,0))",
    "CAST(ts AS DATE)", "CAST(nz AS DATE)", "CAST(da AS TIMESTAMP)", "CAST(da AS TIMESTAMP_NTZ)",
    "CAST(ts AS TIMESTAMP_NTZ)", "CAST(nz AS TIMESTAMP)",
    "CAST(b * 2 AS INT)", "CAST(d * 2 AS BIGINT) + 1", "CAST(3 AS DOUBLE)", "CAST(1.5 AS DOUBLE) + d", "b::int",
]  # fmt: skip
PARTS = ("year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear", "weekofyear")
UNITS = (
    "year",
    "YYYY",
    "yy",
    "quarter",
    "month",
    "MON",
    "mm",
    "week",
    "day",
    "dd",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
)
TIMES = [
    *(f"{part}({x})" for part in PARTS for x in ("ts", "da", "nz")),
    *(f"{part}({x})" for part in ("hour", "minute", "second") for x in ("ts", "nz")),
    *(f"date_trunc('{unit}', ts)" for unit in UNITS),
    *(f"extract({part} FROM ts)" for part in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE")),
    *(f"date_format(ts, '{pattern}')" for pattern in ("HH:mm", "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd", "yyyyMMdd",
      "MM/dd/yyyy", "ss.mm", "yyyy-MM", "HH")),
    "date_format(date_trunc('hour', ts), 'yyyy-MM-dd HH:mm')", "year(ts) * 100 + month(ts)",
    "hour(ts) BETWEEN 8 AND 18", "date_trunc('day', ts) = date_trunc('day', ts2)",
]  # fmt: skip
STRINGS = [
    "lower(s)", "upper(s)", "lower(url)", "length(s)", "char_length(url)", "octet_length(s)", "bit_length(s)",
    "concat(s, u)", "s || '-' || u", "concat(s, '!')",
    "trim(s)", "ltrim(s)", "rtrim(s)", "replace(s, 'c', '')", "replace(s, 'ab', 'xyz')", "replace(s, 'aa', 'a')",
    "length(s) - length(replace(s, 'c', ''))",
    *(f"substring(s, {place})" for place in (1, 0, 2, -1, -3, 100, -100)),
    *(f"substring(s, {place}, {count})" for place in (1, 0, 2, -1, -3, -100, 4) for count in (0, 1, 2, -1, 100, 99)),
    "substring(s, 2147483647, 2147483647)", "substring(s, -2147483647, 2147483647)", "substr(u, 2, 1)", "left(s, 2)",
    "left(s, 0)", "left(s, -1)", "right(s, 2)",
    *(f"split_part(url, '/', {n})" for n in (1, 2, 4, 5, 6, -1, -2, 99)), "split_part(s, 'ab', 2)",
    "split_part(s, 'aa', 1)", "split_part(u, 'é', 1)",
    "contains(s, 'ab')", "startswith(s, 'a')", "endswith(url, 'c')",
    *(f"s LIKE '{p}'" for p in ("a%", "%b", "%b%", "a_", "_", "%", "", "a%b", "_%_", "ab", "%.%", "a.c", "%(%",
      "%\U0001f642%", "%a_c%")),
    "lower(s) IN ('apple', 'ab', 'é')", "lower(s) LIKE '%ß%'", "url LIKE '%channel_id=%'", "u NOT LIKE 'a%'",
]  # fmt: skip
PATTERNS = [
    "(&|^)channel_id=([^&]*)", "a(b)?", "a+", "(a|ab)(c|bcd)", "[a-c]+", "[^a-c]*", "a.c", ".*", ".+?b", "(x|)",
    "(a*)(b*)", "([a-z]+)://([^/]+)/", "\\\\d+", "[\\\\d_]+",
    "\\\\w{2,3}", "a{2}", "\\\\.", "é", "[é]", "a|b|", "^", "(^a)", "[.]+", "(.)(.)", "(?:a|b)c", "x*", "a*?",
    "\U0001f642",
]  # fmt: skip
REFUSED = {
    "a$", "(ab)+", "(a)?", "\\\\bx", "a(?=b)", "(a)\\\\1", "[[:alpha:]]", "a*+", "\\\\s", "(?i)a", "[a&&b]", "\\\\p{L}",
    "a{b", "[z-a]", "a{3,2}", "(", ")", "[", "*",
}  # fmt: skip
REGEX = [f"{call.format(p)}" for p in PATTERNS if p not in ("a(b)?", "é", "[é]",
  "\U0001f642") for call in ("regexp_extract(url, '{}', 0)", "s RLIKE '{}'", "url RLIKE '{}'",
"regexp_extract(s, '{}', 0)")]  # fmt: skip
REGEX += ["regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)", "regexp_extract(url, '(&|^)channel_id=([^&]*)')",
 "regexp_extract(s, '(a*)(b*)', 2)", "regexp_extract(s, '(a|ab)(c|bcd)', 2)", "regexp_extract(s, '(x|)', 1)",
"regexp_extract(s, '(a)|(b)', 2)"]  # fmt: skip
EXPRESSIONS = [*NUMBERS, *COMPARISONS, *CHOICES, *CASTS, *TIMES, *STRINGS, *REGEX]

WORDS = [
    "", "a", "b", "ab", "abc", "aabbcc", "aaab", "AB", "aB", "apple", "Apple", " ab ", "  ", "\t", "a\nb", "ß",
    "ẞ", "İ", "I", "ı", "É", "é", "ÀÉÎ", "Σ", "ΑΣ", "ΑΣ.", "ΣΑ", "ŉ", "ǅ", "ﬁ", "漢字", "🙂", "a🙂c", "e\u0301",
    "a.c", "(x)", "%", "_", "abcd", "c", "cc", "ab\u2028c", "a\rc", "a\u0085c", "\0", "a\0b", "12", "-3", "x_1",
    "1.5", "𐐀", "ʼn",
]  # fmt: skip
URLS = [
    "", "https://www.nexmark.com/a/b/c/item.htm?query=1&channel_id=77", "channel_id=5&x=1", "x=1&channel_id=",
    "channel_id", "/a//b/", "//", "a/b", "http://é/ß/x", "&channel_id=1&channel_id=2", "https://h/p\nchannel_id=3",
]  # fmt: skip
INSTANTS = [datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1),
            datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2020, 2, 29, 12), datetime(2021, 3, 28, 1, 30),
            datetime(2021, 3, 28, 2, 30), datetime(2021, 10, 31, 2, 30), datetime(1900, 1, 1),
            datetime(1582, 10, 10, 5), datetime(2000, 12, 31, 23, 59, 59), datetime(2016, 1, 3),
            datetime(4, 2, 29)]  # fmt: skip


def whole(bits):
    top = 2 ** (bits - 1)
    edges = (0, 1, -1, 2, 7, 10, 123, top - 1, -top, top - 2, -top + 1, top // 2, 3 * 10 ** (bits // 8))
    return lambda r: max(
        -top, min(top - 1, r.choice(edges) if r.random() < 0.5 else r.randrange(-top, top) >> r.randrange(bits))
    )


def real(r):
    edges = (
        0.0,
        -0.0,
        math.nan,
        math.inf,
        -math.inf,
        5e-324,
        1.5,
        -1.0,
        1e308,
        2.0**31,
        -(2.0**31) - 0.5,
        2147483647.5,
        2.0**63,
        -(2.0**63),
        2.0**53,
        127.9,
        -128.9,
        0.1,
    )
    return r.choice(edges) if r.random() < 0.5 else r.uniform(-1, 1) * 10 ** r.uniform(-3, 19)


def decimal(precision, scale):
    def draw(r):
        top = 10**precision - 1
        unscaled = r.choice((0, 1, -1, top, -top, 5 * 10**scale, 15 * 10 ** max(0, scale - 1)))
        if r.random() < 0.6:
            unscaled = r.randrange(-top, top) // 10 ** r.randrange(precision)
        return Decimal(unscaled).scaleb(-scale)

    return draw


def text(r):
    if r.random() < 0.6:
        return r.choice(WORDS)
    return "".join(r.choice("abcABC .%_é🙂Σσ\n01&=/") for _ in range(r.randrange(9)))


def address(r):
    return (
        r.choice(URLS)
        if r.random() < 0.5
        else "".join(r.choice(("a", "/", "&", "channel_id=", "é", "9", "x=")) for _ in range(r.randrange(9)))
    )


def moment(r):
    if r.random() < 0.4:
        return r.choice(INSTANTS)
    start, end = datetime(1, 1, 2), datetime(9999, 12, 30)
    if r.random() < 0.5:
        start, end = datetime(1969, 1, 1), datetime(2031, 1, 1)
    return start + timedelta(microseconds=r.randrange((end - start) // timedelta(microseconds=1)))


DRAW = {
    "tinyint": whole(8), "smallint": whole(16), "int": whole(32), "bigint": whole(64), "float": real,
    "double": real, "decimal(7,2)": decimal(7, 2), "decimal(18,6)": decimal(18, 6), "decimal(20,0)": decimal(20, 0),
    "string": text, "boolean": lambda r: r.random() < 0.5,
    "date": lambda r: moment(r).date(), "timestamp": lambda r: moment(r).replace(tzinfo=UTC), "timestamp_ntz": moment,
}  # fmt: skip


def drawn():
    r = random.Random(5)
    found = {}
    for name, kind in COLUMNS.items():
        draw = address if name == "url" else DRAW[kind]
        values = [None if r.random() < 0.08 else draw(r) for _ in range(ROWS)]
        if kind == "float":
            values = [
                None if v is None else float(np.float32(v)) if abs(v) < 1e38 or math.isnan(v) else 0.5 for v in values
            ]
        found[name] = pa.array(values, ARROW[kind])
    found["j"] = pa.array(
        [v if r.random() < 0.5 else r.choice((0, 1, 2, -1)) for v in found["j"].to_pylist()], pa.int32()
    )
    return found


@pytest.fixture(scope="module")
def table():
    return pa.table(drawn())


def query(text):
    return parse_query(f"SELECT {text} AS x FROM t", {"t": STREAM})


def term(text, settings=None):
    return settled(query(text), settings or {}).items[0].expression.term


def computed(frame, texts):
    """The values of all expressions at once, and for each where it raised."""
    shown = [query(text).items[0].expression.sql(lambda ref: ref.column) for text in texts]
    found = frame.select(*[try_eval(F.expr(f"named_struct('v', {one})")).alias(f"x{n}") for n, one in enumerate(shown)])
    # What several expressions have in common Spark computes once, and then does not raise for the second of them.
    each = [text for n in range(len(texts)) for text in (f"x{n}.v AS v{n}", f"x{n} IS NULL AS r{n}")]
    with with_settings(frame.sparkSession, {"spark.sql.subexpressionElimination.enabled": "false"}):
        return found.selectExpr(*each).toArrow()


def same(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    return one == other


def alike(ours, theirs):
    """Whether columns have the same bits, but for those that are no number."""
    if ours.type != theirs.type or not pa.types.is_floating(ours.type):
        return ours.equals(theirs)
    return ours.is_null().equals(theirs.is_null()) and all(
        (np.isnan(one) == np.isnan(other)).all() and one[~np.isnan(one)].tobytes() == other[~np.isnan(other)].tobytes()
        for one, other in [(ours.drop_null().to_numpy(), theirs.drop_null().to_numpy())]
    )


def check(table, texts, expected, settings=None):
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    columns = {n: c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for n, c in columns.items()}
    evaluation = Evaluation(lambda ref: columns[ref.column], len(table))
    wrong = []
    for n, text in enumerate(texts):
        found = term(text, settings)
        assert found is not None, f"no term: {text}"
        values, raised = evaluation.values(found)
        inner = expected.column(f"v{n}")
        if values.type != inner.type:
            wrong.append(f"{text}: type {values.type} instead of {inner.type}")
        failed_there = expected.column(f"r{n}").combine_chunks()
        if alike(values, inner.combine_chunks()) and failed_there.equals(pa.array(raised)):
            continue
        null = failed_there.to_pylist()
        for row, (ours, bad, value, failed) in enumerate(
            zip(values.to_pylist(), raised.tolist(), inner.to_pylist(), null, strict=True)
        ):
            if bad != failed or (not failed and not same(ours, value)):
                row_of = {
                    c: table.column(c)[row].as_py() for c in {r.column for r in query(text).items[0].expression.refs}
                }
                wrong.append(f"{text}: {ours!r} raised={bad} instead of {value!r} raised={failed} for {row_of}")
                break
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)


DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


@pytest.fixture(scope="module")
def frame(spark, table, tmp_path_factory):
    """The rows in a file: what Spark holds itself it computes without generated code, and slowly."""
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(table, folder / "rows.parquet")
    return spark.read.schema(DDL).parquet(str(folder))


def test_all_terms_have_sparks_values_and_raise_where_it_does(spark, table, frame):
    with generated_code(spark):
        expected = computed(frame, EXPRESSIONS)
    check(table, EXPRESSIONS, expected)


def test_they_have_them_without_generated_code_too(spark, table):
    few, texts = table.slice(0, 200), [*CHOICES, *COMPARISONS]
    check(few, texts, computed(spark.createDataFrame(few, DDL), texts))


TEXTS = [
    text
    for text in EXPRESSIONS
    if any(isinstance(t, Call) and t.function in ("local", "instant") for t in parts_of(term(text)))
]


@pytest.mark.parametrize("zone", ["+05:30", "-11:00", "GMT+02:00"])
def test_in_a_zone_at_a_fixed_distance_they_have_the_values_of_that_zone(spark, table, frame, zone):
    with with_settings(spark, {ZONE: zone}):
        expected = computed(frame, TEXTS)
    check(table, TEXTS, expected, {ZONE: zone})


def test_in_a_zone_with_other_hours_in_summer_they_are_left_to_spark():
    for text in EXPRESSIONS:
        found = term(text, {ZONE: "Europe/Berlin"})
        assert (found is None) == (text in TEXTS), text


def test_without_ansi_mode_all_that_computes_is_left_to_spark(spark, table, frame):
    settings = {ANSI: "false"}
    texts = [text for text in EXPRESSIONS if term(text, settings) is not None]
    assert not any(isinstance(t, Call | Arithmetic) for text in texts for t in parts_of(term(text, settings)))
    with with_settings(spark, settings):
        expected = computed(frame, texts)
    check(table, texts, expected, settings)


@pytest.mark.parametrize("pattern", sorted(REFUSED))
def test_a_pattern_that_java_may_read_otherwise_has_no_term(pattern):
    assert term(f"s RLIKE '{pattern}'") is None
    assert term(f"regexp_extract(s, '{pattern}', 0)") is None


# Where Spark's optimizer may leave out what raises, or computes it before all else, for everybody.
LEFT_OUT = (
    "b + 1 + -1", "1 + b + 1", "i * 2 * 3", "b + (1 + c) + 1", "2 * (i * 3)", "i + j IS NULL", "i + 0 IN (1, 2, NULL)",
    "b + c > i * j", "b * c = i / j", "isnotnull(i / j)",
    "CASE WHEN i / j > 1 THEN b + c ELSE b - c END", "if(i / j > 1, 1, 1)", "nullif(i / j, d)", "i / j BETWEEN 1 AND 2",
    "i * j > 5000000000", "i % j = 1.5", "i / j > 1 OR TRUE",
    "i / j > 1 AND FALSE", "i / j = NULL", "i / j = i / j", "o AND i / j > 1 AND o", "i / j > 1 AND NOT o OR o",
)  # fmt: skip


@pytest.mark.parametrize("text", LEFT_OUT)
def test_what_raises_has_no_term_where_spark_may_not_compute_it_in_its_place(text):
    assert term(text) is None


def test_every_letter_has_the_cases_that_spark_gives_it(spark):
    points = [n for n in range(1, 0x110000) if not 0xD800 <= n < 0xE000]
    texts = pa.table({"s": pa.array([chr(n) for n in points])})
    columns = {"s": texts.column("s").combine_chunks()}
    evaluation = Evaluation(lambda ref: columns[ref.column], len(texts))
    expected = spark.createDataFrame(texts, "s string").selectExpr("lower(s) AS lower", "upper(s) AS upper").toArrow()
    for name in ("lower", "upper"):
        ours = evaluation.values(term(f"{name}(s)"))[0].to_pylist()
        theirs = expected.column(name).to_pylist()
        wrong = [hex(n) for n, one, other in zip(points, ours, theirs, strict=True) if one != other]
        assert wrong == []


LEAVES = {
    "whole": ("i", "b", "w", "j", "1", "7", "123", "length(s)", "year(ts)"),
    "double": ("d", "e", "0.5D", "1e3"),
    "decimal": ("m", "n", "0.908", "12", "h", "1.5"),
    "text": ("s", "u", "url", "'ab'", "'c'"),
    "truth": ("o", "q", "s IS NULL", "TRUE"),
    "time": ("ts", "ts2", "TIMESTAMP '2021-03-28 02:30:00'"),
}
# Neither NULLIF of what may raise is among them nor a constant 0: Spark computes its first argument, and constants,
# outside of TryEval.
BRANCHES = {
    "whole": (
        "({whole} + {whole})", "({whole} - {whole})", "({whole} * {whole})", "({whole} % {whole})",
        "({whole} div {whole})", "(-{whole})", "abs({whole})",
        "CASE WHEN {truth} THEN {whole} ELSE {whole} END", "CASE WHEN {truth} THEN {whole} END",
        "coalesce({whole}, {whole})", "nullif(i, 7)",
        "length({text})", "hour({time})", "CAST({whole} AS INT)", "CAST({double} AS BIGINT)", "if({truth}, {whole}, 1)",
        "CAST({truth} AS INT)",
    ),
    "double": (
        "({double} + {double})", "({double} * {whole})", "({whole} / {whole})", "({decimal} / {double})",
        "({double} % {double})", "CAST({whole} AS DOUBLE)",
        "CASE WHEN {truth} THEN {double} ELSE {double} END", "abs({double})", "CAST({decimal} AS DOUBLE)",
    ),
    "decimal": ("({decimal} + {decimal})", "({decimal} * {decimal})", "({decimal} - {decimal})", "(-{decimal})",
     "if({truth}, {decimal}, NULL)"),
    "text": (
        "lower({text})", "upper({text})", "({text} || {text})", "substring({text}, 2, 2)", "trim({text})",
        "CASE WHEN {truth} THEN {text} ELSE {text} END",
        "split_part({text}, 'a', 2)", "replace({text}, 'ab', 'c')", "regexp_extract({text}, '([a-c]+)', 1)",
        "CAST(hour({time}) AS STRING)", "date_format({time}, 'yyyy-MM-dd HH')",
        "coalesce({text}, {text})", "nullif(s, '')",
    ),
    "truth": (
        "({whole} > {whole})", "({double} <= {double})", "({decimal} <> {decimal})", "({text} = {text})",
        "({time} < {time})", "({truth} AND {truth})", "({truth} OR {truth})",
        "(NOT {truth})", "({whole} IS NULL)", "({text} LIKE '%b%')", "({whole} IN (1, 2, 7))",
        "({text} IN ('ab', 'c'))", "({whole} = {decimal})", "({double} > {whole})",
        "({text} RLIKE '[a-c]{{2}}')", "contains({text}, 'a')",
    ),
    "time": ("date_trunc('hour', {time})", "date_trunc('month', {time})",
     "CASE WHEN {truth} THEN {time} ELSE {time} END", "coalesce({time}, {time})"),
}  # fmt: skip


def composed(r, kind, depth):
    """A random expression of a kind."""
    if depth == 0 or r.random() < 0.15:
        return r.choice(LEAVES[kind])
    shape = r.choice(BRANCHES[kind])
    for inner in BRANCHES:
        while f"{{{inner}}}" in shape:
            shape = shape.replace(f"{{{inner}}}", composed(r, inner, depth - 1), 1)
    return shape.replace("{{", "{").replace("}}", "}")


def test_terms_put_together_at_random_have_sparks_values_and_types(spark, table, frame):
    r = random.Random(23)
    texts = dict.fromkeys(composed(r, kind, r.randrange(1, 4)) for _ in range(examples(60)) for kind in BRANCHES)
    whole = [text for text in texts if not isinstance(term(text), Ref | Literal)]  # of which nothing is computed
    known = [text for text in whole if term(text) is not None]
    assert len(known) > 0.7 * len(whole)
    rows = table.slice(0, 800)
    with generated_code(spark):
        expected = computed(frame.limit(800), known)
    check(rows, known, expected)
