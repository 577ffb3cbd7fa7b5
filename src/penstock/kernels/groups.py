"""Progress by group, for consumers that work on columns: window aggregates that close a group early, purge of join state.

What closes a group is remembered in `Progress.closed`; here it is only looked up, for many rows at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model import Range, Stream
from penstock.model.punctuation import Value
from penstock.model.time import FOREVER
from penstock.state.manifest import Progress
from penstock.state.progress import closed_groups
from penstock.state.run import Ints


def group_bounds(stream: Stream, progress: Progress, columns: Mapping[str, pa.Array], rows: int) -> Ints:
    """For each of `rows` groups, given by columns of the stream: no later row of the group has a time below this.

    A punctuation counts for a group only if it names no other columns, since only then every row of the group matches it.
    """
    found = np.full(rows, progress.value, dtype=np.int64)
    for punctuation in closed_groups(stream, progress):
        if any(column not in columns for column, _ in punctuation.patterns):
            continue
        covered = np.ones(rows, dtype=np.bool_)
        for column, pattern in punctuation.patterns:
            covered &= _matching(pattern, columns[column])
        until = FOREVER if punctuation.until is None else punctuation.until
        found[covered] = np.maximum(found[covered], until)
    return found


def _matching(pattern: Value | Range, column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if isinstance(pattern, Range):
        ends = [(pc.greater_equal, pattern.lower), (pc.less, pattern.upper)]
    else:
        ends = [(pc.equal, pattern)]
    truth = pc.is_valid(column)
    for test, end in ends:
        if end is not None:
            truth = pc.and_(truth, pc.fill_null(test(column, pa.scalar(end)), fill_value=False))
    return np.asarray(truth.to_numpy(zero_copy_only=False), dtype=np.bool_)
