"""The files of late and invalid rows of a manifest, in the order of commits; which of them expire or are merged.

A manifest shares them with the previous one, so that a step that adds some copies none. They are kept for a while by
the clock. A merged file is as old as its newest rows, so files are merged only with those of about their age: rows stay
at most about a tenth of their time too long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec


class SideFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A committed file of whole late or invalid rows; `at` is the clock of its commit in seconds, and None before."""

    name: str
    stream: str
    reason: str
    step: int
    rows: int
    bytes: int
    at: float = -1.0


class SideFiles(Collection[SideFile]):
    """The files of one manifest. The list behind them only grows, so readers of earlier ones are not disturbed."""

    def __init__(self, files: Iterable[SideFile] = (), *, behind: list[SideFile] | None = None) -> None:
        self._all: list[SideFile] = [] if behind is None else behind
        self._all.extend(files)
        self._count = len(self._all)

    def changed(self, added: Collection[SideFile], removed: Collection[str] = ()) -> SideFiles:
        """The files after a step; it costs by the added ones and, if some are removed, by all."""
        if not added and not removed:
            return self
        if removed or self._count < len(self._all):  # of two successors of one state, the second copies
            gone = set(removed)
            return SideFiles(file for file in (*self, *added) if file.name not in gone)
        return SideFiles(added, behind=self._all)

    def __iter__(self) -> Iterator[SideFile]:
        return iter(self._all[: self._count])

    def __len__(self) -> int:
        return self._count

    def __contains__(self, file: object) -> bool:
        return file in self._all[: self._count]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SideFiles) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"SideFiles({list(self)})"


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
