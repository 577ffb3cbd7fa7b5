"""The window syntax of other systems, refused by name, with the equivalent to write here.

Spark has `GROUP BY window(ts, '10 minutes')`, Flink `FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10'
MINUTES))` and, in its older form, `GROUP BY TUMBLE(ts, INTERVAL '10' MINUTES)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import NotSupportedError
from penstock.sql.position import Text

_SPARK = frozenset({"window", "session_window", "window_time"})
_FLINK = frozenset({"tumble", "hop", "cumulate", "session"})
_EDGES = {
    f"{window}_{edge}": f"window_{edge}" for window in ("tumble", "hop", "session") for edge in ("start", "end")
} | {f"{window}_rowtime": "window_end" for window in ("tumble", "hop", "session")}
_DEPTH = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}
_FORMS = "[TUMBLING <length>], [RANGE <length> SLIDE <length>] or [SESSION <length>]"


def time_window(source: Text, tokens: Sequence[Token], index: int) -> NotSupportedError | None:
    """The refusal of the window function called at this token, if it is one."""
    word = tokens[index].text.lower()
    if word in _EDGES:
        return source.unsupported(
            tokens[index].start, f"{tokens[index].text} is not supported", f"write {_EDGES[word]} in the select list"
        )
    arguments = _arguments(tokens[index + 1 :])
    of_table = bool(arguments) and arguments[0][:1] != [] and arguments[0][0].text.upper() == "TABLE"
    timed = len(arguments) > 1 and arguments[1][:1] != [] and arguments[1][0].token_type == TokenType.INTERVAL
    if word not in _SPARK and not (word in _FLINK and (of_table or timed)):
        return None
    before = tokens[index - 2 : index]
    wrapped = of_table and [t.text.upper() for t in before] == ["TABLE", "("]
    place = before[0] if wrapped else tokens[index]
    name = f"TABLE({tokens[index].text}(..))" if wrapped else f"The function {tokens[index].text}"
    lengths = [_text(source, argument) for argument in arguments[2 if of_table else 1 :]]
    instead = _instead(word, [length for length in lengths if length])
    named = (
        arguments[0]
        if of_table
        else tokens[next((n for n, t in enumerate(tokens) if t.token_type == TokenType.FROM), index) :]
    )
    stream = named[1].text if len(named) > 1 and named[1].text.isidentifier() else "stream"
    return source.unsupported(
        place.start, f"{name} is not supported", f"put the window on the stream: FROM {stream} {instead}"
    )


def _instead(word: str, lengths: list[str]) -> str:
    """The equivalent window in brackets, with the lengths as the user wrote them."""
    match word, lengths:
        case (("window" | "tumble"), [size]):
            return f"[TUMBLING {size}]"
        case "window", [size, slide, *_]:
            return f"[RANGE {size} SLIDE {slide}]"
        case "hop", [slide, size, *_]:
            return f"[RANGE {size} SLIDE {slide}]"
        case "cumulate", [step, size, *_]:
            return f"[TUMBLING {size}], with EMIT EARLY EVERY {step} at the end of the query for what it holds so far"
        case (("session" | "session_window"), [gap, *_]):
            return f"[SESSION {gap}]"
    return _FORMS


def _arguments(tokens: Sequence[Token]) -> list[list[Token]]:
    """The arguments of a call that starts with its parenthesis, without their names (`SIZE =>`)."""
    found: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += _DEPTH.get(token.token_type, 0)
        if depth == 0:
            break
        if depth == 1 and token.token_type == TokenType.COMMA:
            found.append([])
        elif depth > 1 or token.token_type != TokenType.L_PAREN or found[-1]:
            found[-1].append(token)
    return [a[2:] if len(a) > 2 and a[1].token_type == TokenType.FARROW else a for a in found]


def _text(source: Text, tokens: Sequence[Token]) -> str:
    return source.text[tokens[0].start : tokens[-1].end + 1] if tokens else ""
