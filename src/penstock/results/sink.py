"""The port to sinks: what is asked of one when results are delivered.

Each kind is a module that keeps to `OpenSink`: a folder, a function, and in `spark/sink` whatever Spark's writer can
write to. When a sink gets which rows is said in `delivery`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from penstock.model import Sink
from penstock.results.part import Part
from penstock.state.result_files import ResultFile

# A sink as a query declares it: a folder, what Spark writes to, a function.
Into = str | Sink | Callable[[pa.Table, int], None]
# Reads a part of the results of queries that continue each other.
Tables = Callable[[Sequence[int], Part], Iterator[pa.Table]]


@dataclass(frozen=True)
class Line:
    """A part of the results of queries that replaced each other, oldest first; `files` are those of a single step."""

    queries: tuple[int, ...]
    part: Part
    files: Mapping[int, Sequence[ResultFile]] = field(default_factory=dict)


class OpenSink(Protocol):
    """A sink that rows can be written to."""

    def name(self, query: str) -> str:
        """The name of the sink for users; `query` is one that is delivered to it."""

    def write(self, lines: Sequence[Line], step: int) -> None:
        """Write rows of one schema that the step committed or released; after a failure the same rows come again."""
