"""The decisions that steps record: orders, routes, chains, panes, partials in mappers, buckets, segments, overload.

One form for the record of a step, for EXPLAIN and for `Engine.decisions()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec

from penstock.planner.chain import Chain
from penstock.planner.orders.decision import Decision


class Rerouted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="routes"):
    """New rows of a table go to every task from now on, or no longer do, since their number has changed."""

    query: str  # the join
    table: str
    before: str
    after: str
    old_cost: float
    new_cost: float
    reason: str


class Recut(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="chain"):
    """The chain of a table has changed: estimated rows, and microseconds for a row that probes it."""

    query: str  # the table
    before: Chain
    after: Chain
    old_rows: float
    new_rows: float
    old_cost: float
    new_cost: float
    reason: str = "chosen anew from the rows counted by their lives"


class Arrangement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="panes"):
    """The decision of a check of pane sets for one aggregate, and why."""

    query: str
    check: int
    action: Literal["changed", "kept"]
    before: tuple[str, ...]
    after: tuple[str, ...]
    old_cost: float
    new_cost: float
    reason: str


class Sending(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="folding"):
    """A decision that mappers send something else, and why; costs are in microseconds of CPU per row."""

    query: str
    before: str
    after: str
    old_cost: float
    new_cost: float
    reason: str


class Balanced(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="balance"):
    """Tasks serve other buckets from now on, from these ones, or a change that is due would not help.

    Costs are the largest load of a task by the mean. `moved` are seconds of a step that other tasks have now; several
    tasks probe with `split` buckets, and `spilled` ones shall go to disk.
    """

    query: str  # the policy
    action: Literal["changed", "refused"]
    before: tuple[int, ...]
    after: tuple[int, ...]
    old_cost: float
    new_cost: float
    moved: float
    split: tuple[int, ...]
    spilled: tuple[int, ...]
    reason: str


class Relocated(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="segments"):
    """A table without a key has another number of segments from now on, and why; see `relocation`.

    `inserted` are the segments after which new ones come (or before: those that end), counted from 1 among the fewer;
    `handed_on` is what each of the fewer ones gives to the next, in shares of the shorter segments.
    """

    query: str  # the table
    before: int
    after: int
    inserted: tuple[int, ...]
    handed_on: tuple[float, ...]
    reason: str


class PuttingOff(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="overload"):
    """Under pressure the probes of more buckets are put off, or those of fewer when it is over, and why.

    Costs are the seconds of the step and those that it may take; `share` is that of the work that is put off.
    """

    query: str  # the selector
    before: str
    after: str
    old_cost: float
    new_cost: float
    share: float
    reason: str


Kind = Decision | Rerouted | Recut | Arrangement | Sending | Balanced | Relocated | PuttingOff
One = TypeVar("One", Decision, Rerouted, Recut, Arrangement, Sending, Balanced, Relocated, PuttingOff)


class Decided(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision, and the step in whose record it is."""

    step: int
    decision: Kind

    def shown(self) -> dict[str, Any]:
        """Plain values for programs: the same keys for all kinds, but segments have no costs, and some have more."""
        found = msgspec.json.decode(msgspec.json.encode(self.decision))
        kind = found.pop("kind")
        match self.decision:
            case Decision():
                return {"step": self.step, **found}
            case Sending(before=before, after=after) | PuttingOff(before=before, after=after):
                found |= {"check": 0, "before": [before], "after": [after]}
            case _:
                pass
        return {"step": self.step, "mode": kind, "action": "changed", **found, "outcomes": []}


Decisions = Sequence[Decided]  # oldest first


def last_of(decisions: Decisions, kind: type[One], query: str, **also: str) -> tuple[int, One] | None:
    """The last decision of a kind about a query, or what else it is about, with its step."""
    for one in reversed(decisions):
        found = one.decision
        if isinstance(found, kind) and found.query == query and all(getattr(found, k) == v for k, v in also.items()):
            return one.step, found
    return None
