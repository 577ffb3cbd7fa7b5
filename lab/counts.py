"""Counters of the lab's algorithms: comparisons by kind, operator runs, and tuples in states."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """One counter for all algorithms. Comparisons weigh the same; queues and buffers are not state (Wang 2008, 4.1)."""

    probes: int = 0  # evaluations of the join condition
    purge_tests: int = 0  # ages compared with the end of a window
    purged: int = 0  # expired tuples
    split: int = 0  # predicates evaluated to select a part of a stream
    routed: int = 0  # ages of results compared with a query's window
    filtered: int = 0  # predicates evaluated on tuples or on results
    union_steps: int = 0  # punctuations of a punctuated union, results of a sorting one
    messages: int = 0  # operator runs
    state: int = 0
    peak_state: int = 0

    @property
    def comparisons(self) -> int:
        return self.probes + self.purge_tests + self.split + self.routed + self.filtered + self.union_steps

    def stored(self) -> None:
        """One more tuple is in a state."""
        self.state += 1
        self.peak_state = max(self.peak_state, self.state)

    def removed(self) -> None:
        """One tuple of a state has expired."""
        self.purged += 1
        self.state -= 1
