"""Late and invalid rows are kept for a while by the clock: which of their files expire, and which are merged.

A pure choice from the manifest's lines. A merged file is as old as its newest rows, so files are merged only with those
of about their age: rows stay at most about a tenth of their time too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.state.side_files import SideFile

Retained = Mapping[str, int | None]  # stream -> microseconds; None: for ever

MANY_FILES = 64  # of one stream and reason, before they are merged
SMALL_BYTES = 8 << 20
_SECOND = 1_000_000
_PARTS = 10  # of the retention time; files of one part are merged
_SLACK = 0.01  # by which rows may stay longer than that, so that an idle engine needs no step per file


def expired_sides(sides: Iterable[SideFile], retained: Retained, now: float) -> list[SideFile]:
    """Files that are older than their stream's retention at this clock."""
    return [side for side in sides if (end := _end(side, retained)) is not None and end <= now]


def next_expiry(sides: Iterable[SideFile], retained: Retained) -> float:
    """The clock at which a step to drop files is worthwhile; infinite if there are none."""
    ends = (end + _SLACK * (end - side.at) for side in sides if (end := _end(side, retained)) is not None)
    return min(ends, default=float("inf"))


def alike_sides(sides: Iterable[SideFile], retained: Retained) -> list[list[SideFile]]:
    """Groups of many small files of one stream, reason and age."""
    groups: dict[tuple[object, ...], list[SideFile]] = {}
    for side in sides:
        if side.bytes < SMALL_BYTES:
            kept = retained.get(side.stream)
            age = 0 if kept is None else int(side.at * _SECOND * _PARTS // kept)
            groups.setdefault((side.stream, side.reason, age), []).append(side)
    return [group for group in groups.values() if len(group) >= MANY_FILES]


def _end(side: SideFile, retained: Retained) -> float | None:
    kept = retained.get(side.stream)
    return None if kept is None else side.at + kept / _SECOND
