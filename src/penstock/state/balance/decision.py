"""Parameters of policies, and what a policy decided with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from penstock.state.balance.costs import Floats, excess

Action = Literal["kept", "moved", "refused"]


@dataclass(frozen=True)
class Parameters:
    """When buckets are moved (Liu 2005, 6.2 and 6.3).

    Loads are even enough if the least is `theta_r` of the largest; two changes are at least `tau_m` seconds apart;
    buckets of steps that cost less than `least` seconds stay. Hot buckets may be `split`. With disk: a task with more
    than `theta_s` of its `memory` (bytes) moves the share `spill` of it to disk, and one with `lambda_r` times fewer
    results per bucket than another is forced to, as long as all such spills are below `forced` bytes.
    """

    theta_r: float = 0.8
    tau_m: float = 45.0
    least: float = 0.02
    split: bool = True
    theta_s: float = 0.9
    memory: float = inf
    spill: float = 0.3
    lambda_r: float = 2.0
    forced: float = 100e6

    def __post_init__(self) -> None:
        for name in ("theta_r", "theta_s", "spill"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be more than 0 and at most 1, not {getattr(self, name)}")
        for name in ("tau_m", "least", "lambda_r", "forced"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} must be more than 0, and finite, not {getattr(self, name)}")
        if not self.memory > 0:
            raise ValueError(f"memory must be more than 0, not {self.memory}")


@dataclass(frozen=True)
class Decision:
    """What a policy did and why. Loads are seconds of a step, `moved` those that went to other tasks.

    `skew` is the largest load by the mean before and after; `spilled` are buckets that shall go to disk.
    """

    action: Action
    reason: str
    skew: tuple[float, float]
    moved: float = 0.0
    split: tuple[int, ...] = ()
    spilled: tuple[int, ...] = ()


def kept(loads: Floats, reason: str) -> Decision:
    """Nothing changes."""
    skew = 1 + excess(loads)
    return Decision("kept", reason, (skew, skew))


def refused(loads: Floats, reason: str) -> Decision:
    """A change is due, and none would help."""
    skew = 1 + excess(loads)
    return Decision("refused", reason, (skew, skew))


def waits(loads: Floats, idle: float, known: Parameters) -> str | None:
    """Why no bucket is moved now; None if one should be. `idle` are the seconds since the last change."""
    if len(loads) < 2:
        return "there is one task"
    if loads.sum() < known.least:
        return f"a step costs {loads.sum():.3f} s, less than {known.least:g} s"
    ratio = loads.min() / loads.max()
    if ratio >= known.theta_r:
        return f"the least load is {ratio:.2f} of the largest, at least {known.theta_r:g}"
    if idle < known.tau_m:
        return f"the last change was {idle:.1f} s ago, less than {known.tau_m:g} s"
    return None
