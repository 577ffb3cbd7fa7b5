"""Why a query is suspended."""

from __future__ import annotations

import msgspec


class Suspension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason, for users; and whether the query can be `resumed`, or must be created again."""

    reason: str
    resumable: bool = False
