"""Union of ordered streams: Merge keeps the order and delays rows, Meld passes them on at once (Li 2008, 8.2)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from lab.counts import Counts
from penstock.model.time import NEVER


@dataclass
class Merge:
    """A row passes when no other input can bring an older one: its buffer grows with skew and with idle inputs."""

    inputs: int
    counts: Counts = field(default_factory=Counts)
    output: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queues: list[deque[int]] = [deque() for _ in range(self.inputs)]
        self.seen = [NEVER] * self.inputs

    def arrive(self, source: int, time: int) -> None:
        self.queues[source].append(time)
        self.counts.stored()
        self.punctuate(source, time)

    def punctuate(self, source: int, bound: int) -> None:
        """No later row of this input is older than the bound."""
        self.seen[source] = max(self.seen[source], bound)
        while heads := [(queue[0], number) for number, queue in enumerate(self.queues) if queue]:
            time, number = min(heads)
            self.counts.probes += len(heads)
            if any(time > seen for other, seen in enumerate(self.seen) if other != number):
                return
            self.output.append(self.queues[number].popleft())
            self.counts.removed()


@dataclass
class Meld:
    """Rows pass at once; progress is the least of the inputs', emitted only when it has advanced."""

    inputs: int
    output: list[int] = field(default_factory=list)
    stated: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bounds = [NEVER] * self.inputs

    def arrive(self, _source: int, time: int) -> None:
        self.output.append(time)

    def punctuate(self, source: int, bound: int) -> int | None:
        """The new progress of the union, if this advances it."""
        self.bounds[source] = max(self.bounds[source], bound)
        least = min(self.bounds)
        if least <= (self.stated[-1] if self.stated else NEVER):
            return None
        self.stated.append(least)
        return least
