"""Upkeep of results: files that nobody may read any more go, and many small files become one.

Rows keep the step they were committed in as a column, so merging files of several steps changes no answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.model.time import FOREVER, NEVER
from penstock.planner.network import Network, as_answered, output_progress
from penstock.runtime.write import file_name
from penstock.state.manifest import ResultFile
from penstock.state.store import LocalStore

MANY_FILES = 64  # of one join, before they are merged
SMALL_BYTES = 8 << 20


def horizon(network: Network, query: int, retain: int | None, progress: Mapping[str, int]) -> int:
    """Results of the query with a time below this are given up; later ones come at or after its output progress."""
    found = next((q for q in network.queries if q.id == query), None)
    if retain is None or found is None:
        return NEVER
    least = output_progress(found.query, as_answered(progress, query))
    return NEVER if least <= NEVER or least >= FOREVER else least - retain


def expired_results(
    files: Iterable[ResultFile], known: Collection[int], horizons: Mapping[int, int], below: Collection[int] = ()
) -> list[str]:
    """Files of which every query is forgotten (purged) or has retained results only after the file's last one.

    All of these files have been taken in by derived streams and sinks, so those of queries that are only read by derived streams (`below`) go.
    """

    def gone(file: ResultFile, query: int) -> bool:
        return query not in known or query in below or file.max_time < horizons.get(query, NEVER)

    return [file.name for file in files if all(gone(file, query) for query, _ in file.counts)]


def merge_results(store: LocalStore, files: Iterable[ResultFile], step: int) -> list[tuple[ResultFile, list[str]]]:
    """Merge small files of one join and numbering, of those that all sinks have got: (new file, files it replaces)."""
    groups: dict[tuple[object, ...], list[ResultFile]] = {}
    for file in files:
        if file.bytes < SMALL_BYTES:
            # What a file of panes has closed, it has closed for all its queries.
            closed_for = tuple(sorted(query for query, _ in file.counts)) if file.closings else ()
            groups.setdefault((file.join, file.version, file.kind, closed_for), []).append(file)
    return [(_merge(store, some, step), [f.name for f in some]) for some in groups.values() if len(some) >= MANY_FILES]


def _merge(store: LocalStore, files: Sequence[ResultFile], step: int) -> ResultFile:
    tables = [pq.read_table(store.path(f.name), page_checksum_verification=True) for f in files]
    merged = pa.concat_tables(tables, promote_options="default")
    name = file_name("results", step, "parquet")
    with store.create(name) as file:
        pq.write_table(merged, file, write_page_checksum=True)
    counts: dict[int, int] = {}
    for source in files:
        for query, rows in source.counts:
            counts[query] = counts.get(query, 0) + rows
    return replace(
        files[-1], name=name, step=max(f.step for f in files), rows=len(merged), bytes=store.size(name),
        min_time=min(f.min_time for f in files), max_time=max(f.max_time for f in files), counts=tuple(counts.items()),
        closings=tuple(dict.fromkeys(closing for f in files for closing in f.closings)),
        panes_until=max(f.panes_until for f in files),
    )  # fmt: skip
