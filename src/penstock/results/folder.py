"""A folder as a sink, which others list.

Rows in files of a single query in the form of its select list are not read again: the folder gets these very files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from penstock.results.layout import OWN
from penstock.results.sink import Line, Tables
from penstock.state.result_files import ResultFile
from penstock.storage.crash_points import kill_point
from penstock.storage.listed_folder import claim, link, publish, settle
from penstock.storage.store import Store


@dataclass
class FolderSink:
    """Parquet files in a folder, one per query and step, or links to files of the query; only `owner` may write."""

    folder: str
    tables: Tables
    store: Store  # of the result files
    owner: str
    _claimed: bool = field(default=False, init=False)

    def name(self, query: str) -> str:  # noqa: ARG002
        return f"path:{self.folder}"

    def write(self, lines: Sequence[Line], step: int) -> None:
        linked = {q: own for line in lines for q, own in line.files.items() if all(f.kind == OWN for f in own)}
        for line in lines:
            queries = tuple(query for query in line.queries if query not in linked)
            tables = (table for table in (self.tables(queries, line.part) if queries else ()) if len(table))
            if (first := next(tables, None)) is not None:
                self._claim()
                publish(self.folder, f"part-{step:08d}-{queries[-1]}.parquet", chain([first], tables))
        if linked:
            self._link(linked, step)

    def _link(self, files: Mapping[int, Sequence[ResultFile]], step: int) -> None:
        """Publish the files of single queries. Their order, which numbers them, is the same at every attempt."""
        self._claim()
        for query, own in files.items():
            for number, name in enumerate(sorted(file.name for file in own)):
                link(self.store.path(name), self.folder, f"part-{step:08d}-{query}-{number}.parquet")
                kill_point("after_link", step)
        settle(self.folder)

    def _claim(self) -> None:
        if not self._claimed:
            claim(self.folder, self.owner)
            self._claimed = True
