"""Spark SQL with a window in brackets after the name of a stream: tokens and syntax trees.

Functions are kept as written (`exp.Anonymous`) instead of being translated to sqlglot's own: the text passed to Spark
must mean what the user wrote, for every function that Spark has. `windows` reads the content of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from penstock.sql.position import Text

WINDOW = "penstock_window"  # key in a table's meta: the tokens between its brackets
WINDOW_START = "penstock_window_start"
_OPEN_WINDOW = "This window is not closed"


class Penstock(Spark):
    """The dialect of Penstock's queries."""

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()  # SHOW and EXPLAIN are our own statements
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']  # since Spark 4 a doubled quote is a quote

    class Parser(SparkParser):
        JOINS_HAVE_EQUAL_PRECEDENCE: ClassVar[bool] = False  # else a comma would look like the words CROSS JOIN
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        # Only forms that are not a list of arguments need their own parser.
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: SparkParser.FUNCTION_PARSERS[name]
            for name in ("CAST", "EXTRACT", "OVERLAY", "SUBSTR", "SUBSTRING", "TRIM", "TRY_CAST")
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: SparkParser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("ANY", "CASE", "IF")
        }

        def raise_error(self, message: str, token: Any = None) -> None:
            place = token or self._curr or self._prev
            raise ParseError(message, [{"description": message, "start": place.start if place else 0}])

        def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            if self._curr.token_type not in self.IDENTIFIER_TOKENS or self._next.token_type == TokenType.L_PAREN:
                return super()._parse_table(*args, **kwargs)
            table = self._parse_table_parts()
            if not isinstance(table, exp.Table):
                return table
            self._parse_stream_window(table)
            alias = self._parse_table_alias(alias_tokens=self.TABLE_ALIAS_TOKENS)
            if alias:
                table.set("alias", alias)
                self._parse_stream_window(table)
            if kwargs.get("joins"):
                for join in self._parse_joins():
                    table.append("joins", join)
            return table

        def _parse_stream_window(self, table: exp.Table) -> None:
            if self._curr.token_type != TokenType.L_BRACKET:
                return
            if WINDOW in table.meta:
                self.raise_error("A second window on the same stream")
            opening = self._curr
            table.meta[WINDOW_START] = opening.start
            self._advance()
            tokens: list[Token] = []
            while self._curr and not self._match(TokenType.R_BRACKET):
                tokens.append(self._curr)
                self._advance()
            if self._prev.token_type != TokenType.R_BRACKET:
                self.raise_error(_OPEN_WINDOW, opening)
            table.meta[WINDOW] = tokens

    Generator = SparkGenerator


DIALECT = Penstock()


def tokenize(source: Text) -> list[Token]:
    """The tokens of a text, without comments."""
    try:
        tokens = DIALECT.tokenize(source.text)
    except TokenError as error:
        # sqlglot quotes the end of what it could not read; users need to see the open quote.
        offset = _open_quote(source.text)
        message = "A quote or comment is not closed" if offset is not None else "Cannot read this text"
        place = offset if offset is not None else getattr(error, "start", None) or 0
        raise source.error(place, message) from None
    for token in tokens:
        if token.token_type == TokenType.NUMBER and not token.text.isascii():
            raise source.error(token.start, f"{token.text!r} is no number", "write numbers with the digits 0 to 9")
    return tokens


def parse_select(source: Text, tokens: Sequence[Token]) -> exp.Expr:
    """The syntax tree of one SELECT."""
    parser = DIALECT.parser()
    try:
        trees = parser.parse(list(tokens), source.text)
    except ParseError as error:
        first = error.errors[0] if error.errors else {"description": str(error)}
        message = str(first["description"]).split("\n")[0].split(". Line ")[0]
        hint = "write ] behind it, as in [RANGE 5 MINUTES]" if message == _OPEN_WINDOW else ""
        raise source.error(int(first.get("start") or 0), _plain(message), hint) from None
    tree = trees[0] if trees else None
    if tree is None:
        raise source.error(0, "Expected a SELECT")
    return tree


def generate(node: exp.Expr) -> str:
    """Canonical Spark SQL of a syntax tree."""
    return DIALECT.generate(node, comments=False)


def _plain(message: str) -> str:
    """A message of sqlglot without its internals."""
    known = {
        "Invalid expression / Unexpected token": "Unexpected word or symbol here",
        "Expected table name but got": "Expected the name of a stream",
        "Required keyword": "Something is missing here",
    }
    return next((ours for theirs, ours in known.items() if message.startswith(theirs)), message)


def _open_quote(text: str) -> int | None:
    """The offset of a quote or block comment that is never closed, or None."""
    index = 0
    while index < len(text):
        here = text[index]
        if text.startswith("--", index):
            end = text.find("\n", index)
            index = len(text) if end < 0 else end
        elif text.startswith("/*", index):
            end = text.find("*/", index + 2)
            if end < 0:
                return index
            index = end + 1
        elif here in "'\"`":
            end = index + 1
            while end < len(text) and text[end] != here:
                end += 2 if text[end] == "\\" and here != "`" else 1
            if end >= len(text):
                return index
            index = end
        index += 1
    return None
