"""Spark's types by their simple names: parsing them, and the families that compare without a cast.

`inference` infers the types of expressions.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.columns.types import exact_digits
from penstock.model.stream import INTEGER_TYPES
from penstock.sql.lengths import whole_number
from penstock.sql.position import Text

_NAMES = {
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float", "bool": "boolean",
    "dec": "decimal", "numeric": "decimal", "timestamp_ltz": "timestamp", "text": "string",
}  # fmt: skip
_ATOMIC = frozenset({
    "tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "binary", "date", "timestamp",
    "timestamp_ntz", "variant",
})  # fmt: skip
_MAX_DIGITS = 38
MOST_TYPES = 200  # nested in one type: parsing recurses once per level

# Types that can be join keys: equality is on the value itself, without a cast or collation.
KEY_FAMILIES = frozenset({"integer", "floating", "string", "boolean", "date", "timestamp", "timestamp_ntz", "binary"})


def family(type_name: str | None) -> str | None:
    """Types of one family compare exactly, whatever their width; any other type is its own family."""
    if type_name is None:
        return None
    if type_name in INTEGER_TYPES:
        return "integer"
    return "floating" if type_name in ("float", "double") else type_name


def decimals_widen(left: str, right: str) -> bool:
    """Whether a decimal type exists that holds every value of both."""
    one, other = exact_digits(left), exact_digits(right)
    if one is None or other is None:
        return False
    return max(one[0] - one[1], other[0] - other[1]) + max(one[1], other[1]) <= _MAX_DIGITS


def parse_type(source: Text, tokens: Sequence[Token]) -> str:
    """The simple name of the type that all of `tokens` form."""
    if sum(token.token_type == TokenType.LT for token in tokens) > MOST_TYPES:
        raise source.unsupported(
            tokens[0].start, f"This type is made of more than {MOST_TYPES} others", "use plainer columns"
        )
    name, end = _type(source, tokens, 0)
    if end < len(tokens):
        raise source.unsupported(
            tokens[end].start,
            f"{tokens[end].text!r} after the type of a column is not supported",
            "a column is written: name TYPE",
        )
    return name


def _type(source: Text, tokens: Sequence[Token], index: int) -> tuple[str, int]:
    token = _at(source, tokens, index)
    word = token.text.lower()
    name = _NAMES.get(word, word)
    after = index + 1
    if name == "array":
        after = _expect(source, tokens, after, "<")
        inner, after = _type(source, tokens, after)
        return f"array<{inner}>", _expect(source, tokens, after, ">")
    if name == "map":
        after = _expect(source, tokens, after, "<")
        key, after = _type(source, tokens, after)
        after = _expect(source, tokens, after, ",")
        value, after = _type(source, tokens, after)
        return f"map<{key},{value}>", _expect(source, tokens, after, ">")
    if name == "struct":
        return _struct(source, tokens, _expect(source, tokens, after, "<"))
    if name in ("decimal", "char", "varchar"):
        return _sized(source, tokens, name, after)
    if name == "string" and after < len(tokens) and tokens[after].text.upper() == "COLLATE":
        return f"string collate {_at(source, tokens, after + 1).text}", after + 2
    if name in _ATOMIC:
        return name, after
    raise source.error(
        token.start,
        f"Unknown type {token.text!r}",
        f"known: {', '.join(sorted(_ATOMIC))}, decimal(p,s), array, map, struct",
    )


def _sized(source: Text, tokens: Sequence[Token], name: str, index: int) -> tuple[str, int]:
    numbers: list[str] = []
    if index < len(tokens) and tokens[index].token_type == TokenType.L_PAREN:
        numbers.append(_at(source, tokens, index + 1).text)
        index += 2
        if _at(source, tokens, index).token_type == TokenType.COMMA:
            numbers.append(_at(source, tokens, index + 1).text)
            index += 2
        index = _expect(source, tokens, index, ")")
    sizes = [size for n in numbers if (size := whole_number(n)) is not None]
    if len(sizes) < len(numbers) or (name != "decimal" and len(sizes) != 1):
        many = "whole numbers" if name == "decimal" else "one whole number"
        raise source.error(tokens[index - 1].start, f"{name} takes {many}")
    if name == "decimal":
        sizes = [*sizes, *(10, 0)[len(sizes) :]]
        if not 0 <= sizes[1] <= sizes[0] <= _MAX_DIGITS or sizes[0] < 1:
            raise source.error(
                tokens[index - 1].start,
                f"A decimal has 1 to {_MAX_DIGITS} digits, of which some may stand behind the point",
                "as in DECIMAL(10, 2)",
            )
    elif not 1 <= sizes[0] < 2**31:
        raise source.error(tokens[index - 1].start, f"{name} takes a length above zero")
    return f"{name}({','.join(map(str, sizes))})", index


def _struct(source: Text, tokens: Sequence[Token], index: int) -> tuple[str, int]:
    fields: list[str] = []
    while True:
        name = _at(source, tokens, index).text
        index += 1
        if _at(source, tokens, index).token_type == TokenType.COLON:
            index += 1
        inner, index = _type(source, tokens, index)
        fields.append(f"{name}:{inner}")
        if _at(source, tokens, index).token_type != TokenType.COMMA:
            return f"struct<{','.join(fields)}>", _expect(source, tokens, index, ">")
        index += 1


def _at(source: Text, tokens: Sequence[Token], index: int) -> Token:
    if index >= len(tokens):
        raise source.error(tokens[-1].end + 1 if tokens else 0, "This type is incomplete")
    return tokens[index]


def _expect(source: Text, tokens: Sequence[Token], index: int, symbol: str) -> int:
    token = _at(source, tokens, index)
    if token.text != symbol:
        raise source.error(token.start, f"Expected {symbol} in this type")
    return index + 1
