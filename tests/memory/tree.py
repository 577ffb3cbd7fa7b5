"""The anonymous resident memory (RssAnon) of a tree of processes, sampled while it lives."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Self


def descendants(root: int) -> list[int]:
    """All processes below one."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(folder.name))
    found, left = [], [root]
    while left:
        own = children.get(left.pop(), [])
        found += own
        left += own
    return found


def anonymous(process: int) -> int:
    """Its RssAnon in bytes; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


def _is_starting(process: int) -> bool:
    """Whether it is a copy of a Java process that is about to run another program: it has no pages of its own."""
    try:
        line = Path(f"/proc/{process}/stat").read_text()
        parent = int(line.rpartition(")")[2].split()[1])
        program, other = (Path(f"/proc/{own}/exe").resolve().name for own in (process, parent))
    except OSError:
        return True
    return program == other == "java"


class Samples:
    """The most that all processes below `root` have had at one time, and what each had then."""

    def __init__(self, root: int, seconds: float = 0.05) -> None:
        self.root, self.seconds = root, seconds
        self.most, self.then = 0, dict[int, int]()
        self.each = Counter[int]()  # the most of each process
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self.seconds):
            self.take()

    def take(self) -> Mapping[int, int]:
        now = {process: anonymous(process) for process in descendants(self.root) if not _is_starting(process)}
        for process, size in now.items():
            self.each[process] = max(self.each[process], size)
        if sum(now.values()) > self.most:
            self.most, self.then = sum(now.values()), now
        return now
