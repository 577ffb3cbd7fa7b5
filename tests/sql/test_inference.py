import pytest

from penstock.model import Role
from penstock.sql.dialect import parse_select, tokenize
from penstock.sql.inference import type_of
from penstock.sql.position import Position, Text
from penstock.sql.scope import Scope, bind
from tests.sql.streams import STREAMS


def inferred(text):
    source = Text(f"SELECT {text} FROM a", None, Position())
    (node,) = parse_select(source, tokenize(source)).expressions
    return type_of(bind(node, Scope(source, (Role("a", "a", None),), (STREAMS["a"],)), selecting=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n", "int"), ("5", "int"), ("-2147483648", "int"), ("2147483648", "bigint"), ("5L", "bigint"),
        ("1e3", "double"),
        ("1.50", "decimal(3,2)"), ("0.5", "decimal(1,1)"), ("99999999999999999999", "decimal(20,0)"), ("'a'", "string"),
        ("TRUE", "boolean"), ("NULL", "void"), ("n > 1", "boolean"), ("n + big", "bigint"), ("n + x", "double"),
        ("f + f", "float"), ("x + 1.5", "double"), ("upper(s)", "string"), ("length(s)", "int"), ("upper(n)", None),
        ("cast(n AS decimal(10, 2))", "decimal(10,2)"), ("CASE WHEN flag THEN n ELSE big END", "bigint"),
        ("coalesce(n, s)", None), ("unknown(n)", None), ("payload.field", None), ("year(ts)", "int"),
        ("result_time", "timestamp"),
        ("DATE '2020-01-01'", "date"), ("s || 'a'", "string"), ("nullif(n, big)", "int"),
    ],
)  # fmt: skip
def test_types_that_are_plain(text, expected):
    assert inferred(text) == expected
