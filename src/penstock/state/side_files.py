"""The files of late and bad rows that a manifest names, in the order in which they were committed.

A manifest shares them with the one before it, so that a step that adds some copies none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec


class SideFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A committed file of whole rows that were late or bad; `at` is the clock of the step that committed it, in seconds, and none before."""

    name: str
    stream: str
    reason: str
    step: int
    rows: int
    bytes: int
    at: float = -1.0


class SideFiles(Collection[SideFile]):
    """The files of one manifest. The list behind them only grows, so whoever knows how many there were can still read those."""

    def __init__(self, files: Iterable[SideFile] = (), *, behind: list[SideFile] | None = None) -> None:
        self._all: list[SideFile] = [] if behind is None else behind
        self._all.extend(files)
        self._count = len(self._all)

    def changed(self, added: Collection[SideFile], removed: Collection[str] = ()) -> SideFiles:
        """The files behind a step; it costs what is added, and if some are removed what is there."""
        if not added and not removed:
            return self
        if removed or self._count < len(self._all):  # of two that follow the same, the second has its own
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
