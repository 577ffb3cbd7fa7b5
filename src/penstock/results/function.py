"""A function as a sink: it is called with each table and the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.results.sink import Line, Tables


@dataclass(frozen=True)
class FunctionSink:
    """Calls a function of the program that runs the engine, never with an empty table."""

    function: Callable[[pa.Table, int], None]
    tables: Tables

    def name(self, query: str) -> str:
        return f"callable:{query}"

    def write(self, lines: Sequence[Line], step: int) -> None:
        for line in lines:
            for table in self.tables(line.queries, line.part):
                if len(table):
                    self.function(table, step)
