"""Which calls have their size tested before they are evaluated, and that each argument stands in the text once."""

import pytest

from penstock.model import Column, Stream
from penstock.sql import parse_query

STREAM = Stream(
    "a",
    (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "string"), Column("l", "array<string>")),
    "ts",
    0,
)

TESTED = [
    "repeat(v, k)", "repeat(v, 17)", "repeat('x', 2000000000)", "repeat(repeat(v, 9), 9)", "space(k)",
    "lpad(v, k, 'x')", "rpad(v, 1001)",
    "sequence(1, k)", "sequence(ts, ts, INTERVAL 1 SECOND)", "array_repeat(v, k)", "array_insert(l, k, v)",
    "array_join(l, v)",
    "concat_ws(v, l)", "replace(v, 'a', v)", "replace(v, 'a', 'aaaaaaaaaaaaaaaaa')", "regexp_replace(v, 'a', v)",
    "regexp_replace(v, '(?=(.*))', '$1')", "format_string(v, k)", "format_string('%9999d', k)",
    "printf('%1$100000s', v)",
    "format_number(k, k)", "round(k, 100000)", "aggregate(l, v, (a, x) -> a || a)", "system.builtin.repeat(v, k)",
    "`repeat`(v, k)",
    "replace(replace(v, 'a', 'aa'), 'a', 'aa')", "length(REPEAT(v, k))", "CASE WHEN k > 1 THEN space(k) END",
    "transform(l, x -> v)", "transform(l, x -> space(5000))", "regexp_extract_all(v, '(?=(.*))', 1)",
]  # fmt: skip
PLAIN = [
    "repeat(v, 16)", "lpad(v, 10, '0')", "array_repeat(v, 3)", "concat(v, v)", "v || v", "replace(v, 'a', 'b')",
    "concat_ws(', ', v, v)",
    "replace(replace(v, 'ab', ''), 'b', 'c')", "regexp_replace(v, 'a+', '-')", "format_string('%10d of %s', k, v)",
    "round(k, 2)",
    "format_number(k, 2)", "array_join(l, ',')", "aggregate(l, 0, (a, x) -> a + 1)", "transform(l, x -> upper(x))",
    "array_insert(l, 2, v)",
]  # fmt: skip


def item(text):
    return parse_query(f"SELECT {text} AS r FROM a", {"a": STREAM}).items[0].expression


@pytest.mark.parametrize("text", TESTED)
def test_what_may_grow_is_tested_and_may_raise(text):
    found = item(text)
    assert "raise_error(" in found.sql(lambda ref: ref.column)
    assert not found.total
    assert "raise_error(" not in found.shown(lambda ref: ref.column)


@pytest.mark.parametrize("text", PLAIN)
def test_what_grows_by_a_small_factor_is_left_as_it_is(text):
    found = item(text)
    assert "raise_error(" not in found.sql(lambda ref: ref.column)
    assert found.written == ()


def test_what_takes_in_a_tested_value_is_tested_too():
    for text in ("concat(repeat(v, k), v)", "repeat(v, k) || v", "repeat(space(k), 2)", "concat_ws(',', space(k), v)"):
        assert item(text).sql(lambda ref: ref.column).count("raise_error(") == 2


def test_nested_calls_make_the_text_no_longer_than_their_number():
    text, before = "v", 0
    sizes = []
    for _ in range(6):
        text = f"repeat({text}, k)"
        whole = item(text).sql(lambda ref: ref.column)
        sizes.append(len(whole) - before)
        before = len(whole)
        assert whole.count("named_struct('a0', v,") == 1
    assert max(sizes) - min(sizes[1:]) < 20 + sizes[0] - min(sizes[1:])


def test_columns_of_other_expressions_are_renamed_in_both_texts():
    found = (
        parse_query(
            "SELECT repeat(x.v, x.k) FROM a [RANGE 1 SECOND] y, a [RANGE 1 SECOND] x WHERE x.k = y.k", {"a": STREAM}
        )
        .items[0]
        .expression
    )
    assert found.shown(lambda ref: f"r{ref.role}_{ref.column}") == "REPEAT(r1_v, r1_k)"
    assert {ref.column for ref in found.refs} == {"k", "v"}
