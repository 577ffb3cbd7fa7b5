"""Probes of the past: rows that have put off their probes look for partners that came before them (decision 0039).

Before a row are rows of earlier steps, and of its own step those at earlier positions of the join, as by the telescoped
delta rule at the time (decision 0002). So rows must say in which step they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.delta import select
from penstock.kernels.matches import Matches
from penstock.state.buckets import bucket_of
from penstock.state.owed import Owed
from penstock.state.run import Ints, Rows, RunEntry

STEP = "_step"  # the column with the step in which a row came
LONG_AGO = -1  # before all steps with owed probes


def with_steps(shares: Sequence[Rows], entries: Sequence[RunEntry]) -> list[Rows]:
    """The shares of runs with the steps of their rows: in a merged run without them all are long ago."""
    return [_with_step(rows, entry) for rows, entry in zip(shares, entries, strict=True)]


def tell_steps(shares: Sequence[Rows], entries: Sequence[RunEntry], since: int | None) -> list[Rows]:
    """The shares of runs that are merged: with the steps of their rows if some came `since` then, else without."""
    if since is not None:
        told = with_steps(shares, entries)
        if any(bool((steps_of(rows) >= since).any()) for rows in told):
            return told
    return [replace(rows, columns={n: c for n, c in rows.columns.items() if n != STEP}) for rows in shares]


def _with_step(rows: Rows, entry: RunEntry) -> Rows:
    if STEP in rows.columns:
        return rows
    step = pa.array(np.full(len(rows), LONG_AGO if entry.level else entry.step, dtype=np.int32))
    return replace(rows, columns={**rows.columns, STEP: step})


def steps_of(rows: Rows) -> npt.NDArray[np.int32]:
    return np.asarray(rows.columns[STEP].to_numpy(zero_copy_only=False))


def that_owe(rows: Rows, owed: Sequence[Owed], buckets: int) -> Rows:
    """The rows of a table that owe these probes."""
    steps, places = steps_of(rows), bucket_of(rows.key, buckets)
    chosen = np.zeros(len(rows), dtype=np.bool_)
    for own in owed:
        chosen |= (steps >= own.first) & (steps <= own.last) & inside_any([own], buckets)[places]
    return select(rows, chosen)


def inside_any(owed: Sequence[Owed], buckets: int) -> npt.NDArray[np.bool_]:
    """For each bucket whether it is among theirs."""
    found = np.zeros(buckets, dtype=np.bool_)
    for low, high in (ranges for own in owed for ranges in own.buckets):
        found[low:high] = True
    return found


def came_before(matches: Matches, position: int) -> Ints:
    """The matches whose row at this position came before their row at the first one, from which they started."""
    start = matches.positions[0]
    ours, theirs = (matches.column(place, STEP, None).to_numpy(zero_copy_only=False) for place in (start, position))
    return np.flatnonzero(theirs <= ours if position < start else theirs < ours)
