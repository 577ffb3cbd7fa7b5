"""The result files of a manifest, found by name, by query, by step and by time.

Lookups by a step (new files, files of a query in a part) cost by what they find, not by all files; and a manifest
shares the files with the previous one, so that a step that adds some copies none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.model.time import NEVER


class ResultFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A committed file of result rows; `counts` = rows per query id, `version` determines the meaning of its bits.

    A file of panes has the inputs of results, and `counts` are results. `closings` = (step, after, until): which
    windows each step closed; all panes before `panes_until` are in this file or in earlier ones. Rows in it of the
    queries `without` are not results: they were dropped with their step.
    """

    name: str
    join: str
    step: int
    version: int
    rows: int
    bytes: int
    min_time: int
    max_time: int
    counts: tuple[tuple[int, int], ...]
    kind: str = "join"
    closings: tuple[tuple[int, int, int], ...] = ()
    panes_until: int = NEVER
    without: tuple[int, ...] = ()

    def count(self, query: int) -> int:
        return next((count for one, count in self.counts if one == query), 0)


@dataclass
class _OfQuery:
    """The files of a query in order: their places among all, and up to each the greatest time and end of panes."""

    places: list[int] = field(default_factory=list)
    latest: list[int] = field(default_factory=list)
    panes_until: list[int] = field(default_factory=list)

    def add(self, place: int, file: ResultFile) -> None:
        self.places.append(place)
        self.latest.append(max([file.max_time, *self.latest[-1:]]))
        self.panes_until.append(max([file.panes_until, *self.panes_until[-1:]]))


class _Files:
    """Files in the order of commits. It only grows, so a reader that knows an earlier number can still read those."""

    def __init__(self) -> None:
        self.all: list[ResultFile] = []
        self.newest: list[
            int
        ] = []  # up to each, the greatest of their steps: merged files may be older than those before them
        self.places: dict[str, int] = {}
        self.queries: dict[int, _OfQuery] = {}

    def add(self, files: Iterable[ResultFile]) -> None:
        for file in files:
            place = len(self.all)
            for query, _ in file.counts:
                self.queries.setdefault(query, _OfQuery()).add(place, file)
            self.places[file.name] = place
            self.newest.append(max([file.step, *self.newest[-1:]]))
            self.all.append(file)


class ResultFiles(Mapping[str, ResultFile]):
    """The result files of one manifest, by name, in the order of commits."""

    def __init__(self, files: Iterable[ResultFile] = (), *, behind: _Files | None = None) -> None:
        self._files = _Files() if behind is None else behind
        self._files.add({file.name: file for file in files}.values())
        self._count = len(self._files.all)

    def changed(self, added: Iterable[ResultFile], removed: Iterable[str] = ()) -> ResultFiles:
        """The files after a step; it costs by the added ones and, if some are removed, by all."""
        gone = set(removed)
        if gone or self._count < len(self._files.all):  # of two successors of one state, the second copies
            return ResultFiles([*(file for name, file in self.items() if name not in gone), *added])
        return ResultFiles(added, behind=self._files)

    def since(self, step: int) -> list[ResultFile]:
        """The files of later steps."""
        first = bisect_right(self._files.newest, step, hi=self._count)
        return [file for file in self._files.all[first : self._count] if file.step > step]

    def of(self, query: int, *, since: int = -1, after: int = NEVER) -> list[ResultFile]:
        """The files with rows of a query, of later steps than `since`, with times after this."""
        own = self._files.queries.get(query)
        if own is None:
            return []
        first = max(
            bisect_left(own.places, bisect_right(self._files.newest, since, hi=self._count)),
            0 if after == NEVER else bisect_right(own.latest, after),
        )
        last = bisect_left(own.places, self._count)
        found = (self._files.all[place] for place in own.places[first:last])
        return [file for file in found if file.step > since and (after == NEVER or file.max_time > after)]

    def panes_until(self, query: int) -> int:
        """The end of the panes of a query in these files."""
        own = self._files.queries.get(query)
        known = 0 if own is None else bisect_left(own.places, self._count)
        return own.panes_until[known - 1] if own is not None and known else NEVER

    def __getitem__(self, name: str) -> ResultFile:
        place = self._files.places[name]
        if place >= self._count:
            raise KeyError(name)
        return self._files.all[place]

    def __iter__(self) -> Iterator[str]:
        return (file.name for file in self._files.all[: self._count])

    def __len__(self) -> int:
        return self._count

    def values(self) -> list[ResultFile]:  # type: ignore[override]
        return self._files.all[: self._count]

    def __repr__(self) -> str:
        return f"ResultFiles({self.values()})"
