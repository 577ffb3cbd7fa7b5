"""Upkeep of results, every few steps: expired files are dropped, and small files are merged.

Rows keep the step they were committed in as a column, so merging files of several steps changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import pyarrow as pa
from msgspec.structs import replace

from penstock.model.time import NEVER
from penstock.results.layout import MERGED, OWN_KINDS
from penstock.results.own import with_steps
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord, Registry
from penstock.state.result_files import ResultFile
from penstock.storage.parquet import checked, read, write
from penstock.storage.store import Store, file_name

UPKEEP_EVERY = 64  # steps between two rounds of upkeep
FIRST_UPKEEP = 7  # the first round: after a few steps have shown the rates of rows
MANY_FILES = 64  # of one join, before they are merged
SMALL_BYTES = 8 << 20

Horizon = Callable[[QueryRecord, Manifest], int]  # results of a query with a time below this expire


def following_upkeep(step: int) -> int:
    """The step of the next round; a restart does not delay it."""
    return step - (step - FIRST_UPKEEP) % UPKEEP_EVERY + UPKEEP_EVERY


def renew_results(
    store: Store,
    registry: Registry,
    manifest: Manifest,
    owes: Callable[[ResultFile], bool],
    horizon: Horizon,
    taken: int,
) -> tuple[tuple[ResultFile, ...], tuple[str, ...]]:
    """(files merged from small ones, files to drop). `owes` says whether a sink still needs rows of a file; derived
    streams have read those of step `taken` and earlier ones.
    """
    horizons = {q.id: horizon(q, manifest) for q in registry.queries}
    below = registry.below()
    settled = [f for f in manifest.results.values() if f.step <= taken and not owes(f)]
    gone = expired_results(settled, horizons.keys(), horizons, below)
    merged = merge_results(store, [f for f in settled if f.name not in gone], manifest.step)
    return tuple(f for f, _ in merged), (*gone, *(name for _, names in merged for name in names))


def expired_results(
    files: Iterable[ResultFile], known: Collection[int], horizons: Mapping[int, int], below: Collection[int] = ()
) -> list[str]:
    """Files of which every query was purged, or retains only results after the file's last one.

    Derived streams and sinks have read all of these files, so those of queries that only derived streams read (`below`)
    expire.
    """

    def gone(file: ResultFile, query: int) -> bool:
        return query not in known or query in below or file.max_time < horizons.get(query, NEVER)

    return [file.name for file in files if all(gone(file, query) for query, _ in file.counts)]


def merge_results(store: Store, files: Iterable[ResultFile], step: int) -> list[tuple[ResultFile, list[str]]]:
    """Merge small files of one join and numbering that all sinks have read: (new file, files it replaces)."""
    groups: dict[tuple[object, ...], list[ResultFile]] = {}
    for file in files:
        if file.bytes < SMALL_BYTES:
            # A file of panes has closed the same windows for all its queries.
            apart = file.closings or file.kind in OWN_KINDS
            queries = tuple(sorted(query for query, _ in file.counts)) if apart else ()
            kind = MERGED if file.kind in OWN_KINDS else file.kind
            groups.setdefault((file.join, file.version, kind, queries, file.without), []).append(file)
    return [(_merge(store, some, step), [f.name for f in some]) for some in groups.values() if len(some) >= MANY_FILES]


def _merge(store: Store, files: Sequence[ResultFile], step: int) -> ResultFile:
    kind = MERGED if files[-1].kind in OWN_KINDS else files[-1].kind
    tables = with_steps(store, files) if kind == MERGED else [read(store, checked(store, f)) for f in files]
    merged = pa.concat_tables(tables, promote_options="default")
    name = file_name("results", step, "parquet")
    size = write(store, name, merged)
    counts: dict[int, int] = {}
    for source in files:
        for query, rows in source.counts:
            counts[query] = counts.get(query, 0) + rows
    return replace(
        files[-1], kind=kind, name=name, step=max(f.step for f in files), rows=len(merged), bytes=size,
        min_time=min(f.min_time for f in files), max_time=max(f.max_time for f in files), counts=tuple(counts.items()),
        closings=tuple(dict.fromkeys(closing for f in files for closing in f.closings)),
        panes_until=max(f.panes_until for f in files),
    )  # fmt: skip
