"""When an engine is overloaded, and what it puts off: a state that each step moves on, and decisions with reasons.

An engine is overloaded when several steps in a row take longer than they may, or when the state that rows of the
present rate will need exceeds the budget. Then the first buckets by the chosen order put off their probes, and more of
them as long as that is not enough. When several steps in a row are short, the last ones that were put off come back:
the two limits differ, so that a load between them changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from penstock.planner.decisions import PuttingOff
from penstock.planner.deferral.loads import Loads, learn
from penstock.planner.deferral.selectors import SELECTORS, chosen


@dataclass(frozen=True)
class Parameters:
    """`selector` names the order; each time the `share` of the work that is left is put off.

    Overloaded are `steps` steps in a row of more than `seconds` (None: the trigger's), or reachable state of more than
    `budget` bytes; over are as many of less than `calm` of it.
    """

    selector: str = "least_productive"
    share: float = 0.3
    steps: int = 3
    seconds: float | None = None
    calm: float = 0.7
    budget: float = inf
    seed: int = 0

    def __post_init__(self) -> None:
        if self.selector not in SELECTORS:
            raise ValueError(f"there is no selector {self.selector!r}; known: {', '.join(SELECTORS)}")
        for name in ("share", "calm"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be more than 0 and at most 1, not {getattr(self, name)}")
        for name in ("steps", "budget"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)}")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"seconds must be more than 0, not {self.seconds}")


@dataclass(frozen=True)
class Overload:
    """What is known after a step. `groups` are the buckets that were put off together, in order of time."""

    parameters: Parameters
    loads: Loads = ()
    groups: tuple[frozenset[int], ...] = ()
    slow: int = 0  # steps in a row that took too long
    short: int = 0  # steps in a row that were short

    @property
    def put_off(self) -> frozenset[int]:
        """The buckets of which the next step puts off the probes."""
        return frozenset().union(*self.groups)


@dataclass(frozen=True)
class Seen:
    """A step with rows: it took `seconds` and may take `allowed`; rows of its rate will need `reachable` bytes."""

    step: int
    seconds: float
    allowed: float
    loads: Loads
    reachable: float = 0.0


def after(before: Overload, seen: Seen) -> tuple[Overload, PuttingOff | None]:
    """The state after a step, and the decision if something changes."""
    known = before.parameters
    now = replace(before, loads=learn(before.loads, seen.step, seen.loads, before.put_off), slow=0, short=0)
    if seen.seconds > seen.allowed or seen.reachable > known.budget:
        now = replace(now, slow=before.slow + 1)
    elif seen.seconds < known.calm * seen.allowed and seen.reachable < known.calm * known.budget:
        now = replace(now, short=before.short + 1)
    if now.slow >= known.steps:
        return _more(now, seen)
    if now.short >= known.steps and now.groups:
        why = f"{known.steps} steps in a row took less than {known.calm:.0%} of {seen.allowed:g} s"
        return _decided(now, replace(now, short=0, groups=now.groups[:-1]), seen, why)
    return now, None


def _more(now: Overload, seen: Seen) -> tuple[Overload, PuttingOff | None]:
    known = now.parameters
    order = SELECTORS[known.selector](now.loads, known.seed)
    more = chosen(order, now.loads, known.share, now.put_off)
    if not more:
        return replace(now, slow=0), None
    why = f"{known.steps} steps in a row took longer than {seen.allowed:g} s"
    if seen.reachable > known.budget:
        why = f"rows of this rate need {seen.reachable:,.0f} bytes of state, more than {known.budget:,.0f}"
    return _decided(now, replace(now, slow=0, groups=(*now.groups, more)), seen, why)


def _decided(before: Overload, now: Overload, seen: Seen, reason: str) -> tuple[Overload, PuttingOff]:
    total = sum(load.work for load in now.loads)
    share = sum(now.loads[bucket].work for bucket in now.put_off) / total if total else 0.0
    was, will = (f"{len(own.put_off)} buckets" for own in (before, now))
    return now, PuttingOff(
        now.parameters.selector, was, will, round(seen.seconds, 4), seen.allowed, round(share, 4), reason
    )
