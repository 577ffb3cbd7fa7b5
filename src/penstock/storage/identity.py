"""The id of a state directory: sinks use it to recognize their results, and it names Spark's query."""

from __future__ import annotations

import re
import uuid

from penstock.storage.faults import damaged
from penstock.storage.store import Store

FILE = "id"


def read_id(store: Store) -> str:
    """The id, created on first use."""
    store.put_if_absent(FILE, uuid.uuid4().hex.encode())
    found = store.read(FILE)
    if not re.fullmatch(rb"[0-9a-f]{32}", found):
        raise damaged(store.label(FILE), f"it holds {found[:40]!r}, and not a name of 32 hexadecimal digits")
    return found.decode()
