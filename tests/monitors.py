"""Checks of an operator's output: grammatical, monotone, results before the progress that covers them, rows complete.

They wrap any sequence of steps, from the reference or the engine, and raise `AssertionError` at the
first offence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.model.time import NEVER


def check_progress(steps: Iterable[tuple[Sequence[int], int]]) -> None:
    """`steps` = (times of a step's results, output progress after it): no result may be behind earlier progress."""
    stated = NEVER
    for number, (times, progress) in enumerate(steps):
        behind = [time for time in times if time < stated]
        assert not behind, f"step {number} gave results of {behind} although progress was {stated}"
        assert progress >= stated, f"step {number} moved progress back from {stated} to {progress}"
        stated = progress


def check_ordered(steps: Iterable[tuple[Sequence[int], int]]) -> None:
    """An ordered output: non-decreasing within and across steps, and nothing released that is not below progress."""
    last = NEVER
    for number, (times, progress) in enumerate(steps):
        for time in times:
            assert time >= last, f"step {number} gave {time} after {last}"
            assert time < progress, f"step {number} gave {time} before progress {progress} had passed it"
            last = time


def check_accounts(counts: Mapping[str, int]) -> None:
    """Every row that came is accepted, late, bad, or a punctuation."""
    judged = sum(counts.get(kind, 0) for kind in ("accepted", "late", "bad", "punctuations"))
    assert counts["rows"] == judged, f"{counts['rows']} rows came in and {judged} were judged: {dict(counts)}"


def check_bounded(held: Sequence[int], bound: Callable[[int], int], *, ended: bool) -> None:
    """State after each step is within its bound, and empty once the streams have ended."""
    for number, rows in enumerate(held):
        assert rows <= bound(number), f"step {number} holds {rows} rows, more than {bound(number)}"
    assert not ended or not held or held[-1] == 0, f"{held[-1]} rows are held after the end of the streams"
