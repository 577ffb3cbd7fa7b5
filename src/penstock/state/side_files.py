"""The files of late and invalid rows of a manifest, in the order of commits.

A manifest shares them with the previous one, so that a step that adds some copies none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

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
