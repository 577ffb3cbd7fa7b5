"""Plain Python values as bytes and back, exactly: the stored form of users' aggregate states and of sketch items.

The bytes are JSON after a mark of the format. Nothing in them is ever executed (decision 0024): values that are not
plain are refused when written. A list is written as it is, any other kind of value beyond JSON as an object that names
it.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from penstock.errors import StateError

PLAIN = "None, bool, int, float, str, bytes, Decimal, date, datetime, timedelta, list, tuple, set, dict"
_MARK = b"j"
_PICKLE = b"\x80"  # the first byte of a pickle, which older versions wrote
_LARGE = 1 << 63


class NotPlain(ValueError):  # noqa: N818  (a verdict on a value, which its reader turns into an error)
    """A value that cannot be stored; the text names its type."""


def encode(value: Any) -> bytes:
    """The bytes of a plain value, also of nested ones; raises NotPlain."""
    try:
        return _MARK + json.dumps(_plain(value), separators=(",", ":")).encode()
    except RecursionError:
        raise NotPlain(f"{type(value).__name__} that contains itself or is nested too deeply") from None


def decode(data: bytes) -> Any:
    """The value that was encoded."""
    if data[:1] == _PICKLE:
        msg = (
            "a value in the state was pickled by an older version of Penstock, and pickles are not read, for "
            "they may run anything; "
            "use another state directory and replay the sources"
        )
        raise StateError(msg)
    if data[:1] != _MARK:
        raise StateError("a value in the state has an unknown format; restore the state directory from a backup")
    try:
        return _value(json.loads(data[1:]))
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError, struct.error) as error:
        msg = f"a value in the state is damaged ({error}); restore the state directory from a backup"
        raise StateError(msg) from None


def _plain(value: Any) -> Any:
    # By the exact type: of a subclass only a part would be restored.
    write = _WRITERS.get(type(value))
    if write is None:
        module = type(value).__module__
        raise NotPlain(type(value).__qualname__ if module == "builtins" else f"{module}.{type(value).__qualname__}")
    return write(value)


def _int(value: int) -> Any:
    return value if -_LARGE < value < _LARGE else {"i": hex(value)}  # decimals of any length take quadratic time


def _float(value: float) -> Any:
    return value if value - value == 0 else {"f": struct.pack(">d", value).hex()}


def _str(value: str) -> Any:
    # Two adjacent lone surrogates would be restored as one character.
    return value if value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value) else {"u": [*map(ord, value)]}


def _datetime(value: datetime) -> Any:
    zone = value.tzinfo
    if zone is None:
        where: Any = None
    elif type(zone) is timezone:
        where = [_plain(part) for part in zone.__getinitargs__()]  # type: ignore[attr-defined]
    elif type(zone) is ZoneInfo and zone.key is not None:
        where = zone.key
    else:
        raise NotPlain(f"datetime with a time zone of type {type(zone).__qualname__}")
    return {"t": [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, where]}


def _dict(value: dict[Any, Any]) -> Any:
    return {"d": [[_plain(key), _plain(held)] for key, held in value.items()]}


def _list(value: Any) -> list[Any]:
    return [_plain(item) for item in value]


_WRITERS: dict[type, Callable[[Any], Any]] = {
    type(None): lambda value: value,
    bool: lambda value: value,
    int: _int,
    float: _float,
    str: _str,
    list: _list,
    dict: _dict,
    datetime: _datetime,
    tuple: lambda value: {"l": _list(value)},
    set: lambda value: {"s": _list(value)},
    frozenset: lambda value: {"z": _list(value)},
    bytes: lambda value: {"b": b64encode(value).decode()},
    Decimal: lambda value: {"n": str(value)},
    date: lambda value: {"a": value.isoformat()},
    timedelta: lambda value: {"e": [value.days, value.seconds, value.microseconds]},
}


def _value(found: Any) -> Any:
    if isinstance(found, list):
        return [_value(item) for item in found]
    if not isinstance(found, dict):
        return found
    ((kind, body),) = found.items()
    return _READERS[kind](body)


def _read_datetime(body: Any) -> datetime:
    text, fold, where = body
    zone = None if where is None else ZoneInfo(where) if isinstance(where, str) else timezone(*map(_value, where))
    return datetime.fromisoformat(text).replace(fold=fold, tzinfo=zone)


_READERS: dict[str, Callable[[Any], Any]] = {
    "i": lambda body: int(body, 16),
    "f": lambda body: struct.unpack(">d", bytes.fromhex(body))[0],
    "u": lambda body: "".join(map(chr, body)),
    "t": _read_datetime,
    "d": lambda body: {_value(key): _value(held) for key, held in body},
    "l": lambda body: tuple(map(_value, body)),
    "s": lambda body: set(map(_value, body)),
    "z": lambda body: frozenset(map(_value, body)),
    "b": lambda body: b64decode(body, validate=True),
    "n": Decimal,
    "a": date.fromisoformat,
    "e": lambda body: timedelta(*body),
}
