"""The fastest of several kinds of request for a number of keys, by the measured times of requests of about that size.

Kinds differ in their fixed cost and in their cost per key, and where they cross depends on the server, the link and the
table: so it is measured. Without measurements, a kind is preferred up to a given size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

_KEPT = 5
_CLOSE = 2.0  # times the best, within which an unmeasured kind is worth a try
_FEW = 500  # keys up to which nothing is tried: the preferred kind is as good as any for so short a request
_TRIES = 2  # the first may have met cold caches


@dataclass
class Ways:
    """`up_to`: the kinds, each with the number of keys up to which it is used unmeasured; the last takes all."""

    up_to: Mapping[str, float]
    _times: dict[tuple[str, int], deque[float]] = field(default_factory=dict)

    def choose(self, keys: int) -> str:
        """The kind that should be the fastest, or one that may be and was not tried often enough."""
        preferred = next((way for way, most in self.up_to.items() if keys <= most), list(self.up_to)[-1])
        if keys <= _FEW:
            return preferred
        size = keys.bit_length()
        if len(self._times.get((preferred, size), ())) < _TRIES and not self._expected(preferred, size) < inf:
            return preferred
        found = {way: self._expected(way, size) for way in self.up_to}
        best = min(found, key=lambda way: found[way])
        for way in self.up_to:
            tried = len(self._times.get((way, size), ()))
            guess = found[way] if found[way] < inf else self._crossing(way, preferred, keys)
            if tried < _TRIES and guess <= _CLOSE * found[best]:
                return way
        return best

    def learn(self, way: str, keys: int, seconds: float) -> None:
        """Add the time of a request."""
        if keys > _FEW:
            self._times.setdefault((way, keys.bit_length()), deque(maxlen=_KEPT)).append(seconds)

    def _expected(self, way: str, size: int) -> float:
        """The least of the last times at this size, else those of half or twice as many keys, in proportion."""
        for near in (size, size - 1, size + 1):
            if times := self._times.get((way, near)):
                return min(times) * 2.0 ** (size - near)
        return inf

    def _crossing(self, way: str, preferred: str, keys: int) -> float:
        """The expected time of an untried kind: equal to the preferred one at the crossing, and worse away from it."""
        bounds = [most for most in self.up_to.values() if most < inf]
        away = min((max(keys / most, most / keys) for most in bounds), default=inf)
        return self._expected(preferred, keys.bit_length()) * (1.0 if way == preferred else away**0.5)
