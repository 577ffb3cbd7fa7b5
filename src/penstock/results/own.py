"""Result files of a single query, with only its select list.

Such a file has the rows of one step, whose number begins its name. A merged one has the step as a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.results.layout import MERGED, OWN, OWN_KINDS, STEP
from penstock.results.part import Part
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord
from penstock.state.result_files import ResultFile
from penstock.storage.parquet import batches, checked, read
from penstock.storage.store import Store


def own_files(manifest: Manifest, query: int, part: Part) -> list[ResultFile]:
    """The files of a single query with rows of that part. They have no times, so these exclude no file."""
    mine = (f for f in part.files(manifest, query) if f.kind in OWN_KINDS and f.count(query))
    return [f for f in mine if f.kind == MERGED or part.includes(f.step)]


def own_tables(store: Store, record: QueryRecord, manifest: Manifest, part: Part) -> Iterator[pa.Table]:
    """The rows of that part."""
    for file in own_files(manifest, record.id, part):
        yield from own_rows(store, checked(store, file), file.kind, record, part)


def own_rows(store: Store, name: str, kind: str, record: QueryRecord, part: Part) -> Iterator[pa.Table]:
    """The rows of that part in one file."""
    merged = kind == MERGED
    for batch in batches(store, name, [*record.item_names, *([STEP] if merged else [])]):
        rows = pa.Table.from_batches([batch])
        if merged:
            kept = part.includes_each(rows.column(STEP).to_numpy())
            rows = rows.filter(pa.array(kept)).drop_columns(STEP)
        yield rows


def with_steps(store: Store, files: Sequence[ResultFile]) -> list[pa.Table]:
    """The rows of such files, each with its step."""
    found = []
    for file in files:
        rows = read(store, checked(store, file))
        if file.kind == OWN:
            rows = rows.append_column(STEP, pa.repeat(pa.scalar(file.step, pa.int64()), len(rows)))
        found.append(rows)
    return found
