"""How far the results of an aggregate with capped results are emitted."""

from __future__ import annotations

import msgspec

from penstock.model.time import NEVER
from penstock.model.windows import Landmark, Sliding

LEAST_KEY, GREATEST_KEY = -(2**63), 2**63 - 1


class Flushed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In keys [low, high) all windows that end by `until` are emitted; of the next one, groups with keys < `bound`."""

    low: int
    high: int | None
    until: int = NEVER
    bound: int = LEAST_KEY

    def window(self, windows: Sliding | Landmark) -> int:
        """The first window that is not emitted in full."""
        return windows.closed(self.until)
