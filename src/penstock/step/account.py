"""What mappers say of the rows that they took: counts, what rows say of progress, files of rows put aside, where their time went.

It travels with the rows of the mapper to one task, so that a mapper that is tried again is counted once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Counts = dict[str, dict[str, int]]


@dataclass
class Account:
    """`saw`: by stream, what parts of its rows say of progress; `errors`: by stream, an example of a row that it must not get; `unreadable`: by stream, why its
    pieces are left to Spark; `phases`: seconds of each; `sent`: rows or partials, and bytes, of parcels.

    `results` are files that mappers have written: the results of each query in them, and what a manifest says; `refused` are queries that found
    more than they may, and why that is.
    """

    streams: Counts = field(default_factory=dict)
    saw: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    tables: Counts = field(default_factory=dict)
    queries: Counts = field(default_factory=dict)
    sides: list[dict[str, Any]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    sent: tuple[int, int] = 0, 0
    results: list[tuple[list[tuple[int, int]], dict[str, Any]]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def count_sent(self, rows: int = 0, size: int = 0) -> None:
        """Add what crosses the exchange."""
        self.sent = self.sent[0] + rows, self.sent[1] + size

    def encode(self) -> bytes:
        text = json.dumps(self.__dict__).encode()
        return text + b" " * (-len(text) % 8)  # so that parcels behind it begin at whole words


def add_counts(counts: Counts, more: Mapping[str, Mapping[str, int]]) -> None:
    """Add the counts of each name."""
    for name, values in more.items():
        own = counts.setdefault(name, {})
        for key, value in values.items():
            own[key] = own.get(key, 0) + value


class Watch:
    """Adds up the seconds of each phase."""

    def __init__(self, phases: dict[str, float]) -> None:
        self.phases, self.last = phases, time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self.last
        self.last = now
