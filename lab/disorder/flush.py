"""Aggregation at two levels: a small table of slots below, totals above, and how old slots leave it (Li 2008, 8.3.3).

Order (`iop`) forces a burst when two groups of a new window need one slot. Without order, old slots leave when they are
in the way (`lazy`) or one every few rows (`slow`), at most `most` windows late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from lab.counts import Counts
from lab.workload import LabError

POLICIES = ("iop", "lazy", "slow")


class Slot(NamedTuple):
    """A partial count of one group in one window."""

    window: int
    key: int
    rows: int


@dataclass
class TwoLevels:
    """Counts by group and tumbling window; rows come in the order of their windows."""

    size: int
    policy: str
    most: int = 2  # windows that a slot may be late
    every: int = 1  # rows between two slots that a slow flush emits
    counts: Counts = field(default_factory=Counts)
    totals: Counter[tuple[int, int]] = field(default_factory=Counter)
    # (window of the row that came, window of the slot that left).
    emitted: list[tuple[int, int]] = field(default_factory=list)
    largest: int = 0  # slots that left at one row

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            msg = f"a flush is one of {', '.join(POLICIES)}, not {self.policy!r}"
            raise LabError(msg)
        self.slots: list[Slot | None] = [None] * self.size
        self.window: int | None = None
        self.cursor = self.rows = 0

    @property
    def progress(self) -> int | None:
        """The first window with a slot in the lower table; None before the first row."""
        return min((slot.window for slot in self.slots if slot), default=self.window)

    def arrive(self, window: int, key: int) -> None:
        before = len(self.emitted)
        if window != self.window:
            # In order, all slots of an earlier window must be emitted before this one's.
            older = window - 1 if self.policy == "iop" else window - self.most
            self._flush(older, window)
            self.window, self.cursor = window, 0
        self.rows += 1
        if self.policy != "lazy" and self.rows % (1 if self.policy == "iop" else self.every) == 0:
            self._step(window)
        self._put(window, key)
        self.largest = max(self.largest, len(self.emitted) - before)

    def finish(self) -> None:
        """The stream has ended: emit everything."""
        if self.window is not None:
            self._flush(self.window + 1, self.window)

    def _put(self, window: int, key: int) -> None:
        place = key % self.size
        slot = self.slots[place]
        if slot is not None and (slot.window, slot.key) == (window, key):
            self.slots[place] = slot._replace(rows=slot.rows + 1)
            return
        if slot is not None:
            if slot.window == window and self.policy == "iop":
                self._flush(window, window)
            self._emit(place, window)
        self.slots[place] = Slot(window, key, 1)
        self.counts.stored()

    def _step(self, window: int) -> None:
        """Emit the next old slot, if there is one."""
        while self.cursor < self.size:
            slot = self.slots[self.cursor]
            self.counts.purge_tests += 1
            self.cursor += 1
            if slot is not None and slot.window < window:
                self._emit(self.cursor - 1, window)
                return

    def _flush(self, before: int, now: int) -> None:
        """Emit all slots of windows before this one, oldest first."""
        old = sorted((slot.window, place) for place, slot in enumerate(self.slots) if slot and slot.window < before)
        for _, place in old:
            self._emit(place, now)

    def _emit(self, place: int, now: int) -> None:
        slot = self.slots[place]
        assert slot is not None
        self.totals[slot.window, slot.key] += slot.rows
        self.emitted.append((now, slot.window))
        self.slots[place] = None
        self.counts.removed()
