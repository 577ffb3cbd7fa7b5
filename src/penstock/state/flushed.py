"""How far the results of an aggregate are out that are let out a few at a time."""

from __future__ import annotations

import msgspec

from penstock.model.time import NEVER
from penstock.model.windows import Landmark, Sliding

LEAST_KEY, GREATEST_KEY = -(2**63), 2**63 - 1


class Flushed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In keys [low, high): windows that end by `until` are out, and of the next one those of groups with keys below `bound`."""

    low: int
    high: int | None
    until: int = NEVER
    bound: int = LEAST_KEY

    def window(self, windows: Sliding | Landmark) -> int:
        """The first window that is not out whole."""
        return windows.closed(self.until)
