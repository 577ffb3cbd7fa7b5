"""Buckets: key hashes in ranges of equal size, and which task serves which of them in a step.

Their number is fixed per state directory; each step assigns buckets to tasks anew (decision 0013). Tasks serve
consecutive buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

BUCKETS = 1 << 8  # of a new state directory; a power of two

Keys = npt.NDArray[np.int64]
Range = tuple[int, int | None]  # of key hashes: from the first to below the second, None: to the end


@dataclass(frozen=True)
class BucketMap:
    """`starts[t]` is the first bucket that task t serves; a task without buckets starts where the next one does."""

    starts: tuple[int, ...]
    buckets: int = BUCKETS

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

    def owners(self, keys: Keys) -> npt.NDArray[np.int32]:
        """The task that serves each key."""
        lows = np.array([low for low, _ in self.ranges[1:]], dtype=np.int64)
        return np.searchsorted(lows, keys, side="right").astype(np.int32)


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
