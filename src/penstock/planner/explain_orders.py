"""EXPLAIN of probe orders: how often those of a join were checked, and what the last check found and did."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.planner.decisions import Decisions, last_of
from penstock.planner.orders.decision import Decision, Outcome

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
    if (found := last_of(decisions, Decision, join)) is not None:
        step, last = found
        lines.append(f"  last check: number {last.check:,} ({last.mode}) after step {step:,}{_drawn(last)}")
        if last.bypassed:
            lines.append(f"    bypassed: {last.reason}")
        else:
            lines.extend(f"    {_outcome(outcome, label)}" for outcome in last.outcomes)
    return lines


def _drawn(decision: Decision) -> str:
    if decision.draw is None:
        return ""
    text = f", distance {decision.distance:.3g}, probability {decision.probability:.3g}, drew {decision.draw:.3g}"
    # The overhead is in units of cost.
    return text if decision.overhead is None else f"{text}, overhead {decision.overhead:,.0f}"


def _outcome(outcome: Outcome, label: Callable[[int], str]) -> str:
    """The order of one start: what was changed, the costs of both orders, and why."""
    old, new = (" -> ".join(map(label, order)) for order in (outcome.previous, outcome.order))
    text = f"{label(outcome.start)} {outcome.action}: "
    text += new if old == new else f"{old} becomes {new}"
    if outcome.old_cost is not None:
        text += f", cost {outcome.old_cost:,.0f} before and {outcome.new_cost:,.0f} now"
    return f"{text}; {outcome.reason}"
