"""Spark's `xxhash64` of one BIGINT column, so that a key which travels anyway need not travel as its hash too."""

from __future__ import annotations

import numpy as np

from penstock.kernels.probe import Words
from penstock.state.run import Ints

_SEED = np.uint64(42)
_PRIME1 = np.uint64(0x9E3779B185EBCA87)
_PRIME2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME3 = np.uint64(0x165667B19E3779F9)
_PRIME4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME5 = np.uint64(0x27D4EB2F165667C5)


def hash_bigint(values: Ints) -> Ints:
    """The 64-bit xxHash of each value: one-to-one, so equal hashes are equal values."""
    mixed = _rotate(values.view(np.uint64) * _PRIME2, 31) * _PRIME1
    mixed ^= _SEED + _PRIME5 + np.uint64(8)
    mixed = _rotate(mixed, 27) * _PRIME1 + _PRIME4
    mixed ^= mixed >> np.uint64(33)
    mixed *= _PRIME2
    mixed ^= mixed >> np.uint64(29)
    mixed *= _PRIME3
    mixed ^= mixed >> np.uint64(32)
    return mixed.view(np.int64)


def _rotate(words: Words, by: int) -> Words:
    return np.asarray((words << np.uint64(by)) | (words >> np.uint64(64 - by)))
