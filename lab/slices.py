"""The sliced binary join (Wang 2008, 5.2, Def. 3): the part of a window join whose ages lie in [start, end).

It tests no lower bound: the slice before it passes on only what is old enough. A slice from 0 is the regular window
join (3.2). The caller decides what goes to the next slice, and where results go.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from lab.counts import Counts
from lab.workload import A, Arrival, Lengths, Match, Theta


class Copy(Enum):
    """What a reference to a tuple does in a slice: probe, be stored, or only expire rows and punctuate."""

    PROBE = "probe"
    BUILD = "build"
    MARKER = "marker"


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the queue in front of a slice."""

    copy: Copy
    arrival: Arrival


@dataclass(eq=False, repr=False)
class SlicedJoin:
    """One slice: its bounds for the states of A and of B, its input queue, and the two states, oldest tuple first."""

    start: Lengths
    end: Lengths
    counts: Counts
    queue: deque[Message] = field(default_factory=deque)
    states: tuple[deque[Arrival], deque[Arrival]] = field(default_factory=lambda: (deque(), deque()))

    @property
    def ready(self) -> bool:
        return bool(self.queue)

    def purge(self, probe: Arrival) -> list[Arrival]:
        """Remove from the other stream's state what is as old as the slice's end or older, oldest first."""
        state = self.states[1 - probe.stream]
        limit = probe.time - self.end[1 - probe.stream]
        gone: list[Arrival] = []
        while state:
            self.counts.purge_tests += 1
            if state[0].time > limit:
                break
            gone.append(state.popleft())
            self.counts.removed()
        return gone

    def probe(self, probe: Arrival, theta: Theta) -> list[Match]:
        """The matches with the other stream's state, oldest first, without testing either bound."""
        state = self.states[1 - probe.stream]
        self.counts.probes += len(state)
        if probe.stream == A:
            return [Match(probe, other) for other in state if theta(probe, other)]
        return [Match(other, probe) for other in state if theta(other, probe)]

    def insert(self, build: Arrival) -> None:
        """Add a tuple to its own stream's state."""
        self.states[build.stream].append(build)
        self.counts.stored()

    def __repr__(self) -> str:
        if self.start[0] == self.start[1] and self.end[0] == self.end[1]:
            return f"[{self.start[0]}, {self.end[0]})"
        return f"A[{self.start[0]}, {self.end[0]}) B[{self.start[1]}, {self.end[1]})"
