"""JSON with a checksum in front: the form of the manifest and the registry, so that damage is detected.

It has the number of the format; what asks for another number is decision 0025.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from penstock.errors import StateError
from penstock.storage.faults import RESTORE, damaged

# 1: partials of aggregates named the query whose bits they share; 2: counters by texts, files of sides without a clock;
# 3: cursors of sinks and of early results in one mapping, reasons of suspensions without their remedy, secrets
FORMAT = 4

# By format: what makes a body of the next format of one, where that is little work. Bodies of other formats are
# refused.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}

Found = TypeVar("Found")


def seal(body: dict[str, Any]) -> bytes:
    text = json.dumps({"format": FORMAT, **body}, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x} {text}\n".encode()


def unseal(data: bytes, path: str) -> dict[str, Any]:
    """The sealed content; raises StateError naming the file if a byte of it has changed."""
    code, _, text = data.rstrip(b"\n").partition(b" ")
    if not text or code != f"{zlib.crc32(text):08x}".encode():
        raise damaged(path, "its checksum does not fit")
    body: dict[str, Any] = json.loads(text)
    found = body.pop("format", None)
    while found in MIGRATIONS:
        body, found = MIGRATIONS[found](body), found + 1
    if found != FORMAT:
        msg = (
            f"{path} was written by another version of Penstock; use that one, or another state directory and "
            "replay the sources"
        )
        raise StateError(msg)
    return body


def load(data: bytes, path: str, decode: Callable[[dict[str, Any]], Found], **holds: int) -> Found:
    """The content of a sealed file with these bytes, which must contain these numbers, or it is a copy."""
    body = unseal(data, path)
    for key, number in holds.items():
        if body.get(key) != number:
            msg = (
                f"{path} is not what its name says (it holds {key} {body.get(key)}): somebody has copied or "
                f"renamed it; {RESTORE}"
            )
            raise StateError(msg)
    try:
        return decode(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        msg = (
            f"{path} says what this version of Penstock does not know ({error}); use the version that wrote it, "
            f"or {RESTORE}"
        )
        raise StateError(msg) from None


def numbers(names: Iterable[str], digits: int, prefix: str = "") -> list[int]:
    """The numbers of sealed files among names, in order; other files are ignored."""
    pattern = re.compile(rf"{prefix}(\d{{{digits},}})\.json", re.ASCII)
    return sorted(int(found[1]) for name in names if (found := pattern.fullmatch(name)))
