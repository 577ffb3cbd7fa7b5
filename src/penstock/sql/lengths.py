"""Lengths of time in SQL: of windows, WATERMARK, IDLE and RETAIN."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from sqlglot.tokenizer_core import Token, TokenType

from penstock.model.time import CALENDAR_UNITS, LATEST, UNITS, unit_length
from penstock.sql.position import Text

_MOST_DIGITS = 40  # more than any limit has


_FIELDS = ("day", "hour", "minute", "second")
_SPAN_FIRST = (r"([0-9]{1,9})", r"([0-9]{1,10})", r"([0-9]{1,12})")
_CLOCK = (0, 23, 59, 59)  # the maximal values of fields after the first


def whole_number(text: str) -> int | None:
    """The number written in plain digits, else None. An absurdly long one becomes a number beyond every limit."""
    if re.fullmatch(r"[0-9]+", text) is None:
        return None
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS


def positive_length(source: Text, tokens: Sequence[Token]) -> int:
    """A positive duration in microseconds."""
    length = duration_length(source, tokens)
    if length <= 0:
        raise source.error(tokens[0].start, "The length must be greater than zero")
    return length


def duration_length(source: Text, tokens: Sequence[Token]) -> int:
    """Microseconds of `1 MINUTE 30 SECONDS`, `INTERVAL '1' MINUTE` or `'90 seconds'`."""
    rest = list(tokens)
    if rest and rest[0].token_type == TokenType.INTERVAL:
        rest = rest[1:]
    if len(rest) == 4 and rest[2].text.upper() == "TO" and rest[0].token_type == TokenType.STRING:
        span = span_length(rest[0].text, rest[1].text, rest[3].text)
        if span is not None:
            return span
    if not rest:
        place = tokens[0].start if tokens else 0
        raise source.error(place, "Expected a length of time, for example 5 SECONDS")
    total, index = Decimal(0), 0
    while index < len(rest):
        sign, index = _sign(rest, index)
        token = rest[index] if index < len(rest) else rest[-1]
        if token.token_type == TokenType.STRING and _number(token.text) is None:
            total += sign * _text_length(source, token)
            index += 1
            continue
        number = _number(token.text)
        if number is None:
            raise source.error(token.start, "Expected a length of time, for example 5 SECONDS")
        if index + 1 >= len(rest):
            raise source.error(
                token.start, "This length needs a unit", "write for example 5 SECONDS; only integer event time has none"
            )
        total += sign * number * _unit(source, rest[index + 1].text, rest[index + 1].start)
        index += 2
    return _whole(source, total, tokens[0].start)


def interval_length(number: str, unit: str | None) -> int | None:
    """Microseconds of an INTERVAL constant; None unless it is a fixed whole number of them."""
    text = number if unit is None else f"{number} {unit}"
    words = text.split()
    if not words or len(words) % 2:
        return None
    total = Decimal(0)
    for amount, name in zip(words[::2], words[1::2], strict=True):
        value, length = _number(amount), unit_length(name)
        if value is None or length is None:
            return None
        total += value * length
    return int(total) if total == total.to_integral_value() and abs(total) <= LATEST else None


def span_length(text: str, start: str, end: str) -> int | None:
    """Microseconds of `'3:30' MINUTE TO SECOND` and the like, read as Spark does; None where Spark refuses the text.

    The first field may be as large as its type allows; later ones have at most two digits and the range of a clock.
    Digits beyond microseconds are dropped.
    """
    first, last = (_FIELDS.index(unit) if unit in _FIELDS else -1 for unit in (start.lower(), end.lower()))
    if not 0 <= first < last:
        return None
    pattern = r"([+|-])?" + _SPAN_FIRST[first]
    for field in range(first + 1, last + 1):
        pattern += (" " if field == 1 else ":") + r"([0-9]{1,2})"
    if last == len(_FIELDS) - 1:
        pattern += r"(?:\.([0-9]{1,9}))?"
    found = re.fullmatch(pattern, text.strip())
    if found is None:
        return None
    numbers = [int(n) for n in found.groups()[1 : last - first + 2]]
    beyond = any(n > _CLOCK[field] for field, n in enumerate(numbers[1:], start=first + 1))
    lengths = [UNITS[unit] for unit in _FIELDS[first : last + 1]]
    fraction = found[last - first + 3] if last == len(_FIELDS) - 1 else None
    total = sum(n * length for n, length in zip(numbers, lengths, strict=True))
    total += int(((fraction or "") + "000000")[:6])
    return None if beyond or total > LATEST else -total if found[1] == "-" else total


def whole_length(source: Text, tokens: Sequence[Token]) -> int:
    """A positive length in units of an integer event time."""
    sign, index = _sign(tokens, 0)
    number = whole_number(tokens[index].text) if index < len(tokens) else None
    if number is None or tokens[index].token_type != TokenType.NUMBER:
        raise source.error(
            tokens[0].start, "Expected a whole number", "event time is an integer here, as in [RANGE 500]"
        )
    if index + 1 < len(tokens):
        raise source.error(
            tokens[index + 1].start, "A window over integer event time has no unit", "write for example [RANGE 500]"
        )
    length = int(sign) * number
    if length <= 0:
        raise source.error(tokens[0].start, "The length must be greater than zero")
    return _whole(source, Decimal(length), tokens[0].start)


def _sign(tokens: Sequence[Token], index: int) -> tuple[Decimal, int]:
    if index < len(tokens) and tokens[index].token_type == TokenType.DASH:
        return Decimal(-1), index + 1
    return Decimal(1), index


def _text_length(source: Text, token: Token) -> Decimal:
    words = token.text.split()
    if not words or len(words) % 2:
        raise source.error(
            token.start, f"Cannot read {token.text!r} as a length of time", "write for example '5 seconds'"
        )
    total = Decimal(0)
    for amount, name in zip(words[::2], words[1::2], strict=True):
        number = _number(amount)
        if number is None:
            raise source.error(token.start, f"Cannot read {token.text!r} as a length of time")
        total += number * _unit(source, name, token.start)
    return total


def _unit(source: Text, name: str, start: int) -> int:
    length = unit_length(name)
    if length is not None:
        return length
    if name.lower().removesuffix("s") in CALENDAR_UNITS:
        raise source.unsupported(
            start, f"{name.upper()} has no fixed length", "write the length in days, for example 30 DAYS"
        )
    raise source.error(start, f"Unknown unit of time {name!r}", f"use one of: {', '.join(UNITS)}")


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if not number.is_finite():
        return None
    return number if number.adjusted() <= _MOST_DIGITS else Decimal(10**_MOST_DIGITS).copy_sign(number)


def _whole(source: Text, total: Decimal, start: int) -> int:
    if total != total.to_integral_value():
        raise source.error(start, "Lengths of time are whole microseconds")
    if abs(total) > LATEST:
        raise source.error(start, "This length is too long", "write [RANGE ALL] for a window without end")
    return int(total)
