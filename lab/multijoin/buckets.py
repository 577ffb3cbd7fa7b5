"""How hash buckets are distributed over windows (Golab & Ozsu 2003, 6.5)."""

from __future__ import annotations

from collections.abc import Sequence

from lab.workload import LabError


def equal(streams: int, average: int) -> tuple[int, ...]:
    """Every window gets the same."""
    return (average,) * streams


def few_to_small(sizes: Sequence[float], average: int, few: int) -> tuple[int, ...]:
    """The largest window gets what remains after all others have got a few."""
    rest = average * len(sizes) - few * (len(sizes) - 1)
    if few < 1 or rest < few:
        raise LabError(f"of {average * len(sizes)} buckets, {few} to each small window leave {rest} to the largest")
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    return tuple(rest if stream == largest else few for stream in range(len(sizes)))
