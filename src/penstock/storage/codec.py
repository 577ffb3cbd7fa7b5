"""Records as plain JSON values and back, by their types; no field is passed over that this version does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

Record = TypeVar("Record")


def plain(record: object) -> dict[str, Any]:
    """A record in values of JSON."""
    found: dict[str, Any] = msgspec.to_builtins(record, str_keys=True)
    return found


def exact(body: dict[str, Any], kind: type[Record], encode: Callable[[Record], dict[str, Any]] = plain) -> Record:
    """The record of a body, which must have what `encode` writes of it; raises ValueError with the fields that differ.

    Dataclasses in it may lack fields that have defaults.
    """
    found = msgspec.convert(body, kind, str_keys=True)
    known = msgspec.json.decode(msgspec.json.encode(encode(found)))
    if known != body:
        differ = sorted(name for name in {*known, *body} if known.get(name) != body.get(name) or name not in body)
        raise ValueError(f"in {', '.join(differ)}")
    return found
