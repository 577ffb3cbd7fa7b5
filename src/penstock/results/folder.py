"""A folder, or a place in an object store, as a sink, which others list.

Rows in files of a single query in the form of its select list are not read again: the folder gets these very files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import pyarrow as pa

from penstock.results.layout import OWN
from penstock.results.sink import Line, Tables
from penstock.state.result_files import ResultFile
from penstock.storage.crash_points import kill_point
from penstock.storage.listed_folder import ListedFolder
from penstock.storage.listed_objects import listed_objects
from penstock.storage.objects import is_url
from penstock.storage.store import Store


class Listed(Protocol):
    """Where files appear whole, once, and durable once it is settled."""

    def claim(self, owner: str) -> None: ...

    def publish(self, name: str, tables: Iterator[pa.Table]) -> None: ...

    def give(self, store: Store, file: str, name: str) -> None: ...

    def settle(self) -> None: ...


@dataclass
class FolderSink:
    """Parquet files in a folder, one per query and step, or links to files of the query; only `owner` may write."""

    folder: str
    tables: Tables
    store: Store  # of the result files
    owner: str
    _place: Listed | None = field(default=None, init=False)  # once it is claimed

    def name(self, query: str) -> str:  # noqa: ARG002
        return f"path:{self.folder}"

    def write(self, lines: Sequence[Line], step: int) -> None:
        linked = {q: own for line in lines for q, own in line.files.items() if all(f.kind == OWN for f in own)}
        for line in lines:
            queries = tuple(query for query in line.queries if query not in linked)
            tables = (table for table in (self.tables(queries, line.part) if queries else ()) if len(table))
            if (first := next(tables, None)) is not None:
                self._claimed().publish(f"part-{step:08d}-{queries[-1]}.parquet", chain([first], tables))
        if linked:
            self._link(linked, step)

    def _link(self, files: Mapping[int, Sequence[ResultFile]], step: int) -> None:
        """Publish the files of single queries. Their order, which numbers them, is the same at every attempt."""
        place = self._claimed()
        for query, own in files.items():
            for number, name in enumerate(sorted(file.name for file in own)):
                place.give(self.store, name, f"part-{step:08d}-{query}-{number}.parquet")
                kill_point("after_link", step)
        place.settle()

    def _claimed(self) -> Listed:
        if self._place is None:
            place: Listed = listed_objects(self.folder) if is_url(self.folder) else ListedFolder(self.folder)
            place.claim(self.owner)
            self._place = place
        return self._place
