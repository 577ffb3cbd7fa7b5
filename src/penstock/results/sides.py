"""Files of late and invalid rows, which no query sees: many small ones are merged into larger ones.

`columns/verdict.py` decides which rows they are; the step stored them as text, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from msgspec.structs import replace

from penstock.state.side_files import Retained, SideFile, alike_sides
from penstock.storage.parquet import read, write
from penstock.storage.store import Store, file_name


def merge_sides(
    store: Store, sides: Iterable[SideFile], retained: Retained, step: int
) -> list[tuple[SideFile, list[str]]]:
    """Merge small files where there are many: (new file, files it replaces)."""
    return [(_merge(store, group, step), [s.name for s in group]) for group in alike_sides(sides, retained)]


def _merge(store: Store, group: Sequence[SideFile], step: int) -> SideFile:
    merged = pa.concat_tables([read(store, s.name) for s in group])
    name = file_name("sides", step, "parquet")
    size = write(store, name, merged)
    newest = max(s.at for s in group)
    return replace(group[-1], name=name, step=step, rows=len(merged), bytes=size, at=newest)
