"""Freed memory goes back to the system: in a worker whose memory is limited, what one task has freed is not kept."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from penstock.model.memory import Limits

_MMAP_THRESHOLD, _LARGE = -3, 256 << 10  # option of mallopt; blocks from this size on are mapped by themselves
_known: list[Any] = []  # the C library, once it is set up


@contextmanager
def frugal(limits: Limits | None) -> Iterator[None]:
    """For the work of a task with these limits, if any."""
    if limits is None or sys.platform != "linux":
        yield
        return
    library = _set_up()
    try:
        yield
    finally:
        pa.default_memory_pool().release_unused()
        if library is not None:
            library.malloc_trim(0)


def _set_up() -> Any:
    """Once per process. glibc otherwise raises its threshold to what was freed last, and keeps such blocks."""
    if not _known:
        library: Any = ctypes.CDLL(None)
        if hasattr(library, "mallopt") and hasattr(library, "malloc_trim"):
            library.mallopt(_MMAP_THRESHOLD, _LARGE)
            pa.set_memory_pool(pa.system_memory_pool())
        else:  # another C library
            library = None
        _known.append(library)
    return _known[0]
