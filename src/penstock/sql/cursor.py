"""A position in a list of tokens, advanced by the statement parsers.

The only mutable object of this package; it exists while one statement is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.sql.position import Text

_NOT_NAMES = frozenset({TokenType.STRING, TokenType.NUMBER})


class Cursor:
    """Reads tokens one by one and raises an error with the position of an unexpected one."""

    def __init__(self, source: Text, tokens: Sequence[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.index = 0

    @property
    def done(self) -> bool:
        return self.index >= len(self.tokens)

    @property
    def offset(self) -> int:
        """Where the next token starts, or where the text ends."""
        return self.tokens[-1].end + 1 if self.done else self.tokens[self.index].start

    def peek(self, ahead: int = 0) -> str:
        """The next word in upper case; empty at the end, and for quoted names and strings."""
        index = self.index + ahead
        if index >= len(self.tokens) or self.tokens[index].token_type in (TokenType.IDENTIFIER, TokenType.STRING):
            return ""
        return self.tokens[index].text.upper()

    def take(self) -> Token:
        if self.done:
            raise self.source.error(self.offset, "The statement ends too early")
        self.index += 1
        return self.tokens[self.index - 1]

    def accept(self, *words: str) -> bool:
        """Skip these words if they come next."""
        if all(self.peek(i) == word for i, word in enumerate(words)):
            self.index += len(words)
            return True
        return False

    def expect(self, word: str, hint: str = "") -> None:
        if not self.accept(word):
            raise self.source.error(self.offset, f"Expected {word}", hint)

    def name(self, what: str) -> Token:
        """A plain or back-quoted name."""
        if self.done or self.tokens[self.index].token_type in _NOT_NAMES or not _is_word(self.tokens[self.index]):
            raise self.source.error(self.offset, f"Expected the name of a {what}")
        return self.take()

    def refuse_nameless(self, what: str, form: str) -> None:
        """Refuse AS SELECT in place of a name."""
        if self.peek() == "AS" and self.peek(1) in ("SELECT", "WITH", "("):
            raise self.source.error(self.offset, f"The name of the {what} is missing", f"write {form}")

    def choice(self, *words: str) -> str:
        found = self.peek()
        if found not in words:
            raise self.source.error(self.offset, f"Expected {' or '.join(words)}")
        self.take()
        return found

    def until(self, *stops: str, angles: bool = False) -> list[Token]:
        """The tokens before the next of these words outside brackets, or all remaining ones.

        With `angles`, < and > are brackets too, as in types.
        """
        opening, closing = ("(", "[", "<") if angles else ("(", "["), (")", "]", ">") if angles else (")", "]")
        start, depth = self.index, 0
        while not self.done:
            word = self.peek()
            if depth == 0 and word in stops:
                break
            depth += (word in opening) - (word in closing)
            self.index += 1
        return list(self.tokens[start : self.index])

    def end(self) -> None:
        if not self.done:
            raise self.source.error(self.offset, f"Unexpected {self.tokens[self.index].text!r}")


def _is_word(token: Token) -> bool:
    quoted = token.token_type == TokenType.IDENTIFIER
    return quoted or token.text[:1].isalpha() or token.text.startswith("_")
