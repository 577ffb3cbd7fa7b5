"""Counters by bucket: what a task does for each bucket of keys in a step, and what the tasks of a step do together.

Tasks count with one search per sorted block of keys, not per row. A report has an array of all buckets for each
counter that is not zero everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.state.buckets import BUCKETS, Keys, bucket_of, first_keys

Amounts = npt.NDArray[np.int64]  # by bucket


class BucketCounters(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Work by bucket; an empty counter is zero everywhere.

    `rows` are new rows that tables store, `probed` composites that are looked up by key, `candidates` pairs inside the
    longest window, `compared` pairs that some query wants, `results` rows of joins; `written` and `stored` are bytes of
    runs, the latter counted in some steps only.
    """

    rows: tuple[int, ...] = ()
    probed: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()
    compared: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()

    def of(self, counter: str, buckets: int = BUCKETS) -> Amounts:
        """A counter as an array."""
        counted = getattr(self, counter)
        return np.array(counted, dtype=np.int64) if counted else np.zeros(buckets, dtype=np.int64)


COUNTERS = BucketCounters.__struct_fields__


class BucketTally:
    """Adds up the work of a task by bucket."""

    def __init__(self, buckets: int = BUCKETS) -> None:
        self.buckets = buckets
        self._counts: dict[str, npt.NDArray[Any]] = {}

    def add(self, counter: str, amounts: npt.NDArray[Any]) -> None:
        """Add amounts by bucket."""
        known = self._counts.get(counter)
        self._counts[counter] = amounts if known is None else known + amounts

    def add_sorted(self, counter: str, keys: Keys, each: float = 1.0) -> None:
        """Add what each key costs, for keys in ascending order."""
        if len(keys):
            amounts = np.diff(edges_of(keys, self.buckets))
            self.add(counter, amounts if each == 1.0 else amounts * each)

    def add_keys(self, counter: str, keys: Keys) -> None:
        """Count keys in any order."""
        if len(keys):
            self.add(counter, np.bincount(bucket_of(keys, self.buckets), minlength=self.buckets))

    def told(self) -> BucketCounters:
        """What has been counted."""
        found = {name: np.rint(own).astype(np.int64) for name, own in self._counts.items()}
        return BucketCounters(**{name: tuple(own.tolist()) for name, own in found.items() if own.any()})


def edges_of(keys: Keys, buckets: int) -> Keys:
    """Where each bucket begins among keys in ascending order, and the end."""
    return np.concatenate([[0], np.searchsorted(keys, first_keys(buckets)[1:]), [len(keys)]])


def together(told: Iterable[BucketCounters]) -> BucketCounters:
    """The counters of several tasks, or of the stages of one."""
    known = list(told)
    if len(known) == 1:
        return known[0]
    found = {}
    for name in COUNTERS:
        counted = [own for one in known if (own := getattr(one, name))]
        found[name] = tuple(np.sum(counted, axis=0).tolist()) if counted else ()
    return BucketCounters(**found)
