"""EXPLAIN of probe orders: how often those of a join were checked, and what the last check found and did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Decisions = Sequence[Mapping[str, Any]]  # in the form of `Decision.to_json`, each with its step; oldest first
Checks = Mapping[str, Mapping[str, int]]  # by join


def explain_orders(join: str, label: Callable[[int], str], decisions: Decisions, checks: Checks) -> list[str]:
    """The lines of one join, if it has a choice of orders; `label` names a position."""
    lines = []
    if join in checks:
        counts = checks[join]
        lines.append(
            f"  orders: checks {counts['checks']:,}, bypassed {counts['bypasses']:,}, "
            f"planned anew {counts['regenerations']:,}, of these different {counts['useful']:,}"
        )
    last = next((d for d in reversed(decisions) if d["query"] == join and d["outcomes"]), None)
    if last is not None:
        lines.append(
            f"  last check: number {last['check']:,} ({last['mode']}) after step {last['step']:,}{_drawn(last)}"
        )
        if any(outcome["action"] == "bypassed" for outcome in last["outcomes"]):
            lines.append(f"    bypassed: {last['reason']}")
        else:
            lines.extend(f"    {_outcome(outcome, label)}" for outcome in last["outcomes"])
    return lines


def _drawn(decision: Mapping[str, Any]) -> str:
    if decision["draw"] is None:
        return ""
    moved, chance, drawn = (decision[name] for name in ("distance", "probability", "draw"))
    text = f", distance {moved:.3g}, probability {chance:.3g}, drew {drawn:.3g}"
    overhead = decision.get("overhead")  # in units of cost
    return text if overhead is None else f"{text}, overhead {overhead:,.0f}"


def _outcome(outcome: Mapping[str, Any], label: Callable[[int], str]) -> str:
    """The order of one start: what was changed, the costs of both orders, and why."""
    old, new = (" -> ".join(map(label, outcome[name])) for name in ("previous", "order"))
    text = f"{label(outcome['start'])} {outcome['action']}: "
    text += new if old == new else f"{old} becomes {new}"
    if outcome["old_cost"] is not None:
        text += f", cost {outcome['old_cost']:,.0f} before and {outcome['new_cost']:,.0f} now"
    return f"{text}; {outcome['reason']}"
