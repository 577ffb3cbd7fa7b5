"""The name that a state directory has for itself: by it sinks know whose results they hold, and Spark's query is called after it."""

from __future__ import annotations

import re
import uuid

from penstock.storage.faults import damaged
from penstock.storage.store import Store

FILE = "id"


def read_id(store: Store) -> str:
    """The name, given when it is first asked for."""
    store.put_if_absent(FILE, uuid.uuid4().hex.encode())
    found = store.read(FILE)
    if not re.fullmatch(rb"[0-9a-f]{32}", found):
        raise damaged(store.label(FILE), f"it holds {found[:40]!r}, and not a name of 32 hexadecimal digits")
    return found.decode()
