"""What a changed number of segments means for state without a key (Wang 2008, 14.2).

Segments have equal shares of the rows before and after. New ones are inserted at even distances, and every segment
hands what it has too much to the next one only. Here no row is copied: a segment is a range of time that some task
scans, so the amounts say how much of the state another task reads in the next step.
"""

from __future__ import annotations

from fractions import Fraction

from penstock.planner.decisions import Relocated


def relocated(table: str, before: int, after: int, reason: str) -> Relocated:
    """The change from one number of segments to another; removing some is adding them, backwards."""
    few, more = min(before, after), abs(after - before)
    handed = tuple(float(share) for share in handed_on(few, more))
    return Relocated(table, before, after, inserted_after(few, more), handed, reason)


def inserted_after(count: int, more: int) -> tuple[int, ...]:
    """After which of `count` segments each of `more` new ones comes."""
    _check(count, more)
    return tuple(-(-number * count // more) for number in range(1, more + 1))


def handed_on(count: int, more: int) -> tuple[Fraction, ...]:
    """How much each of `count` segments hands to the next when there are `more`, in lengths of the new segments."""
    _check(count, more)
    return tuple(Fraction(more * number, count) % 1 for number in range(1, count + 1))


def _check(count: int, more: int) -> None:
    if count < 1 or more < 0:
        raise ValueError(f"at least one segment stays, and their number changes by 0 or more, not {count} and {more}")
