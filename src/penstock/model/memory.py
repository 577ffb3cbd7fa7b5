"""The memory of an executor as one number, and the limits of tasks that follow from it.

The memory is *anonymous*: pages that belong to no file. State, and what tasks put aside, lies in files that are mapped,
so the system may drop their pages at any time. What remains is the heap of the Java process, what Java and Python need
to run at all, and what the tasks of a step have in work; the last is limited here (decision 0041).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import RegistrationError

UNITS = {"": 1, "b": 1, "kb": 1 << 10, "k": 1 << 10, "mb": 1 << 20, "m": 1 << 20, "gb": 1 << 30, "g": 1 << 30,
         "tb": 1 << 40, "t": 1 << 40}  # fmt: skip
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")

# Measured with PySpark 4.3 on Linux: a Java process beside its heap, and a Python process with all modules loaded.
JAVA_BESIDE = 260 << 20
PYTHON_ALONE = 125 << 20
WORKER_ALONE = 190 << 20
LEAST_SHARE = 32 << 20  # for the work of one task: less would make pieces too small to be worth a call
LARGEST_PARCEL = 64 << 20


@dataclass(frozen=True)
class Limits:
    """Bytes that a mapper or a task may have in memory at a time, by purpose.

    `piece`: new rows of a task before they are put aside; `parcel`: rows that travel together; `work`: rows that are
    merged, written, or gathered for results at once; `cache`: decompressed blocks of cold runs. A single row that is
    larger passes all the same. `hot` is for all tasks: state that is not compressed.
    """

    piece: int
    parcel: int
    work: int
    cache: int
    hot: int

    @classmethod
    def of(cls, share: int, hot: int) -> Limits:
        """The limits of a task that may have so many bytes: merging takes about three times what is merged."""
        return cls(share // 6, min(LARGEST_PARCEL, share // 12), share // 12, share // 8, hot)


@dataclass(frozen=True)
class Budget:
    """The memory of an executor: its Java process with this heap, and so many Python workers at a time."""

    memory: int
    heap: int
    workers: int

    @property
    def share(self) -> int:
        """The bytes of one task's work; negative if not even the processes have enough."""
        return (self.memory - self.heap - JAVA_BESIDE - PYTHON_ALONE) // self.workers - WORKER_ALONE

    @property
    def limits(self) -> Limits:
        if self.share < LEAST_SHARE:
            least = self.memory + (LEAST_SHARE - self.share) * self.workers
            raise RegistrationError(
                f"memory of {shown(self.memory)} is too little for a Java heap of {shown(self.heap)} and "
                f"{self.workers} Python worker(s): give at least {shown(least)}, or fewer cores, or a smaller heap "
                "(spark.driver.memory, spark.executor.memory)"
            )
        return Limits.of(self.share, self.memory)


def read_size(text: str | int) -> int:
    """A number of bytes: 4_000_000_000, '4 GB', '512m'; units are powers of 1024, as in Spark."""
    found = _SIZE.fullmatch(str(text))
    unit = UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None or float(found[1]) <= 0:
        raise RegistrationError(f"{text!r} is not a size of memory; write it as '4 GB' or '512 MB'")
    return int(float(found[1]) * unit)


def shown(size: int) -> str:
    """A size for people, rounded up so that it can be given back."""
    return f"{-(-size // (1 << 20)):,} MB"
