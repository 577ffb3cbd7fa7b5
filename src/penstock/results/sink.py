"""The port to sinks: what is asked of one when results are delivered, and the name by which people know it.

Each kind is a module that keeps to `OpenSink`: a folder, a function, and in `spark/sink` whatever Spark's writer can write to. When a sink gets
which rows is said in `delivery`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from penstock.model import Sink
from penstock.results.part import Part
from penstock.state.result_files import ResultFile

Into = (
    str | Sink | Callable[[pa.Table, int], None]
)  # a sink as a query declares it: a folder, what Spark writes to, a function
Tables = Callable[
    [Sequence[int], Part], Iterator[pa.Table]
]  # reads a part of the results of queries that continue each other


@dataclass(frozen=True)
class Line:
    """A part of the results of queries that have taken each other's place, oldest first. `files` are all in which these lie, if they are of one step."""

    queries: tuple[int, ...]
    part: Part
    files: Mapping[int, Sequence[ResultFile]] = field(default_factory=dict)


class OpenSink(Protocol):
    """A sink that rows can be written to."""

    def write(self, lines: Sequence[Line], step: int) -> None:
        """Take rows of one schema that step has committed or released; after a failure the same come again under the same step."""


def sink_name(into: Into, query: str, *, ordered: bool = False) -> str:
    """The name of a sink for users."""
    if ordered:
        return f"{sink_name(into, query)} for {query}"
    if isinstance(into, str):
        return f"path:{into}"
    if isinstance(into, Sink):
        return f"sink:{into}"
    return f"callable:{query}"
