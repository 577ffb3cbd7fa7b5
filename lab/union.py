"""Unions: the results of several slices as one answer in order of result time.

The punctuated union (Wang 2008, 5.3) compares no results, but needs tuples in one order of time. The sorting union
(15.2) also supports streams of which only each by itself is in order.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from lab.counts import Counts
from lab.slices import SlicedJoin
from lab.workload import Arrival, Match
from penstock.model.time import NEVER


@dataclass(eq=False)
class PunctuatedUnion:
    """Stores the results of one probe in one bucket per slice, until the probe leaves the last slice."""

    counts: Counts
    feeders: list[SlicedJoin] = field(default_factory=list)
    buffers: dict[SlicedJoin, deque[tuple[Arrival, list[Match]]]] = field(default_factory=dict)
    punctuations: deque[Arrival] = field(default_factory=deque)
    output: list[Match] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        return bool(self.punctuations)

    @property
    def held(self) -> list[Match]:
        return [match for buffer in self.buffers.values() for _, bucket in buffer for match in bucket]

    def receive(self, feeder: SlicedJoin, probe: Arrival, match: Match) -> None:
        """Put a result of this probe into the bucket of its slice."""
        buffer = self.buffers.setdefault(feeder, deque())
        if not buffer or buffer[-1][0] is not probe:
            buffer.append((probe, []))
        buffer[-1][1].append(match)

    def punctuate(self, probe: Arrival) -> None:
        """The probe has left the last slice: its results are complete."""
        self.punctuations.append(probe)

    def run(self) -> None:
        """Emit the buckets of one probe; a single slice needs no union and costs nothing."""
        probe = self.punctuations.popleft()
        self.counts.union_steps += len(self.feeders) > 1
        for feeder, buffer in list(self.buffers.items()):
            if buffer[0][0] is probe:
                self.output += buffer.popleft()[1]
            if not buffer:
                del self.buffers[feeder]

    def finish(self) -> None:
        """Nothing remains: every probe has been punctuated."""


@dataclass(eq=False)
class SortingUnion:
    """Emits a result when no slice can bring an older one.

    For results t before t' of one slice some component of t is older than that of t' (Lemma 15.2). So what follows t'
    is not older than the least time in t', and results up to that time can be emitted.
    """

    counts: Counts
    feeders: list[SlicedJoin] = field(default_factory=list)
    waiting: list[tuple[int, int, Match]] = field(default_factory=list)
    bounds: dict[SlicedJoin, int] = field(default_factory=dict)
    output: list[Match] = field(default_factory=list)
    ready: bool = False

    @property
    def held(self) -> list[Match]:
        return [match for _, _, match in self.waiting]

    def receive(self, feeder: SlicedJoin, _probe: Arrival, match: Match) -> None:
        """Store the result, and emit all up to what the slices' newest results guarantee."""
        self.counts.union_steps += 1
        heapq.heappush(self.waiting, (match.time, self.counts.union_steps, match))
        self.bounds[feeder] = min(match.a.time, match.b.time)
        self._release(min(self.bounds.get(piece, NEVER) for piece in self.feeders))

    def punctuate(self, probe: Arrival) -> None:
        """A probe has no effect here: the other stream may still bring older ones."""

    def run(self) -> None:
        """Never ready: results are emitted as others arrive."""

    def finish(self) -> None:
        """The streams have ended: emit everything."""
        self._release(max((time for time, _, _ in self.waiting), default=NEVER))

    def _release(self, bound: int) -> None:
        while self.waiting and self.waiting[0][0] <= bound:
            self.output.append(heapq.heappop(self.waiting)[2])
