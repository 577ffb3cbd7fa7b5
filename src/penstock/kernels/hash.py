"""Spark's `xxhash64` of one BIGINT column, so that a key which travels anyway need not travel as its hash too."""

from __future__ import annotations

import numpy as np
from numba import njit, types

from penstock.state.run import Ints

_SEED = np.uint64(42)
_PRIME1 = np.uint64(0x9E3779B185EBCA87)
_PRIME2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME3 = np.uint64(0x165667B19E3779F9)
_PRIME4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME5 = np.uint64(0x27D4EB2F165667C5)


def hash_bigint(values: Ints) -> Ints:
    """The 64-bit xxHash of each value: one-to-one, so equal hashes are equal values."""
    words = np.ascontiguousarray(values, dtype=np.int64).view(np.uint64)
    return np.asarray(_hash(words)).view(np.int64)


@njit(types.uint64[::1](types.Array(types.uint64, 1, "C", readonly=True)), cache=True, nogil=True)
def _hash(words):  # type: ignore[no-untyped-def]
    found = np.empty_like(words)
    for i in range(len(words)):
        mixed = words[i] * _PRIME2
        mixed = ((mixed << np.uint64(31)) | (mixed >> np.uint64(33))) * _PRIME1
        mixed ^= _SEED + _PRIME5 + np.uint64(8)
        mixed = ((mixed << np.uint64(27)) | (mixed >> np.uint64(37))) * _PRIME1 + _PRIME4
        mixed ^= mixed >> np.uint64(33)
        mixed *= _PRIME2
        mixed ^= mixed >> np.uint64(29)
        mixed *= _PRIME3
        found[i] = mixed ^ (mixed >> np.uint64(32))
    return found
