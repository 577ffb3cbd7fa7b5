"""AdaptWID: each group is stored as partials or as rows, whichever is smaller, and may switch (Li 2008, 6.3.4).

An *eager* group has a partial for each of its open windows; the rows of a *lazy* group are in a buffer that all lazy
groups share. An eager group that turns lazy keeps its partials until they are emitted (*transition*); if it turns eager
again meanwhile, its rows are added to them. The policies `eager` and `lazy` never switch, for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lab.workload import LabError
from penstock.model.time import NEVER
from penstock.model.windows import Sliding

POLICIES = ("adapt", "eager", "lazy")


class Row(NamedTuple):
    """A row of one of several sources."""

    time: int
    key: int
    value: int
    source: int = 0


class Result(NamedTuple):
    """Count, sum and greatest value of a group in a window."""

    key: int
    window: int
    rows: int
    total: int
    greatest: int


@dataclass
class Partial:
    """A group's aggregates in a window. `leaving`: of its rows, those whose last window this is, by source."""

    leaving: list[int]
    rows: int = 0
    total: int = 0
    greatest: int = 0

    def add(self, value: int) -> None:
        self.merge(1, value, value)

    def merge(self, rows: int, total: int, greatest: int) -> None:
        self.greatest = max(self.greatest, greatest) if self.rows else greatest
        self.rows += rows
        self.total += total


@dataclass
class Group:
    """`live` counts the rows of each source that have not expired; a lazy group with partials is in transition."""

    live: list[int]
    eager: bool = False
    partials: dict[int, Partial] = field(default_factory=dict)

    @property
    def volume(self) -> int:
        return sum(self.live)

    @property
    def in_transition(self) -> bool:
        return not self.eager and bool(self.partials)


@dataclass
class AdaptWid:
    """Count, sum and maximum by group. `partial_size` and `row_size` are the sizes of both in one unit.

    `back` is the share of the threshold below which an eager group turns lazy. `offsets` are how far each source is
    behind the earliest one; without them they are estimated from the newest times.
    """

    windows: Sliding
    partial_size: float = 1.0
    row_size: float = 1.0
    policy: str = "adapt"
    sources: int = 1
    offsets: Sequence[int] | None = None
    back: float = 0.8
    groups: dict[int, Group] = field(default_factory=dict)
    buffer: list[Row] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    bound: int = NEVER
    partials: int = 0  # of all groups
    peak: float = 0.0  # the most memory after a row or a punctuation
    updates: int = 0  # of partials
    scanned: int = 0  # rows of the buffer that were read
    switches: int = 0

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            msg = f"a group is held by one of {', '.join(POLICIES)}, not {self.policy!r}"
            raise LabError(msg)
        if not 0 < self.back <= 1 or min(self.partial_size, self.row_size) <= 0:
            msg = (
                f"sizes are above 0 and the way back is in (0, 1], not {self.partial_size}, {self.row_size} and "
                f"{self.back}"
            )
            raise LabError(msg)
        self.duration = self.windows.range  # of the last window that closed: its `wed`
        self.newest = [NEVER] * self.sources
        self.started: dict[int, int] = {}  # open windows with a row, by the progress when the first row came

    @property
    def held(self) -> float:
        return self.partials * self.partial_size + len(self.buffer) * self.row_size

    def threshold(self, group: Group) -> float:
        """The right side of Cond. 6.9: above it, partials are smaller than the group's live rows."""
        partials = self.partial_size * self.duration / (self.row_size * self.windows.slide)
        return partials + sum(
            live / self.windows.range * offset for live, offset in zip(group.live, self._offsets(), strict=True)
        )

    def arrive(self, row: Row) -> None:
        if row.time < self.bound:
            msg = f"a row of time {row.time} comes after a punctuation that said there is none below {self.bound}"
            raise LabError(msg)
        self.newest[row.source] = max(self.newest[row.source], row.time)
        wids = self.windows.wids(row.time)
        if not wids:
            return
        for window in wids:
            self.started.setdefault(window, self.bound)
        group = self.groups.get(row.key)
        if group is None:
            group = self.groups[row.key] = Group([0] * self.sources, self.policy == "eager")
        group.live[row.source] += 1
        if group.eager:
            self._insert(group, row)
        else:
            self.buffer.append(row)
            if self.policy == "adapt" and group.volume > self.threshold(group):
                self._turn_eager(row.key, group)
        self.peak = max(self.peak, self.held)

    def punctuate(self, bound: int) -> None:
        """No later row is below the bound: windows that end by then are emitted, then groups may turn lazy."""
        if bound <= self.bound:
            return
        still_open = self.windows.closed(bound)
        done = self._from_rows(still_open)
        for key in list(self.groups):
            self._close(key, still_open, done.pop(key, {}))
        self._measure(still_open)
        self.bound = bound
        if self.policy == "adapt":
            for group in self.groups.values():
                if group.eager and group.volume < self.back * self.threshold(group):
                    group.eager = False
                    self.switches += 1
        self.peak = max(self.peak, self.held)

    def _insert(self, group: Group, row: Row) -> None:
        """Add it to the partials of the row's open windows; rows from the buffer may have lost some windows."""
        wids = self.windows.wids(row.time)
        first = wids[0] if self.bound == NEVER else max(wids[0], self.windows.closed(self.bound))
        for window in range(first, wids[-1] + 1):
            partial = group.partials.get(window)
            if partial is None:
                partial = group.partials[window] = Partial([0] * self.sources)
                self.partials += 1
            partial.add(row.value)
            self.updates += 1
        group.partials[wids[-1]].leaving[row.source] += 1

    def _turn_eager(self, key: int, group: Group) -> None:
        self.scanned += len(self.buffer)
        for row in self.buffer:
            if row.key == key:
                self._insert(group, row)
        self.buffer = [row for row in self.buffer if row.key != key]
        group.eager = True
        self.switches += 1

    def _from_rows(self, still_open: int) -> dict[int, dict[int, Partial]]:
        """The closed windows of lazy groups, from their rows; rows in their last window leave the buffer."""
        done: dict[int, dict[int, Partial]] = {}
        kept = []
        self.scanned += len(self.buffer)
        for row in self.buffer:
            wids = self.windows.wids(row.time)
            first = wids[0] if self.bound == NEVER else max(wids[0], self.windows.closed(self.bound))
            for window in range(first, min(wids[-1] + 1, still_open)):
                done.setdefault(row.key, {}).setdefault(window, Partial([0] * self.sources)).add(row.value)
            if wids[-1] < still_open:
                self.groups[row.key].live[row.source] -= 1
            else:
                kept.append(row)
        self.buffer = kept
        return done

    def _close(self, key: int, still_open: int, done: dict[int, Partial]) -> None:
        group = self.groups[key]
        for window in [w for w in group.partials if w < still_open]:
            own = group.partials.pop(window)
            self.partials -= 1
            for source, count in enumerate(own.leaving):
                group.live[source] -= count
            done.setdefault(window, Partial([])).merge(own.rows, own.total, own.greatest)
        for window, found in sorted(done.items()):
            self.results.append(Result(key, window, found.rows, found.total, found.greatest))
        if not group.volume:
            del self.groups[key]

    def _measure(self, still_open: int) -> None:
        """How long the last closed window was open: from the progress at its start to the newest time now.

        For a window that began before any punctuation the start is unknown, and the duration does not change.
        """
        closed = [window for window in self.started if window < still_open]
        since = self.started[max(closed)] if closed else NEVER
        if since > NEVER:
            self.duration = max(self.newest) - since
        for window in closed:
            del self.started[window]

    def _offsets(self) -> Sequence[int]:
        if self.offsets is not None:
            return self.offsets
        # A source without rows so far has no volume either.
        return [max(self.newest) - newest if newest > NEVER else 0 for newest in self.newest]
