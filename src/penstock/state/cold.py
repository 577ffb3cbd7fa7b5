"""Blocks of cold runs as probes see them: what is known of a block decides whether it is read, into a bounded cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.state.blocks import Blocks
from penstock.state.run import Ints, Rows

COLD_BLOCK = 1 << 20  # bytes of a block before it is compressed: what one probe has to read at least
CACHE = 256 << 20  # bytes of blocks in the cache, without a limit of memory
_HEAD = 20  # bytes of a row's key, time and bits


@dataclass
class BlockCache:
    """Blocks that were read lately, up to so many bytes."""

    most: int = CACHE
    _rows: OrderedDict[tuple[str, int, bool], tuple[Rows, int]] = field(default_factory=OrderedDict)
    _held: int = 0

    def get(self, run: Blocks, number: int, *, whole: bool) -> Rows:
        """A block, whole or without its columns."""
        place = run.entry.name, number, whole
        if place in self._rows:
            self._rows.move_to_end(place)
            return self._rows[place][0]
        block = run.index[number]
        rows, size = run.rows(number, None if whole else ()), block.size if whole else _HEAD * block.rows
        self._rows[place] = rows, size
        self._held += size
        while self._held > self.most and len(self._rows) > 1:
            self._held -= self._rows.popitem(last=False)[1][1]
        return rows

    def keep(self, runs: Collection[str]) -> None:
        """Forget the blocks of other runs."""
        for place in [place for place in self._rows if place[0] not in runs]:
            self._held -= self._rows.pop(place)[1]


@dataclass(frozen=True)
class Cold:
    """A block of a cold run, as far as its keys lie from `low` to below `high`."""

    run: Blocks
    number: int
    cache: BlockCache
    low: int
    high: int | None

    @property
    def size(self) -> int:
        return self.run.index[self.number].size

    def may_match(self, keys: Ints, first: int, last: int) -> bool:
        """Whether it may have a row with one of these sorted keys and a time from `first` to `last`."""
        block = self.run.index[self.number]
        return block.min_time <= last and block.max_time >= first and block.may_have(keys)

    def head(self) -> Rows:
        """Its keys, times and bits; rows have the same places as in `rows`."""
        return self._own(whole=False)

    def rows(self) -> Rows:
        return self._own(whole=True)

    def _own(self, *, whole: bool) -> Rows:
        return self.cache.get(self.run, self.number, whole=whole).between(self.low, self.high)
