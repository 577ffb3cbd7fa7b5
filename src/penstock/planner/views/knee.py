"""How many keys to put into one request of a kind that grows dearer with them: the knee of what was measured (Liu 2005, 10.5.2).

A request has a fixed part that more keys share, and a part that grows faster than they do: a statement of many parts has to be
parsed and planned. In between lies a size from which more keys gain nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

SIZES = (10, 25, 50, 100, 200, 400)
FIRST = 50  # where nothing is known
_NEAR = 1.1  # times the least that a key can cost, within which a smaller size is as good
_KEPT = 5


@dataclass
class Knee:
    """What requests of each size took lately, and the size to use next."""

    sizes: tuple[int, ...] = SIZES
    _times: dict[int, deque[float]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The smallest size at which a key costs about as little as at any."""
        if not self._times:
            return FIRST
        costs = {size: min(times) / size for size, times in self._times.items()}
        least = min(costs.values())
        return min(size for size, cost in costs.items() if cost <= _NEAR * least)

    def parts(self, count: int) -> Iterator[tuple[int, int]]:
        """Cut so many keys into (start, end). Sizes that were not measured yet come first, one part of each, small ones before large.

        Larger sizes are not tried once one was clearly dearer than a smaller one: that is past the knee.
        """
        start = 0
        while start < count:
            size = self._untried(count - start) or self.size
            end = min(count, start + size)
            yield start, end
            start = end

    def learn(self, keys: int, seconds: float) -> None:
        """Take in what a request took; one that was not cut to a size tells nothing."""
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
