"""How many keys to put into one request: the knee of the measured times (Liu 2005, 10.5.2).

A request has a fixed part that its keys share, and a part that grows faster than their number: a long statement must be
parsed and planned. In between lies a size from which more keys gain nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

SIZES = (10, 25, 50, 100, 200, 400)
FIRST = 50  # the size without measurements
_NEAR = 1.1  # times the least cost per key, within which a smaller size is as good
_KEPT = 5


@dataclass
class Knee:
    """The last times of requests of each size, and the size to use next."""

    sizes: tuple[int, ...] = SIZES
    _times: dict[int, deque[float]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The smallest size whose cost per key is close to the least."""
        if not self._times:
            return FIRST
        costs = {size: min(times) / size for size, times in self._times.items()}
        least = min(costs.values())
        return min(size for size, cost in costs.items() if cost <= _NEAR * least)

    def parts(self, count: int) -> Iterator[tuple[int, int]]:
        """Split keys into ranges (start, end). Unmeasured sizes come first, one range of each, small ones before large.

        Larger sizes are not tried once one was clearly more expensive than a smaller one: that is past the knee.
        """
        start = 0
        while start < count:
            size = self._untried(count - start) or self.size
            end = min(count, start + size)
            yield start, end
            start = end

    def learn(self, keys: int, seconds: float) -> None:
        """Add the time of a request; one of another size does not count."""
        if keys in self.sizes:
            self._times.setdefault(keys, deque(maxlen=_KEPT)).append(seconds)

    def _untried(self, left: int) -> int | None:
        best = inf
        for size in self.sizes:
            if size > left:
                return None
            if size not in self._times:
                return size
            cost = min(self._times[size]) / size
            if cost > _NEAR * best:
                return None
            best = min(best, cost)
        return None
