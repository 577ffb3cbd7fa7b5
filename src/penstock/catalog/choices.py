"""A user's choices about plans, for all queries of an engine: how state is shared and cut, how results are computed.

No choice changes an answer; each is one of a few known words, or 'auto'.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.errors import RegistrationError
from penstock.planner.build import STRATEGIES
from penstock.planner.orders.decision import Parameters
from penstock.planner.orders.modes import MODES
from penstock.planner.panes import PLANS
from penstock.planner.share import CHAINS
from penstock.state.balance.decision import Parameters as Balancing
from penstock.state.balance.policies import CHOICES as BALANCING


@dataclass(frozen=True)
class Choices:
    """`strategy` is how queries share, `chain` where state is cut, `orders` how probe orders are chosen.

    `parameters` are those of `orders`; `plan` is that of window aggregates. `balance` is how buckets of keys are moved
    between tasks, and `balancing` has its parameters.
    """

    strategy: str = "auto"
    chain: str = "auto"
    orders: str = "adaptive"
    parameters: Parameters | None = None
    plan: str = "auto"
    balance: str = "auto"
    balancing: Balancing = Balancing()  # noqa: RUF009  (frozen)

    def __post_init__(self) -> None:
        _check(f"there is no strategy {self.strategy!r}", self.strategy, ("auto", *STRATEGIES))
        _check(f"there is no chain {self.chain!r}", self.chain, CHAINS)
        _check(f"there is no way of choosing orders {self.orders!r}", self.orders, MODES)
        _check(f"there is no way {self.balance!r} of moving buckets", self.balance, BALANCING)
        _check(f"there is no plan {self.plan!r} for window aggregates", self.plan, ("auto", *PLANS))

    @property
    def aggregate_plan(self) -> str | None:
        """The plan of window aggregates; None if it follows from the counts of steps."""
        return None if self.plan == "auto" else self.plan

    @property
    def policy(self) -> str:
        """The policy that moves buckets."""
        return "weighted" if self.balance == "auto" else self.balance


def _check(message: str, word: str, known: Collection[str]) -> None:
    if word not in known:
        raise RegistrationError(f"{message}; known: {', '.join(known)}")
