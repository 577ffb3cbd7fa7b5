"""JSON with a checksum in front: how the manifest and the registry are written, and never read when damaged."""

from __future__ import annotations

import json
import zlib
from typing import Any

from penstock.errors import StateError

FORMAT = 2  # 1: partials of aggregates named the query whose bits they share


def seal(body: dict[str, Any]) -> bytes:
    text = json.dumps({"format": FORMAT, **body}, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x} {text}\n".encode()


def unseal(data: bytes, path: str) -> dict[str, Any]:
    """What was sealed; raises StateError naming the file if a byte of it has changed."""
    code, _, text = data.rstrip(b"\n").partition(b" ")
    if not text or code != f"{zlib.crc32(text):08x}".encode():
        msg = (
            f"{path} is damaged (its checksum does not fit); restore it from a backup, or remove the state directory "
            "and replay the sources"
        )
        raise StateError(msg)
    body: dict[str, Any] = json.loads(text)
    if body.pop("format") != FORMAT:
        msg = f"{path} was written by another version of Penstock; use that one, or another state directory and replay the sources"
        raise StateError(msg)
    return body
