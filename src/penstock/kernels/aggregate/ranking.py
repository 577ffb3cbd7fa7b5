"""Windows that count rows or end with rows: ranks in stream order, and the frames over them.

Rows are counted before any predicate, per partition. A rank is final once progress has passed the row's time, since
only then can no earlier row arrive. Of expired rows only the number is stored (`_gone`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.aggregate import frames as framing
from penstock.kernels.aggregate.codes import numbers_of, order_ranks
from penstock.kernels.aggregate.columns import Column
from penstock.kernels.aggregate.entries import Entries, Sorted, group_columns
from penstock.kernels.aggregate.frames import Frames
from penstock.kernels.aggregate.results import Shown, check_built, total_of
from penstock.model.time import FOREVER, NEVER
from penstock.model.windows import PerRow, SlidingRows
from penstock.planner.aggregates import Windowed
from penstock.state.run import Ints


@dataclass(frozen=True)
class Ranks:
    """Rows of a table by their rank in their partition; `order` lists them, partition after partition.

    `starts` bounds the partitions in `order`; `known[p]` rows of partition p have expired.
    """

    partition: Ints
    rank: Ints
    order: Ints
    starts: Ints
    known: Ints

    def before(self, times: Ints, progress: int) -> Ints:
        """How many rows of each partition lie before this time, including expired ones."""
        earlier = np.bincount(self.partition[(times < progress) & (times > NEVER)], minlength=len(self.known))
        return np.asarray(self.known + earlier)


def rank_rows(table: pa.Table, columns: int, codes: Ints | None = None, *, arrival: bool = False) -> Ranks:
    """Ranks per partition, which the last `columns` group columns form; `codes` are the groups of a sorted table.

    By `arrival` the sequence precedes the time: it is the first of the columns that order rows.
    """
    times = table.column("_ts").to_numpy()
    groups = group_columns(table)
    gone = table.column("_gone").to_numpy() if "_gone" in table.column_names else np.zeros(len(times), dtype=np.int64)
    if codes is not None and columns == len(groups) and not arrival:
        numbers, order = codes, np.arange(len(times))
    else:
        numbers = numbers_of(groups[len(groups) - columns :], len(times))
        orders = [table.column(n).combine_chunks() for n in table.column_names if n[0] == "o" and n[1:].isdigit()]
        ranked = order_ranks(orders)
        order = np.lexsort([*reversed(ranked), times, *([ranked[0]] if arrival else []), numbers])
    count = int(numbers.max()) + 1 if len(numbers) else 0
    known = np.bincount(numbers, weights=gone, minlength=count).astype(np.int64)
    order = order[times[order] > NEVER]
    starts = np.searchsorted(numbers[order], np.arange(count + 1))
    rank = np.full(len(times), -1, dtype=np.int64)
    rank[order] = np.arange(len(order)) - starts[numbers[order]] + known[numbers[order]]
    return Ranks(numbers, rank, order, starts, known)


def row_windows(
    query: Windowed, ordered: Sorted, columns: tuple[Column | None, ...], after: int, until: int
) -> tuple[Entries, Frames, Shown]:
    """The frames of a query whose windows are of rows, and the window bounds that they show."""
    assert isinstance(query.window, SlidingRows | PerRow)
    times = ordered.positions
    arrival = isinstance(query.window, PerRow) and query.window.arrival
    ranks = rank_rows(ordered.table, len(query.window.partition), ordered.codes, arrival=arrival)
    serving = ordered.serving(query.selection)
    inside = times > NEVER if serving is None else serving & (times > NEVER)
    index = np.flatnonzero(inside)
    whole = Entries(ordered.starts, times, columns, ordered.table, np.arange(len(times), dtype=np.int64))
    entries = whole.take(index)
    partition = ranks.partition[index[entries.starts[:-1]]]
    if isinstance(query.window, PerRow):
        return (entries, *_per_row(query.window, times, ranks, entries, partition, after, until))
    placed = Entries(entries.starts, ranks.rank[index], entries.columns, entries.table, entries.row_of)
    return (placed, *_sliding_rows(query.window, times, ranks, placed, partition, after, until))


def _per_row(
    window: PerRow, times: Ints, ranks: Ranks, entries: Entries, partition: Ints, after: int, until: int
) -> tuple[Frames, Shown]:
    ending = (times >= after) & (times < until) & ((ranks.rank + 1) % window.rows == 0)
    chosen = ranks.order[ending[ranks.order]]
    if window.arrival:
        chosen = chosen[np.lexsort((times[chosen], ranks.partition[chosen]))]
    bounds = np.searchsorted(ranks.partition[chosen], np.arange(len(ranks.known) + 1))
    ends = times[chosen]
    frames = framing.listed(
        entries.starts, entries.positions, window.range, ends, bounds[partition], bounds[partition + 1]
    )
    counts = frames.windows
    check_built(total_of(counts), "windows of rows")
    single = np.repeat(np.arange(len(frames)), counts)
    number = frames.first[single] + np.arange(len(single)) - np.repeat(np.cumsum(counts) - counts, counts)
    each = Frames(frames.group[single], number, number, frames.low[single], frames.high[single])
    return each, Shown(0, ends[number], starts=ends[number] - window.range, ids=number)


def _sliding_rows(
    window: SlidingRows, times: Ints, ranks: Ranks, entries: Entries, partition: Ints, after: int, until: int
) -> tuple[Frames, Shown]:
    ended = ranks.before(times, until)
    # At the end of the streams the last window is the first that ends at or after the last row, even if not full.
    last = -(-ended // window.slide) if until >= FOREVER else ended // window.slide
    first = ranks.before(times, after) // window.slide
    frames = framing.sliding(
        entries.starts, entries.positions, window.range, window.slide, 0, first[partition], last[partition] - 1
    )
    frames, _ = Shown(1, frames.first).expanded(frames)
    place = partition[frames.group]
    ends = (frames.first + 1) * window.slide
    offset = ranks.starts[place] - ranks.known[place]
    earliest = times[ranks.order[offset + np.maximum(ends - window.range, ranks.known[place])]]
    latest = times[ranks.order[offset + np.minimum(ends, ended[place]) - 1]]
    ids = (frames.first - frames.first.min(initial=0)) * len(ranks.known) + place
    return frames, Shown(0, latest, starts=earliest, ids=ids)


def wanted_rows(window: SlidingRows, table: pa.Table, progress: int) -> npt.NDArray[np.bool_]:
    """Rows in windows that are still open, and all rows whose rank is not final."""
    times = table.column("_ts").to_numpy()
    ranks = rank_rows(table, len(window.partition))
    least = (ranks.before(times, progress) // window.slide + 1) * window.slide - window.range
    return np.asarray((times >= progress) | (ranks.rank >= least[ranks.partition]))


def arrived_since(table: pa.Table, needed: npt.NDArray[np.bool_], columns: int) -> npt.NDArray[np.bool_]:
    """The rows needed and, per partition, all that arrived after one of them: only a prefix of arrivals expires."""
    ranks = rank_rows(table, columns, arrival=True)
    found = needed.copy()
    least = np.full(len(ranks.known), np.iinfo(np.int64).max)
    placed = needed & (ranks.rank >= 0)
    np.minimum.at(least, ranks.partition[placed], ranks.rank[placed])
    found |= (ranks.rank >= 0) & (ranks.rank >= least[ranks.partition])
    return found


def expire_ranked(table: pa.Table, needed: npt.NDArray[np.bool_], columns: int) -> pa.Table:
    """The rows needed, and per partition (the last `columns` group columns) one row with the number of expired ones."""
    times = table.column("_ts").to_numpy()
    needed = needed & (times > NEVER)
    ranks = rank_rows(table, columns)
    gone = table.column("_gone").to_numpy() + ((times > NEVER) & ~needed)
    total = np.bincount(ranks.partition[~needed], weights=gone[~needed], minlength=len(ranks.known)).astype(np.int64)
    first = np.unique(ranks.partition[~needed], return_index=True)
    stands = np.flatnonzero(~needed)[first[1]]  # one row of each partition that had rows expire
    times, gone = times.copy(), np.zeros(len(times), dtype=np.int64)
    times[stands] = NEVER
    gone[stands] = total[first[0]]
    for name, values in (("_ts", times), ("_gone", gone)):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    kept = needed.copy()
    kept[stands] = True
    return table.filter(pa.array(kept))
