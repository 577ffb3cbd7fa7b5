"""State tables by hand: one stream `a` under key `k`, for kernels that need no whole network."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.planner.index import ColumnIndex
from penstock.planner.state_table import Entry, StateTable


def entry(query: int, lives: Sequence[tuple[str, int]] = (("b", 9),), truths: Sequence[str] = ()) -> Entry:
    return Entry(query=query, role=0, join=0, position=0, lives=tuple(lives), truths=tuple(truths))


def state_table(
    entries: Sequence[Entry], columns: Sequence[str] = (), indexes: Sequence[ColumnIndex] = ()
) -> StateTable:
    return StateTable(
        index=0,
        name="a(k)",
        stream="a",
        key=(("k",),),
        key_types=("bigint",),
        guards=("",),
        verify=(),
        entries=tuple(entries),
        columns=tuple(columns),
        indexes=tuple(indexes),
        chain=tuple(sorted({e.life for e in entries})),
    )
