"""Upkeep of results, every few steps: files that nobody may read any more go, and many small files become one.

Rows keep the step they were committed in as a column, so merging files of several steps changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.model.time import NEVER
from penstock.results.layout import MERGED, OWN_KINDS
from penstock.results.own import with_steps
from penstock.results.stored import checked, read
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord, Registry
from penstock.state.result_files import ResultFile
from penstock.storage.store import Store, file_name

UPKEEP_EVERY = 64  # steps between two rounds of upkeep
FIRST_UPKEEP = 7  # the first round: when a few steps have shown which rows come
MANY_FILES = 64  # of one join, before they are merged
SMALL_BYTES = 8 << 20

Horizon = Callable[[QueryRecord, Manifest], int]  # results of a query with a time below this are given up


def following_upkeep(step: int) -> int:
    """The step of the next round; a restart does not put it off."""
    return step - (step - FIRST_UPKEEP) % UPKEEP_EVERY + UPKEEP_EVERY


def renew_results(
    store: Store,
    registry: Registry,
    manifest: Manifest,
    owes: Callable[[ResultFile], bool],
    horizon: Horizon,
    taken: int,
) -> tuple[tuple[ResultFile, ...], tuple[str, ...]]:
    """(files that were merged from small ones, files to give up). `owes` says whether a sink has yet to get rows of a file; derived streams
    have taken in those of step `taken` and earlier ones.
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
    """Files of which every query is forgotten (purged) or has retained results only after the file's last one.

    All of these files have been taken in by derived streams and sinks, so those of queries that are only read by derived streams (`below`) go.
    """

    def gone(file: ResultFile, query: int) -> bool:
        return query not in known or query in below or file.max_time < horizons.get(query, NEVER)

    return [file.name for file in files if all(gone(file, query) for query, _ in file.counts)]


def merge_results(store: Store, files: Iterable[ResultFile], step: int) -> list[tuple[ResultFile, list[str]]]:
    """Merge small files of one join and numbering, of those that all sinks have got: (new file, files it replaces)."""
    groups: dict[tuple[object, ...], list[ResultFile]] = {}
    for file in files:
        if file.bytes < SMALL_BYTES:
            # What a file of panes has closed, it has closed for all its queries.
            apart = file.closings or file.kind in OWN_KINDS
            queries = tuple(sorted(query for query, _ in file.counts)) if apart else ()
            kind = MERGED if file.kind in OWN_KINDS else file.kind
            groups.setdefault((file.join, file.version, kind, queries, file.without), []).append(file)
    return [(_merge(store, some, step), [f.name for f in some]) for some in groups.values() if len(some) >= MANY_FILES]


def _merge(store: Store, files: Sequence[ResultFile], step: int) -> ResultFile:
    kind = MERGED if files[-1].kind in OWN_KINDS else files[-1].kind
    tables = with_steps(store, files) if kind == MERGED else [read(checked(store, f)) for f in files]
    merged = pa.concat_tables(tables, promote_options="default")
    name = file_name("results", step, "parquet")
    with store.create(name) as file:
        pq.write_table(merged, file, write_page_checksum=True)
    counts: dict[int, int] = {}
    for source in files:
        for query, rows in source.counts:
            counts[query] = counts.get(query, 0) + rows
    return replace(
        files[-1], kind=kind, name=name, step=max(f.step for f in files), rows=len(merged), bytes=store.size(name),
        min_time=min(f.min_time for f in files), max_time=max(f.max_time for f in files), counts=tuple(counts.items()),
        closings=tuple(dict.fromkeys(closing for f in files for closing in f.closings)),
        panes_until=max(f.panes_until for f in files),
    )  # fmt: skip
