"""Buckets: key hashes in ranges of equal size, and which task serves which of them in a step.

Their number is fixed per state directory; each step assigns buckets to tasks anew (decision 0013). Tasks serve
consecutive buckets, so that a run holds few ranges of keys and most runs are not opened. A bucket with more work than
one task should have is *split*: its owner stores the rows, and several tasks take turns to probe with them
(decision 0042).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

BUCKETS = 1 << 8  # of a new state directory; a power of two

Keys = npt.NDArray[np.int64]
Tasks = npt.NDArray[np.int32]
Range = tuple[int, int | None]  # of key hashes: from the first to below the second, None: to the end


class Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bucket whose new rows probe in several tasks. A task with more of the `turns` gets more rows."""

    bucket: int
    turns: tuple[int, ...]


@dataclass(frozen=True)
class BucketMap:
    """`starts[t]` is the first bucket that task t serves; a task without buckets starts where the next one does."""

    starts: tuple[int, ...]
    buckets: int = BUCKETS
    splits: tuple[Split, ...] = ()

    def __post_init__(self) -> None:
        starts, last = self.starts, self.buckets - 1
        if not starts or starts[0] != 0 or starts[-1] > last or any(a > b for a, b in pairwise(starts)):
            raise ValueError(f"tasks must start at 0 and in order, the last one at bucket {last} at most, not {starts}")
        numbers = [split.bucket for split in self.splits]
        if len(set(numbers)) < len(numbers) or any(not 0 <= number <= last for number in numbers):
            raise ValueError(f"a bucket is split once, and is one of {self.buckets}; not {numbers}")
        if any(not split.turns or not set(split.turns) <= set(range(self.tasks)) for split in self.splits):
            raise ValueError(f"the turns of a split bucket are those of {self.tasks} tasks, not {self.splits}")

    @staticmethod
    def even(tasks: int, buckets: int = BUCKETS) -> BucketMap:
        """The same number of buckets for each task, as far as possible."""
        return BucketMap(tuple(task * buckets // tasks for task in range(tasks)), buckets)

    @property
    def tasks(self) -> int:
        return len(self.starts)

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """The key hashes that each task serves."""
        lows = [first_key(bucket, self.buckets) for bucket in self.starts]
        return tuple(zip(lows, [*lows[1:], None], strict=True))

    @cached_property
    def unsplit(self) -> BucketMap:
        """The same with every bucket in one task."""
        return BucketMap(self.starts, self.buckets)

    @cached_property
    def owner_of(self) -> Tasks:
        """The task that serves each bucket."""
        every = np.arange(self.buckets)
        return np.asarray(np.searchsorted(np.array(self.starts[1:]), every, side="right"), dtype=np.int32)

    def owners(self, keys: Keys) -> Tasks:
        """The task that serves each key."""
        lows = np.array([low for low, _ in self.ranges[1:]], dtype=np.int64)
        return np.searchsorted(lows, keys, side="right").astype(np.int32)

    # -- split buckets --------------------------------------------------------------------------------------------

    @cached_property
    def probing(self) -> npt.NDArray[np.bool_]:
        """By split and task: whether it has turns."""
        found = np.zeros((len(self.splits), self.tasks), dtype=np.bool_)
        for number, split in enumerate(self.splits):
            found[number, list(split.turns)] = True
        return found

    @cached_property
    def _split_of(self) -> Tasks:
        found = np.full(self.buckets, -1, dtype=np.int32)
        for number, split in enumerate(self.splits):
            found[split.bucket] = number
        return found

    def split_of(self, keys: Keys) -> Tasks:
        """The number of the split that each key is in, -1 for most."""
        return self._split_of[bucket_of(keys, self.buckets)]

    def whose_turn(self, splits: Tasks, mixed: Keys) -> Tasks:
        """The tasks that probe with rows of these splits; rows that are mixed alike have the same one.

        It must depend on the row alone: each task of a step without mappers decides about all rows, in an order of its
        own, and a repeated part of a step decides again.
        """
        found = np.zeros(len(splits), dtype=np.int32)
        for number in np.unique(splits).tolist():
            turns = np.array(self.splits[number].turns, dtype=np.int32)
            own = splits == number
            found[own] = turns[(mixed[own].view(np.uint64) % np.uint64(len(turns))).astype(np.int64)]
        return found

    def lent(self, task: int) -> list[Range]:
        """The key hashes for which a task has turns and that another one serves."""
        own = [s.bucket for s in self.splits if task in s.turns and self.owner_of[s.bucket] != task]
        last = self.buckets - 1
        return [
            (first_key(b, self.buckets), None if b == last else first_key(b + 1, self.buckets)) for b in sorted(own)
        ]

    def sharers(self, task: int) -> list[int]:
        """The other tasks with turns in buckets that this one serves."""
        own = {t for split in self.splits if self.owner_of[split.bucket] == task for t in split.turns}
        return sorted(own - {task})


def first_key(bucket: int, buckets: int = BUCKETS) -> int:
    """The least key hash of a bucket."""
    return (bucket - buckets // 2) * ((1 << 64) // buckets)


@lru_cache
def first_keys(buckets: int) -> Keys:
    """The least key hash of each bucket."""
    return np.array([first_key(bucket, buckets) for bucket in range(buckets)], dtype=np.int64)


def bucket_of(keys: Keys, buckets: int = BUCKETS) -> Keys:
    """The bucket of each key hash; ascends with the hash."""
    return np.asarray(keys >> (65 - buckets.bit_length())) + buckets // 2
