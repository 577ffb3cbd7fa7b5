"""Which of several ways to ask for so many keys is the quickest, from what requests of about that size took.

Ways differ in what they cost at all and in what each key costs, and where they cross depends on the server, the link and the table:
so it is measured. Where nothing is known, a way is preferred up to a size that is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

_KEPT = 5
_CLOSE = 2.0  # times the best, up to which a way is worth a try at a size at which it was not tried
_FEW = 500  # keys up to which nothing is tried: a request is so short that its preferred way is as good as any
_TRIES = 2  # the first may have met cold caches


@dataclass
class Ways:
    """`up_to` are the ways and the number of keys up to which each is taken unmeasured, in ascending order; the last takes all."""

    up_to: Mapping[str, float]
    _times: dict[tuple[str, int], deque[float]] = field(default_factory=dict)

    def choose(self, keys: int) -> str:
        """The way that should be the quickest, or one that may be and was not tried often enough."""
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
        """Take in what a request took."""
        if keys > _FEW:
            self._times.setdefault((way, keys.bit_length()), deque(maxlen=_KEPT)).append(seconds)

    def _expected(self, way: str, size: int) -> float:
        """The least of the last times at this size, else what half or twice as many keys took, in proportion."""
        for near in (size, size - 1, size + 1):
            if times := self._times.get((way, near)):
                return min(times) * 2.0 ** (size - near)
        return inf

    def _crossing(self, way: str, preferred: str, keys: int) -> float:
        """A guess at an untried way: as good as the preferred one where they are said to cross, and worse away from there."""
        bounds = [most for most in self.up_to.values() if most < inf]
        away = min((max(keys / most, most / keys) for most in bounds), default=inf)
        return self._expected(preferred, keys.bit_length()) * (1.0 if way == preferred else away**0.5)
